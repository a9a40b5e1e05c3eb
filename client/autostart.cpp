#include "client/autostart.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/filesystem.hpp"
#include "base/process.hpp"
#include "client/connection.hpp"

namespace nc::client {
namespace {

constexpr std::string_view kProgram = "neuroncached";

bool executable(const std::string& path) {
  return ::access(path.c_str(), X_OK) == 0;
}

std::string own_directory() {
  std::string buffer(4096, '\0');
  const ssize_t n = ::readlink("/proc/self/exe", buffer.data(), buffer.size());
  if (n <= 0) return {};
  buffer.resize(static_cast<std::size_t>(n));
  return parent_dir(buffer);
}

// A file for what the daemon says before it detaches, removed when done with.
class OutputFile {
 public:
  OutputFile() {
    const char* tmp = std::getenv("TMPDIR");
    path_ =
        fmt::format("{}/neuroncache-start-XXXXXX", tmp != nullptr && tmp[0] == '/' ? tmp : "/tmp");
    const int fd = ::mkostemp(path_.data(), O_CLOEXEC);
    if (fd < 0) {
      path_ = "/dev/null";
    } else {
      ::close(fd);
    }
  }
  ~OutputFile() {
    if (path_ != "/dev/null") ::unlink(path_.c_str());
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const std::string& path() const { return path_; }

  std::string text() const {
    const auto all = real_filesystem().read_all(path_, 64 << 10);
    if (!all.ok()) return {};
    const std::size_t last = all->find_last_not_of(" \n\r\t");
    return last == std::string::npos ? std::string() : all->substr(0, last + 1);
  }

 private:
  std::string path_;
};

struct Ended {
  int status = 0;
  std::string reason() const {
    if (WIFSIGNALED(status)) return fmt::format("was killed by signal {}", WTERMSIG(status));
    return fmt::format("ended with status {}", WEXITSTATUS(status));
  }
  bool well() const { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }
};

std::optional<Ended> reap_if_ended(pid_t pid) {
  int status = 0;
  const pid_t got = ::waitpid(pid, &status, WNOHANG);
  if (got == pid) return Ended{status};
  if (got < 0 && errno == ECHILD) return Ended{0};  // the host program ignores SIGCHLD
  return std::nullopt;
}

// A process that nobody waits for any more must not stay a zombie of the host program for ever.
void stop_and_reap(pid_t pid, Millis grace_ms) {
  const Millis deadline = system_clock().monotonic_ms() + grace_ms;
  for (bool killed = false; !reap_if_ended(pid);) {
    if (!killed && system_clock().monotonic_ms() >= deadline) {
      ::kill(pid, SIGKILL);
      killed = true;
    }
    ::poll(nullptr, 0, 5);
  }
}

// Polls until something listens. `tolerate_end`: the started process may end well before that (it
// detached).
Status await(const std::string& socket_path, pid_t pid, const OutputFile& output, Millis deadline,
             bool detached) {
  std::optional<Ended> ended;
  Millis ended_at = 0;
  for (int pause_ms = 2;; pause_ms = std::min(pause_ms * 2, 50)) {
    NC_ASSIGN(const bool up, listening(socket_path, 1'000));
    if (up) {
      if (!ended && detached) stop_and_reap(pid, 5'000);
      return {};
    }
    const Millis now = system_clock().monotonic_ms();
    if (!ended) {
      ended = reap_if_ended(pid);
      ended_at = now;
    }
    // One that failed may have lost the start to another, which needs a moment more to listen.
    constexpr Millis kOtherMayComeMs = 500;
    if (ended && !ended->well() && now - ended_at >= kOtherMayComeMs) {
      const std::string said = output.text();
      return Error{
          Code::kUnavailable,
          fmt::format("the daemon {}{}{}", ended->reason(), said.empty() ? "" : ": ", said),
          "see `neuroncache doctor`"};
    }
    if (now >= deadline) {
      if (!ended) stop_and_reap(pid, 0);
      const std::string said = output.text();
      return Error{Code::kTimeout,
                   fmt::format("the daemon does not listen at {} yet{}{}", socket_path,
                               said.empty() ? "" : "; it said: ", said),
                   "raise NEURONCACHE_CONNECT_TIMEOUT on a slow machine; see `neuroncache doctor`"};
    }
    ::poll(nullptr, 0, pause_ms);
  }
}

Result<pid_t> spawn_daemon(const LaunchOptions& options, std::vector<std::string> more,
                           const std::string& output) {
  const char* path = std::getenv("PATH");
  NC_ASSIGN(const std::string program,
            find_daemon(options.daemon_path, path == nullptr ? "" : path));
  SpawnOptions spawn;
  spawn.argv = {program, "--socket", options.socket_path};
  spawn.argv.insert(spawn.argv.end(), options.arguments.begin(), options.arguments.end());
  spawn.argv.insert(spawn.argv.end(), more.begin(), more.end());
  spawn.stdout_path = output;
  spawn.working_dir = "/";
  return system_processes().spawn(spawn);
}

}  // namespace

Result<std::string> find_daemon(const std::string& daemon_path, const std::string& path) {
  constexpr std::string_view kHow =
      "install neuroncache's daemon, or set NEURONCACHE_DAEMON_PATH to its neuroncached";
  if (!daemon_path.empty()) {
    if (executable(daemon_path)) return daemon_path;
    return Error{Code::kNotFound,
                 fmt::format("the setting daemon_path is {}, which is no program", daemon_path),
                 "correct or unset NEURONCACHE_DAEMON_PATH"};
  }
  const std::string own = own_directory();
  if (!own.empty()) {
    std::string beside = join(own, kProgram);
    if (executable(beside)) return beside;
  }
  std::size_t start = 0;
  while (start <= path.size()) {
    const std::size_t end = std::min(path.find(':', start), path.size());
    const std::string dir = path.substr(start, end - start);
    start = end + 1;
    if (dir.empty() || dir[0] != '/') continue;  // never from the current directory
    std::string candidate = join(dir, kProgram);
    if (executable(candidate)) return candidate;
  }
  return Error{Code::kNotFound,
               fmt::format("{} was not found beside this program ({}) nor on PATH", kProgram, own),
               std::string(kHow)};
}

Result<bool> listening(const std::string& socket_path, Millis timeout_ms) {
  auto fd = connect_unix(socket_path, timeout_ms);
  if (fd.ok()) {
    ::close(*fd);
    return true;
  }
  if (fd.is(Code::kUnavailable)) return false;
  if (fd.is(Code::kBusy)) return true;
  return std::move(fd).error();
}

Status ensure_daemon(const LaunchOptions& options) {
  NC_ASSIGN(const bool up, listening(options.socket_path, options.timeout_ms));
  if (up) return {};
  const Millis deadline = system_clock().monotonic_ms() + options.timeout_ms;
  const OutputFile output;
  NC_ASSIGN(const pid_t pid, spawn_daemon(options, {"--detach"}, output.path()));
  return await(options.socket_path, pid, output, deadline, true);
}

Result<PrivateDaemon> PrivateDaemon::start(LaunchOptions options) {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  std::string dir = fmt::format("{}/neuroncache-offline-XXXXXX",
                                runtime != nullptr && runtime[0] == '/' ? runtime : "/tmp");
  if (::mkdtemp(dir.data()) == nullptr) {
    dir = "/tmp/neuroncache-offline-XXXXXX";
    if (::mkdtemp(dir.data()) == nullptr)
      return errno_error(errno, "cannot create the directory", dir);
  }
  PrivateDaemon daemon;
  daemon.dir_ = dir;
  daemon.socket_path_ = join(dir, "s");
  options.socket_path = daemon.socket_path_;
  const Millis deadline = system_clock().monotonic_ms() + options.timeout_ms;
  const OutputFile output;
  NC_ASSIGN(daemon.pid_,
            spawn_daemon(options, {"--read-only", "--exit-with-parent"}, output.path()));
  const Status up = await(daemon.socket_path_, daemon.pid_, output, deadline, false);
  if (!up.ok()) return up.error();
  return daemon;
}

PrivateDaemon::PrivateDaemon(PrivateDaemon&& other) noexcept
    : dir_(std::exchange(other.dir_, {})),
      socket_path_(std::exchange(other.socket_path_, {})),
      pid_(std::exchange(other.pid_, 0)) {}

PrivateDaemon::~PrivateDaemon() {
  if (pid_ > 0 && !reap_if_ended(pid_)) {
    ::kill(pid_, SIGTERM);
    constexpr Millis kGraceMs = 3'000;
    stop_and_reap(pid_, kGraceMs);
  }
  if (!dir_.empty()) {
    ::unlink(socket_path_.c_str());
    ::unlink((socket_path_ + ".lock").c_str());
    ::rmdir(dir_.c_str());
  }
}

}  // namespace nc::client
