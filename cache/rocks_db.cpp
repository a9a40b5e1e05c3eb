#include <algorithm>
#include <array>
#include <shared_mutex>

#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>

#include "base/log.hpp"
#include "cache/key_value.hpp"
#include "cache/rocks_env.hpp"
#include "cache/rocks_options.hpp"

namespace nc {
namespace {

using rocksdb::Slice;

constexpr std::string_view kFamilyMark =
    "\xff\xff"
    "family";
constexpr Family kNewestFamily = Family::kPlans;

Slice to_slice(std::string_view s) {
  return {s.data(), s.size()};
}

Error to_error(const rocksdb::Status& s, std::string_view what, const std::string& dir) {
  const std::string text = std::string(what) + " the index " + dir + ": " + s.ToString();
  if (s.IsNoSpace() || s.subcode() == rocksdb::Status::kNoSpace ||
      s.subcode() == rocksdb::Status::kSpaceLimit) {
    return {Code::kNoSpace, text, "free space on the disk of the store or lower max_bytes"};
  }
  if (s.IsCorruption()) return {Code::kCorrupt, text, "run `neuroncache verify --repair`"};
  if (s.IsPathNotFound()) return {Code::kNotFound, text, "check that the directory exists"};
  if (s.IsBusy()) return {Code::kBusy, text, "stop the other process that uses this store"};
  const std::string message = s.ToString();
  const auto has = [&](std::string_view part) { return message.find(part) != std::string::npos; };
  if (s.IsNotSupported() && has("read only")) {
    return {Code::kReadOnly, text, "open the store for writing"};
  }
  if (has("Read-only file system")) {
    return {Code::kReadOnly, text, "remount the disk of the store read-write"};
  }
  if (has("No space left")) {
    return {Code::kNoSpace, text, "free space on the disk of the store or lower max_bytes"};
  }
  if (has("Permission denied")) {
    return {Code::kDenied, text, "make the store's files readable and writable for its owner"};
  }
  if (has("Too many open files")) {
    return {Code::kIo, text, "raise the limit on open files (ulimit -n)"};
  }
  if (has("lock ")) return {Code::kBusy, text, "stop the other process that uses this store"};
  return {Code::kIo, text, "check the disk of the store"};
}

class RocksDb final : public KeyValueDb {
 public:
  RocksDb(FileSystem& fs, const Options& options) : env_(make_rocks_env(fs)), options_(options) {}
  ~RocksDb() override { close(); }

  rocksdb::Status open() {
    auto s = open_as(options_.read_only);
    if (s.ok() && !options_.read_only) s = mark_families();
    if (s.ok() || options_.read_only || to_error(s, "", "").code != Code::kNoSpace) return s;
    // Opening writes. On a full disk what is there is served until recover() finds space.
    const auto full = to_error(s, "cannot open", options_.dir);
    s = open_as(true);
    if (s.ok()) {
      const std::lock_guard lock(broken_mutex_);
      broken_ = full;
      must_reopen_ = true;
    }
    return s;
  }

  rocksdb::Status open_as(bool read_only) {
    auto options = make_rocks_options(read_only);
    options.db.env = env_.get();
    options.db.create_if_missing = options_.create && !read_only;
    const auto families =
        read_only ? present(descriptors(options), options.db) : descriptors(options);
    std::vector<rocksdb::ColumnFamilyHandle*> handles;
    rocksdb::DB* db = nullptr;
    auto s = read_only
                 ? rocksdb::DB::OpenForReadOnly(options.db, options_.dir, families, &handles, &db)
                 : rocksdb::DB::Open(options.db, options_.dir, families, &handles, &db);
    if (!s.ok()) return s;
    db_.reset(db);
    for (auto* handle : handles) {
      for (std::size_t i = 0; i < kFamilies; ++i) {
        if (handle->GetName() == family_name(static_cast<Family>(i))) handles_[i] = handle;
      }
    }
    return s;
  }

  Result<std::optional<std::string>> get(Family family, std::string_view key) override {
    std::shared_lock lock(mutex_);
    if (!db_) return closed();
    if (handle(family) == nullptr) return std::optional<std::string>();
    std::string value;
    // In a large store nearly every read would push another one's block out of the block cache,
    // which costs more than reading again what the page cache of the system has.
    rocksdb::ReadOptions read;
    read.fill_cache = false;
    const auto s = db_->Get(read, handle(family), to_slice(key), &value);
    if (s.IsNotFound()) return std::optional<std::string>();
    if (!s.ok()) return to_error(s, "cannot read from", options_.dir);
    return std::optional<std::string>(std::move(value));
  }

