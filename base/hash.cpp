#include "base/hash.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>
// The plain functions: the others first bring up the whole library and read its settings file,
// which takes a program longer than all that it hashes.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

// Inlined: the compiler then uses the widest vectors that the build allows, and short inputs cost
// no call.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace nc {
namespace {

constexpr std::string_view kActionTag{"neuroncache-action-v1\0", 22};

// SHA-256 of memory fails only when OpenSSL is broken or memory is out; no caller could go on.
void require(int ok) {
  if (ok != 1) std::abort();
}

}  // namespace

std::optional<Sha256> Sha256::from_hex(std::string_view hex) {
  if (!is_hex(hex, 64)) return std::nullopt;
  const auto bytes = nc::from_hex(hex);
  Sha256 value;
  std::memcpy(value.raw.data(), bytes->data(), value.raw.size());
  return value;
}

Sha256 Sha256::of(Bytes bytes) {
  Sha256 value;
  SHA256_CTX context;
  require(SHA256_Init(&context));
  require(SHA256_Update(&context, bytes.data(), bytes.size()));
  require(SHA256_Final(reinterpret_cast<unsigned char*>(value.raw.data()), &context));
  return value;
}

std::string Sha256::hex() const {
  return to_hex(raw);
}

struct Sha256Hasher::Impl {
  SHA256_CTX context;
  Impl() { require(SHA256_Init(&context)); }
};

Sha256Hasher::Sha256Hasher() : impl_(std::make_unique<Impl>()) {}
Sha256Hasher::~Sha256Hasher() = default;
Sha256Hasher::Sha256Hasher(Sha256Hasher&&) noexcept = default;
Sha256Hasher& Sha256Hasher::operator=(Sha256Hasher&&) noexcept = default;

void Sha256Hasher::update(Bytes bytes) {
  require(SHA256_Update(&impl_->context, bytes.data(), bytes.size()));
}

Sha256 Sha256Hasher::finish() {
  Sha256 value;
  require(SHA256_Final(reinterpret_cast<unsigned char*>(value.raw.data()), &impl_->context));
  return value;
}

Xxh128 xxh128(Bytes bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

struct Xxh128Hasher::Impl {
  XXH3_state_t state;
  Impl() { XXH3_128bits_reset(&state); }
};

Xxh128Hasher::Xxh128Hasher() : impl_(std::make_unique<Impl>()) {}
Xxh128Hasher::~Xxh128Hasher() = default;
Xxh128Hasher::Xxh128Hasher(Xxh128Hasher&&) noexcept = default;
Xxh128Hasher& Xxh128Hasher::operator=(Xxh128Hasher&&) noexcept = default;

void Xxh128Hasher::update(Bytes bytes) {
  if (!bytes.empty()) XXH3_128bits_update(&impl_->state, bytes.data(), bytes.size());
}

Xxh128 Xxh128Hasher::finish() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&impl_->state);
  return {hash.low64, hash.high64};
}

Result<ActionKey> action_key(const KeyParts& parts) {
  std::vector<const KeyParts::value_type*> sorted;
  sorted.reserve(parts.size());
  for (const auto& part : parts) sorted.push_back(&part);
  std::ranges::sort(sorted, {}, [](const auto* part) -> std::string_view { return part->first; });
  Sha256Hasher hasher;
  hasher.update(as_bytes(kActionTag));
  const std::string* previous = nullptr;
  std::string lengths;
  for (const auto* part : sorted) {
    const auto& [name, value] = *part;
    if (name.empty()) return Error{Code::kInvalid, "a key part has an empty name", ""};
    if (name.size() > UINT32_MAX)
      return Error{Code::kInvalid, "the name of a key part is too long", ""};
    if (previous != nullptr && *previous == name) {
      return Error{Code::kInvalid, fmt::format("the key part \"{}\" is given twice", name), ""};
    }
    previous = &name;
    lengths.clear();
    put_u32(lengths, static_cast<std::uint32_t>(name.size()));
    hasher.update(as_bytes(lengths));
    hasher.update(as_bytes(name));
    lengths.clear();
    put_u64(lengths, value.size());
    hasher.update(as_bytes(lengths));
    hasher.update(as_bytes(value));
  }
  return hasher.finish();
}

}  // namespace nc
