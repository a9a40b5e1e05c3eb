// The manifest: the immutable record action key -> outputs, and the one commit point of an
// artifact. JSON on the wire and in the index (inside an Envelope of kind kManifest); grammar and
// limits in docs/formats.md.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "base/hash.hpp"
#include "base/result.hpp"

namespace nc {

struct Output {
  std::string name;  // unique in the manifest; no '/', not empty, <= 255 bytes
  Digest digest;
  std::uint64_t size = 0;     // of the raw bytes
  std::uint32_t mode = 0644;  // permission bits a caller expects
  bool operator==(const Output&) const = default;
};

struct Producer {
  std::string host;
  std::int64_t pid = 0;
  std::string program;
  std::string version;  // of neuroncache
  bool operator==(const Producer&) const = default;
};

struct Manifest {
  static constexpr std::uint64_t kMaxBytes = 1 << 20;
  static constexpr std::size_t kMaxOutputs = 256;

  ActionKey key;
  std::string kind;                    // "graph", "aot", "neff", ...: [a-z0-9_-]{1,32}
  std::string name_space = "default";  // [A-Za-z0-9._-]{1,64}
  std::string label;                   // for people
  std::string model;
  std::string compiler;  // "inductor 2.13.0"; what prune --compiler matches
  Millis created_ms = 0;
  std::uint64_t build_ms = 0;
  std::uint64_t peak_rss_bytes = 0;
  Producer producer;
  KeyParts parts;  // hash to `key`
  std::vector<Output> outputs;
  std::map<std::string, std::string> meta;  // the front end's own
  std::string signature;  // JSON text of the signature object, or empty; checked for shared tiers

  // Checks every limit and that parts hash to key (kKeyMismatch). Unknown fields are ignored.
  static Result<Manifest> parse(std::string_view json);
  std::string to_json() const;  // canonical: fixed field order, no spaces
  std::uint64_t bytes() const;  // sum of the outputs' sizes
};

// Why a build failed. Only the first two are remembered (see remembered()).
enum class FailureClass {
  kDeterministic,
  kUncacheable,
  kOutOfMemory,
  kKilled,
  kTimeout,
  kDiskFull,
  kEnvironment,
  kCancelled
};
std::string_view failure_class_name(FailureClass c);
Result<FailureClass> parse_failure_class(std::string_view name);
inline bool remembered(FailureClass c) {
  return c == FailureClass::kDeterministic || c == FailureClass::kUncacheable;
}

struct Failure {
  ActionKey key;
  FailureClass failure_class = FailureClass::kDeterministic;
  std::string name_space = "default";
  std::string label, compiler, model, kind;
  std::string message;  // first line
  std::string log;      // whole, <= 1 MiB (middle cut out beyond)
  std::int64_t exit_code = 0;
  Millis created_ms = 0;
  Millis expires_ms = 0;
  KeyParts parts;

  static Result<Failure> parse(std::string_view json);
  std::string to_json() const;
};

}  // namespace nc
