#include "base/bundle_records.hpp"

#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>

namespace nc::bundle {
namespace {

// Takes fields off the front of a payload; everything is checked against the bytes that are there.
class Cursor {
 public:
  explicit Cursor(Bytes bytes) : bytes_(bytes) {}

  bool u32(std::uint32_t& out) {
    Bytes raw;
    if (!take(4, raw)) return false;
    out = get_u32(raw.data());
    return true;
  }
  bool u64(std::uint64_t& out) {
    Bytes raw;
    if (!take(8, raw)) return false;
    out = get_u64(raw.data());
    return true;
  }
  bool sha(Sha256& out) {
    Bytes raw;
    if (!take(32, raw)) return false;
    std::copy(raw.begin(), raw.end(), out.raw.begin());
    return true;
  }
  bool text(std::string& out) {
    std::uint32_t size = 0;
    Bytes raw;
    if (!u32(size) || size > kMaxHeaderText || !take(size, raw)) return false;
    out.assign(as_text(raw));
    return true;
  }
  bool tag(std::string_view expected) {
    Bytes raw;
    return take(expected.size(), raw) && as_text(raw) == expected;
  }
  bool at_end() const { return bytes_.empty(); }

 private:
  bool take(std::size_t size, Bytes& out) {
    if (bytes_.size() < size) return false;
    out = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return true;
  }

  Bytes bytes_;
};

void put_text(std::string& out, std::string_view text) {
  text = text.substr(0, kMaxHeaderText);
  put_u32(out, static_cast<std::uint32_t>(text.size()));
  out.append(text);
}

Error damaged(std::string_view what) {
  return {Code::kCorrupt, fmt::format("the {} does not have its form", what), ""};
}

}  // namespace

std::string encode(const BundleHeader& header) {
  std::string out(kTag);
  put_u32(out, BundleHeader::kVersion);
  put_u64(out, static_cast<std::uint64_t>(header.created_ms));
  put_u64(out, header.entries_guess);
  put_u64(out, header.bytes_guess);
  put_text(out, header.creator);
  put_text(out, header.host);
  return out;
}

std::string encode(const List& list) {
  std::string out(list.key.view());
  put_u32(out, static_cast<std::uint32_t>(list.blobs.size()));
  for (const BundleBlob& blob : list.blobs) {
    out.append(blob.digest.view());
    put_u64(out, blob.size);
  }
  return out;
}

std::string encode(const ChunkHead& head) {
  std::string out(head.blob.digest.view());
  put_u64(out, head.blob.size);
  put_u64(out, head.offset);
  return out;
}

std::string encode(const Trailer& trailer) {
  std::string out;
  put_u64(out, trailer.totals.entries);
  put_u64(out, trailer.totals.blobs);
  put_u64(out, trailer.totals.bytes);
  out.append(trailer.sum.view());
  return out;
}

Result<BundleHeader> decode_header(Bytes payload) {
  Cursor cursor(payload);
  std::uint32_t version = 0;
  if (!cursor.tag(kTag) || !cursor.u32(version)) {
    return Error{Code::kCorrupt, "not an export file of neuroncache", ""};
  }
  if (version > BundleHeader::kVersion) {
    return Error{Code::kUnsupported,
                 fmt::format("export format {} is newer than {}", version, BundleHeader::kVersion),
                 "use a newer neuroncache"};
  }
  BundleHeader header;
  std::uint64_t created = 0;
  if (version == 0 || !cursor.u64(created) || !cursor.u64(header.entries_guess) ||
      !cursor.u64(header.bytes_guess) || !cursor.text(header.creator) ||
      !cursor.text(header.host) || !cursor.at_end()) {
    return damaged("header");
  }
  header.created_ms = static_cast<Millis>(created);
  return header;
}

Result<List> decode_list(Bytes payload) {
  Cursor cursor(payload);
  List list;
  std::uint32_t count = 0;
  if (!cursor.sha(list.key) || !cursor.u32(count)) return damaged("list of an entry");
  // The limit comes before the reservation; the bytes must fill the list exactly.
  if (count > BundleLimits::kMaxBlobs || payload.size() != 36 + 40 * std::size_t{count}) {
    return damaged("list of an entry");
  }
  std::set<Digest> seen;
  list.blobs.resize(count);
  for (BundleBlob& blob : list.blobs) {
    if (!cursor.sha(blob.digest) || !cursor.u64(blob.size)) return damaged("list of an entry");
    if (!seen.insert(blob.digest).second) {
      return Error{Code::kCorrupt, "the list of an entry names a blob twice", ""};
    }
  }
  return list;
}

Result<ChunkHead> decode_chunk(Bytes payload) {
  Cursor cursor(payload);
  ChunkHead head;
  if (!cursor.sha(head.blob.digest) || !cursor.u64(head.blob.size) || !cursor.u64(head.offset)) {
    return damaged("head of a blob's chunk");
  }
  return head;
}

Result<Trailer> decode_trailer(Bytes payload) {
  Cursor cursor(payload);
  Trailer trailer;
  if (!cursor.u64(trailer.totals.entries) || !cursor.u64(trailer.totals.blobs) ||
      !cursor.u64(trailer.totals.bytes) || !cursor.sha(trailer.sum) || !cursor.at_end()) {
    return damaged("trailer");
  }
  return trailer;
}

void Sections::commit() {
  std::string both(sum_.view());
  both.append(section_.finish().view());
  sum_ = Sha256::of(as_bytes(both));
  drop();
}

void Contents::commit(const List& list) {
  keys.insert(list.key);
  totals.entries += 1;
  for (const BundleBlob& blob : list.blobs) {
    if (!blobs.emplace(blob.digest, blob.size).second) continue;
    totals.blobs += 1;
    totals.bytes += blob.size;
  }
}

}  // namespace nc::bundle
