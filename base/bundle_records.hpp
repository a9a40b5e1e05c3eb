// Private to base: the payloads of an export file's records (docs/formats.md), and the set of what
// is in a file already.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/bundle.hpp"

namespace nc::bundle {

inline constexpr std::string_view kTag = "neuroncache-export";
inline constexpr std::size_t kMaxHeaderText = 255;
inline constexpr std::uint64_t kMaxHeader = 1024;
inline constexpr std::uint64_t kMaxList = 32 + 4 + 40 * BundleLimits::kMaxBlobs;
inline constexpr std::size_t kChunkHead = 32 + 8 + 8;
inline constexpr std::uint64_t kMaxChunkRecord = kChunkHead + BundleLimits::kChunk;

struct List {
  ActionKey key;
  std::vector<BundleBlob> blobs;
};
struct ChunkHead {
  BundleBlob blob;
  std::uint64_t offset = 0;
};
struct Trailer {
  BundleTotals totals;
  Sha256 sum;
};

std::string encode(const BundleHeader& header);
std::string encode(const List& list);
std::string encode(const ChunkHead& head);
std::string encode(const Trailer& trailer);

// kCorrupt names what is wrong; kUnsupported for a header of a newer format.
Result<BundleHeader> decode_header(Bytes payload);
Result<List> decode_list(Bytes payload);
Result<ChunkHead> decode_chunk(Bytes payload);  // of its head; the data follow
Result<Trailer> decode_trailer(Bytes payload);

// The file's sum is a chain over the sums of its sections (the header, then each entry):
//   sum(0) = 32 zero bytes, sum(n) = SHA-256(sum(n-1) SHA-256(section n))
// so that an entry can be taken back or cut off without reading what is before it.
class Sections {
 public:
  void bytes(Bytes bytes) { section_.update(bytes); }
  void commit();
  void drop() { section_ = Sha256Hasher(); }
  const Sha256& sum() const { return sum_; }

 private:
  Sha256Hasher section_;
  Sha256 sum_;
};

// Which entries and blobs the committed part of a file holds.
struct Contents {
  std::unordered_set<ActionKey, Sha256Hash> keys;
  std::unordered_map<Digest, std::uint64_t, Sha256Hash> blobs;  // with their sizes
  BundleTotals totals;

  void commit(const List& list);
};

// What a reader has found good, for a writer that goes on after it.
struct Progress {
  Sections sections;
  Contents contents;
  std::uint64_t good = 0;
};
struct Access {
  static Progress take(BundleReader& reader);  // which cannot be used after this
};

}  // namespace nc::bundle
