#include "daemon/listener.hpp"

#include <fcntl.h>
#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/safe_path.hpp"

namespace nc::daemon {
namespace {

constexpr int kBacklog = 1024;
constexpr auto kRetry = std::chrono::milliseconds(20);

struct Address {
  sockaddr_un raw{};
  socklen_t size = 0;
};

Result<Address> address_of(const std::string& path) {
  Address address;
  if (path.size() >= sizeof address.raw.sun_path) {
    return Error{Code::kInvalid,
                 fmt::format("the socket's path has {} bytes, the system takes {}: {}", path.size(),
                             sizeof address.raw.sun_path - 1, path),
                 "set a shorter one: --socket or NEURONCACHE_SOCKET"};
  }
  address.raw.sun_family = AF_UNIX;
  std::memcpy(address.raw.sun_path, path.data(), path.size());
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1);
  return address;
}

// A private directory that we made ourselves is opened for the group to pass through, and for
// nothing else.
Status open_to_group(const std::string& dir, const FileInfo& info, gid_t group) {
  if (info.uid != ::geteuid() || (info.mode & 077) != 0) return {};
  if (::chown(dir.c_str(), static_cast<uid_t>(-1), group) != 0) {
    return errno_error(errno, "cannot give to the group", dir);
  }
  if (::chmod(dir.c_str(), 0710) != 0) return errno_error(errno, "cannot chmod", dir);
  return {};
}

Status check_directory(FileSystem& fs, const std::string& dir, std::optional<gid_t> group) {
  NC_TRY(check_safe_dir(dir));
  NC_TRY(fs.make_dirs(dir, 0700));
  NC_TRY(check_safe_dir(dir));
  NC_ASSIGN(const FileInfo info, fs.stat(dir));
  if ((info.mode & S_IWGRP) != 0 && !group && (info.mode & S_ISVTX) == 0) {
    return Error{Code::kDenied, fmt::format("a group may write to {}", dir),
                 fmt::format("chmod 700 {}, or set socket_group", dir)};
  }
  return group ? open_to_group(dir, info, *group) : Status();
}

std::uint64_t inode_of(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode) ? info.st_ino : 0;
}

}  // namespace

Result<gid_t> find_group(const std::string& name) {
  gid_t number = 0;
  const auto [end, ec] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (ec == std::errc() && end == name.data() + name.size()) return number;
  std::array<char, 16384> buffer;
  ::group entry{};
  ::group* found = nullptr;
  ::getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
  if (found != nullptr) return found->gr_gid;
  return Error{Code::kInvalid, fmt::format("socket_group: there is no group '{}'", name),
               "name a group of this host, or give its number"};
}

bool answers(const std::string& path) {
  auto address = address_of(path);
  if (!address.ok()) return false;
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return false;
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address->raw), address->size) == 0) {
    return true;
  }
  return errno == EAGAIN;  // somebody listens and is busy
}

Place::Place(FileSystem& fs, const Options& options, std::unique_ptr<FileLock> lock)
    : fs_(&fs), path_(options.path), group_(options.group), lock_(std::move(lock)) {}

Result<std::optional<Place>> Place::take(FileSystem& fs, Clock& clock, const Options& options) {
  NC_TRY(address_of(options.path));
  NC_TRY(check_directory(fs, parent_dir(options.path), options.group));
  if (!options.lock) return std::optional<Place>(Place(fs, options, nullptr));
  const Millis deadline = clock.monotonic_ms() + options.patience_ms;
  for (;;) {
    auto lock = fs.lock(options.path + ".lock");
    if (answers(options.path)) return std::optional<Place>();
    if (lock.ok()) return std::optional<Place>(Place(fs, options, std::move(*lock)));
    if (!lock.is(Code::kBusy)) return std::move(lock).error();
    // Its holder does not listen yet, or not any more.
    if (clock.monotonic_ms() >= deadline) {
      return Error{Code::kBusy,
                   "another neuroncached holds " + options.path + ".lock but does not answer",
                   "look for it with `pgrep neuroncached` and at its log"};
    }
    std::this_thread::sleep_for(kRetry);
  }
}

