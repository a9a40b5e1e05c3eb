#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>

#include "base/filesystem.hpp"
#include "base/real_file.hpp"

namespace nc {
namespace {

Error over_limit(const std::string& path, std::uint64_t limit) {
  return {Code::kTooLarge, "cannot read " + path + ": it is larger than " + format_size(limit), ""};
}

Status succeed_or(int rc, std::string_view what, const std::string& path) {
  if (rc != 0) return errno_error(errno, what, path);
  return {};
}

class RealFileSystem final : public FileSystem {
 public:
  Result<std::unique_ptr<File>> open(const std::string& path, Open how,
                                     std::uint32_t mode) override {
    RealFileOptions options;
    int flags = O_RDONLY;
    switch (how) {
      case Open::kRead:
        break;
      case Open::kCreateNew:
        flags = O_RDWR | O_CREAT | O_EXCL;
        options.writable = true;
        break;
      case Open::kCreateOrTruncate:
        flags = O_RDWR | O_CREAT | O_TRUNC;
        options.writable = true;
        break;
      case Open::kAppend:
        flags = O_RDWR | O_CREAT | O_APPEND;
        options.writable = true;
        options.append = true;
        break;
    }
    NC_ASSIGN(UniqueFd fd,
              open_fd(path, flags, mode, options.writable ? "cannot create" : "cannot open"));
    return make_real_file(std::move(fd), path, options);
  }

  Result<std::unique_ptr<Mapping>> map(const std::string& path) override {
    NC_ASSIGN(const UniqueFd fd, open_fd(path, O_RDONLY, 0, "cannot open"));
    return make_real_mapping(fd, path);
  }

  Result<std::string> read_all(const std::string& path, std::uint64_t limit) override {
    NC_ASSIGN(UniqueFd fd, open_fd(path, O_RDONLY, 0, "cannot open"));
    struct ::stat st {};
    if (::fstat(fd.get(), &st) != 0) return errno_error(errno, "cannot stat", path);
    if (S_ISDIR(st.st_mode)) return errno_error(EISDIR, "cannot read", path);
    const auto expected = static_cast<std::uint64_t>(st.st_size);
    if (expected > limit) return over_limit(path, limit);
    // The size is a hint only: files under /proc say 0, and a file may grow while it is read.
    // Without an end within limit + 1 bytes it is too large. pread cannot read pipes, so read(2).
    std::string out;
    out.reserve(expected + 1);
    std::array<char, 65536> chunk;
    while (true) {
      const ssize_t n = ::read(fd.get(), chunk.data(), chunk.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno_error(errno, "cannot read", path);
      if (n == 0) return out;
      out.append(chunk.data(), static_cast<std::size_t>(n));
      if (out.size() > limit) return over_limit(path, limit);
    }
  }

  Result<FileInfo> stat(const std::string& path) override {
    struct ::stat st {};
    if (::stat(path.c_str(), &st) != 0) return errno_error(errno, "cannot stat", path);
    FileInfo info;
    info.size = static_cast<std::uint64_t>(st.st_size);
    info.allocated = static_cast<std::uint64_t>(st.st_blocks) * 512;
    info.mtime_ms = static_cast<Millis>(st.st_mtim.tv_sec) * 1000 + st.st_mtim.tv_nsec / 1'000'000;
    info.is_dir = S_ISDIR(st.st_mode);
    info.mode = st.st_mode & 07777;
    info.uid = st.st_uid;
    info.links = static_cast<std::uint32_t>(st.st_nlink);
    info.inode = st.st_ino;
    return info;
  }

  Result<std::vector<std::string>> list(const std::string& dir) override {
    struct Closer {
      void operator()(DIR* d) const { ::closedir(d); }
    };
    const std::unique_ptr<DIR, Closer> handle(::opendir(dir.c_str()));
    if (!handle) return errno_error(errno, "cannot list", dir);
    std::vector<std::string> names;
    while (true) {
      errno = 0;
      const dirent* entry = ::readdir(handle.get());
      if (entry == nullptr) break;
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
    }
    if (errno != 0) return errno_error(errno, "cannot list", dir);
    return names;
  }

  Status make_dirs(const std::string& dir, std::uint32_t mode) override {
    if (::mkdir(dir.c_str(), mode) == 0) return {};
    int err = errno;
    if (err == ENOENT && parent_dir(dir) != dir) {
      NC_TRY(make_dirs(parent_dir(dir), mode));
      if (::mkdir(dir.c_str(), mode) == 0) return {};
      err = errno;
    }
    // Whatever mkdir said (EEXIST, but also EROFS or EACCES for a mount point), a directory that is
    // there is enough.
    struct ::stat st {};
    if (::stat(dir.c_str(), &st) == 0) {
      if (S_ISDIR(st.st_mode)) return {};
      err = ENOTDIR;
    }
    return errno_error(err, "cannot create the directory", dir);
  }

  Status rename(const std::string& from, const std::string& to) override {
    return succeed_or(::rename(from.c_str(), to.c_str()), "cannot rename " + from + " to", to);
  }
  Status link(const std::string& from, const std::string& to) override {
    return succeed_or(::link(from.c_str(), to.c_str()), "cannot link " + from + " to", to);
  }
  Status remove(const std::string& path) override {
    return succeed_or(::unlink(path.c_str()), "cannot remove", path);
  }
  Status remove_dir(const std::string& dir) override {
    return succeed_or(::rmdir(dir.c_str()), "cannot remove the directory", dir);
  }

  Status sync_dir(const std::string& dir) override {
    NC_ASSIGN(const UniqueFd fd, open_fd(dir, O_RDONLY | O_DIRECTORY, 0, "cannot open"));
    return succeed_or(::fsync(fd.get()), "cannot sync the directory", dir);
  }

  Result<DiskSpace> space(const std::string& path) override {
    struct ::statvfs vfs {};
    if (::statvfs(path.c_str(), &vfs) != 0)
      return errno_error(errno, "cannot get the free space of", path);
    const std::uint64_t unit = vfs.f_frsize;
    return DiskSpace{unit * vfs.f_blocks, unit * vfs.f_bavail};
  }

  Result<std::unique_ptr<FileLock>> lock(const std::string& path) override {
    return make_real_lock(path);
  }
};

}  // namespace

FileSystem& real_filesystem() {
  static RealFileSystem fs;
  return fs;
}

}  // namespace nc
