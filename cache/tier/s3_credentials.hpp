// Where the keys for S3 come from, in AWS's order: the environment, a web identity (EKS service
// accounts), the profile files ~/.aws/credentials and ~/.aws/config, the container's role (ECS, EKS
// pod identity), the instance's role (IMDSv2). Keys that expire are fetched anew in time. No key is
// in any message.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/thread_annotations.hpp"
#include "cache/tier/http_client.hpp"
#include "cache/tier/open_engine.hpp"
#include "cache/tier/sigv4.hpp"

namespace nc::tier {

// A section of the profile files: the values of both, those of `credentials` first.
struct AwsProfile {
  std::string key_id;
  std::string secret;
  std::string token;
  std::string region;
  std::string needs;  // a way to get keys that is not supported, by its setting's name
};
// `text`: a profile file. Adds what is absent in `out`; false: there is no such profile in it.
bool read_profile(std::string_view text, std::string_view profile, bool is_config, AwsProfile& out);

class S3Credentials {
 public:
  struct Options {
    std::string profile;  // "": AWS_PROFILE, then "default"; given: nothing but this profile
    std::string region;   // of the token service; "": global
  };
  S3Credentials(Options options, const EngineDeps& deps, std::shared_ptr<HttpClient> http);

  // Keys that are valid for some minutes. kDenied tells where was looked; the same answer is given
  // for half a minute without looking again.
  Result<AwsKeys> get() NC_EXCLUDES(mutex_);
  // The service says that these have expired: the next get() fetches others.
  void refuse(const AwsKeys& keys) NC_EXCLUDES(mutex_);
  // Of the profile; "": it names none.
  std::string profile_region() const;

 private:
  Result<AwsKeys> look() const;
  std::optional<AwsKeys> from_environment() const;
  Result<std::optional<AwsKeys>> from_web_identity() const;
  Result<std::optional<AwsKeys>> from_profile() const;
  Result<std::optional<AwsKeys>> from_container() const;
  Result<std::optional<AwsKeys>> from_instance() const;
  Result<AwsProfile> profile() const;
  std::string profile_name() const;
  std::string variable(const std::string& name) const;
  Result<std::string> ask(const std::string& method, const std::string& url,
                          std::vector<HttpHeader> headers, std::string_view body,
                          bool use_proxy) const;

  const Options options_;
  const EngineDeps& deps_;
  const std::shared_ptr<HttpClient> http_;
  Mutex mutex_;
  std::optional<AwsKeys> keys_ NC_GUARDED_BY(mutex_);
  std::optional<Error> failure_ NC_GUARDED_BY(mutex_);
  Millis failed_at_ NC_GUARDED_BY(mutex_) = 0;
};

}  // namespace nc::tier
