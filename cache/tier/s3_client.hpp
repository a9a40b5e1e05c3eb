// Signed requests to one bucket: where it is, who we are, and the two failures that are mended on
// the spot (a clock that is off, keys that ran out). Knows nothing of objects' meaning.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "cache/tier/http_client.hpp"
#include "cache/tier/open_engine.hpp"
#include "cache/tier/s3_credentials.hpp"
#include "cache/tier/sigv4.hpp"

namespace nc::tier {

// Where requests of a bucket go.
struct S3Place {
  bool tls = true;
  std::string host;  // with the port where it is not the usual one
  std::string base;  // of paths: "" or "/bucket"; encoded
  std::string region;
  bool aws = true;  // Amazon's own
};
// kInvalid for an endpoint that is none.
Result<S3Place> s3_place(const TierAddress& address, const std::string& region,
                         const std::string& endpoint);

struct S3Call {
  std::string method = "GET";
  std::string key;  // "": the bucket
  QueryFields query{};
  std::vector<HttpHeader> headers{};
  Bytes bytes{};
  Source* source = nullptr;
  std::uint64_t source_offset = 0;
  std::uint64_t source_size = 0;
  std::string payload_hash{kEmptyPayload};
  std::uint64_t body_limit = 64 << 10;
  std::function<Status(const HttpHead&)> on_head{};
  Sink sink{};
  std::vector<int> accept{};  // statuses that are answers though they are failures
};

class S3Client {
 public:
  // `credentials` may be null: requests are not signed.
  S3Client(S3Place place, const TierAddress& address, const EngineDeps& deps,
           std::shared_ptr<HttpClient> http, std::unique_ptr<S3Credentials> credentials);

  // One request, sent again at most once for each of the two failures.
  Result<HttpResponse> send(const S3Call& call);
  const S3Place& place() const { return place_; }

 private:
  HttpRequest build(const S3Call& call, const AwsKeys* keys) const;

  const S3Place place_;
  const Millis timeout_ms_;
  const std::string ca_file_;
  const std::string shown_;
  const EngineDeps& deps_;
  const std::shared_ptr<HttpClient> http_;
  const std::unique_ptr<S3Credentials> credentials_;
  std::atomic<Millis> clock_offset_ms_ = 0;  // the service's clock minus ours
};

}  // namespace nc::tier
