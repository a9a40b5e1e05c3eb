#include "cache/tier/s3_credentials.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "cache/json_fields.hpp"
#include "cache/tier/dates.hpp"
#include "cache/tier/loopback.hpp"
#include "cache/tier/xml.hpp"

namespace nc::tier {
namespace {

constexpr Millis kRefreshBeforeMs = 5 * 60'000;
constexpr Millis kRememberFailureMs = 30'000;
constexpr Millis kRoleTimeoutMs = 1'000;  // the role's services are on this host or next to it
constexpr std::uint64_t kMaxFile = 1 << 20;
constexpr std::uint64_t kMaxAnswer = 64 << 10;
constexpr const char* kContainerHost = "http://169.254.170.2";
constexpr const char* kInstanceHost = "http://169.254.169.254";

std::string_view trimmed(std::string_view text) {
  const auto from = text.find_first_not_of(" \t\r\n");
  if (from == std::string_view::npos) return {};
  return text.substr(from, text.find_last_not_of(" \t\r\n") - from + 1);
}

Error denied(std::string message, std::string action = "") {
  return {Code::kDenied, std::move(message), std::move(action)};
}

// The answer of a role's service; its text is in no message.
Result<AwsKeys> parse_role_keys(std::string_view text) {
  auto object = parse_json_object(text, kMaxAnswer, "the role's credentials");
  if (!object.ok()) return denied("the answer of the role's service is no JSON");
  AwsKeys keys;
  std::string expires;
  const auto status = JsonFields(*object, "the role's credentials")
                          .text("AccessKeyId", keys.id)
                          .text("SecretAccessKey", keys.secret)
                          .text("Token", keys.token, kMaxAnswer)
                          .text("Expiration", expires)
                          .done();
  if (!status.ok() || keys.id.empty() || keys.secret.empty()) {
    return denied("the answer of the role's service has no keys");
  }
  keys.expires_ms = parse_iso_date(expires).value_or(0);
  return keys;
}

}  // namespace

bool read_profile(std::string_view text, std::string_view profile, bool is_config,
                  AwsProfile& out) {
  bool inside = false;
  bool found = false;
  const auto set = [](std::string& field, std::string_view value) {
    if (field.empty()) field = value;
  };
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    const auto raw = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const auto line = trimmed(raw);
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[') {
      auto name = trimmed(line.substr(1, line.find(']') - 1));
      if (is_config && name.starts_with("profile ")) name = trimmed(name.substr(8));
      inside = name == profile;
      found = found || inside;
      continue;
    }
    const auto equals = line.find('=');
    const bool nested = raw.front() == ' ' || raw.front() == '\t';
    if (!inside || nested || equals == std::string_view::npos) continue;
    const auto name = trimmed(line.substr(0, equals));
    auto value = trimmed(line.substr(equals + 1));
    if (const auto comment = value.find(" #"); comment != std::string_view::npos) {
      value = trimmed(value.substr(0, comment));
    }
    if (name == "aws_access_key_id") {
      set(out.key_id, value);
    } else if (name == "aws_secret_access_key") {
      set(out.secret, value);
    } else if (name == "aws_session_token") {
      set(out.token, value);
    } else if (name == "region") {
      set(out.region, value);
    } else if (name == "role_arn" || name == "credential_process" || name == "sso_session" ||
               name == "sso_start_url") {
      set(out.needs, name);
    }
  }
  return found;
}

S3Credentials::S3Credentials(Options options, const EngineDeps& deps,
                             std::shared_ptr<HttpClient> http)
    : options_(std::move(options)), deps_(deps), http_(std::move(http)) {}

Result<AwsKeys> S3Credentials::get() {
  MutexLock lock(mutex_);
  const auto wall = deps_.clock->wall_ms();
  const bool fresh =
      keys_ && (keys_->expires_ms == 0 || keys_->expires_ms - wall > kRefreshBeforeMs);
  if (fresh) return *keys_;
  const bool valid = keys_ && keys_->expires_ms > wall;
  const auto now = deps_.clock->monotonic_ms();
  if (failure_ && now - failed_at_ < kRememberFailureMs) {
    if (valid) return *keys_;
    return *failure_;
  }
  auto keys = look();
  if (keys.ok()) {
    keys_ = *keys;
    failure_.reset();
    return keys;
  }
  failure_ = keys.error();
  failed_at_ = now;
  if (valid) return *keys_;
  return keys;
}

void S3Credentials::refuse(const AwsKeys& keys) {
  MutexLock lock(mutex_);
  if (keys_ && keys_->id == keys.id && keys_->token == keys.token) keys_.reset();
}