  nc::Status scan(Family family, std::string_view from, const Visitor& visit) override {
    std::shared_lock lock(mutex_);
    if (!db_) return closed();
    if (handle(family) == nullptr) return {};
    rocksdb::ReadOptions read;
    read.fill_cache = false;
    std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator(read, handle(family)));
    for (it->Seek(to_slice(from)); it->Valid(); it->Next()) {
      if (it->key() == to_slice(kFamilyMark)) continue;
      if (!visit(it->key().ToStringView(), it->value().ToStringView())) break;
    }
    if (!it->status().ok()) return to_error(it->status(), "cannot read through", options_.dir);
    return {};
  }

  Result<std::optional<std::string>> last_key(Family family, std::string_view prefix) override {
    std::shared_lock lock(mutex_);
    if (!db_) return closed();
    if (handle(family) == nullptr) return std::optional<std::string>();
    std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator({}, handle(family)));
    std::string end(prefix);
    end += std::string(16, '\xff');
    it->SeekForPrev(end);
    if (!it->status().ok()) return to_error(it->status(), "cannot read through", options_.dir);
    if (!it->Valid() || !it->key().starts_with(to_slice(prefix))) {
      return std::optional<std::string>();
    }
    return std::optional<std::string>(it->key().ToString());
  }

  nc::Status commit(const KvBatch& batch, bool sync) override {
    if (batch.empty() && !sync) return {};
    std::shared_lock lock(mutex_);
    if (auto error = unwritable()) return *std::move(error);
    rocksdb::WriteBatch out;
    for (const auto& op : batch.ops()) {
      const auto s = op.value ? out.Put(handle(op.family), op.key, *op.value)
                              : out.Delete(handle(op.family), op.key);
      if (!s.ok()) return to_error(s, "cannot write to", options_.dir);
    }
    rocksdb::WriteOptions write;
    write.sync = sync;
    return written(db_->Write(write, &out));
  }

  nc::Status sync() override {
    std::shared_lock lock(mutex_);
    if (auto error = unwritable()) return *std::move(error);
    return written(db_->SyncWAL());
  }

  rocksdb::Status repair() {
    auto options = make_rocks_options(false);
    options.db.env = env_.get();
    return rocksdb::RepairDB(options_.dir, options.db, descriptors(options));
  }

  nc::Status flush() override {
    std::shared_lock lock(mutex_);
    if (auto error = unwritable()) return *std::move(error);
    rocksdb::FlushOptions flush;
    return written(db_->Flush(flush, {handles_.begin(), handles_.end()}));
  }

  nc::Status compact() override {
    std::shared_lock lock(mutex_);
    if (auto error = unwritable()) return *std::move(error);
    for (auto* family : handles_) {
      const auto s = db_->CompactRange({}, family, nullptr, nullptr);
      if (!s.ok()) return written(s);
    }
    return {};
  }

  std::optional<Error> broken() override {
    const std::lock_guard lock(broken_mutex_);
    return broken_;
  }

  nc::Status recover() override {
    std::unique_lock lock(mutex_);
    if (options_.read_only) return {};
    // Never DB::Resume(): it may go on with a log whose writer has failed, and RocksDB asserts on
    // the next record in it.
    close();
    must_reopen_ = false;
    rocksdb::Status s = open();
    if (s.ok() && !must_reopen_) s = probe();
    if (!s.ok()) return to_error(s, "cannot reopen", options_.dir);
    const std::lock_guard broken_lock(broken_mutex_);
    if (must_reopen_) return *broken_;
    broken_.reset();
    return {};
  }

 private:
  // Null: an older program made the index, which is open for reading only. Nothing is in it then.
  rocksdb::ColumnFamilyHandle* handle(Family family) {
    return handles_[static_cast<std::size_t>(family)];
  }

