#include "daemon/detach.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace nc::daemon {
namespace {

constexpr int kPatienceMs = 90'000;
constexpr char kReady = '+';

[[noreturn]] void leave(int status, const std::string& why) {
  if (!why.empty()) std::fprintf(stderr, "neuroncached: %s\n", why.c_str());
  std::fflush(stderr);
  ::_exit(status);
}

[[noreturn]] void wait_for_daemon(int fd) {
  std::string said;
  for (;;) {
    pollfd ready{fd, POLLIN, 0};
    const int n = ::poll(&ready, 1, kPatienceMs);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) leave(1, "not ready after 90 s; see the daemon's log");
    char buffer[1024];
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    said.append(buffer, static_cast<std::size_t>(got));
    if (said[0] == kReady) leave(0, "");
  }
  leave(1, said.empty() ? "ended while starting; see the daemon's log" : said);
}

// Whatever the starter had open (pipes of a parent, sockets of a training job) must not live as
// long as we do.
void close_inherited(int keep) {
  const auto close_all = [](unsigned first, unsigned last) {
    if (first > last) return;
    if (::syscall(SYS_close_range, first, last, 0U) == 0) return;
    for (unsigned fd = first; fd <= last && fd < 4096; ++fd) ::close(static_cast<int>(fd));
  };
  close_all(3, static_cast<unsigned>(keep) - 1);
  close_all(static_cast<unsigned>(keep) + 1, ~0U);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd < 3 && null >= 0; ++fd) ::dup2(null, fd);
  if (null > 2) ::close(null);
}

}  // namespace

Starter Starter::detach() {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) leave(1, "cannot make a pipe");
  const pid_t child = ::fork();
  if (child < 0) leave(1, "cannot fork");
  if (child > 0) {
    ::close(ends[1]);
    while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
    wait_for_daemon(ends[0]);
  }
  ::setsid();
  // A second fork, so that no terminal can become ours by being opened.
  const pid_t grandchild = ::fork();
  if (grandchild != 0) ::_exit(grandchild < 0 ? 1 : 0);
  if (::chdir("/") != 0) leave(1, "cannot change to /");
  close_inherited(ends[1]);
  Starter starter;
  starter.pipe_.reset(ends[1]);
  return starter;
}

void Starter::ready() {
  if (!pipe_.valid()) return;
  [[maybe_unused]] const auto written =
      ::write(pipe_.get(), &kReady, 1);  // the starter may be gone
  pipe_.reset();
}

void Starter::failed(std::string_view why) {
  if (!pipe_.valid()) {
    std::fprintf(stderr, "neuroncached: %.*s\n", static_cast<int>(why.size()), why.data());
    return;
  }
  [[maybe_unused]] const auto written = ::write(pipe_.get(), why.data(), why.size());
  pipe_.reset();
}

}  // namespace nc::daemon
