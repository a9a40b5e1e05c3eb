#include "cache/index_records.hpp"

#include <algorithm>
#include <bit>

namespace nc {
namespace {

constexpr std::uint8_t kVersion = 1;
constexpr std::size_t kCheckSize = 4;

class Writer {
 public:
  Writer() { u8(kVersion); }
  void u8(std::uint8_t v) { out_.push_back(static_cast<char>(v)); }
  void u32(std::uint32_t v) { put_u32(out_, v); }
  void u64(std::uint64_t v) { put_u64(out_, v); }
  void raw(std::string_view s) { out_.append(s); }
  void text(std::string_view s) {
    u32(static_cast<std::uint32_t>(s.size()));
    raw(s);
  }
  std::string seal() && {
    u32(static_cast<std::uint32_t>(xxh128(as_bytes(out_)).low));
    return std::move(out_);
  }

 private:
  std::string out_;
};

class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {
    if (text.size() < 1 + kCheckSize) return;
    const auto body = text.substr(0, text.size() - kCheckSize);
    const auto check = get_u32(as_bytes(text).data() + body.size());
    if (static_cast<std::uint32_t>(xxh128(as_bytes(body)).low) != check) return;
    rest_ = body;
    ok_ = true;
    ok_ = u8() == kVersion;
  }
  std::uint8_t u8() {
    const auto s = raw(1);
    return s.empty() ? 0 : static_cast<std::uint8_t>(s[0]);
  }
  std::uint32_t u32() {
    const auto s = raw(4);
    return s.empty() ? 0 : get_u32(as_bytes(s).data());
  }
  std::uint64_t u64() {
    const auto s = raw(8);
    return s.empty() ? 0 : get_u64(as_bytes(s).data());
  }
  std::string_view raw(std::size_t n) {
    if (!ok_ || n > rest_.size()) {
      ok_ = false;
      return {};
    }
    const auto s = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return s;
  }
  std::string text() { return std::string(raw(u32())); }
  std::string_view rest() { return raw(rest_.size()); }
  std::size_t left() const { return rest_.size(); }
  bool ok() const { return ok_; }
  bool done() const { return ok_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool ok_ = false;
};

enum Flag : std::uint8_t { kFile = 1, kCompressed = 2, kFailed = 4, kPinned = 8 };

}  // namespace

std::string access_key(const ActionKey& key) {
  return std::string(key.view()) + 'a';
}

std::string ring_key(char ring, std::uint64_t number) {
  std::string key(1, ring);
  for (unsigned shift = 64; shift > 0;) {
    shift -= 8;
    key.push_back(static_cast<char>(number >> shift & 0xff));
  }
  return key;
}

std::optional<std::uint64_t> ring_number(char ring, std::string_view key) {
  if (key.size() != 9 || key[0] != ring) return std::nullopt;
  std::uint64_t number = 0;
  for (const char c : key.substr(1)) number = number << 8 | static_cast<unsigned char>(c);
  return number;
}

std::optional<Sha256> sha256_of_raw(std::string_view raw) {
  Sha256 out;
  if (raw.size() != out.raw.size()) return std::nullopt;
  const auto bytes = as_bytes(raw);
  std::copy(bytes.begin(), bytes.end(), out.raw.begin());
  return out;
}

std::string BlobRecord::encode() const {
  Writer w;
  w.u8(static_cast<std::uint8_t>((file ? kFile : 0) | (compressed ? kCompressed : 0)));
  w.u64(size);
  w.u64(stored);
  w.u64(check.low);
  w.u64(check.high);
  w.u64(static_cast<std::uint64_t>(created_ms));
  w.raw(bytes);
  return std::move(w).seal();
}

std::optional<BlobRecord> BlobRecord::decode(std::string_view text) {
  Reader r(text);
  BlobRecord out;
  const auto flags = r.u8();
  out.file = (flags & kFile) != 0;
  out.compressed = (flags & kCompressed) != 0;
  out.size = r.u64();
  out.stored = r.u64();
  out.check.low = r.u64();
  out.check.high = r.u64();
  out.created_ms = static_cast<Millis>(r.u64());
  out.bytes = r.rest();
  if (!r.done() || (out.file ? !out.bytes.empty() : out.bytes.size() != out.stored)) {
    return std::nullopt;
  }
  return out;
}

std::uint64_t EntryRecord::bytes() const {
  std::uint64_t sum = 0;
  for (const auto& blob : blobs) sum += blob.size;
  return sum;
}

std::string EntryRecord::encode() const {
  Writer w;
  w.u8(failed ? kFailed : 0);
  w.u64(build_ms);
  w.u64(static_cast<std::uint64_t>(created_ms));
  w.u64(static_cast<std::uint64_t>(expires_ms));
  w.u64(manifest_bytes);
  for (const auto* s : {&kind, &name_space, &label, &model, &compiler}) w.text(*s);
  w.u32(static_cast<std::uint32_t>(blobs.size()));
  for (const auto& blob : blobs) {
    w.raw(blob.digest.view());
    w.u64(blob.size);
    w.u64(blob.disk_bytes);
    w.u8(static_cast<std::uint8_t>((blob.file ? kFile : 0) | (blob.compressed ? kCompressed : 0)));
  }
  return std::move(w).seal();
}

std::optional<EntryRecord> EntryRecord::decode(std::string_view text) {
  constexpr std::size_t kBlobSize = 32 + 8 + 8 + 1;
  Reader r(text);
  EntryRecord out;
  out.failed = (r.u8() & kFailed) != 0;
  out.build_ms = r.u64();
  out.created_ms = static_cast<Millis>(r.u64());
  out.expires_ms = static_cast<Millis>(r.u64());
  out.manifest_bytes = r.u64();
  for (auto* s : {&out.kind, &out.name_space, &out.label, &out.model, &out.compiler}) *s = r.text();
  const auto count = r.u32();
  if (!r.ok() || r.left() != std::uint64_t{count} * kBlobSize) return std::nullopt;
  out.blobs.resize(count);
  for (auto& blob : out.blobs) {
    blob.digest = sha256_of_raw(r.raw(32)).value_or(Digest{});
    blob.size = r.u64();
    blob.disk_bytes = r.u64();
    const auto flags = r.u8();
    blob.file = (flags & kFile) != 0;
    blob.compressed = (flags & kCompressed) != 0;
  }
  if (!r.done()) return std::nullopt;
  return out;
}

std::string AccessRecord::encode() const {
  Writer w;
  w.u8(pinned ? kPinned : 0);
  w.u64(uses);
  w.u64(static_cast<std::uint64_t>(used_ms));
  w.u64(std::bit_cast<std::uint64_t>(age));
  return std::move(w).seal();
}

std::optional<AccessRecord> AccessRecord::decode(std::string_view text) {
  Reader r(text);
  AccessRecord out;
  out.pinned = (r.u8() & kPinned) != 0;
  out.uses = r.u64();
  out.used_ms = static_cast<Millis>(r.u64());
  out.age = std::bit_cast<double>(r.u64());
  if (!r.done() || !(out.age >= 0 && out.age < 1e300)) return std::nullopt;
  return out;
}

}  // namespace nc
