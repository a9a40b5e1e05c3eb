#include "base/fake_filesystem.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/fake_disk.hpp"

namespace nc {
namespace {

using DiskPtr = std::shared_ptr<FakeDisk>;
using Call = FakeFileSystem::Call;

std::size_t copy_out(std::string_view data, std::uint64_t offset, std::span<std::byte> out) {
  if (offset >= data.size()) return 0;
  const std::string_view part = data.substr(offset, out.size());
  if (!part.empty()) std::memcpy(out.data(), part.data(), part.size());
  return part.size();
}

class FakeFile final : public File {
 public:
  FakeFile(DiskPtr disk, FakeDisk::InodePtr inode, std::string path, FileSystem::Open how)
      NC_REQUIRES(disk->mutex)
      : disk_(std::move(disk)),
        inode_(std::move(inode)),
        path_(std::move(path)),
        how_(how),
        boot_(disk_->boot) {
    ++inode_->opens;
    ++disk_->open_files;
    disk_->charge(*inode_);
  }
  ~FakeFile() override {
    MutexLock lock(disk_->mutex);
    if (disk_->boot != boot_) return;
    --inode_->opens;
    --disk_->open_files;
    disk_->charge(*inode_);
  }
  FakeFile(const FakeFile&) = delete;
  FakeFile& operator=(const FakeFile&) = delete;

  Status write(Bytes bytes) override {
    MutexLock lock(disk_->mutex);
    const bool append = how_ == FileSystem::Open::kAppend;
    const std::uint64_t offset = append ? inode_->data.size() : end_;
    return write_locked(offset, bytes);
  }

  Status write_at(std::uint64_t offset, Bytes bytes) override {
    MutexLock lock(disk_->mutex);
    if (how_ == FileSystem::Open::kAppend) return refuse("was opened for appending");
    return write_locked(offset, bytes);
  }

  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    MutexLock lock(disk_->mutex);
    NC_TRY(enter(Call::kRead, false));
    return copy_out(inode_->data, offset, out);
  }

  Status truncate(std::uint64_t size) override {
    MutexLock lock(disk_->mutex);
    if (how_ == FileSystem::Open::kRead) return refuse("was opened for reading");
    NC_TRY(enter(Call::kTruncate, true));
    disk_->resize(inode_, size);
    end_ = size;
    return {};
  }

  Status sync() override {
    MutexLock lock(disk_->mutex);
    NC_TRY(enter(Call::kSync, true));
    inode_->unsynced.clear();
    return {};
  }

  Result<std::uint64_t> size() const override {
    MutexLock lock(disk_->mutex);
    NC_TRY(enter(Call::kStat, false));
    return static_cast<std::uint64_t>(inode_->data.size());
  }

 private:
  Status enter(Call call, bool changes) const NC_REQUIRES(disk_->mutex) {
    NC_TRY(disk_->enter(call, path_, changes));
    if (disk_->boot != boot_) {
      return Error{Code::kIo, "cannot use " + path_ + ": the power was cut since it was opened",
                   ""};
    }
    return {};
  }

  Status write_locked(std::uint64_t offset, Bytes bytes) NC_REQUIRES(disk_->mutex) {
    if (how_ == FileSystem::Open::kRead) return refuse("was opened for reading");
    if (auto entered = enter(Call::kWrite, true); !entered.ok()) {
      const auto part = bytes.first(std::min<std::size_t>(bytes.size(), disk_->partial));
      if (disk_->boot == boot_ && !part.empty()) {
        ignore_error(disk_->write(inode_, path_, offset, part),
                     "the chosen error is the one to tell");
      }
      return entered;
    }
    NC_TRY(disk_->write(inode_, path_, offset, bytes));
    end_ = std::max<std::uint64_t>(end_, offset + bytes.size());
    return {};
  }

  Error refuse(std::string_view why) const {
    return {Code::kInvalid, "cannot write " + path_ + ": it " + std::string(why), ""};
  }