Result<AwsKeys> S3Credentials::look() const {
  if (!options_.profile.empty()) {
    NC_ASSIGN(const auto keys, from_profile());
    return *keys;  // a profile that was asked for gives keys or an error
  }
  if (auto keys = from_environment()) return *keys;
  for (const auto source : {&S3Credentials::from_web_identity, &S3Credentials::from_profile,
                            &S3Credentials::from_container, &S3Credentials::from_instance}) {
    NC_ASSIGN(const auto keys, (this->*source)());
    if (keys) return *keys;
  }
  return denied("there are no credentials for S3",
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, add a profile to "
                "~/.aws/credentials, give the host or container a role, or put anonymous=true into "
                "the tier's address");
}

std::string S3Credentials::variable(const std::string& name) const {
  return deps_.environment(name).value_or("");
}

std::optional<AwsKeys> S3Credentials::from_environment() const {
  AwsKeys keys;
  keys.id = variable("AWS_ACCESS_KEY_ID");
  keys.secret = variable("AWS_SECRET_ACCESS_KEY");
  keys.token = variable("AWS_SESSION_TOKEN");
  if (keys.id.empty() || keys.secret.empty()) return std::nullopt;
  return keys;
}

std::string S3Credentials::profile_name() const {
  if (!options_.profile.empty()) return options_.profile;
  const auto chosen = variable("AWS_PROFILE");
  return chosen.empty() ? "default" : chosen;
}

Result<AwsProfile> S3Credentials::profile() const {
  const auto home = variable("HOME");
  const auto path = [&](const char* name, const char* file) {
    const auto chosen = variable(name);
    return chosen.empty() && !home.empty() ? home + file : chosen;
  };
  AwsProfile out;
  bool found = false;
  for (const bool is_config : {false, true}) {
    const auto file = is_config ? path("AWS_CONFIG_FILE", "/.aws/config")
                                : path("AWS_SHARED_CREDENTIALS_FILE", "/.aws/credentials");
    if (file.empty()) continue;
    const auto text = deps_.files->read_all(file, kMaxFile);
    if (text.is(Code::kNotFound)) continue;
    if (!text.ok()) return denied(text.error().message, text.error().action);
    found = read_profile(*text, profile_name(), is_config, out) || found;
  }
  if (!found) {
    return Error{Code::kNotFound, fmt::format("there is no AWS profile '{}'", profile_name()), ""};
  }
  return out;
}

std::string S3Credentials::profile_region() const {
  const auto found = profile();
  return found.ok() ? found->region : "";
}

Result<std::optional<AwsKeys>> S3Credentials::from_profile() const {
  const bool chosen = !options_.profile.empty() || !variable("AWS_PROFILE").empty();
  auto found = profile();
  if (!found.ok()) {
    if (found.is(Code::kNotFound) && !chosen) return std::optional<AwsKeys>();
    return denied(found.error().message, "check AWS_PROFILE and the files in ~/.aws");
  }
  if (found->key_id.empty() || found->secret.empty()) {
    if (found->needs.empty() && !chosen) return std::optional<AwsKeys>();
    return denied(fmt::format("the AWS profile '{}' has no keys{}{}", profile_name(),
                              found->needs.empty() ? "" : "; it needs ", found->needs),
                  "export keys of the session, such as with `aws configure export-credentials`");
  }
  AwsKeys keys;
  keys.id = found->key_id;
  keys.secret = found->secret;
  keys.token = found->token;
  return std::optional(keys);
}

Result<std::string> S3Credentials::ask(const std::string& method, const std::string& url,
                                       std::vector<HttpHeader> headers, std::string_view body,
                                       bool use_proxy) const {
  HttpRequest request;
  request.method = method;
  request.url = url;
  request.headers = std::move(headers);
  request.bytes = as_bytes(body);
  request.timeout_ms = use_proxy ? 5 * kRoleTimeoutMs : kRoleTimeoutMs;
  request.body_limit = kMaxAnswer;
  request.use_proxy = use_proxy;
  NC_ASSIGN(auto response, http_->send(request));
  if (!response.head.success()) {
    return denied(fmt::format("{}: status {}", request.shown(), response.head.status));
  }
  return std::move(response.body);
}

