#include "tests/unit/client/fake_server.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

namespace nc::client::testing {
namespace {

bool send_all(int fd, std::string_view data) {
  while (!data.empty()) {
    const ssize_t n = ::send(fd, data.data(), data.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    data.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

}  // namespace

Step json_step(int status, std::string body) {
  Step step;
  step.answer =
      fmt::format("HTTP/1.1 {} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
                  status, body.size(), body);
  return step;
}

FakeServer::FakeServer() {
  char dir[] = "/tmp/nc-fake-XXXXXX";
  dir_ = ::mkdtemp(dir);
  path_ = dir_ + "/s";
  listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path_.data(), path_.size());
  if (::bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener_, 64) != 0) {
    std::abort();
  }
  acceptor_ = std::thread([this] { run(); });
}

FakeServer::~FakeServer() {
  stopping_ = true;
  ::shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  {
    std::lock_guard lock(mutex_);
    for (const int fd : open_) ::shutdown(fd, SHUT_RDWR);
  }
  for (std::thread& t : threads_) t.join();
  for (const int fd : open_) ::close(fd);
  ::close(listener_);
  ::unlink(path_.c_str());
  ::rmdir(dir_.c_str());
}

void FakeServer::push(Step step) {
  std::lock_guard lock(mutex_);
  steps_.push_back(std::move(step));
}

void FakeServer::answer_with(std::function<Step(const SeenRequest&)> answer) {
  std::lock_guard lock(mutex_);
  answer_ = std::move(answer);
}

std::vector<SeenRequest> FakeServer::seen() {
  std::lock_guard lock(mutex_);
  return seen_;
}

bool FakeServer::wait_for_requests(std::size_t n) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::seconds(10), [&] { return seen_.size() >= n; });
}

void FakeServer::run() {
  while (!stopping_) {
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return;
    const int number = ++connections_;
    std::lock_guard lock(mutex_);
    open_.push_back(fd);
    threads_.emplace_back([this, fd, number] { serve(fd, number); });
  }
}

bool FakeServer::next_step(const SeenRequest& request, Step& out) {
  std::lock_guard lock(mutex_);
  if (answer_) {
    out = answer_(request);
    return true;
  }
  if (steps_.empty()) return false;
  out = std::move(steps_.front());
  steps_.pop_front();
  return true;
}

void FakeServer::serve(int fd, int connection) {
  std::string input;
  const auto more = [&] {
    char buffer[4096];
    const ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
    if (n > 0) input.append(buffer, static_cast<std::size_t>(n));
    return n > 0;
  };
  for (;;) {
    std::size_t end;
    while ((end = input.find("\r\n\r\n")) == std::string::npos) {
      if (!more()) return;
    }
    SeenRequest request;
    request.connection = connection;
    request.head = input.substr(0, end + 4);
    request.method = request.head.substr(0, request.head.find(' '));
    const std::size_t start = request.method.size() + 1;
    request.target = request.head.substr(start, request.head.find(' ', start) - start);
    input.erase(0, end + 4);
    std::size_t length = 0;
    if (const auto at = request.head.find("Content-Length: "); at != std::string::npos) {
      length = std::strtoull(request.head.c_str() + at + 16, nullptr, 10);
    }
    Step step;
    const bool answered = next_step(request, step);
    if (!answered || !step.before_body) {
      while (input.size() < length) {
        if (!more()) return;
      }
      request.body = input.substr(0, length);
      input.erase(0, length);
    }
    {
      std::lock_guard lock(mutex_);
      seen_.push_back(request);
    }
    changed_.notify_all();
    if (!answered) continue;
    if (step.byte_by_byte) {
      for (const char c : step.answer) {
        if (!send_all(fd, {&c, 1})) return;
      }
    } else if (!send_all(fd, step.answer)) {
      return;
    }
    if (step.close || step.before_body) {
      // Both ways: what was not read yet makes the peer see a reset, as from a process that died.
      ::shutdown(fd, SHUT_RDWR);
      return;
    }
  }
}

}  // namespace nc::client::testing
