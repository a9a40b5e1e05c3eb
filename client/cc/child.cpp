#include "client/cc/child.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <csignal>
#include <cstring>
#include <iterator>

#include <fmt/format.h>

#include "base/filesystem.hpp"
#include "base/unique_fd.hpp"

namespace nc::cc {
namespace {

constexpr int kPassedOn[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
constexpr std::size_t kMaxCapture = 4 << 20;
constexpr Millis kSampleMs = 100;
constexpr Millis kGraceMs = 5'000;  // between asking a compiler to end and killing it
constexpr Millis kDrainMs = 200;    // for what a process that outlived the compiler still writes

// What a stream said; of very much, the beginning and the end.
class Capture {
 public:
  void add(std::string_view bytes) {
    const std::size_t room = kMaxCapture / 2 - std::min(head_.size(), kMaxCapture / 2);
    head_.append(bytes.substr(0, room));
    if (bytes.size() <= room) return;
    tail_.append(bytes.substr(room));
    if (tail_.size() > kMaxCapture) {
      const std::size_t cut = tail_.size() - kMaxCapture / 2;
      cut_ += cut;
      tail_.erase(0, cut);
    }
  }
  std::string take() {
    if (cut_ == 0) return head_ + tail_;
    return fmt::format("{}\n[{} bytes left out by neuroncache]\n{}", head_, cut_, tail_);
  }

 private:
  std::string head_, tail_;
  std::size_t cut_ = 0;
};

struct Stream {
  UniqueFd from;  // the pipe's reading end
  int to = -1;
  bool pass_on = true;
  Capture capture;

  // Something is left that the reader has not taken yet: nothing more is read until it has.
  bool waits() const { return sent_ < held_.size(); }
  pollfd wanted() const { return waits() ? pollfd{to, POLLOUT, 0} : pollfd{from.get(), POLLIN, 0}; }

  // One step, when what was wanted has come. A reader that went away: the pipe is closed, so that
  // the compiler learns it, too.
  void step() {
    if (!(waits() || take()) || !give()) close();
  }
  void close() {
    from.reset();
    held_.clear();
    sent_ = 0;
  }

 private:
  // False at the end of the stream.
  bool take() {
    std::array<char, 65536> buffer;
    const ssize_t n = ::read(from.get(), buffer.data(), buffer.size());
    if (n < 0) return errno == EINTR || errno == EAGAIN;
    if (n == 0) return false;
    const std::string_view bytes(buffer.data(), static_cast<std::size_t>(n));
    capture.add(bytes);
    if (!pass_on) return true;
    held_ = bytes;
    sent_ = 0;
    return true;
  }

  // As much as is taken without waiting, so that signals are heard meanwhile: what can be written
  // to takes that many bytes at once.
  bool give() {
    pollfd ready{to, POLLOUT, 0};
    while (waits() && ::poll(&ready, 1, 0) > 0) {
      const std::size_t size = std::min<std::size_t>(held_.size() - sent_, PIPE_BUF);
      const ssize_t n = ::write(to, held_.data() + sent_, size);
      if (n >= 0) {
        sent_ += static_cast<std::size_t>(n);
      } else if (errno == EAGAIN) {
        return true;
      } else if (errno != EINTR) {
        return false;
      }
    }
    return true;
  }

  std::string held_;
  std::size_t sent_ = 0;
};

struct Pipe {
  UniqueFd read, write;
};

Result<Pipe> make_pipe() {
  std::array<int, 2> fds{};
  if (::pipe2(fds.data(), O_CLOEXEC) != 0) return errno_error(errno, "cannot make", "a pipe");
  return Pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> out;
  out.reserve(words.size() + 1);
  for (const std::string& word : words) out.push_back(const_cast<char*>(word.c_str()));
  out.push_back(nullptr);
  return out;
}

// How often this machine's kernel killed a process for want of memory; -1 when it does not tell.
std::int64_t oom_kills() {
  constexpr std::string_view kName = "\noom_kill ";
  constexpr std::uint64_t kLimit = 1 << 20;
  const auto text = real_filesystem().read_all("/proc/vmstat", kLimit);
  const std::size_t at = text.ok() ? text->find(kName) : std::string::npos;
  if (at == std::string::npos) return -1;
  std::int64_t count = -1;
  std::from_chars(text->data() + at + kName.size(), text->data() + text->size(), count);
  return count;
}

void end_tree(pid_t pid, int signal) {
  const std::vector<int> all = descendants(pid);
  ::kill(pid, signal);
  for (const int child : all) ::kill(child, signal);
}

class Run {
 public:
  Run(const ChildSpec& spec, SignalGate& gate) : spec_(spec), gate_(gate) {}

  Result<ChildResult> run() {
    NC_ASSIGN(Pipe out, make_pipe());
    NC_ASSIGN(Pipe err, make_pipe());
    NC_ASSIGN(Pipe start, make_pipe());
    began_ = system_clock().monotonic_ms();
    const std::int64_t kills_before = spec_.watch_memory ? oom_kills() : -1;
    NC_TRY(launch(out, err, start));
    out_.from = std::move(out.read);
    err_.from = std::move(err.read);
    out_.to = STDOUT_FILENO;
    err_.to = STDERR_FILENO;
    out_.pass_on = err_.pass_on = !spec_.quiet;
    out.write.reset();
    err.write.reset();
    watch();
    drain();
    result_.out = out_.capture.take();
    result_.err = err_.capture.take();
    result_.oom_kill = kills_before < 0 || oom_kills() != kills_before;
    result_.wall_ms = system_clock().monotonic_ms() - began_;
    return std::move(result_);
  }

 private:
  Status launch(Pipe& out, Pipe& err, Pipe& start) {
    const std::vector<char*> argv = pointers(spec_.argv);
    const std::vector<char*> env = pointers(spec_.env);
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0) return errno_error(errno, "cannot start", spec_.program);
    if (pid_ == 0) {  // only what is safe between fork and exec
      ::dup2(out.write.get(), STDOUT_FILENO);
      ::dup2(err.write.get(), STDERR_FILENO);
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);
      if (gate_.child_ignored()) ::signal(SIGCHLD, SIG_IGN);
      if (!gate_.pipe_ignored()) ::signal(SIGPIPE, SIG_DFL);
      ::sigprocmask(SIG_SETMASK, static_cast<const sigset_t*>(gate_.old_mask()), nullptr);
      ::execve(spec_.program.c_str(), argv.data(), env.data());
      const int error = errno;
      [[maybe_unused]] const ssize_t n = ::write(start.write.get(), &error, sizeof error);
      ::_exit(127);
    }
    start.write.reset();
    int error = 0;
    if (::read(start.read.get(), &error, sizeof error) == static_cast<ssize_t>(sizeof error)) {
      ::waitpid(pid_, nullptr, 0);
      return errno_error(error, "cannot run", spec_.program);
    }
    return {};
  }

