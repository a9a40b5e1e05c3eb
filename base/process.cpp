#include "base/process.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <string_view>

#include "base/filesystem.hpp"
#include "base/unique_fd.hpp"

namespace nc {
namespace {

// What the child tells through the pipe before exec: its pid, then, only when it could not start,
// what failed.
struct ChildReport {
  pid_t pid = 0;
  int err = 0;
  int step = 0;
};
enum Step : int { kFork, kDir, kOutput, kInput, kExec };

struct Prepared {  // everything the child needs, allocated before fork
  std::vector<char*> argv;
  std::vector<char*> env;
  const char* dir = nullptr;
  const char* output = nullptr;
  bool new_session = false;
  bool close_stdin = true;
};

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (const std::string& s : strings) out.push_back(const_cast<char*>(s.c_str()));
  out.push_back(nullptr);
  return out;
}

// Below: only async-signal-safe calls, because other threads of the parent may hold any lock.

void send(int pipe, const ChildReport& report) {
  while (::write(pipe, &report, sizeof report) < 0 && errno == EINTR) {
  }
}

[[noreturn]] void give_up(int pipe, Step step) {
  send(pipe, {::getpid(), errno, step});
  ::_exit(127);
}

void close_inherited_on_exec() {
  constexpr unsigned kFirst = 3;
  constexpr unsigned kCloseOnExec = 1U << 2;  // CLOSE_RANGE_CLOEXEC
  if (::syscall(SYS_close_range, kFirst, ~0U, kCloseOnExec) == 0) return;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const int end = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 65536));
  for (int fd = kFirst; fd < end; ++fd) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
}

void redirect(const char* path, int flags, std::initializer_list<int> targets, int pipe,
              Step step) {
  const int fd = ::open(path, flags | O_CLOEXEC | O_NOCTTY, 0600);
  if (fd < 0) give_up(pipe, step);
  for (const int target : targets) {
    // dup2 onto itself would keep the close-on-exec flag.
    if (fd == target ? ::fcntl(fd, F_SETFD, 0) < 0 : ::dup2(fd, target) < 0) give_up(pipe, step);
  }
}

[[noreturn]] void run_child(const Prepared& p, int pipe) {
  if (p.new_session) {
    ::setsid();
    const pid_t pid = ::fork();
    if (pid < 0) give_up(pipe, kFork);
    if (pid > 0) ::_exit(0);
  }
  // Handlers do not survive exec, but ignored signals and the mask do.
  for (int sig = 1; sig < NSIG; ++sig) ::signal(sig, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (p.dir != nullptr && ::chdir(p.dir) != 0) give_up(pipe, kDir);
  if (p.close_stdin) redirect("/dev/null", O_RDONLY, {0}, pipe, kInput);
  if (p.output != nullptr) {
    redirect(p.output, O_WRONLY | O_CREAT | O_APPEND, {1, 2}, pipe, kOutput);
  }
  close_inherited_on_exec();
  send(pipe, {::getpid(), 0, 0});
  ::execve(p.argv[0], p.argv.data(), p.env.empty() ? environ : p.env.data());
  give_up(pipe, kExec);
}

// Above: only async-signal-safe calls.

// Reads reports until the pipe closes, which exec does.
ChildReport read_reports(int pipe) {
  ChildReport last;
  while (true) {
    ChildReport report;
    const ssize_t n = ::read(pipe, &report, sizeof report);
    if (n < 0 && errno == EINTR) continue;
    if (n != static_cast<ssize_t>(sizeof report)) return last;
    last = report;
  }
}

void reap(pid_t pid) {
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Error spawn_error(const ChildReport& report, const SpawnOptions& options) {
  switch (report.step) {
    case kDir:
      return errno_error(report.err, "cannot enter the directory", options.working_dir);
    case kOutput:
      return errno_error(report.err, "cannot open for the output of a program",
                         options.stdout_path);
    case kInput:
      return errno_error(report.err, "cannot open", "/dev/null");
    case kExec:
      return errno_error(report.err, "cannot run", options.argv[0]);
    default:
      return errno_error(report.err, "cannot start a process for", options.argv[0]);
  }
}

class SystemProcesses final : public Processes {
 public:
  Result<ProcessId> identify(pid_t pid) override {
    const std::string path = "/proc/" + std::to_string(pid) + "/stat";
    auto stat = real_filesystem().read_all(path, 4096);
    const auto gone = [&] {
      return Error{Code::kNotFound, "there is no process " + std::to_string(pid), ""};
    };
    if (!stat.ok()) {
      if (stat.is(Code::kNotFound)) return gone();
      return std::move(stat).error();
    }
    // "pid (name) state ppid ... starttime": the name may hold blanks and parentheses, so count
    // from the last one.
    std::string_view rest = *stat;
    const std::size_t paren = rest.rfind(')');
    if (paren == std::string_view::npos || paren + 2 >= rest.size()) return gone();
    rest.remove_prefix(paren + 2);
    if (rest.front() == 'Z' || rest.front() == 'X') return gone();
    constexpr int kFieldsToStartTime = 19;  // from field 3 to field 22
    for (int i = 0; i < kFieldsToStartTime; ++i) {
      const std::size_t blank = rest.find(' ');
      if (blank == std::string_view::npos) return gone();
      rest.remove_prefix(blank + 1);
    }
    ProcessId id{pid, 0};
    const auto [end, err] = std::from_chars(rest.data(), rest.data() + rest.size(), id.start_ticks);
    if (err != std::errc{} || end == rest.data()) return gone();
    return id;
  }

  bool alive(const ProcessId& id) override {
    const auto now = identify(id.pid);
    return now.ok() && *now == id;
  }

  Result<pid_t> spawn(const SpawnOptions& options) override {
    if (options.argv.empty()) return Error{Code::kInvalid, "no program to start was named", ""};
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error(errno, "cannot make a pipe", "");
    const UniqueFd reader(ends[0]);
    UniqueFd writer(ends[1]);
    Prepared p;
    p.argv = pointers(options.argv);
    if (!options.env.empty()) p.env = pointers(options.env);
    if (!options.working_dir.empty()) p.dir = options.working_dir.c_str();
    if (!options.stdout_path.empty()) p.output = options.stdout_path.c_str();
    p.new_session = options.new_session;
    p.close_stdin = options.close_stdin;
    const pid_t child = ::fork();
    if (child < 0) return errno_error(errno, "cannot start a process for", options.argv[0]);
    if (child == 0) run_child(p, writer.get());
    writer.reset();
    const ChildReport report = read_reports(reader.get());
    if (options.new_session || report.err != 0 || report.pid == 0) reap(child);
    if (report.err != 0) return spawn_error(report, options);
    if (report.pid == 0) {
      return Error{Code::kIo, "a process was killed before it could run " + options.argv[0], ""};
    }
    return report.pid;
  }

  Result<int> exit_fd(pid_t pid) override {
    const auto fd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0U));
    if (fd >= 0) return fd;
    // A sandbox that does not know the call may forbid it instead of saying that it does not exist.
    const int err = errno == EPERM ? ENOSYS : errno;
    return errno_error(err, "cannot watch the process", std::to_string(pid));
  }
};

}  // namespace

Processes& system_processes() {
  static SystemProcesses processes;
  return processes;
}

}  // namespace nc
