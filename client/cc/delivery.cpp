#include "client/cc/delivery.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/filesystem.hpp"
#include "base/unique_fd.hpp"

namespace nc::cc {
namespace {

Status write_all(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error(errno, "cannot write", path);
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

// The bytes on their way.
class Check {
 public:
  explicit Check(const Expected& expected) : expected_(expected) {
    if (expected_.quick) {
      quick_.emplace();
    } else if (expected_.digest) {
      digest_.emplace();
    }
  }
  bool wanted() const { return quick_ || digest_; }
  void update(std::string_view bytes) {
    if (quick_) quick_->update(as_bytes(bytes));
    if (digest_) digest_->update(as_bytes(bytes));
  }
  Status finish(const std::string& source) {
    const bool good = quick_    ? quick_->finish() == *expected_.quick
                      : digest_ ? digest_->finish() == *expected_.digest
                                : true;
    return good ? Status() : Status(damaged(source));
  }
  static Error damaged(const std::string& source) {
    return {Code::kDigestMismatch, fmt::format("the stored output {} is damaged", source),
            "run `neuroncache verify --repair`"};
  }

 private:
  const Expected& expected_;
  std::optional<Xxh128Hasher> quick_;
  std::optional<Sha256Hasher> digest_;
};

// What is left of the file, in pieces.
template <class Use>
Status read_through(int from, const std::string& path, Use use) {
  constexpr std::size_t kStep = 1 << 20;
  const auto buffer = std::make_unique_for_overwrite<char[]>(kStep);
  for (;;) {
    const ssize_t n = ::read(from, buffer.get(), kStep);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error(errno, "cannot read", path);
    if (n == 0) return {};
    NC_TRY(use(std::string_view(buffer.get(), static_cast<std::size_t>(n))));
  }
}

// Copies as much as it can, leaving both files where it stopped; true when that was all. A file
// that shrinks meanwhile, or cannot be read, is an error of write(), not a signal: each piece is
// looked at only after it was written, when it is there, and in the processor's cache.
bool copy_mapped(int from, std::uint64_t size, int to, Check& check) {
  constexpr std::uint64_t kStep = 256 << 10;
  if (size == 0) return false;
  void* bytes = ::mmap(nullptr, size, PROT_READ, MAP_SHARED | MAP_POPULATE, from, 0);
  if (bytes == MAP_FAILED) return false;
  std::uint64_t done = 0;
  while (done < size) {
    const char* const piece = static_cast<const char*>(bytes) + done;
    const std::uint64_t wanted = check.wanted() ? std::min(kStep, size - done) : size - done;
    const ssize_t n = ::write(to, piece, wanted);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    check.update({piece, static_cast<std::size_t>(n)});
    done += static_cast<std::uint64_t>(n);
  }
  ::munmap(bytes, size);
  ::lseek(from, static_cast<off_t>(done), SEEK_SET);
  return done == size;
}

// `aside`: what is written can be thrown away again; else it is checked beforehand.
Status copy(const Placement& source, const Expected& expected, int to, const std::string& path,
            bool aside) {
  constexpr std::uint64_t kReserved = 64 << 10;
  Check check(expected);
  if (source.path.empty()) {
    check.update(source.bytes);
    if (source.bytes.size() != expected.size) return Check::damaged("");
    NC_TRY(check.finish(""));
    return write_all(to, source.bytes, path);
  }
  const UniqueFd from(::open(source.path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!from.valid())
    return Error{Code::kNotFound, fmt::format("the stored file {} is gone", source.path), ""};
  const auto look = [&](std::string_view bytes) -> Status {
    check.update(bytes);
    return {};
  };
  struct stat s {};
  if (::fstat(from.get(), &s) != 0 || static_cast<std::uint64_t>(s.st_size) != expected.size)
    return Check::damaged(source.path);
  if (!aside && check.wanted()) {
    NC_TRY(read_through(from.get(), source.path, look));
    NC_TRY(check.finish(source.path));
    ::lseek(from.get(), 0, SEEK_SET);
    Expected checked(expected.size);
    return copy(source, checked, to, path, aside);
  }
  if (::ioctl(to, FICLONE, from.get()) == 0) {
    if (check.wanted()) NC_TRY(read_through(from.get(), source.path, look));
    return check.finish(source.path);
  }
  // Blocks that are there before the data spare ext4 a flush when the file takes another's place.
  // File systems and devices that cannot do it say so and are none the worse.
  if (expected.size >= kReserved &&
      ::fallocate(to, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(expected.size)) != 0 &&
      errno == ENOSPC)
    return errno_error(errno, "cannot write", path);
  if (!copy_mapped(from.get(), expected.size, to, check)) {
    NC_TRY(read_through(from.get(), source.path, [&](std::string_view bytes) -> Status {
      check.update(bytes);
      return write_all(to, bytes, path);
    }));
  }
  return check.finish(source.path);
}

// Where writing to `path` would end up.
std::string target_of(const std::string& path) {
  std::array<char, PATH_MAX> buffer;
  if (::realpath(path.c_str(), buffer.data()) != nullptr) return buffer.data();
  // A dangling link: the file that it names comes into being.
  std::string target = path;
  constexpr int kMostLinks = 40;  // as the kernel has it
  for (int i = 0; i < kMostLinks; ++i) {
    const ssize_t n = ::readlink(target.c_str(), buffer.data(), buffer.size());
    if (n <= 0 || n == static_cast<ssize_t>(buffer.size())) break;
    const std::string next(buffer.data(), static_cast<std::size_t>(n));
    const std::size_t slash = target.rfind('/');
    target = next.starts_with('/') || slash == std::string::npos
                 ? next
                 : target.substr(0, slash + 1) + next;
  }
  return target;
}

// The same for two names of one place, though nothing may be there yet.
std::string place_of(const std::string& path) {
  const std::string target = target_of(path);
  const std::size_t slash = target.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : target.substr(0, slash + 1);
  std::array<char, PATH_MAX> buffer;
  if (::realpath(directory.c_str(), buffer.data()) == nullptr) return target;
  return fmt::format("{}/{}", buffer.data(), target.substr(slash + 1));
}

struct Aside {
  UniqueFd fd;
  std::string path;
};

Result<Aside> open_aside(const std::string& target) {
  const std::size_t slash = target.rfind('/');
  const std::string directory = slash == std::string::npos ? "" : target.substr(0, slash + 1);
  int error = 0;
  for (int i = 0; i < 100; ++i) {
    Aside aside;
    aside.path = fmt::format("{}.neuroncache-{}-{:x}", directory, ::getpid(),
                             static_cast<std::uint64_t>(system_clock().monotonic_ms()) + i);
    aside.fd = UniqueFd(::open(aside.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (aside.fd.valid()) return aside;
    error = errno;
    if (error != EEXIST) break;
  }
  return errno_error(error, "cannot write into the directory of", target);
}

Status write_in_place(const Placement& from, const Expected& expected, const std::string& target,
                      int flags) {
  const UniqueFd fd(::open(target.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY | flags, 0666));
  if (!fd.valid()) return errno_error(errno, "cannot write", target);
  return copy(from, expected, fd.get(), target, false);
}

}  // namespace

std::string quick_text(const Xxh128& sum) {
  return fmt::format("{:016x}{:016x}", sum.high, sum.low);
}

std::optional<Xxh128> quick_from(std::string_view text) {
  constexpr std::size_t kHalf = 16;
  Xxh128 sum;
  const auto half = [&](std::size_t at, std::uint64_t& out) {
    const char* const end = text.data() + at + kHalf;
    const auto [stop, error] = std::from_chars(text.data() + at, end, out, 16);
    return error == std::errc() && stop == end;
  };
  if (text.size() != 2 * kHalf || !half(0, sum.high) || !half(kHalf, sum.low)) return std::nullopt;
  return sum;
}

Result<Xxh128> quick_of(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return errno_error(errno, "cannot read", path);
  Xxh128Hasher hasher;
  NC_TRY(read_through(fd.get(), path, [&](std::string_view bytes) -> Status {
    hasher.update(as_bytes(bytes));
    return {};
  }));
  return hasher.finish();
}

Status place(const Placement& from, const Expected& expected, const std::string& destination) {
  const std::string target = target_of(destination);
  struct stat s {};
  const bool exists = ::stat(target.c_str(), &s) == 0;
  // Links that lead nowhere are no file to be replaced.
  if (!exists && errno == ELOOP) return errno_error(ELOOP, "cannot write", destination);
  if (exists && S_ISDIR(s.st_mode)) return errno_error(EISDIR, "cannot write", destination);
  if (exists && !S_ISREG(s.st_mode)) return write_in_place(from, expected, target, 0);
  if (exists && ::access(target.c_str(), W_OK) != 0)
    return errno_error(errno, "cannot write", destination);
  auto aside = open_aside(target);
  if (!aside.ok()) {
    // A directory that takes no new files may hold one that may be written.
    if (!exists) return std::move(aside).error();
    return write_in_place(from, expected, target, O_TRUNC);
  }
  Status done = copy(from, expected, aside->fd.get(), destination, true);
  struct stat made {};
  if (done.ok() && (::fstat(aside->fd.get(), &made) != 0 ||
                    static_cast<std::uint64_t>(made.st_size) != expected.size))
    done = Error{Code::kIo, fmt::format("{} came out with a wrong size", destination), ""};
  if (done.ok() && exists) ::fchmod(aside->fd.get(), s.st_mode & 07777);
  if (done.ok() && ::rename(aside->path.c_str(), target.c_str()) != 0)
    done = errno_error(errno, "cannot write", destination);
  if (!done.ok()) ::unlink(aside->path.c_str());
  return done;
}

// A byte of the file stands for each place, so that nothing is left behind.
UniqueFd output_turn(const std::string& locks, const std::string& output,
                     const std::function<void()>& waiting) {
  struct stat s {};
  if (::stat(output.c_str(), &s) == 0 && !S_ISREG(s.st_mode)) return {};
  UniqueFd fd(::open(locks.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid()) return fd;
  Xxh128Hasher hasher;
  const std::string place = place_of(output);
  hasher.update(as_bytes(place));
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(hasher.finish().low >> 2);
  lock.l_len = 1;
  int done = ::fcntl(fd.get(), F_OFD_SETLK, &lock);
  if (done != 0 && (errno == EAGAIN || errno == EACCES)) {
    if (waiting) waiting();
    do {
      done = ::fcntl(fd.get(), F_OFD_SETLKW, &lock);
    } while (done != 0 && errno == EINTR);
  }
  if (done != 0) fd.reset();
  return fd;
}

bool same_file(const std::string& one, const std::string& other) {
  struct stat a {};
  struct stat b {};
  if (::stat(one.c_str(), &a) == 0 && ::stat(other.c_str(), &b) == 0)
    return S_ISREG(a.st_mode) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
  return place_of(one) == place_of(other);
}

Status place_log(std::string_view bytes, const std::string& destination, bool append) {
  return write_in_place({"", bytes}, bytes.size(), destination,
                        O_CREAT | (append ? O_APPEND : O_TRUNC));
}

}  // namespace nc::cc
