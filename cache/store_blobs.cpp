// Blobs: what is there, and giving it out only after it was checked.
#include "base/envelope.hpp"
#include "base/log.hpp"
#include "cache/store_impl.hpp"

namespace nc {
namespace {

Error no_blob(const Digest& digest) {
  return {Code::kNotFound, "there is no blob " + digest.hex(), "upload it first"};
}

// What an inline blob costs in the index beside its bytes.
constexpr std::uint64_t kInlineOverhead = 96;

EntryBlob describe_blob(const BlobState& blob) {
  return {blob.digest, blob.size, blob.disk_bytes, blob.file, blob.compressed};
}

}  // namespace

std::uint64_t inline_disk_bytes(const BlobRecord& record) {
  return record.stored + kInlineOverhead;
}

BlobState& StoreImpl::add_idle(const EntryBlob& blob) {
  auto& state = table_.add_blob(blob);
  if (state.refs == 0) {
    state.idle_since = clock_.monotonic_ms();
    idle_.emplace_back(state.idle_since, blob.digest);
  }
  return state;
}

Result<std::optional<BlobRecord>> StoreImpl::blob_record(const Digest& digest) {
  auto text = index_->get(Family::kBlobs, digest.view());
  if (!text.ok() && !text.is(Code::kCorrupt)) return std::move(text).error();
  if (!text.ok() || !text->has_value()) return std::optional<BlobRecord>();
  return BlobRecord::decode(**text);
}

// A file that the index does not know (or whose record is damaged): taken over when it is what its
// name says.
Result<std::optional<BlobRecord>> StoreImpl::adopt(const Digest& digest) {
  NC_ASSIGN(const auto file, files_.find(digest));
  if (!file) return std::optional<BlobRecord>();
  auto record = files_.examine(*file);
  if (record.is(Code::kNotFound)) return std::optional<BlobRecord>();
  if (record.is(Code::kDigestMismatch)) {
    log::warn("store", "{}", record.error().message);
    if (!read_only_) NC_TRY(noted(files_.quarantine(digest, file->compressed, clock_.wall_ms())));
    return std::optional<BlobRecord>();
  }
  if (!record.ok()) return std::move(record).error();
  record->created_ms = clock_.wall_ms();
  if (!read_only_) {
    KvBatch batch;
    batch.put(Family::kBlobs, digest.view(), record->encode());
    NC_TRY(noted(index_->commit(batch, false)));
    book_.add("default", Counter::kRepaired);
  }
  return std::optional(*std::move(record));
}

Result<std::optional<EntryBlob>> StoreImpl::know_blob(const Digest& digest) {
  const auto known = [&]() -> std::optional<EntryBlob> {
    MutexLock lock(mutex_);
    const auto* blob = table_.find_blob(digest);
    if (blob == nullptr || blob->doomed) return std::nullopt;
    return describe_blob(*blob);
  };
  if (const auto blob = known()) {
    if (!blob->file) return blob;
    const auto info = files_.stat(digest, blob->compressed);
    if (info.ok()) return blob;
    if (!info.is(Code::kNotFound)) return info.error();
    NC_TRY(quarantine(digest, "its file is gone"));
    return std::optional<EntryBlob>();
  }
  const Busy busy(*this, digest);
  if (auto blob = known()) return blob;
  {
    MutexLock lock(mutex_);
    if (doomed_digests_.contains(digest)) return std::optional<EntryBlob>();
  }
  NC_ASSIGN(auto record, blob_record(digest));
  EntryBlob found{digest};
  if (record && !record->file) {
    found.disk_bytes = inline_disk_bytes(*record);
  } else {
    auto info =
        record ? files_.stat(digest, record->compressed) : Result<FileInfo>(no_blob(digest));
    if (!info.ok() || info->size != record->stored) {
      NC_ASSIGN(record, adopt(digest));
      if (!record) return std::optional<EntryBlob>();
      info = files_.stat(digest, record->compressed);
      if (!info.ok()) return std::move(info).error();
    }
    found.disk_bytes = disk_bytes(*info);
  }
  found.size = record->size;
  found.file = record->file;
  found.compressed = record->compressed;
  MutexLock lock(mutex_);
  add_idle(found);
  return std::optional(found);
}

Result<bool> StoreImpl::has_blob(const Digest& digest) {
  NC_ASSIGN(const auto blob, know_blob(digest));
  return blob.has_value();
}

Result<std::string> StoreImpl::raw_bytes(const EntryBlob& blob, const BlobRecord& record,
                                         std::uint64_t limit) {
  if (record.file) return files_.read(blob.digest, record, limit);
  if (record.size > limit) {
    return Error{Code::kTooLarge,
                 "the blob " + blob.digest.hex() + " has " + format_size(record.size),
                 "raise the limit"};
  }
  std::string bytes = record.bytes;
  if (record.compressed) {
    auto envelope = Envelope::unseal(as_bytes(bytes), record.size);
    bytes = envelope.ok() ? std::move(envelope->payload) : std::string();
  }
  if (bytes.size() != record.size || xxh128(as_bytes(bytes)) != record.check) {
    return Error{Code::kCorrupt, "the stored blob " + blob.digest.hex() + " is damaged",
                 "it is dropped and must be built again"};
  }
  return bytes;
}

Result<std::string> StoreImpl::read_blob(const Digest& digest, std::uint64_t limit) {
  NC_ASSIGN(const auto blob, know_blob(digest));
  if (!blob) return no_blob(digest);
  NC_ASSIGN(auto record, blob_record(digest));
  if (!record && blob->file) {
    const Busy busy(*this, digest);
    NC_ASSIGN(record, adopt(digest));
  }
  if (!record) {
    NC_TRY(quarantine(digest, "its record is gone"));
    return no_blob(digest);
  }
  auto bytes = raw_bytes(*blob, *record, limit);
  if (bytes.is(Code::kCorrupt)) {
    ignore_error(quarantine(digest, bytes.error().message), "noted; the blob is refused anyhow");
  }
  if (bytes.is(Code::kNotFound)) {
    ignore_error(quarantine(digest, "its file is gone"), "noted; the blob is refused anyhow");
  }
  return bytes;
}

Status StoreImpl::check_file(const EntryBlob& blob) {
  const auto info = files_.stat(blob.digest, false);
  if (!info.ok()) return info.error();
  {
    MutexLock lock(mutex_);
    const auto* state = table_.find_blob(blob.digest);
    if (state != nullptr && state->checked && state->checked_inode == info->inode &&
        state->checked_mtime == info->mtime_ms && info->size == blob.size) {
      return {};
    }
  }
  NC_ASSIGN(auto record, blob_record(blob.digest));
  if (!record) {
    const Busy busy(*this, blob.digest);
    NC_ASSIGN(record, adopt(blob.digest));
    if (!record) return no_blob(blob.digest);
  }
  NC_ASSIGN(const auto mapping, files_.map(blob.digest));
  const auto bytes = mapping->bytes();
  if (bytes.size() != record->size || xxh128(bytes) != record->check) {
    return Error{Code::kCorrupt,
                 "the stored file " + files_.path(blob.digest, false) + " is damaged",
                 "it is set aside and must be built again"};
  }
  MutexLock lock(mutex_);
  if (auto* state = table_.find_blob(blob.digest)) {
    state->checked = true;
    state->checked_inode = info->inode;
    state->checked_mtime = info->mtime_ms;
  }
  return {};
}

Result<BlobRef> StoreImpl::serve(const EntryBlob& blob) {
  BlobRef ref;
  ref.output.digest = blob.digest;
  ref.output.size = blob.size;
  if (!blob.file) {
    NC_ASSIGN(const auto record, blob_record(blob.digest));
    auto bytes = record ? raw_bytes(blob, *record, kFileBlobSize)
                        : Result<std::string>(no_blob(blob.digest));
    if (!bytes.ok()) {
      ignore_error(quarantine(blob.digest, bytes.error().message),
                   "noted; the blob is refused anyhow");
      return std::move(bytes).error();
    }
    ref.inline_bytes = *std::move(bytes);
    return ref;
  }
  Status usable;
  if (blob.compressed) {
    // Checked when it is read; here only that it is there.
    const auto info = files_.stat(blob.digest, true);
    if (!info.ok()) usable = info.error();
  } else {
    usable = check_file(blob);
    ref.path = files_.path(blob.digest, false);
  }
  if (usable.is(Code::kNotFound) || usable.is(Code::kCorrupt)) {
    ignore_error(quarantine(blob.digest, usable.error().message),
                 "noted; the blob is refused anyhow");
  }
  if (!usable.ok()) return std::move(usable).error();
  return ref;
}

Result<BlobRef> StoreImpl::blob_ref(const Digest& digest) {
  NC_ASSIGN(const auto blob, know_blob(digest));
  if (!blob) return no_blob(digest);
  return serve(*blob);
}

Result<std::unique_ptr<Mapping>> StoreImpl::map_blob(const Digest& digest) {
  NC_ASSIGN(const auto blob, know_blob(digest));
  if (!blob) return no_blob(digest);
  if (!blob->file || blob->compressed) {
    return Error{Code::kConflict, "the blob " + digest.hex() + " is not a plain file",
                 "read it instead"};
  }
  NC_ASSIGN(const auto ref, serve(*blob));
  return fs_.map(ref.path);
}

}  // namespace nc
