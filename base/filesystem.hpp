// The only door to the disk. RealFileSystem is POSIX; FakeFileSystem (base/fake_filesystem.hpp) is
// a disk in memory that can lose unsynced writes, fill up and fail at the n-th call.
//
// Durability contract: bytes survive a power cut after File::sync(); a name (create, rename, link,
// remove) survives after sync_dir() of its directory. Paths are absolute, '/'-separated.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/result.hpp"

namespace nc {

struct FileInfo {
  std::uint64_t size = 0;
  std::uint64_t allocated = 0;  // bytes on disk (st_blocks * 512)
  Millis mtime_ms = 0;
  bool is_dir = false;
  std::uint32_t mode = 0;  // permission bits
  std::uint32_t uid = 0;
  std::uint32_t links = 1;
  std::uint64_t inode = 0;  // with size and mtime_ms: the same file as before
};

struct DiskSpace {
  std::uint64_t total = 0;
  std::uint64_t available = 0;  // to an unprivileged writer
};

class File {  // closes on destruction
 public:
  virtual ~File() = default;
  // Appends; all or error. After an error a part may have been written: truncate or remove the
  // file.
  virtual Status write(Bytes bytes) = 0;
  virtual Status write_at(std::uint64_t offset,
                          Bytes bytes) = 0;  // kInvalid when opened for kAppend
  virtual Result<std::size_t> read_at(std::uint64_t offset,
                                      std::span<std::byte> out) const = 0;  // 0 at the end
  virtual Status truncate(std::uint64_t size) = 0;
  virtual Status sync() = 0;
  virtual Result<std::uint64_t> size() const = 0;
};

// A read-only view of a whole file; stays valid after the name is removed.
class Mapping {
 public:
  virtual ~Mapping() = default;
  virtual Bytes bytes() const = 0;
};

// Held until destroyed; released by the kernel when the process dies.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  enum class Open {
    kRead,
    kCreateNew,
    kCreateOrTruncate,
    kAppend
  };  // kCreateNew: kConflict when it exists
  virtual Result<std::unique_ptr<File>> open(const std::string& path, Open how,
                                             std::uint32_t mode = 0600) = 0;
  virtual Result<std::unique_ptr<Mapping>> map(const std::string& path) = 0;
  virtual Result<std::string> read_all(const std::string& path,
                                       std::uint64_t limit) = 0;  // kTooLarge over limit

  virtual Result<FileInfo> stat(const std::string& path) = 0;  // kNotFound; follows links
  virtual Result<std::vector<std::string>> list(
      const std::string& dir) = 0;  // names, unsorted, without . and ..
  virtual Status make_dirs(const std::string& dir, std::uint32_t mode = 0700) = 0;  // like mkdir -p
  virtual Status rename(const std::string& from, const std::string& to) = 0;        // replaces
  virtual Status link(const std::string& from,
                      const std::string& to) = 0;         // hard link; kConflict when `to` exists
  virtual Status remove(const std::string& path) = 0;     // file; kNotFound
  virtual Status remove_dir(const std::string& dir) = 0;  // empty directory
  virtual Status sync_dir(const std::string& dir) = 0;
  virtual Result<DiskSpace> space(const std::string& path) = 0;
  // Exclusive; kBusy at once when another process (or FakeFileSystem user) holds it. Creates the
  // file.
  virtual Result<std::unique_ptr<FileLock>> lock(const std::string& path) = 0;

  // Writes `path` so that after success it holds exactly `bytes` even after a power cut, and before
  // that the old content. A crash may leave a file named <path><kAsideMark><id> behind; nothing
  // reads it, and it may be removed at any time.
  Status write_atomically(const std::string& path, Bytes bytes, std::uint32_t mode = 0600);
};

FileSystem& real_filesystem();

inline constexpr std::string_view kAsideMark =
    ".aside-";  // in names of files that are being written

std::string parent_dir(const std::string& path);
std::string join(std::string_view dir, std::string_view name);

}  // namespace nc
