// An upload: bytes are hashed as they come and written aside; finish() makes them a blob.
#include <array>

#include "base/envelope.hpp"
#include "base/test_point.hpp"
#include "cache/store_impl.hpp"
#include "cache/test_points.hpp"

namespace nc {
namespace {

constexpr std::uint64_t kMinCompressed = 256;
constexpr std::size_t kSample = 64 << 10;
constexpr std::uint32_t kBlobMode = 0444;  // whoever links the file cannot change it by accident

// Whether compressing pays, judged by pieces from the beginning and the middle.
Result<bool> pays(const File& file, std::uint64_t size) {
  std::string sample;
  for (const std::uint64_t offset : {std::uint64_t{0}, size / 2}) {
    std::string piece(kSample, '\0');
    NC_ASSIGN(const auto got, file.read_at(offset, std::as_writable_bytes(std::span(piece))));
    sample.append(piece, 0, got);
  }
  // seal() leaves it as it is unless it saves enough.
  return Envelope::seal(Envelope::Kind::kBlob, as_bytes(sample), true).size() < sample.size();
}

}  // namespace

class UploadImpl final : public Upload {
 public:
  UploadImpl(StoreImpl& store, const Digest& digest, std::uint64_t size, bool may_compress,
             bool known)
      : store_(store), digest_(digest), size_(size), may_compress_(may_compress), known_(known) {
    if (size < kFileBlobSize) bytes_.reserve(size);
  }
  ~UploadImpl() override {
    release();
    discard();
  }

  Status create() {
    if (known_ || size_ < kFileBlobSize) return {};
    staged_ = store_.files_.staging_path(store_.random_.hex_id());
    auto file = store_.fs_.open(staged_, FileSystem::Open::kCreateNew, kBlobMode);
    if (!file.ok()) return store_.noted(std::move(file).error());
    file_ = *std::move(file);
    test_point(points::kUploadCreated);
    return {};
  }

  void may_be_lost() override { durable_ = false; }

  Status write(Bytes bytes) override {
    if (finished_) return Error{Code::kConflict, "the upload has ended", "start another one"};
    if (bytes.size() > size_ - written_) {
      return Error{Code::kTooLarge,
                   "more than the announced " + std::to_string(size_) + " bytes came for blob " +
                       digest_.hex(),
                   "announce the right size"};
    }
    written_ += bytes.size();
    sha_.update(bytes);
    if (known_) return {};
    if (!file_) {
      bytes_.append(as_text(bytes));
      return {};
    }
    xxh_.update(bytes);
    return store_.noted(file_->write(bytes));
  }

  Status finish() override {
    if (finished_) return Error{Code::kConflict, "the upload has ended", "start another one"};
    finished_ = true;
    auto done = written_ == size_ ? check_and_keep() : short_error();
    release();
    discard();
    return done;
  }

 private:
  Status short_error() const {
    return Error{Code::kDigestMismatch,
                 "only " + std::to_string(written_) + " of " + std::to_string(size_) +
                     " bytes came for blob " + digest_.hex(),
                 "send it again"};
  }

  Status check_and_keep() {
    const auto actual = sha_.finish();
    if (actual != digest_) {
      return Error{Code::kDigestMismatch,
                   "the bytes sent as blob " + digest_.hex() + " have the SHA-256 " + actual.hex(),
                   "send the bytes that belong to the digest"};
    }
    if (known_) return {};
    BlobRecord record;
    record.size = size_;
    record.created_ms = store_.clock_.wall_ms();
    return file_ ? keep_file(record) : keep_inline(record);
  }

  bool compress() {
    MutexLock lock(store_.mutex_);
    return may_compress_ && store_.options_.compression && size_ >= kMinCompressed &&
           size_ <= kMaxCompressedBlob;
  }

  bool known_now() {
    MutexLock lock(store_.mutex_);
    const auto* blob = store_.table_.find_blob(digest_);
    return blob != nullptr && !blob->doomed;
  }

  Status keep_inline(BlobRecord& record) {
    record.check = xxh128(as_bytes(bytes_));
    if (compress()) {
      auto sealed = Envelope::seal(Envelope::Kind::kBlob, as_bytes(bytes_), true);
      record.compressed = sealed.size() < bytes_.size();
      if (record.compressed) bytes_ = std::move(sealed);
    }
    record.stored = bytes_.size();
    record.bytes = std::move(bytes_);
    const StoreImpl::Busy busy(store_, digest_);
    if (known_now()) return {};
    // Not synced: only an entry is a promise, and the commit of one that names this blob makes all
    // durable that was written before it.
    KvBatch batch;
    batch.put(Family::kBlobs, digest_.view(), record.encode());
    NC_TRY(store_.noted(store_.index_->commit(batch, false)));
    test_point(points::kUploadRecorded);
    remember({digest_, size_, inline_disk_bytes(record), false, record.compressed});
    return {};
  }

