#include "cache/blob_files.hpp"

#include <algorithm>

#include "base/envelope.hpp"

namespace nc {
namespace {

constexpr std::string_view kCompressedSuffix = ".zst";
constexpr std::uint64_t kBlock = 4096;

Error damaged(const std::string& path, const std::string& why) {
  return {Code::kCorrupt, "the stored file " + path + " is damaged: " + why,
          "it is set aside and must be built again"};
}

}  // namespace

std::uint64_t disk_bytes(const FileInfo& info) {
  if (info.allocated != 0) return info.allocated;
  return (info.size + kBlock - 1) / kBlock * kBlock;
}

BlobFiles::BlobFiles(FileSystem& fs, const std::string& store_dir)
    : fs_(fs),
      cas_(join(store_dir, "cas")),
      staging_(join(store_dir, "staging")),
      quarantine_(join(store_dir, "quarantine")) {}

Status BlobFiles::make_dirs() {
  for (const auto* dir : {&cas_, &staging_, &quarantine_}) NC_TRY(fs_.make_dirs(*dir));
  return {};
}

Status BlobFiles::empty_staging() {
  NC_ASSIGN(const auto names, fs_.list(staging_));
  for (const auto& name : names) {
    auto removed = fs_.remove(join(staging_, name));
    if (!removed.ok() && !removed.is(Code::kNotFound)) return removed;
  }
  return {};
}

std::string BlobFiles::path(const Digest& digest, bool compressed) const {
  const auto hex = digest.hex();
  std::string out = cas_ + "/" + hex.substr(0, 2) + "/" + hex.substr(2, 2) + "/" + hex;
  if (compressed) out += kCompressedSuffix;
  return out;
}

Status BlobFiles::make_dir_for(const Digest& digest) {
  const auto index =
      std::to_integer<unsigned>(digest.raw[0]) << 8U | std::to_integer<unsigned>(digest.raw[1]);
  const std::uint64_t bit = 1ULL << (index % 64);
  auto& word = made_[index / 64];
  if ((word.load(std::memory_order_relaxed) & bit) != 0) return {};
  const auto inner = parent_dir(path(digest, false));
  const auto outer = parent_dir(inner);
  // Also when it exists: a crash may have come between making it and syncing its parent.
  NC_TRY(fs_.make_dirs(inner));
  NC_TRY(fs_.sync_dir(outer));
  NC_TRY(fs_.sync_dir(cas_));
  word.fetch_or(bit, std::memory_order_relaxed);
  return {};
}

Status BlobFiles::place(const std::string& staged, const Digest& digest, bool compressed) {
  NC_TRY(make_dir_for(digest));
  const auto target = path(digest, compressed);
  NC_TRY(fs_.rename(staged, target));
  return fs_.sync_dir(parent_dir(target));
}

Result<FileInfo> BlobFiles::stat(const Digest& digest, bool compressed) const {
  return fs_.stat(path(digest, compressed));
}

Result<std::optional<BlobFile>> BlobFiles::find(const Digest& digest) const {
  for (const bool compressed : {false, true}) {
    auto info = stat(digest, compressed);
    if (info.ok()) return std::optional(BlobFile{digest, compressed, *info});
    if (!info.is(Code::kNotFound)) return std::move(info).error();
  }
  return std::optional<BlobFile>();
}

Status BlobFiles::remove(const Digest& digest, bool compressed) {
  return fs_.remove(path(digest, compressed));
}

Result<std::string> BlobFiles::read(const Digest& digest, const BlobRecord& record,
                                    std::uint64_t limit) const {
  const auto file = path(digest, record.compressed);
  if (record.size > limit) {
    return Error{Code::kTooLarge, "the blob " + digest.hex() + " has " + format_size(record.size),
                 "ask for it as a file"};
  }
  auto bytes = fs_.read_all(file, record.stored);
  if (bytes.is(Code::kTooLarge)) return damaged(file, "it has grown");
  if (!bytes.ok()) return std::move(bytes).error();
  if (bytes->size() != record.stored) return damaged(file, "it is cut off");
  if (record.compressed) {
    auto envelope = Envelope::unseal(as_bytes(*bytes), record.size);
    if (!envelope.ok()) return damaged(file, envelope.error().message);
    bytes = std::move(envelope->payload);
  }
  if (bytes->size() != record.size) return damaged(file, "wrong size");
  if (xxh128(as_bytes(*bytes)) != record.check) return damaged(file, "wrong checksum");
  return bytes;
}

Result<std::unique_ptr<Mapping>> BlobFiles::map(const Digest& digest) const {
  return fs_.map(path(digest, false));
}

Result<BlobRecord> BlobFiles::examine(const BlobFile& file) const {
  const auto name = path(file.digest, file.compressed);
  NC_ASSIGN(const auto mapping, fs_.map(name));
  BlobRecord record;
  record.file = true;
  record.compressed = file.compressed;
  record.stored = mapping->bytes().size();
  Bytes raw = mapping->bytes();
  std::string decoded;
  if (file.compressed) {
    auto envelope = Envelope::unseal(raw, kMaxCompressedBlob);
    if (!envelope.ok()) {
      return Error{Code::kDigestMismatch, name + ": " + envelope.error().message, ""};
    }
    decoded = std::move(envelope->payload);
    raw = as_bytes(decoded);
  }
  record.size = raw.size();
  record.check = xxh128(raw);
  if (Sha256::of(raw) != file.digest) {
    return Error{Code::kDigestMismatch, name + " does not hold what its name says", ""};
  }
  return record;
}

Status BlobFiles::quarantine(const Digest& digest, bool compressed, Millis now) {
  const auto from = path(digest, compressed);
  NC_TRY(fs_.make_dirs(quarantine_));
  NC_TRY(fs_.rename(from, join(quarantine_, digest.hex() + "." + std::to_string(now))));
  NC_TRY(fs_.sync_dir(parent_dir(from)));
  return fs_.sync_dir(quarantine_);
}

std::uint64_t BlobFiles::quarantine_bytes() const {
  auto names = fs_.list(quarantine_);
  if (!names.ok()) return 0;
  std::uint64_t sum = 0;
  for (const auto& name : *names) {
    if (auto info = fs_.stat(join(quarantine_, name)); info.ok()) sum += disk_bytes(*info);
  }
  return sum;
}

Result<std::uint64_t> BlobFiles::empty_quarantine() {
  auto names = fs_.list(quarantine_);
  if (names.is(Code::kNotFound)) return std::uint64_t{0};
  if (!names.ok()) return std::move(names).error();
  std::uint64_t sum = 0;
  for (const auto& name : *names) {
    const auto file = join(quarantine_, name);
    auto info = fs_.stat(file);
    NC_TRY(fs_.remove(file));
    if (info.ok()) sum += disk_bytes(*info);
  }
  return sum;
}

Result<std::vector<BlobFile>> BlobFiles::list(
    unsigned shard, const std::function<void(const std::string&)>& stray) const {
  std::vector<BlobFile> out;
  const std::byte first{static_cast<unsigned char>(shard)};
  const auto outer = join(cas_, to_hex(Bytes(&first, 1)));
  auto inner = fs_.list(outer);
  if (inner.is(Code::kNotFound)) return out;
  if (!inner.ok()) return std::move(inner).error();
  for (const auto& dir : *inner) {
    auto names = fs_.list(join(outer, dir));
    if (!names.ok()) {
      if (stray) stray(join(outer, dir));
      continue;
    }
    for (const auto& name : *names) {
      const auto file = join(join(outer, dir), name);
      std::string_view hex = name;
      const bool compressed = hex.ends_with(kCompressedSuffix);
      if (compressed) hex.remove_suffix(kCompressedSuffix.size());
      const auto digest = Sha256::from_hex(hex);
      if (!digest || path(*digest, compressed) != file) {
        if (stray) stray(file);
        continue;
      }
      auto info = fs_.stat(file);
      if (info.ok()) out.push_back({*digest, compressed, *info});
    }
  }
  std::sort(out.begin(), out.end(), [](const BlobFile& a, const BlobFile& b) {
    return a.digest != b.digest ? a.digest < b.digest : a.compressed < b.compressed;
  });
  return out;
}

}  // namespace nc
