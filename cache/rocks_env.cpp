#include "cache/rocks_env.hpp"

#include <cstring>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <rocksdb/file_system.h>
#include <rocksdb/io_status.h>

namespace nc {
namespace {

using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

IOStatus to_io_status(const Error& error) {
  switch (error.code) {
    case Code::kNotFound:
      return IOStatus::PathNotFound(error.message);
    case Code::kNoSpace:
      return IOStatus::NoSpace(error.message);
    case Code::kBusy:
      return IOStatus::Busy(error.message);
    default:
      return IOStatus::IOError(error.message);
  }
}

IOStatus to_io_status(const Status& status) {
  return status.ok() ? IOStatus::OK() : to_io_status(status.error());
}

Bytes to_bytes(const Slice& slice) {
  return as_bytes({slice.data(), slice.size()});
}

class SequentialFile final : public rocksdb::FSSequentialFile {
 public:
  explicit SequentialFile(std::unique_ptr<File> file) : file_(std::move(file)) {}

  IOStatus Read(std::size_t n, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) override {
    std::size_t got = 0;
    while (got < n) {
      auto part =
          file_->read_at(offset_, std::as_writable_bytes(std::span(scratch + got, n - got)));
      if (!part.ok()) return to_io_status(part.error());
      if (*part == 0) break;
      got += *part;
      offset_ += *part;
    }
    *result = Slice(scratch, got);
    return IOStatus::OK();
  }
  IOStatus Skip(std::uint64_t n) override {
    offset_ += n;
    return IOStatus::OK();
  }

 private:
  std::unique_ptr<File> file_;
  std::uint64_t offset_ = 0;
};

class RandomAccessFile final : public rocksdb::FSRandomAccessFile {
 public:
  explicit RandomAccessFile(std::unique_ptr<File> file) : file_(std::move(file)) {}

  IOStatus Read(std::uint64_t offset, std::size_t n, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) const override {
    std::size_t got = 0;
    while (got < n) {
      auto part =
          file_->read_at(offset + got, std::as_writable_bytes(std::span(scratch + got, n - got)));
      if (!part.ok()) return to_io_status(part.error());
      if (*part == 0) break;
      got += *part;
    }
    *result = Slice(scratch, got);
    return IOStatus::OK();
  }

 private:
  std::unique_ptr<File> file_;
};

class WritableFile final : public rocksdb::FSWritableFile {
 public:
  WritableFile(std::unique_ptr<File> file, std::uint64_t size)
      : file_(std::move(file)), size_(size) {}

  using FSWritableFile::Append;
  IOStatus Append(const Slice& data, const IOOptions&, IODebugContext*) override {
    auto done = file_->write(to_bytes(data));
    if (done.ok()) size_ += data.size();
    return to_io_status(done);
  }
  IOStatus Truncate(std::uint64_t size, const IOOptions&, IODebugContext*) override {
    auto done = file_->truncate(size);
    if (done.ok()) size_ = size;
    return to_io_status(done);
  }
  IOStatus Close(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Flush(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Sync(const IOOptions&, IODebugContext*) override { return to_io_status(file_->sync()); }
  bool IsSyncThreadSafe() const override { return true; }
  std::uint64_t GetFileSize(const IOOptions&, IODebugContext*) override { return size_; }

 private:
  std::unique_ptr<File> file_;
  std::uint64_t size_;
};

class Directory final : public rocksdb::FSDirectory {
 public:
  Directory(FileSystem& fs, std::string path) : fs_(fs), path_(std::move(path)) {}
  IOStatus Fsync(const IOOptions&, IODebugContext*) override {
    return to_io_status(fs_.sync_dir(path_));
  }

 private:
  FileSystem& fs_;
  std::string path_;
};

class HeldLock final : public rocksdb::FileLock {
 public:
  explicit HeldLock(std::unique_ptr<nc::FileLock> lock) : lock_(std::move(lock)) {}

 private:
  std::unique_ptr<nc::FileLock> lock_;
};

// When CURRENT gets a new manifest, the names of the tables that it lists must be durable before.
// RocksDB leaves the order to the file system while it opens.
bool commits(const std::string& target) {
  return target.ends_with("/CURRENT");
}

class Ordered final : public rocksdb::FileSystemWrapper {
 public:
  explicit Ordered(const std::shared_ptr<rocksdb::FileSystem>& real) : FileSystemWrapper(real) {}
  const char* Name() const override { return "neuroncache-ordered"; }
  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions& options,
                      IODebugContext* debug) override {
    if (commits(to)) {
      std::unique_ptr<rocksdb::FSDirectory> dir;
      auto s = target()->NewDirectory(parent_dir(to), options, &dir, debug);
      if (s.ok()) s = dir->Fsync(options, debug);
      if (!s.ok()) return s;
    }
    return target()->RenameFile(from, to, options, debug);
  }
};

class Adapter final : public rocksdb::FileSystem {
 public:
  explicit Adapter(nc::FileSystem& fs) : fs_(fs) {}
  const char* Name() const override { return "neuroncache"; }