  Status keep_file(BlobRecord& record) {
    record.file = true;
    record.check = xxh_.finish();
    record.stored = size_;
    if (compress()) {
      NC_ASSIGN(const bool worth, pays(*file_, size_));
      if (worth) NC_TRY(store_.noted(write_compressed(record)));
    }
    if (durable_) NC_TRY(store_.noted(file_->sync()));
    file_.reset();
    test_point(points::kPublishStaged);
    const StoreImpl::Busy busy(store_, digest_);
    if (known_now()) return {};
    NC_TRY(revive(record.compressed));
    NC_TRY(store_.noted(store_.files_.place(staged_, digest_, record.compressed)));
    staged_.clear();
    test_point(points::kPublishRenamed);
    NC_ASSIGN(const auto info, store_.files_.stat(digest_, record.compressed));
    // Not synced: should the record get lost, the file tells everything again.
    KvBatch batch;
    batch.put(Family::kBlobs, digest_.view(), record.encode());
    NC_TRY(store_.noted(store_.index_->commit(batch, false)));
    test_point(points::kUploadRecorded);
    remember({digest_, size_, disk_bytes(info), true, record.compressed});
    if (!durable_ && !record.compressed) note_checked(info);
    return {};
  }

  // A copy that waits to be unlinked: the unlink is called off, and the other form of it goes now.
  Status revive(bool compressed) {
    bool other_form = false;
    {
      MutexLock lock(store_.mutex_);
      const auto it = store_.doomed_digests_.find(digest_);
      if (it != store_.doomed_digests_.end()) {
        other_form = it->second != compressed;
        store_.doomed_digests_.erase(it);
      }
    }
    if (!other_form) return {};
    auto removed = store_.files_.remove(digest_, !compressed);
    return removed.is(Code::kNotFound) ? Status() : removed;
  }

  Status write_compressed(BlobRecord& record) {
    std::string raw(size_, '\0');
    NC_ASSIGN(const auto got, file_->read_at(0, std::as_writable_bytes(std::span(raw))));
    if (got != size_) return Error{Code::kIo, "cannot read back " + staged_, "check the disk"};
    const auto sealed = Envelope::seal(Envelope::Kind::kBlob, as_bytes(raw), true);
    if (sealed.size() >= size_) return {};
    const auto path = store_.files_.staging_path(store_.random_.hex_id());
    NC_ASSIGN(auto file, store_.fs_.open(path, FileSystem::Open::kCreateNew, kBlobMode));
    auto written = file->write(as_bytes(sealed));
    if (!written.ok()) {
      ignore_error(store_.fs_.remove(path), "staging is emptied at the next open");
      return written;
    }
    discard();
    staged_ = path;
    file_ = std::move(file);
    record.compressed = true;
    record.stored = sealed.size();
    return {};
  }

  void remember(const EntryBlob& blob) {
    MutexLock lock(store_.mutex_);
    store_.add_idle(blob);
    store_.reserved_ -= reserved_;  // from now on the blob itself is counted
    reserved_ = 0;
  }

  // Whoever fetched it wants it now: what was hashed as it was written is not read once more first.
  void note_checked(const FileInfo& info) {
    MutexLock lock(store_.mutex_);
    if (auto* state = store_.table_.find_blob(digest_)) {
      state->checked = true;
      state->checked_inode = info.inode;
      state->checked_mtime = info.mtime_ms;
    }
  }

  void release() {
    MutexLock lock(store_.mutex_);
    store_.reserved_ -= reserved_;
    reserved_ = 0;
  }

  void discard() {
    file_.reset();
    if (staged_.empty()) return;
    ignore_error(store_.fs_.remove(staged_), "staging is emptied at the next open");
    staged_.clear();
  }

  friend class StoreImpl;
  StoreImpl& store_;
  const Digest digest_;
  const std::uint64_t size_;
  const bool may_compress_;
  const bool known_;
  std::uint64_t reserved_ = 0;
  std::uint64_t written_ = 0;
  bool finished_ = false;
  bool durable_ = true;
  Sha256Hasher sha_;
  Xxh128Hasher xxh_;
  std::string bytes_;  // of a small one
  std::string staged_;
  std::unique_ptr<File> file_;
};

Result<std::unique_ptr<Upload>> StoreImpl::begin_upload(const Digest& digest, std::uint64_t size,
                                                        bool may_compress) {
  if (read_only_) return read_only_error();
  {
    MutexLock lock(mutex_);
    if (size > options_.max_blob) {
      return Error{Code::kTooLarge,
                   "a blob of " + format_size(size) + " is over the limit of " +
                       format_size(options_.max_blob),
                   "raise max_blob"};
    }
  }
  NC_ASSIGN(const auto existing, know_blob(digest));
  auto upload =
      std::make_unique<UploadImpl>(*this, digest, size, may_compress, existing.has_value());
  if (!existing) {
    NC_TRY(noted(make_disk_room(size)));
    Removal removal(RemovalCause::kEvicted);
    bool fits = false;
    std::uint64_t limit = 0;
    {
      MutexLock lock(mutex_);
      fits = make_room(size, 0, removal);
      limit = options_.max_bytes;
      if (fits) {
        upload->reserved_ = size;
        reserved_ += size;
      }
    }
    NC_TRY(remove_now(removal, false));
    if (!fits) {
      count_failed_write("default");
      return Error{
          Code::kNoSpace,
          "a blob of " + format_size(size) + " does not fit in the store's " + format_size(limit),
          "raise max_bytes, unpin entries or prune"};
    }
  }
  NC_TRY(upload->create());
  return std::unique_ptr<Upload>(std::move(upload));
}

}  // namespace nc