Result<UniqueFd> Place::listen() {
  NC_ASSIGN(const Address address, address_of(path_));
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return errno_error(errno, "cannot make a socket", path_);
  struct stat there {};
  if (::lstat(path_.c_str(), &there) == 0) {
    if (!S_ISSOCK(there.st_mode)) {
      return Error{Code::kConflict, fmt::format("{} is there already and is no socket", path_),
                   "choose another place: --socket or NEURONCACHE_SOCKET"};
    }
    NC_TRY(fs_->remove(path_));  // nobody answers there: stale
  }
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.raw), address.size) != 0) {
    return errno_error(errno, "cannot bind", path_);
  }
  inode_ = inode_of(path_);
  if (group_ && ::lchown(path_.c_str(), static_cast<uid_t>(-1), *group_) != 0) {
    return errno_error(errno, "cannot give to the group", path_);
  }
  if (::chmod(path_.c_str(), group_ ? 0660 : 0600) != 0) {
    return errno_error(errno, "cannot chmod", path_);
  }
  if (::listen(fd.get(), kBacklog) != 0) return errno_error(errno, "cannot listen at", path_);
  return fd;
}

void Place::leave() {
  if (inode_ == 0 || inode_of(path_) != inode_) return;
  ignore_error(fs_->remove(path_), "the next daemon finds it stale");
  inode_ = 0;
}

Result<std::optional<UniqueFd>> inherited_listener() {
  constexpr int kFirst = 3;
  const char* pid_text = std::getenv("LISTEN_PID");
  const char* count_text = std::getenv("LISTEN_FDS");
  if (pid_text == nullptr || count_text == nullptr) return std::optional<UniqueFd>();
  const std::string pid = pid_text;
  const std::string count = count_text;
  ::unsetenv("LISTEN_PID");
  ::unsetenv("LISTEN_FDS");
  ::unsetenv("LISTEN_FDNAMES");
  if (pid != std::to_string(::getpid())) return std::optional<UniqueFd>();
  if (count != "1") {
    return Error{Code::kInvalid, "systemd handed over " + count + " sockets",
                 "give the socket unit exactly one ListenStream="};
  }
  int listening = 0;
  socklen_t size = sizeof listening;
  sockaddr_un address{};
  socklen_t address_size = sizeof address;
  if (::getsockopt(kFirst, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 || listening == 0 ||
      ::getsockname(kFirst, reinterpret_cast<sockaddr*>(&address), &address_size) != 0 ||
      address.sun_family != AF_UNIX) {
    return Error{Code::kInvalid, "what systemd handed over is not a listening Unix socket",
                 "use ListenStream=/path/to/socket"};
  }
  ::fcntl(kFirst, F_SETFD, FD_CLOEXEC);
  return std::optional<UniqueFd>(UniqueFd(kFirst));
}

std::string bound_path(int fd) {
  sockaddr_un address{};
  socklen_t size = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return {};
  if (size <= offsetof(sockaddr_un, sun_path)) return {};
  return {address.sun_path, ::strnlen(address.sun_path, size - offsetof(sockaddr_un, sun_path))};
}

void notify_manager(std::string_view state) {
  const char* place = std::getenv("NOTIFY_SOCKET");
  if (place == nullptr || (place[0] != '/' && place[0] != '@')) return;
  auto address = address_of(place);
  if (!address.ok()) return;
  if (place[0] == '@') {  // an abstract name: counted, not ended by NUL
    address->raw.sun_path[0] = '\0';
    --address->size;
  }
  UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return;
  ::sendto(fd.get(), state.data(), state.size(), MSG_NOSIGNAL,
           reinterpret_cast<const sockaddr*>(&address->raw), address->size);
}

}  // namespace nc::daemon