  const DiskPtr disk_;
  const FakeDisk::InodePtr inode_;
  const std::string path_;
  const FileSystem::Open how_;
  const std::uint64_t boot_;
  std::uint64_t end_ = 0;  // where write() goes on; guarded by the disk's mutex
};

class FakeMapping final : public Mapping {
 public:
  explicit FakeMapping(std::string data) : data_(std::move(data)) {}
  Bytes bytes() const override { return as_bytes(data_); }

 private:
  std::string data_;
};

class FakeLock final : public FileLock {
 public:
  FakeLock(DiskPtr disk, FakeDisk::InodePtr inode) NC_REQUIRES(disk->mutex)
      : disk_(std::move(disk)), inode_(std::move(inode)), boot_(disk_->boot) {
    disk_->locked.insert(inode_.get());
  }
  ~FakeLock() override {
    MutexLock lock(disk_->mutex);
    if (disk_->boot == boot_) disk_->locked.erase(inode_.get());
  }
  FakeLock(const FakeLock&) = delete;
  FakeLock& operator=(const FakeLock&) = delete;

 private:
  const DiskPtr disk_;
  const FakeDisk::InodePtr inode_;
  const std::uint64_t boot_;
};

FakeDisk::InodePtr new_file(const FakeDisk::Place& at, std::uint32_t mode, FakeDisk& disk)
    NC_REQUIRES(disk.mutex) {
  auto inode = disk.new_inode(false, mode);
  disk.change_names({{at.dir, at.name, inode}});
  return inode;
}

}  // namespace

FakeFileSystem::FakeFileSystem(const Clock* clock) : disk_(std::make_shared<FakeDisk>(clock)) {}
FakeFileSystem::~FakeFileSystem() = default;

Result<std::unique_ptr<File>> FakeFileSystem::open(const std::string& path, Open how,
                                                   std::uint32_t mode) {
  MutexLock lock(disk_->mutex);
  NC_TRY(disk_->enter(Call::kOpen, path, how != Open::kRead));
  const std::string_view what = how == Open::kRead ? "cannot open" : "cannot create";
  NC_ASSIGN(FakeDisk::Place at, disk_->place(path, what));
  if (at.inode && how == Open::kCreateNew) return errno_error(EEXIST, what, path);
  if (at.inode && at.inode->is_dir) return errno_error(EISDIR, what, path);
  if (!at.inode) {
    if (how == Open::kRead) return errno_error(ENOENT, what, path);
    at.inode = new_file(at, mode, *disk_);
  }
  if (how == Open::kCreateOrTruncate) disk_->resize(at.inode, 0);
  return std::unique_ptr<File>(std::make_unique<FakeFile>(disk_, at.inode, path, how));
}

Result<std::unique_ptr<Mapping>> FakeFileSystem::map(const std::string& path) {
  MutexLock lock(disk_->mutex);
  NC_TRY(disk_->enter(Call::kMap, path, false));
  NC_ASSIGN(const auto inode, disk_->find(path, "cannot open"));
  if (inode->is_dir) return errno_error(EISDIR, "cannot map", path);
  return std::unique_ptr<Mapping>(std::make_unique<FakeMapping>(inode->data));
}

Result<std::string> FakeFileSystem::read_all(const std::string& path, std::uint64_t limit) {
  MutexLock lock(disk_->mutex);
  NC_TRY(disk_->enter(Call::kRead, path, false));
  NC_ASSIGN(const auto inode, disk_->find(path, "cannot open"));
  if (inode->is_dir) return errno_error(EISDIR, "cannot read", path);
  if (inode->data.size() > limit) {
    return Error{Code::kTooLarge,
                 "cannot read " + path + ": it is larger than " + format_size(limit), ""};
  }
  return inode->data;
}

Result<FileInfo> FakeFileSystem::stat(const std::string& path) {
  MutexLock lock(disk_->mutex);
  NC_TRY(disk_->enter(Call::kStat, path, false));
  NC_ASSIGN(const auto inode, disk_->find(path, "cannot stat"));
  FileInfo info;
  info.size = inode->data.size();
  info.allocated = inode->data.size();
  info.mtime_ms = inode->mtime_ms;
  info.is_dir = inode->is_dir;
  info.mode = inode->mode;
  info.uid = inode->uid;
  info.inode = reinterpret_cast<std::uintptr_t>(inode.get());
  info.links = inode->links;
  info.inode = inode->number;
  return info;
}

