// Binary records of the index; little endian, the first byte is the version, the last four a
// checksum. Grammar: docs/formats.md. Decoders never trust a length; nullopt means damaged (or
// newer), and the caller rebuilds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "base/hash.hpp"
#include "cache/manifest.hpp"

namespace nc {

// Blobs of this size and more are files of their own, smaller ones lie in the index.
inline constexpr std::uint64_t kFileBlobSize = 64 << 10;
// Larger ones are never compressed: they stay mappable, and nothing needs them whole in memory.
inline constexpr std::uint64_t kMaxCompressedBlob = 32 << 20;

// Keys. In `entries` the access record follows its entry; rings are numbered upwards.
std::string access_key(const ActionKey& key);
std::string ring_key(char ring, std::uint64_t number);
std::optional<std::uint64_t> ring_number(char ring, std::string_view key);
std::optional<Sha256> sha256_of_raw(std::string_view raw);  // 32 bytes

struct BlobRecord {
  std::uint64_t size = 0;    // raw
  std::uint64_t stored = 0;  // bytes of the file, or of `bytes`
  Xxh128 check;              // of the raw bytes
  bool file = false;
  bool compressed = false;  // file: an envelope in <digest>.zst; else `bytes` is an envelope
  Millis created_ms = 0;
  std::string bytes;  // when !file

  std::string encode() const;
  static std::optional<BlobRecord> decode(std::string_view text);
};

struct EntryBlob {
  Digest digest;
  std::uint64_t size = 0;
  std::uint64_t disk_bytes = 0;
  bool file = false;
  bool compressed = false;
};

// What is known of an entry without its manifest. Never changes once written.
struct EntryRecord {
  bool failed = false;
  std::string kind, name_space, label, model, compiler;
  std::uint64_t build_ms = 0;
  Millis created_ms = 0;
  Millis expires_ms = 0;             // of a failure
  std::uint64_t manifest_bytes = 0;  // as stored
  std::vector<EntryBlob> blobs;      // distinct

  std::uint64_t bytes() const;  // raw bytes of the blobs
  std::string encode() const;
  static std::optional<EntryRecord> decode(std::string_view text);
};

// What changes with use.
struct AccessRecord {
  std::uint64_t uses = 0;
  Millis used_ms = 0;
  double age = 0;  // of the namespace at the last use, see eviction.hpp
  bool pinned = false;

  std::string encode() const;
  static std::optional<AccessRecord> decode(std::string_view text);
};

}  // namespace nc
