// A server that sends what a test wrote, byte for byte, and notes what came. One thread; the
// answers are given in order, over all connections.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdlib>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "base/thread_annotations.hpp"
#include "base/unique_fd.hpp"

namespace nc::tier {

struct RawAnswer {
  std::string text;
  enum class Then { kKeep, kClose, kHold } then = Then::kKeep;  // kHold: silent until the end
};

class RawServer {
 public:
  // `whole`: does this text hold a whole request? By default an HTTP head and its body.
  explicit RawServer(bool (*whole)(const std::string&) = &RawServer::http_request) : whole_(whole) {
    listener_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&at), size) != 0 ||
        ::listen(listener_.get(), 16) != 0 ||
        ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&at), &size) != 0) {
      std::abort();
    }
    port_ = ntohs(at.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~RawServer() {
    stop_ = true;
    thread_.join();
  }

  std::uint16_t port() const { return port_; }
  void answer(std::string text, RawAnswer::Then then = RawAnswer::Then::kKeep) NC_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    script_.push_back({std::move(text), then});
  }
  std::vector<std::string> requests() NC_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return requests_;
  }
  int connections() const { return connections_; }

  static bool http_request(const std::string& text) {
    const auto end = text.find("\r\n\r\n");
    if (end == std::string::npos) return false;
    const auto at = text.find("Content-Length: ");
    const auto size = at < end ? std::strtoul(text.c_str() + at + 16, nullptr, 10) : 0;
    return text.size() >= end + 4 + size;
  }

 private:
  static constexpr int kTickMs = 20;

  bool readable(int fd) const {
    while (!stop_) {
      pollfd one{fd, POLLIN, 0};
      if (::poll(&one, 1, kTickMs) > 0) return true;
    }
    return false;
  }

  void serve() {
    std::vector<std::thread> threads;
    while (readable(listener_.get())) {
      const int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) continue;
      ++connections_;
      threads.emplace_back([this, fd] { connection(UniqueFd(fd)); });
    }
    for (auto& thread : threads) thread.join();
  }

  void connection(UniqueFd fd) {
    std::string text;
    char buffer[65536];
    while (readable(fd.get())) {
      const auto got = ::recv(fd.get(), buffer, sizeof buffer, 0);
      if (got <= 0) return;
      text.append(buffer, static_cast<std::size_t>(got));
      if (!whole_(text)) continue;
      RawAnswer answer;
      {
        MutexLock lock(mutex_);
        requests_.push_back(std::move(text));
        text.clear();
        if (script_.empty()) return;
        answer = std::move(script_.front());
        script_.pop_front();
      }
      std::size_t sent = 0;
      while (sent < answer.text.size()) {
        const auto n =
            ::send(fd.get(), answer.text.data() + sent, answer.text.size() - sent, MSG_NOSIGNAL);
        if (n <= 0) return;
        sent += static_cast<std::size_t>(n);
      }
      if (answer.then == RawAnswer::Then::kClose) return;
      while (answer.then == RawAnswer::Then::kHold && !stop_) {
        std::this_thread::sleep_for(std::chrono::milliseconds(kTickMs));
      }
    }
  }

  bool (*const whole_)(const std::string&);
  UniqueFd listener_;
  std::uint16_t port_ = 0;
  std::atomic<bool> stop_ = false;
  std::atomic<int> connections_ = 0;
  Mutex mutex_;
  std::deque<RawAnswer> script_ NC_GUARDED_BY(mutex_);
  std::vector<std::string> requests_ NC_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace nc::tier
