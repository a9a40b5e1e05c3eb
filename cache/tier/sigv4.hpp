// AWS Signature Version 4: proves a request to S3 (and what speaks like it) by headers. Pure: time
// and keys come in, headers come out.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "cache/tier/http_client.hpp"

namespace nc::tier {

inline constexpr std::string_view kUnsignedPayload = "UNSIGNED-PAYLOAD";
inline constexpr std::string_view kEmptyPayload =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

struct AwsKeys {  // all secret but the id
  std::string id;
  std::string secret;
  std::string token;      // of a session; may be empty
  Millis expires_ms = 0;  // wall time; 0: they do not
};

struct SigningScope {
  std::string region;
  std::string service;
  Millis wall_ms = 0;
};

using QueryFields = std::vector<std::pair<std::string, std::string>>;  // decoded

struct SigningInput {
  std::string method;
  std::string path;  // as it is sent: encoded
  QueryFields query;
  std::vector<HttpHeader> headers;  // all that are signed, `host` among them
  std::string payload_hash;         // hex, or kUnsignedPayload
};

// Sorted and encoded; it has to be sent like this.
std::string canonical_query(QueryFields query);
std::string canonical_request(const SigningInput& input);
// Adds x-amz-date, x-amz-security-token (for session keys) and authorization to the headers.
void sign(SigningInput& input, const AwsKeys& keys, const SigningScope& scope);

std::string hmac_sha256(std::string_view key, std::string_view text);  // 32 raw bytes
std::string amz_date(Millis wall_ms);                                  // 20130524T000000Z

}  // namespace nc::tier