Result<std::vector<std::string>> FakeFileSystem::list(const std::string& dir) {
  MutexLock lock(disk_->mutex);
  NC_TRY(disk_->enter(Call::kList, dir, false));
  NC_ASSIGN(const auto inode, disk_->find(dir, "cannot list"));
  if (!inode->is_dir) return errno_error(ENOTDIR, "cannot list", dir);
  std::vector<std::string> names;
  for (const auto& [name, child] : inode->names) names.push_back(name);
  return names;
}

Status FakeFileSystem::make_dirs(const std::string& dir, std::uint32_t mode) {
  MutexLock lock(disk_->mutex);
  // As on a real read-only disk: directories that are there are fine.
  const auto there = disk_->find(dir, "");
  const bool changes = !there.ok() || !(*there)->is_dir;
  NC_TRY(disk_->enter(Call::kMakeDirs, dir, changes));
  return disk_->make_dirs(dir, mode);
}

Status FakeFileSystem::rename(const std::string& from, const std::string& to) {
  MutexLock lock(disk_->mutex);
  NC_TRY(disk_->enter(Call::kRename, to, true));
  const std::string what = "cannot rename " + from + " to";
  NC_ASSIGN(const FakeDisk::Place source, disk_->place(from, what));
  NC_ASSIGN(const FakeDisk::Place target, disk_->place(to, what));
  if (!source.inode) return errno_error(ENOENT, what, to);
  if (!source.dir || !target.dir) return errno_error(EBUSY, what, to);
  if (target.inode == source.inode) return {};
  if (target.inode) {
    if (target.inode->is_dir && !source.inode->is_dir) return errno_error(EISDIR, what, to);
    if (!target.inode->is_dir && source.inode->is_dir) return errno_error(ENOTDIR, what, to);
    if (!target.inode->names.empty()) return errno_error(ENOTEMPTY, what, to);
  }
  disk_->change_names(
      {{target.dir, target.name, source.inode}, {source.dir, source.name, nullptr}});
  return {};
}

Status FakeFileSystem::link(const std::string& from, const std::string& to) {
  MutexLock lock(disk_->mutex);
  NC_TRY(disk_->enter(Call::kLink, to, true));
  const std::string what = "cannot link " + from + " to";
  NC_ASSIGN(const FakeDisk::Place source, disk_->place(from, what));
  NC_ASSIGN(const FakeDisk::Place target, disk_->place(to, what));
  if (!source.inode) return errno_error(ENOENT, what, to);
  if (target.inode) return errno_error(EEXIST, what, to);
  if (source.inode->is_dir) return errno_error(EPERM, what, to);
  disk_->change_names({{target.dir, target.name, source.inode}});
  return {};
}

Status FakeFileSystem::remove(const std::string& path) {
  MutexLock lock(disk_->mutex);
  NC_TRY(disk_->enter(Call::kRemove, path, true));
  NC_ASSIGN(const FakeDisk::Place at, disk_->place(path, "cannot remove"));
  if (!at.inode) return errno_error(ENOENT, "cannot remove", path);
  if (at.inode->is_dir) return errno_error(EISDIR, "cannot remove", path);
  disk_->change_names({{at.dir, at.name, nullptr}});
  return {};
}

Status FakeFileSystem::remove_dir(const std::string& dir) {
  MutexLock lock(disk_->mutex);
  NC_TRY(disk_->enter(Call::kRemoveDir, dir, true));
  const std::string_view what = "cannot remove the directory";
  NC_ASSIGN(const FakeDisk::Place at, disk_->place(dir, what));
  if (!at.inode) return errno_error(ENOENT, what, dir);
  if (!at.inode->is_dir) return errno_error(ENOTDIR, what, dir);
  if (!at.inode->names.empty()) return errno_error(ENOTEMPTY, what, dir);
  if (!at.dir) return errno_error(EBUSY, what, dir);
  disk_->change_names({{at.dir, at.name, nullptr}});
  return {};
}

