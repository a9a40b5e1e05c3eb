#include "client/cli/child_pool.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

namespace nc::cli {

ChildPool::ChildPool(std::size_t width) : width_(width) {
  sigset_t mine;
  ::sigemptyset(&mine);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) ::sigaddset(&mine, signal);
  ::sigprocmask(SIG_BLOCK, &mine, &old_);
  signals_ = UniqueFd(::signalfd(-1, &mine, SFD_CLOEXEC | SFD_NONBLOCK));
}

ChildPool::~ChildPool() {
  end_all();
  for (int steps = 0; !children_.empty() && steps < 100; ++steps) wait(100);
  for (auto& [pid, child] : children_) ::kill(pid, SIGKILL);
  for (auto& [pid, child] : children_) ::waitpid(pid, nullptr, 0);
  ::sigprocmask(SIG_SETMASK, &old_, nullptr);
}

Status ChildPool::start(const Work& work, Ended ended) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return errno_error(errno, "cannot make", "a pipe");
  UniqueFd from(ends[0]);
  const UniqueFd to(ends[1]);
  std::fflush(nullptr);  // or both would write it
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return errno_error(errno, "cannot start", "another process");
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    signals_.reset();
    ::sigprocmask(SIG_SETMASK, &old_, nullptr);
    std::string text;
    const int status = work(text);
    text.resize(std::min(text.size(), kMaxText));
    [[maybe_unused]] const ssize_t n = ::write(to.get(), text.data(), text.size());
    std::fflush(nullptr);
    ::_exit(status);
  }
  children_[pid] = Child{std::move(from), std::move(ended)};
  return {};
}

void ChildPool::wait(Millis ms) {
  pollfd ready{signals_.get(), POLLIN, 0};
  if (::poll(&ready, 1, static_cast<int>(ms)) > 0) take_signals();
  reap();
}

void ChildPool::end_all() const {
  for (const auto& [pid, child] : children_) ::kill(pid, SIGTERM);
}

void ChildPool::take_signals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal != SIGCHLD) stops_ += signal == SIGTERM ? 1 : 2;
  }
}

void ChildPool::reap() {
  for (auto it = children_.begin(); it != children_.end();) {
    int status = 0;
    if (::waitpid(it->first, &status, WNOHANG) != it->first) {
      ++it;
      continue;
    }
    End end;
    if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
    if (WIFEXITED(status)) end.exit_code = WEXITSTATUS(status);
    end.text.resize(kMaxText);
    const ssize_t n = ::read(it->second.text.get(), end.text.data(), end.text.size());
    end.text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    const Ended ended = std::move(it->second.ended);
    it = children_.erase(it);
    ended(end);
  }
}

}  // namespace nc::cli
