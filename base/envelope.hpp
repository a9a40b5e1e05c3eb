// The envelope: how a record of ours lies in a file, in the index and in an export, so that damage
// is found before parsing.
//
//   envelope  = magic version kind encoding zero raw_size stored_size payload checksum
//   magic     = "NCE1"                      4 bytes
//   version   = 1                           u8
//   kind      = manifest | blob | failure | header | ...     u8, see Kind; frozen values
//   encoding  = raw (0) | zstd (1)          u8
//   zero      = 0                           u8
//   raw_size  = bytes after decoding        u64 little endian
//   stored_size = bytes of payload          u64 little endian
//   payload   = stored_size bytes
//   checksum  = XXH3-128 of everything before it, low then high, u64 little endian each
//
// Sizes are checked against the bytes at hand and against the caller's limit before anything is
// allocated; decompression stops at raw_size (a bomb is kCorrupt).
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace nc {

struct Envelope {
  enum class Kind : std::uint8_t {
    kManifest = 1,
    kBlob = 2,
    kFailure = 3,
    kHeader = 4,
    kEntry = 5,
    kTrailer = 6
  };
  enum class Encoding : std::uint8_t { kRaw = 0, kZstd = 1 };
  static constexpr std::size_t kHeaderSize = 24;
  static constexpr std::size_t kOverhead = kHeaderSize + 16;

  Kind kind = Kind::kBlob;
  std::string payload;  // decoded

  // Wraps; zstd is used when asked for and it saves at least 1/8.
  static std::string seal(Kind kind, Bytes payload, bool compress);
  // Unwraps exactly one envelope that fills `bytes`. kCorrupt names what is wrong; kTooLarge when
  // raw_size > limit; kUnsupported for a newer version.
  static Result<Envelope> unseal(Bytes bytes, std::uint64_t limit);
  // Size of the envelope that starts at `head` (>= kHeaderSize bytes), for reading a stream of
  // them.
  static Result<std::uint64_t> sealed_size(Bytes head, std::uint64_t limit);
};

}  // namespace nc
