#include "base/real_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

namespace nc {
namespace {

template <class F>
auto retry_on_signal(F&& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

class RealFile final : public File {
 public:
  RealFile(UniqueFd fd, std::string path, RealFileOptions options)
      : fd_(std::move(fd)), path_(std::move(path)), options_(options) {}

  Status write(Bytes bytes) override {
    if (!options_.writable) return refuse("was opened for reading");
    if (!options_.append) return write_at(options_.end, bytes);
    while (!bytes.empty()) {
      const ssize_t n =
          retry_on_signal([&] { return ::write(fd_.get(), bytes.data(), bytes.size()); });
      if (n < 0) return errno_error(errno, "cannot append to", path_);
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
    return {};
  }

  Status write_at(std::uint64_t offset, Bytes bytes) override {
    if (!options_.writable) return refuse("was opened for reading");
    if (options_.append) return refuse("was opened for appending");
    while (!bytes.empty()) {
      const ssize_t n = retry_on_signal([&] {
        return ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
      });
      if (n < 0) return errno_error(errno, "cannot write", path_);
      bytes = bytes.subspan(static_cast<std::size_t>(n));
      offset += static_cast<std::uint64_t>(n);
      options_.end = std::max(options_.end, offset);
    }
    return {};
  }

  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    std::size_t done = 0;
    while (done < out.size()) {
      const ssize_t n = retry_on_signal([&] {
        return ::pread(fd_.get(), out.data() + done, out.size() - done,
                       static_cast<off_t>(offset + done));
      });
      if (n < 0) return errno_error(errno, "cannot read", path_);
      if (n == 0) break;
      done += static_cast<std::size_t>(n);
    }
    return done;
  }

  Status truncate(std::uint64_t size) override {
    if (!options_.writable) return refuse("was opened for reading");
    if (retry_on_signal([&] { return ::ftruncate(fd_.get(), static_cast<off_t>(size)); }) != 0) {
      return errno_error(errno, "cannot truncate", path_);
    }
    options_.end = size;
    return {};
  }

  Status sync() override {
    // fdatasync also writes the size, which is all the metadata that reading the bytes back needs.
    if (retry_on_signal([&] { return ::fdatasync(fd_.get()); }) != 0) {
      return errno_error(errno, "cannot sync", path_);
    }
    return {};
  }

  Result<std::uint64_t> size() const override {
    struct ::stat st {};
    if (::fstat(fd_.get(), &st) != 0) return errno_error(errno, "cannot stat", path_);
    return static_cast<std::uint64_t>(st.st_size);
  }

 private:
  Error refuse(std::string_view why) const {
    return {Code::kInvalid, "cannot write " + path_ + ": it " + std::string(why), ""};
  }

  UniqueFd fd_;
  std::string path_;
  RealFileOptions options_;
};

class RealMapping final : public Mapping {
 public:
  RealMapping(void* address, std::size_t size) : address_(address), size_(size) {}
  ~RealMapping() override {
    if (size_ != 0) ::munmap(address_, size_);
  }
  RealMapping(const RealMapping&) = delete;
  RealMapping& operator=(const RealMapping&) = delete;
  Bytes bytes() const override { return {static_cast<const std::byte*>(address_), size_}; }

 private:
  void* address_;
  std::size_t size_;
};

class RealLock final : public FileLock {
 public:
  explicit RealLock(UniqueFd fd) : fd_(std::move(fd)) {}

 private:
  UniqueFd fd_;
};

}  // namespace

Result<UniqueFd> open_fd(const std::string& path, int flags, std::uint32_t mode,
                         std::string_view what) {
  const int fd =
      retry_on_signal([&] { return ::open(path.c_str(), flags | O_CLOEXEC | O_NOCTTY, mode); });
  if (fd < 0) return errno_error(errno, what, path);
  return UniqueFd(fd);
}

std::unique_ptr<File> make_real_file(UniqueFd fd, std::string path, RealFileOptions options) {
  return std::make_unique<RealFile>(std::move(fd), std::move(path), options);
}

Result<std::unique_ptr<Mapping>> make_real_mapping(const UniqueFd& fd, const std::string& path) {
  struct ::stat st {};
  if (::fstat(fd.get(), &st) != 0) return errno_error(errno, "cannot stat", path);
  if (!S_ISREG(st.st_mode)) return errno_error(EISDIR, "cannot map", path);
  const auto size = static_cast<std::size_t>(st.st_size);
  if (size == 0) return std::unique_ptr<Mapping>(std::make_unique<RealMapping>(nullptr, 0));
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (address == MAP_FAILED) return errno_error(errno, "cannot map", path);
  return std::unique_ptr<Mapping>(std::make_unique<RealMapping>(address, size));
}

Result<std::unique_ptr<FileLock>> make_real_lock(const std::string& path) {
  while (true) {
    NC_ASSIGN(UniqueFd fd, open_fd(path, O_RDWR | O_CREAT, 0600, "cannot open the lock file"));
    if (retry_on_signal([&] { return ::flock(fd.get(), LOCK_EX | LOCK_NB); }) != 0) {
      if (errno == EWOULDBLOCK) {
        return Error{Code::kBusy, path + " is locked by another process",
                     "stop that process, or use another place"};
      }
      return errno_error(errno, "cannot lock", path);
    }
    // Whoever held the lock before may have removed the file: then the lock is on no name, and a
    // third process could lock a new file under it.
    struct ::stat ours {};
    struct ::stat named {};
    if (::fstat(fd.get(), &ours) != 0) return errno_error(errno, "cannot stat", path);
    if (::stat(path.c_str(), &named) == 0 && named.st_ino == ours.st_ino &&
        named.st_dev == ours.st_dev) {
      return std::unique_ptr<FileLock>(std::make_unique<RealLock>(std::move(fd)));
    }
  }
}

}  // namespace nc
