// SHA-256 for names and trust, XXH3-128 for catching damage on local reads, and the tagged hash
// that keys are made of.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.hpp"

namespace nc {

// A SHA-256 value: names a blob (digest) or an action (key).
struct Sha256 {
  std::array<std::byte, 32> raw{};

  static std::optional<Sha256> from_hex(std::string_view hex);  // 64 lower-case digits
  static Sha256 of(Bytes bytes);
  std::string hex() const;
  std::string_view view() const { return as_text(raw); }  // 32 raw bytes, as a RocksDB key
  auto operator<=>(const Sha256&) const = default;
};
using Digest = Sha256;
using ActionKey = Sha256;

struct Sha256Hash {
  std::size_t operator()(const Sha256& v) const { return get_u64(v.raw.data()); }
};

// Streaming SHA-256.
class Sha256Hasher {
 public:
  Sha256Hasher();
  ~Sha256Hasher();
  Sha256Hasher(Sha256Hasher&&) noexcept;
  Sha256Hasher& operator=(Sha256Hasher&&) noexcept;
  void update(Bytes bytes);
  Sha256 finish();  // call once

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct Xxh128 {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  auto operator<=>(const Xxh128&) const = default;
};
Xxh128 xxh128(Bytes bytes);

class Xxh128Hasher {  // streaming
 public:
  Xxh128Hasher();
  ~Xxh128Hasher();
  Xxh128Hasher(Xxh128Hasher&&) noexcept;
  Xxh128Hasher& operator=(Xxh128Hasher&&) noexcept;
  void update(Bytes bytes);
  Xxh128 finish() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The named parts of an action, and the key they make. Names are unique; lengths are hashed before
// contents, so that no two different lists give the same bytes. Grammar in docs/protocol.md ("Words
// and encodings").
using KeyParts = std::vector<std::pair<std::string, std::string>>;
Result<ActionKey> action_key(const KeyParts& parts);  // kInvalid: a name twice, or an empty name

}  // namespace nc