  // Each family gets a table at once that stays for ever: without one repair() could not tell whose
  // the records in the log are. The newest family is asked: an index may be older than that.
  rocksdb::Status mark_families() {
    std::string value;
    auto s = db_->Get({}, handle(kNewestFamily), to_slice(kFamilyMark), &value);
    if (!s.IsNotFound()) return s;
    rocksdb::WriteBatch batch;
    for (auto* family : handles_) {
      s = batch.Put(family, to_slice(kFamilyMark), "");
      if (!s.ok()) return s;
    }
    s = db_->Write({}, &batch);
    return s.ok() ? db_->Flush({}, {handles_.begin(), handles_.end()}) : s;
  }

  static std::vector<rocksdb::ColumnFamilyDescriptor> descriptors(const RocksOptions& options) {
    std::vector<rocksdb::ColumnFamilyDescriptor> out;
    for (std::size_t i = 0; i < kFamilies; ++i) {
      out.emplace_back(family_name(static_cast<Family>(i)), options.families[i]);
    }
    return out;
  }

  // Those that the index has: reading cannot make the others.
  std::vector<rocksdb::ColumnFamilyDescriptor> present(
      std::vector<rocksdb::ColumnFamilyDescriptor> wanted, const rocksdb::DBOptions& db) const {
    std::vector<std::string> names;
    if (!rocksdb::DB::ListColumnFamilies(db, options_.dir, &names).ok()) return wanted;
    std::erase_if(wanted, [&](const auto& family) {
      return std::find(names.begin(), names.end(), family.name) == names.end();
    });
    return wanted;
  }

  rocksdb::Status probe() {
    rocksdb::WriteOptions write;
    write.sync = true;
    return db_->Put(write, handle(Family::kMeta), "probe", "");
  }

  nc::Status written(const rocksdb::Status& s) {
    if (s.ok()) return {};
    auto error = to_error(s, "cannot write to", options_.dir);
    const std::lock_guard lock(broken_mutex_);
    if (must_reopen_) return *broken_;
    broken_ = error;
    return error;
  }

  // Why nothing may be written: closed, or a write has failed and recover() has not come yet.
  std::optional<Error> unwritable() {
    if (!db_) return closed();
    return broken();
  }

  Error closed() const {
    return {Code::kUnavailable, "the index " + options_.dir + " is closed after an error",
            "free space on the disk of the store; it opens again by itself"};
  }

  void close() {
    if (!db_) return;
    for (auto*& family : handles_) {
      if (family) ignore_status(db_->DestroyColumnFamilyHandle(family));
      family = nullptr;
    }
    ignore_status(db_->Close());
    db_.reset();
  }
  static void ignore_status(const rocksdb::Status& s) { s.PermitUncheckedError(); }

  const std::unique_ptr<rocksdb::Env> env_;
  const Options options_;
  std::shared_mutex mutex_;  // exclusive: to close and open again
  std::unique_ptr<rocksdb::DB> db_;
  std::array<rocksdb::ColumnFamilyHandle*, kFamilies> handles_{};
  bool must_reopen_ = false;  // opened for reading because the disk was full
  std::mutex broken_mutex_;
  std::optional<Error> broken_;
};

}  // namespace

Result<std::unique_ptr<KeyValueDb>> KeyValueDb::open(FileSystem& fs, const Options& options) {
  auto db = std::make_unique<RocksDb>(fs, options);
  const bool exists = fs.stat(join(options.dir, "CURRENT")).ok();
  if (!exists && (options.read_only || !options.create)) {
    return Error{Code::kNotFound, "there is no index in " + options.dir,
                 "start the daemon once to make the store"};
  }
  const auto s = db->open();
  if (s.ok()) return std::unique_ptr<KeyValueDb>(std::move(db));
  auto error = to_error(s, "cannot open", options.dir);
  // Whatever is not a matter of space, rights or another process is damage: the files do not make
  // sense together.
  const bool environment = error.code == Code::kNoSpace || error.code == Code::kBusy ||
                           error.code == Code::kReadOnly || error.code == Code::kDenied;
  if (!environment && (s.IsCorruption() || s.IsInvalidArgument() || s.IsNotFound() ||
                       s.IsPathNotFound() || s.IsNotSupported())) {
    error.code = Code::kCorrupt;
  }
  return error;
}

Status KeyValueDb::repair(FileSystem& fs, const std::string& dir) {
  RocksDb db(fs, {dir, false, false});
  const auto s = db.repair();
  if (!s.ok()) return to_error(s, "cannot repair", dir);
  return {};
}

}  // namespace nc