  IOStatus NewSequentialFile(const std::string& name, const FileOptions&,
                             std::unique_ptr<rocksdb::FSSequentialFile>* result,
                             IODebugContext*) override {
    auto file = fs_.open(name, nc::FileSystem::Open::kRead);
    if (!file.ok()) return to_io_status(file.error());
    *result = std::make_unique<SequentialFile>(*std::move(file));
    return IOStatus::OK();
  }
  IOStatus NewRandomAccessFile(const std::string& name, const FileOptions&,
                               std::unique_ptr<rocksdb::FSRandomAccessFile>* result,
                               IODebugContext*) override {
    auto file = fs_.open(name, nc::FileSystem::Open::kRead);
    if (!file.ok()) return to_io_status(file.error());
    *result = std::make_unique<RandomAccessFile>(*std::move(file));
    return IOStatus::OK();
  }
  IOStatus NewWritableFile(const std::string& name, const FileOptions&,
                           std::unique_ptr<rocksdb::FSWritableFile>* result,
                           IODebugContext*) override {
    return open_writable(name, nc::FileSystem::Open::kCreateOrTruncate, result);
  }
  IOStatus ReopenWritableFile(const std::string& name, const FileOptions&,
                              std::unique_ptr<rocksdb::FSWritableFile>* result,
                              IODebugContext*) override {
    return open_writable(name, nc::FileSystem::Open::kAppend, result);
  }
  IOStatus NewDirectory(const std::string& name, const IOOptions&,
                        std::unique_ptr<rocksdb::FSDirectory>* result, IODebugContext*) override {
    result->reset(new Directory(fs_, name));
    return IOStatus::OK();
  }
  IOStatus FileExists(const std::string& name, const IOOptions&, IODebugContext*) override {
    auto info = fs_.stat(name);
    if (info.ok()) return IOStatus::OK();
    // RocksDB branches on NotFound here.
    return info.is(Code::kNotFound) ? IOStatus::NotFound() : to_io_status(info.error());
  }
  IOStatus GetChildren(const std::string& dir, const IOOptions&, std::vector<std::string>* result,
                       IODebugContext*) override {
    auto names = fs_.list(dir);
    if (!names.ok()) {
      return names.is(Code::kNotFound) ? IOStatus::NotFound(names.error().message)
                                       : to_io_status(names.error());
    }
    *result = *std::move(names);
    return IOStatus::OK();
  }
  IOStatus DeleteFile(const std::string& name, const IOOptions&, IODebugContext*) override {
    return to_io_status(fs_.remove(name));
  }
  IOStatus Truncate(const std::string& name, std::size_t size, const IOOptions&,
                    IODebugContext*) override {
    auto file = fs_.open(name, nc::FileSystem::Open::kAppend);
    return file.ok() ? to_io_status((*file)->truncate(size)) : to_io_status(file.error());
  }
  IOStatus CreateDir(const std::string& dir, const IOOptions&, IODebugContext*) override {
    return to_io_status(fs_.make_dirs(dir));
  }
  IOStatus CreateDirIfMissing(const std::string& dir, const IOOptions&, IODebugContext*) override {
    return to_io_status(fs_.make_dirs(dir));
  }
  IOStatus DeleteDir(const std::string& dir, const IOOptions&, IODebugContext*) override {
    return to_io_status(fs_.remove_dir(dir));
  }
  IOStatus GetFileSize(const std::string& name, const IOOptions&, std::uint64_t* size,
                       IODebugContext*) override {
    auto info = fs_.stat(name);
    if (!info.ok()) return to_io_status(info.error());
    *size = info->size;
    return IOStatus::OK();
  }
  IOStatus GetFileModificationTime(const std::string& name, const IOOptions&, std::uint64_t* time,
                                   IODebugContext*) override {
    auto info = fs_.stat(name);
    if (!info.ok()) return to_io_status(info.error());
    *time = static_cast<std::uint64_t>(info->mtime_ms / 1000);
    return IOStatus::OK();
  }
  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions&,
                      IODebugContext*) override {
    if (commits(to)) {
      const auto synced = fs_.sync_dir(parent_dir(to));
      if (!synced.ok()) return to_io_status(synced.error());
    }
    return to_io_status(fs_.rename(from, to));
  }
  IOStatus LinkFile(const std::string& from, const std::string& to, const IOOptions&,
                    IODebugContext*) override {
    return to_io_status(fs_.link(from, to));
  }
  IOStatus LockFile(const std::string& name, const IOOptions&, rocksdb::FileLock** lock,
                    IODebugContext*) override {
    auto held = fs_.lock(name);
    if (!held.ok()) return to_io_status(held.error());
    *lock = new HeldLock(*std::move(held));
    return IOStatus::OK();
  }
  IOStatus UnlockFile(rocksdb::FileLock* lock, const IOOptions&, IODebugContext*) override {
    delete lock;
    return IOStatus::OK();
  }
  IOStatus GetTestDirectory(const IOOptions&, std::string* path, IODebugContext*) override {
    *path = "/tmp";
    return IOStatus::OK();
  }
  IOStatus GetAbsolutePath(const std::string& path, const IOOptions&, std::string* out,
                           IODebugContext*) override {
    *out = path;
    return IOStatus::OK();
  }
  IOStatus GetFreeSpace(const std::string& path, const IOOptions&, std::uint64_t* free,
                        IODebugContext*) override {
    auto space = fs_.space(path);
    if (!space.ok()) return to_io_status(space.error());
    *free = space->available;
    return IOStatus::OK();
  }
  IOStatus IsDirectory(const std::string& path, const IOOptions&, bool* is_dir,
                       IODebugContext*) override {
    auto info = fs_.stat(path);
    if (!info.ok()) return to_io_status(info.error());
    *is_dir = info->is_dir;
    return IOStatus::OK();
  }

 private:
  IOStatus open_writable(const std::string& name, nc::FileSystem::Open how,
                         std::unique_ptr<rocksdb::FSWritableFile>* result) {
    auto file = fs_.open(name, how);
    if (!file.ok()) return to_io_status(file.error());
    auto size = (*file)->size();
    if (!size.ok()) return to_io_status(size.error());
    *result = std::make_unique<WritableFile>(*std::move(file), *size);
    return IOStatus::OK();
  }

  nc::FileSystem& fs_;
};

}  // namespace

std::unique_ptr<rocksdb::Env> make_rocks_env(FileSystem& fs) {
  if (&fs == &real_filesystem()) {
    return rocksdb::NewCompositeEnv(std::make_shared<Ordered>(rocksdb::FileSystem::Default()));
  }
  return rocksdb::NewCompositeEnv(std::make_shared<Adapter>(fs));
}

}  // namespace nc
