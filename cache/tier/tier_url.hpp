// The address of a shared tier as the setting `tiers` gives it. Grammar and options: docs/tiers.md.
//
//   s3://bucket/prefix?region=..   file:///directory   redis://host:6379/0   rediss://..
//   http://host/path               https://..
//
// A text is accepted whole or not at all: a misspelt option is an error that names the right one,
// never an option that does nothing. Credentials may stand in redis and http addresses, and are in
// no text made from one.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "base/result.hpp"

namespace nc::tier {

struct TierAddress {
  enum class Scheme { kS3, kFile, kRedis, kHttp };

  Scheme scheme = Scheme::kFile;
  bool tls = false;        // rediss, https
  std::string host;        // lower case, without brackets; s3: the bucket; file: ""
  std::uint16_t port = 0;  // 0: the usual one
  std::string user;        // decoded; secret
  std::string password;    // decoded; secret
  std::string path;        // decoded: s3: prefix without slashes around it; file: the directory;
                           // redis: number of the database or ""; http: "" or "/path"
  std::map<std::string, std::string> options;  // the engine's own, decoded

  // Options of every tier.
  bool read_only = false;
  bool write_only = false;
  bool compress = true;         // blobs go out as zstd where that pays
  int priority = 100;           // tiers are asked from the smallest to the largest
  Millis timeout_ms = 5'000;    // without any progress
  std::uint64_t max_bytes = 0;  // budget of what the tier holds; 0: none

  bool any_names = false;  // no option: what others keep is read, whatever its names (S3)

  std::string shown;  // for people and logs: no credentials, no options

  // The option or `otherwise`.
  std::string option(const std::string& name, std::string_view otherwise = "") const;
  bool flag(const std::string& name, bool otherwise) const;  // of options that are true|false
};

// kInvalid; its message shows no credentials.
Result<TierAddress> parse_tier_url(std::string_view text);

// %XX decoded; kInvalid for a broken escape or a zero byte.
Result<std::string> percent_decode(std::string_view text);
// All bytes but unreserved ones ([A-Za-z0-9-._~]) and those of `keep` as %XX.
std::string percent_encode(std::string_view text, std::string_view keep = "");

}  // namespace nc::tier
