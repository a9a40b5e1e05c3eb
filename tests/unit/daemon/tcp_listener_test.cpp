// The way of a connection from TCP to a socket pair, in plain text; TLS is met in the integration
// tests.
#include "daemon/tcp_listener.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

#include "base/fake_filesystem.hpp"

namespace nc::daemon {
namespace {

constexpr int kPatienceMs = 30'000;

// What a descriptor gives next: bytes, or "" at its end.
std::string receive(int fd, std::size_t size) {
  std::string text;
  while (text.size() < size) {
    pollfd ready{fd, POLLIN, 0};
    if (::poll(&ready, 1, kPatienceMs) != 1) return text + " (nothing came)";
    char buffer[4096];
    const ssize_t got = ::recv(fd, buffer, std::min(sizeof buffer, size - text.size()), 0);
    if (got <= 0) break;
    text.append(buffer, static_cast<std::size_t>(got));
  }
  return text;
}

bool send_all(int fd, std::string_view text) {
  return ::send(fd, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

class TcpListenerTest : public ::testing::Test {
 protected:
  TcpListener::Options plain() {
    TcpListener::Options options;
    options.address = "127.0.0.1:0";
    options.plain = true;
    return options;
  }
  Result<std::unique_ptr<TcpListener>> open(TcpListener::Options options) {
    return TcpListener::open(fs_, clock_, std::move(options),
                             [this](UniqueFd fd, std::shared_ptr<const Remote> remote) {
                               const std::lock_guard lock(mutex_);
                               if (closed_) return false;
                               adopted_.push_back({std::move(fd), std::move(remote)});
                               came_.notify_all();
                               return true;
                             });
  }
  UniqueFd connect(const TcpListener& listener) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<std::uint16_t>(
        std::stoi(listener.bound().substr(listener.bound().rfind(':') + 1))));
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
    return fd;
  }
  struct Adopted {
    UniqueFd fd;
    std::shared_ptr<const Remote> remote;
  };
  Adopted adopted() {
    std::unique_lock lock(mutex_);
    if (!came_.wait_for(lock, std::chrono::milliseconds(kPatienceMs),
                        [this] { return !adopted_.empty(); })) {
      ADD_FAILURE() << "no connection was handed on";
      return {};
    }
    Adopted first = std::move(adopted_.front());
    adopted_.pop_front();
    return first;
  }
  static bool eventually(const std::function<bool()>& holds) {
    for (int i = 0; i < kPatienceMs / 10; ++i) {
      if (holds()) return true;
      ::usleep(10'000);
    }
    return holds();
  }

  FakeFileSystem fs_;
  FakeClock clock_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<Adopted> adopted_;
  bool closed_ = false;
};

TEST_F(TcpListenerTest, WhatItRefuses) {
  for (const char* bad : {"", "8443", "host:8443", "1.2.3.4:", "1.2.3.4:x", "1.2.3.4:70000",
                          "::1:80", "1.2.3.4:80 "}) {
    auto options = plain();
    options.address = bad;
    EXPECT_TRUE(open(options).is(Code::kInvalid)) << bad;
  }
  for (const char* far : {"0.0.0.0:0", "[::]:0", "192.0.2.1:80"}) {
    auto options = plain();
    options.address = far;
    EXPECT_TRUE(open(options).is(Code::kDenied)) << far;
  }
  auto options = plain();
  options.plain = false;
  EXPECT_TRUE(open(options).is(Code::kInvalid)) << "TLS without a certificate";
  options.cert = "/cert.pem";
  options.key = "/key.pem";
  EXPECT_TRUE(open(options).is(Code::kNotFound));
  ASSERT_TRUE(fs_.open("/key.pem", FileSystem::Open::kCreateNew, 0644).ok());
  EXPECT_TRUE(open(options).is(Code::kDenied)) << "a key that everybody may read";
}

TEST_F(TcpListenerTest, BytesGoBothWaysAndEndsAreSeen) {
  const auto listener = open(plain());
  ASSERT_TRUE(listener.ok()) << listener.error().text();
  UniqueFd client = connect(**listener);
  const Adopted inside = adopted();
  EXPECT_TRUE(inside.remote->address.starts_with("127.0.0.1:"));
  EXPECT_EQ(inside.remote->client, "");
  ASSERT_TRUE(send_all(client.get(), "request"));
  EXPECT_EQ(receive(inside.fd.get(), 7), "request");
  // More than any buffer on the way holds.
  const std::string large(4 << 20, 'x');
  std::thread sender([&] {
    std::size_t sent = 0;
    while (sent < large.size()) {
      pollfd ready{inside.fd.get(), POLLOUT, 0};
      ::poll(&ready, 1, kPatienceMs);
      const ssize_t some =
          ::send(inside.fd.get(), large.data() + sent, large.size() - sent, MSG_NOSIGNAL);
      if (some > 0) sent += static_cast<std::size_t>(some);
    }
  });
  EXPECT_EQ(receive(client.get(), large.size()), large);
  sender.join();
  // A client that has sent all still gets its answer.
  ::shutdown(client.get(), SHUT_WR);
  EXPECT_EQ(receive(inside.fd.get(), 1), "");
  ASSERT_TRUE(send_all(inside.fd.get(), "answer"));
  EXPECT_EQ(receive(client.get(), 6), "answer");
  ::shutdown(inside.fd.get(), SHUT_RDWR);
  EXPECT_EQ(receive(client.get(), 1), "");
  EXPECT_TRUE(eventually([&] { return (*listener)->counts().open == 0; }));
}

TEST_F(TcpListenerTest, WhatTheDaemonSaysLastArrivesThoughTheClientStillSends) {
  const auto listener = open(plain());
  UniqueFd client = connect(**listener);
  Adopted inside = adopted();
  ASSERT_TRUE(send_all(client.get(), std::string(100'000, 'u')));
  ASSERT_TRUE(send_all(inside.fd.get(), "refused"));
  inside.fd.reset();
  EXPECT_EQ(receive(client.get(), 7), "refused");
  EXPECT_EQ(receive(client.get(), 1), "");
  client.reset();
  EXPECT_TRUE(eventually([&] { return (*listener)->counts().open == 0; }));
}

TEST_F(TcpListenerTest, SilentAndIdleClientsAreDropped) {
  auto options = plain();
  options.handshake_ms = 10'000;
  options.idle_ms = 100'000;
  const auto listener = open(options);
  UniqueFd silent = connect(**listener);
  adopted();
  UniqueFd talking = connect(**listener);
  const Adopted inside = adopted();
  ASSERT_TRUE(send_all(talking.get(), "x"));
  EXPECT_EQ(receive(inside.fd.get(), 1), "x");
  clock_.advance(20'000);
  EXPECT_EQ(receive(silent.get(), 1), "");
  EXPECT_TRUE(eventually([&] {
    const auto counts = (*listener)->counts();
    return counts.timed_out == 1 && counts.open == 1;
  }));
  clock_.advance(100'000);
  EXPECT_EQ(receive(talking.get(), 1), "");
}

TEST_F(TcpListenerTest, AnAnswerThatNobodyReadsIsGivenUp) {
  auto options = plain();
  options.stall_ms = 5'000;
  const auto listener = open(options);
  UniqueFd client = connect(**listener);
  const Adopted inside = adopted();
  ASSERT_TRUE(send_all(client.get(), "x"));
  EXPECT_EQ(receive(inside.fd.get(), 1), "x");
  const std::string chunk(64 << 10, 'x');
  // Until everything on the way is full.
  for (int full = 0; full < 20;) {
    full = ::send(inside.fd.get(), chunk.data(), chunk.size(), MSG_NOSIGNAL | MSG_DONTWAIT) > 0
               ? 0
               : full + 1;
    if (full > 0) ::usleep(10'000);
  }
  EXPECT_EQ((*listener)->counts().open, 1U);
  EXPECT_TRUE(eventually([&] {
    clock_.advance(6'000);  // again and again: the last write may have begun only now
    return (*listener)->counts().timed_out == 1;
  }));
}

TEST_F(TcpListenerTest, NoMoreThanItsShareComesIn) {
  auto options = plain();
  options.max_connections = 2;
  auto listener = open(options);
  UniqueFd first = connect(**listener);
  UniqueFd second = connect(**listener);
  const Adopted one = adopted();
  const Adopted two = adopted();
  UniqueFd third = connect(**listener);
  EXPECT_EQ(receive(third.get(), 1), "");
  EXPECT_EQ((*listener)->counts().turned_away, 1U);
  first.reset();
  EXPECT_EQ(receive(one.fd.get(), 1), "");
  // None comes in where nobody takes it.
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  (*listener)->stop_accepting();
  listener->reset();  // with one open
  EXPECT_EQ(receive(second.get(), 1), "");
  EXPECT_EQ(receive(two.fd.get(), 1), "");
}

}  // namespace
}  // namespace nc::daemon