Status FakeFileSystem::sync_dir(const std::string& dir) {
  MutexLock lock(disk_->mutex);
  NC_TRY(disk_->enter(Call::kSyncDir, dir, true));
  NC_ASSIGN(const auto inode, disk_->find(dir, "cannot open"));
  if (!inode->is_dir) return errno_error(ENOTDIR, "cannot open", dir);
  disk_->sync_names(inode);
  return {};
}

Result<DiskSpace> FakeFileSystem::space(const std::string& path) {
  MutexLock lock(disk_->mutex);
  NC_TRY(disk_->enter(Call::kSpace, path, false));
  NC_TRY(disk_->find(path, "cannot get the free space of"));
  return DiskSpace{disk_->capacity,
                   disk_->used >= disk_->capacity ? 0 : disk_->capacity - disk_->used};
}

Result<std::unique_ptr<FileLock>> FakeFileSystem::lock(const std::string& path) {
  MutexLock lock(disk_->mutex);
  NC_TRY(disk_->enter(Call::kLock, path, true));
  NC_ASSIGN(FakeDisk::Place at, disk_->place(path, "cannot open the lock file"));
  if (!at.inode) at.inode = new_file(at, 0600, *disk_);
  if (at.inode->is_dir) return errno_error(EISDIR, "cannot open the lock file", path);
  if (disk_->locked.contains(at.inode.get())) {
    return Error{Code::kBusy, path + " is locked by another process",
                 "stop that process, or use another place"};
  }
  return std::unique_ptr<FileLock>(std::make_unique<FakeLock>(disk_, at.inode));
}

void FakeFileSystem::power_cut(const PowerCut& cut) {
  MutexLock lock(disk_->mutex);
  disk_->cut(cut);
}

void FakeFileSystem::power_cut_at(std::uint64_t nth, const PowerCut& cut) {
  MutexLock lock(disk_->mutex);
  disk_->cut_at = FakeDisk::CutAt{std::max<std::uint64_t>(nth, 1), cut};
}

bool FakeFileSystem::has_power() const {
  MutexLock lock(disk_->mutex);
  return disk_->power;
}

void FakeFileSystem::power_on() {
  MutexLock lock(disk_->mutex);
  disk_->power = true;
  disk_->cut_at.reset();
}

std::uint64_t FakeFileSystem::unsynced_bytes() const {
  MutexLock lock(disk_->mutex);
  return disk_->unsynced_bytes();
}

void FakeFileSystem::fail(Failure failure) {
  MutexLock lock(disk_->mutex);
  disk_->failures.push_back(std::move(failure));
}

void FakeFileSystem::clear_failures() {
  MutexLock lock(disk_->mutex);
  disk_->failures.clear();
}

void FakeFileSystem::set_capacity(std::uint64_t bytes) {
  MutexLock lock(disk_->mutex);
  disk_->capacity = bytes;
}

std::uint64_t FakeFileSystem::used() const {
  MutexLock lock(disk_->mutex);
  return disk_->used;
}

void FakeFileSystem::set_read_only(bool read_only) {
  MutexLock lock(disk_->mutex);
  disk_->read_only = read_only;
}

std::uint64_t FakeFileSystem::calls(Call call) const {
  MutexLock lock(disk_->mutex);
  return disk_->calls[static_cast<std::size_t>(call)];
}

std::uint64_t FakeFileSystem::changes() const {
  MutexLock lock(disk_->mutex);
  return disk_->changes;
}

std::size_t FakeFileSystem::open_files() const {
  MutexLock lock(disk_->mutex);
  return disk_->open_files;
}

void FakeFileSystem::set_owner(const std::string& path, std::uint32_t uid) {
  MutexLock lock(disk_->mutex);
  const auto inode = disk_->find(path, "");
  if (!inode.ok()) std::abort();
  (*inode)->uid = uid;
}

void FakeFileSystem::flip_bit(const std::string& path, std::uint64_t offset, unsigned bit) {
  MutexLock lock(disk_->mutex);
  const auto inode = disk_->find(path, "");
  if (!inode.ok() || offset >= (*inode)->data.size()) std::abort();
  char& c = (*inode)->data[offset];
  c = static_cast<char>(c ^ (1 << (bit & 7)));
}

}  // namespace nc