Result<std::optional<AwsKeys>> S3Credentials::from_web_identity() const {
  const auto file = variable("AWS_WEB_IDENTITY_TOKEN_FILE");
  const auto role = variable("AWS_ROLE_ARN");
  if (file.empty() || role.empty()) return std::optional<AwsKeys>();
  const auto token = deps_.files->read_all(file, kMaxAnswer);
  if (!token.ok()) return denied(token.error().message, token.error().action);
  auto session = variable("AWS_ROLE_SESSION_NAME");
  if (session.empty()) session = "neuroncache";
  const auto chosen = variable("AWS_ENDPOINT_URL_STS");
  const auto host = !chosen.empty()           ? chosen
                    : options_.region.empty() ? std::string("https://sts.amazonaws.com")
                    : options_.region.starts_with("cn-")
                        ? fmt::format("https://sts.{}.amazonaws.com.cn", options_.region)
                        : fmt::format("https://sts.{}.amazonaws.com", options_.region);
  const auto form = canonical_query({{"Action", "AssumeRoleWithWebIdentity"},
                                     {"Version", "2011-06-15"},
                                     {"RoleArn", role},
                                     {"RoleSessionName", session},
                                     {"WebIdentityToken", std::string(trimmed(*token))}});
  NC_ASSIGN(
      const auto body,
      ask("POST", host + "/", {{"content-type", "application/x-www-form-urlencoded"}}, form, true));
  const auto root = parse_xml(body);
  const XmlNode* result = root.ok() ? root->child("AssumeRoleWithWebIdentityResult") : nullptr;
  const XmlNode* found = result == nullptr ? nullptr : result->child("Credentials");
  if (found == nullptr) return denied("the token service's answer has no credentials");
  AwsKeys keys;
  keys.id = found->child_text("AccessKeyId");
  keys.secret = found->child_text("SecretAccessKey");
  keys.token = found->child_text("SessionToken");
  keys.expires_ms = parse_iso_date(found->child_text("Expiration")).value_or(0);
  if (keys.id.empty() || keys.secret.empty()) {
    return denied("the token service's answer has no keys");
  }
  return std::optional(keys);
}

Result<std::optional<AwsKeys>> S3Credentials::from_container() const {
  const auto relative = variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  const auto full = variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
  if (relative.empty() && full.empty()) return std::optional<AwsKeys>();
  const auto url = relative.empty() ? full : kContainerHost + relative;
  // The answer is a secret and the question may carry one: in the clear only to this host and to
  // the addresses that AWS reserves for it.
  const auto host = host_of_url(url);
  const bool near = is_loopback(host) || host == "169.254.170.2" || host == "169.254.170.23" ||
                    host == "fd00:ec2::23";
  if (!url.starts_with("https://") && !(url.starts_with("http://") && near)) {
    return denied("AWS_CONTAINER_CREDENTIALS_FULL_URI names another host without TLS",
                  "use https, or an address of the container's own host");
  }
  std::vector<HttpHeader> headers;
  auto token = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
  if (const auto file = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"); !file.empty()) {
    const auto text = deps_.files->read_all(file, kMaxAnswer);
    if (!text.ok()) return denied(text.error().message, text.error().action);
    token = trimmed(*text);
  }
  if (token.find_first_of("\r\n") != std::string::npos) {
    return denied("the container's authorization token has more than one line");
  }
  if (!token.empty()) headers.push_back({"authorization", token});
  NC_ASSIGN(const auto body, ask("GET", url, std::move(headers), "", false));
  NC_ASSIGN(auto keys, parse_role_keys(body));
  return std::optional(std::move(keys));
}

Result<std::optional<AwsKeys>> S3Credentials::from_instance() const {
  if (variable("AWS_EC2_METADATA_DISABLED") == "true") return std::optional<AwsKeys>();
  auto host = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  if (host.empty()) host = kInstanceHost;
  while (host.ends_with('/')) host.pop_back();
  const auto token = ask("PUT", host + "/latest/api/token",
                         {{"x-aws-ec2-metadata-token-ttl-seconds", "21600"}}, "", false);
  if (!token.ok()) return std::optional<AwsKeys>();  // this is no such instance
  const std::vector<HttpHeader> headers = {
      {"x-aws-ec2-metadata-token", std::string(trimmed(*token))}};
  const auto folder = host + "/latest/meta-data/iam/security-credentials/";
  const auto role = ask("GET", folder, headers, "", false);
  if (!role.ok()) return std::optional<AwsKeys>();  // it has no role
  const auto name = trimmed(std::string_view(*role).substr(0, role->find('\n')));
  if (name.empty() || name.find('/') != std::string_view::npos) return std::optional<AwsKeys>();
  NC_ASSIGN(const auto body, ask("GET", folder + std::string(name), headers, "", false));
  NC_ASSIGN(auto keys, parse_role_keys(body));
  return std::optional(std::move(keys));
}

}  // namespace nc::tier
