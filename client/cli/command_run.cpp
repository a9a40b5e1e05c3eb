#include "client/cli/command_run.hpp"

#include <poll.h>
#include <spawn.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include <fmt/format.h>

#include "base/filesystem.hpp"
#include "base/unique_fd.hpp"

namespace nc::cli {
namespace {

Result<std::string> find_program(const std::string& name, const std::string& path_list) {
  if (name.find('/') != std::string::npos) return name;
  bool denied = false;
  for (std::size_t start = 0; start <= path_list.size();) {
    const std::size_t end = std::min(path_list.find(':', start), path_list.size());
    std::string directory = path_list.substr(start, end - start);
    if (directory.empty()) directory = ".";
    const std::string path = join(directory, name);
    struct stat s {};
    if (::stat(path.c_str(), &s) == 0 && S_ISREG(s.st_mode)) {
      if (::access(path.c_str(), X_OK) == 0) return path;
      denied = true;
    }
    start = end + 1;
  }
  if (denied)
    return Error{Code::kDenied, fmt::format("{} may not be executed", name), "see its permissions"};
  return Error{Code::kNotFound, fmt::format("there is no program {} on PATH", name),
               "give its path, or correct PATH"};
}

// Blocks the signals that we pass on, and takes them through a descriptor.
class Signals {
 public:
  Signals() {
    sigset_t mine;
    ::sigemptyset(&mine);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD})
      ::sigaddset(&mine, signal);
    ::sigprocmask(SIG_BLOCK, &mine, &old_);
    fd_ = UniqueFd(::signalfd(-1, &mine, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  ~Signals() { ::sigprocmask(SIG_SETMASK, &old_, nullptr); }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  const sigset_t& old() const { return old_; }

  void wait(Millis ms) const {
    pollfd p{fd_.get(), POLLIN, 0};
    ::poll(&p, 1, static_cast<int>(ms));
  }

  void pass_on(pid_t child) const {
    signalfd_siginfo info{};
    while (::read(fd_.get(), &info, sizeof info) == sizeof info) {
      const bool from_terminal = info.ssi_code == SI_KERNEL;
      if (info.ssi_signo != SIGCHLD && !from_terminal)
        ::kill(child, static_cast<int>(info.ssi_signo));
    }
  }

 private:
  sigset_t old_{};
  UniqueFd fd_;
};

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> out;
  out.reserve(words.size() + 1);
  for (const std::string& word : words) out.push_back(const_cast<char*>(word.c_str()));
  out.push_back(nullptr);
  return out;
}

Result<pid_t> start(const CommandSpec& spec, const sigset_t& mask) {
  NC_ASSIGN(const std::string program,
            find_program(spec.argv.front(), variable_of(spec.env, "PATH")));
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawnattr_init(&attributes);
  if (spec.output_to_stderr)
    ::posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  ::posix_spawnattr_setsigmask(&attributes, &mask);
  std::vector<char*> argv = pointers(spec.argv);
  std::vector<char*> env = pointers(spec.env);
  pid_t pid = 0;
  const int error =
      ::posix_spawn(&pid, program.c_str(), &files, &attributes, argv.data(), env.data());
  ::posix_spawn_file_actions_destroy(&files);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) return errno_error(error, "cannot run", program);
  return pid;
}

}  // namespace

std::string variable_of(const std::vector<std::string>& env, std::string_view name) {
  for (const std::string& entry : env) {
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=')
      return entry.substr(name.size() + 1);
  }
  return {};
}

void set_variable(std::vector<std::string>& env, std::string_view name, std::string_view value) {
  std::erase_if(env, [name](const std::string& entry) {
    return entry.starts_with(name) && entry.size() > name.size() && entry[name.size()] == '=';
  });
  env.push_back(fmt::format("{}={}", name, value));
}

Result<CommandEnd> run_command(const CommandSpec& spec, Millis tick_ms,
                               const std::function<void()>& tick) {
  Signals signals;
  NC_ASSIGN(const pid_t pid, start(spec, signals.old()));
  Millis next = system_clock().monotonic_ms() + tick_ms;
  for (;;) {
    int status = 0;
    const pid_t ended = ::waitpid(pid, &status, WNOHANG);
    if (ended == pid) {
      if (WIFSIGNALED(status)) return CommandEnd{0, WTERMSIG(status)};
      return CommandEnd{WEXITSTATUS(status), 0};
    }
    if (ended < 0 && errno != EINTR) return errno_error(errno, "cannot wait for", spec.argv[0]);
    const Millis now = system_clock().monotonic_ms();
    if (now >= next) {
      tick();
      next = system_clock().monotonic_ms() + tick_ms;
    }
    signals.wait(std::max<Millis>(1, next - system_clock().monotonic_ms()));
    signals.pass_on(pid);
  }
}

}  // namespace nc::cli