  void watch() {
    Millis next_sample = began_;
    while (!ended_) {
      const Millis now = system_clock().monotonic_ms();
      if (now >= next_sample) {
        result_.peak_rss_bytes = std::max(result_.peak_rss_bytes, tree_rss(pid_));
        // Rarely for long builds: their peak lasts.
        next_sample = now + std::clamp((now - began_) / 50, kSampleMs, Millis{2'000});
      }
      check_time(now);
      wait(static_cast<int>(next_sample - now));
    }
  }

  void check_time(Millis now) {
    if (spec_.timeout_ms == 0 || now - began_ < spec_.timeout_ms) return;
    if (!result_.timed_out) {
      result_.timed_out = true;
      end_tree(pid_, SIGTERM);
    } else if (now - began_ >= spec_.timeout_ms + kGraceMs) {
      end_tree(pid_, SIGKILL);
    }
  }

  void wait(int timeout_ms) {
    std::array<pollfd, 3> fds{{{gate_.fd(), POLLIN, 0}, out_.wanted(), err_.wanted()}};
    if (::poll(fds.data(), fds.size(), std::max(timeout_ms, 1)) <= 0) return;
    if (fds[1].revents != 0) out_.step();
    if (fds[2].revents != 0) err_.step();
    if (fds[0].revents != 0) take_signals();
  }

  void take_signals() {
    signalfd_siginfo info{};
    while (::read(gate_.fd(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal == SIGCHLD) {
        reap();
        continue;
      }
      result_.interrupted = true;
      // A terminal's (SI_KERNEL) went to the whole group already.
      if (info.ssi_code != SI_KERNEL && !ended_) ::kill(pid_, signal);
    }
  }

  void reap() {
    int status = 0;
    rusage usage{};
    if (::wait4(pid_, &status, WNOHANG, &usage) != pid_) return;
    ended_ = true;
    result_.peak_rss_bytes =
        std::max(result_.peak_rss_bytes, static_cast<std::uint64_t>(usage.ru_maxrss) * 1024);
    if (WIFSIGNALED(status)) result_.signal = WTERMSIG(status);
    if (WIFEXITED(status)) result_.exit_code = WEXITSTATUS(status);
  }

  // What the compiler still said. A reader is given the time that it needs, as it would be by the
  // compiler itself, unless we are to end.
  void drain() {
    const Millis deadline = system_clock().monotonic_ms() + kDrainMs;
    constexpr int kStepMs = 50;  // to see a signal
    for (Stream* stream : {&out_, &err_}) {
      while (stream->from.valid()) {
        const Millis left = std::max<Millis>(deadline - system_clock().monotonic_ms(), 0);
        const bool waits = stream->waits();
        const bool patient = waits && !result_.interrupted && !result_.timed_out && !told_to_end();
        pollfd ready = stream->wanted();
        const int n = ::poll(&ready, 1, patient ? kStepMs : static_cast<int>(left));
        if (n > 0) {
          stream->step();
        } else if (!patient) {
          break;
        }
      }
    }
  }

  // By a signal that came after the compiler's end; it acts when the gate is gone.
  static bool told_to_end() {
    sigset_t pending;
    ::sigpending(&pending);
    return std::any_of(std::begin(kPassedOn), std::end(kPassedOn),
                       [&](int signal) { return ::sigismember(&pending, signal) == 1; });
  }

  const ChildSpec& spec_;
  SignalGate& gate_;
  Stream out_, err_;
  pid_t pid_ = 0;
  Millis began_ = 0;
  bool ended_ = false;
  ChildResult result_;
};

}  // namespace

struct SignalGate::Saved {
  sigset_t mask{};
  struct sigaction child {};
  struct sigaction pipe {};
};

SignalGate::SignalGate() : saved_(std::make_unique<Saved>()) {
  sigset_t taken;
  ::sigemptyset(&taken);
  for (const int signal : kPassedOn) ::sigaddset(&taken, signal);
  ::sigaddset(&taken, SIGCHLD);
  // With SIGCHLD ignored there would be no status to wait for.
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &standard, &saved_->child);
  child_ignored_ = saved_->child.sa_handler == SIG_IGN;
  // A reader of ours that goes away is the compiler's matter, which may end well all the same.
  struct sigaction ignored {};
  ignored.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignored, &saved_->pipe);
  pipe_ignored_ = saved_->pipe.sa_handler == SIG_IGN;
  ::sigprocmask(SIG_BLOCK, &taken, &saved_->mask);
  fd_ = ::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
}

SignalGate::~SignalGate() {
  if (fd_ >= 0) ::close(fd_);
  ::sigaction(SIGCHLD, &saved_->child, nullptr);
  ::sigaction(SIGPIPE, &saved_->pipe, nullptr);
  ::sigprocmask(SIG_SETMASK, &saved_->mask, nullptr);
}

const void* SignalGate::old_mask() const {
  return &saved_->mask;
}

Result<ChildResult> run_child(const ChildSpec& spec, SignalGate& gate) {
  if (gate.fd() < 0) return Error{Code::kIo, "cannot watch signals", ""};
  return Run(spec, gate).run();
}

Result<std::string> ask_version(const RealCompiler& compiler, std::span<const std::string> env) {
  constexpr Millis kPatience = 120'000;
  SignalGate gate;
  ChildSpec spec;
  spec.program = compiler.path;
  spec.argv = {compiler.path, "--version"};
  spec.env.assign(env.begin(), env.end());
  spec.timeout_ms = kPatience;
  spec.quiet = true;
  spec.watch_memory = false;
  NC_ASSIGN(ChildResult result, run_child(spec, gate));
  std::string text = result.out.empty() ? std::move(result.err) : std::move(result.out);
  const std::size_t last = text.find_last_not_of(" \n\r\t");
  text.resize(last == std::string::npos ? 0 : last + 1);
  if (!result.well() || text.empty())
    return Error{Code::kUnsupported,
                 fmt::format("{} --version does not say what it is (status {})", compiler.path,
                             result.signal != 0 ? -result.signal : result.exit_code),
                 "run it by hand; a compiler without a version cannot be cached"};
  return text;
}

}  // namespace nc::cc
