#include "cache/tier/net_stream.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "base/unique_fd.hpp"

namespace nc::tier {
namespace {

Error broken(const NetTarget& target, std::string_view what) {
  return {Code::kUnavailable, fmt::format("{}: {}", target.shown(), what), ""};
}

class Socket final : public NetStream {
 public:
  Socket(const NetTarget& target, UniqueFd fd) : target_(target), fd_(std::move(fd)) {}

  Status wait(short events) const {
    pollfd one{fd_.get(), events, 0};
    while (true) {
      const int ready = ::poll(&one, 1, static_cast<int>(target_.timeout_ms));
      if (ready > 0) return {};
      if (ready == 0) {
        return Error{
            Code::kTimeout,
            fmt::format("{}: nothing came or went for {} ms", target_.shown(), target_.timeout_ms),
            ""};
      }
      if (errno != EINTR) return broken(target_, std::strerror(errno));
    }
  }

  Status write(Bytes bytes) override {
    while (!bytes.empty()) {
      const auto n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n > 0) {
        bytes = bytes.subspan(static_cast<std::size_t>(n));
      } else if (errno == EAGAIN) {
        NC_TRY(wait(POLLOUT));
      } else if (errno != EINTR) {
        return broken(target_, std::strerror(errno));
      }
    }
    return {};
  }

  Result<std::size_t> read(std::span<std::byte> out) override {
    while (true) {
      const auto n = ::recv(fd_.get(), out.data(), out.size(), 0);
      if (n > 0) return static_cast<std::size_t>(n);
      if (n == 0) return broken(target_, "the connection was closed");
      if (errno == EAGAIN) {
        NC_TRY(wait(POLLIN));
      } else if (errno != EINTR) {
        return broken(target_, std::strerror(errno));
      }
    }
  }

  bool stale() const override {
    pollfd one{fd_.get(), POLLIN, 0};
    return ::poll(&one, 1, 0) != 0;
  }

 private:
  const NetTarget target_;
  const UniqueFd fd_;
};

class TlsStream final : public NetStream {
 public:
  TlsStream(std::string shown, std::unique_ptr<NetStream> raw, std::unique_ptr<TlsLayer> tls)
      : shown_(std::move(shown)), raw_(std::move(raw)), tls_(std::move(tls)) {}

  Status handshake() {
    while (true) {
      auto done = tls_->handshake();
      const auto sent = flush();  // also what tells the other side of a failure
      if (!done.ok()) return std::move(done).error().context(shown_);
      NC_TRY(sent);
      if (*done) return {};
      NC_TRY(fill());
    }
  }
  Status write(Bytes bytes) override {
    while (!bytes.empty()) {
      const auto piece = bytes.first(std::min<std::size_t>(bytes.size(), 64 << 10));
      if (auto done = tls_->encrypt(piece); !done.ok()) {
        return std::move(done).error().context(shown_);
      }
      NC_TRY(flush());
      bytes = bytes.subspan(piece.size());
    }
    return {};
  }
  Result<std::size_t> read(std::span<std::byte> out) override {
    while (true) {
      auto got = tls_->decrypt(out);
      if (!got.ok()) return std::move(got).error().context(shown_);
      NC_TRY(flush());
      if (*got > 0) return *got;
      NC_TRY(fill());
    }
  }
  bool stale() const override { return raw_->stale(); }

 private:
  Status flush() {
    const auto bytes = tls_->to_send();
    return bytes.empty() ? Status() : raw_->write(as_bytes(bytes));
  }
  Status fill() {
    std::array<std::byte, 16 << 10> buffer;
    NC_ASSIGN(const auto got, raw_->read(buffer));
    tls_->received(Bytes(buffer).first(got));
    return {};
  }

  const std::string shown_;
  const std::unique_ptr<NetStream> raw_;
  const std::unique_ptr<TlsLayer> tls_;
};

Result<std::unique_ptr<NetStream>> connect_to(const NetTarget& target, const addrinfo& address) {
  UniqueFd fd(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return broken(target, std::strerror(errno));
  const int raw = fd.get();
  const int on = 1;
  ::setsockopt(raw, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(raw, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  const bool done = ::connect(raw, address.ai_addr, address.ai_addrlen) == 0;
  if (!done && errno != EINPROGRESS) return broken(target, std::strerror(errno));
  auto socket = std::make_unique<Socket>(target, std::move(fd));
  if (!done) {
    NC_TRY(socket->wait(POLLOUT));
    int problem = 0;
    socklen_t size = sizeof problem;
    ::getsockopt(raw, SOL_SOCKET, SO_ERROR, &problem, &size);
    if (problem != 0) return broken(target, std::strerror(problem));
  }
  return std::unique_ptr<NetStream>(std::move(socket));
}

Result<std::unique_ptr<NetStream>> connect_any(const NetTarget& target) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed =
      ::getaddrinfo(target.host.c_str(), fmt::format("{}", target.port).c_str(), &hints, &found);
  if (failed != 0) return broken(target, ::gai_strerror(failed));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, &::freeaddrinfo);
  Error last = broken(target, "the name has no address");
  for (const auto* one = addresses.get(); one != nullptr; one = one->ai_next) {
    auto stream = connect_to(target, *one);
    if (stream.ok()) return stream;
    last = std::move(stream).error();
  }
  last.action = "check the address, and that the server runs";
  return last;
}

}  // namespace

std::string NetTarget::shown() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

Result<std::unique_ptr<NetStream>> NetStream::connect(const NetTarget& target) {
  NC_ASSIGN(auto raw, connect_any(target));
  if (!target.tls) return raw;
  auto layer = TlsLayer::client(target.host, target.files);
  if (!layer.ok()) return std::move(layer).error().context(target.shown());
  auto stream = std::make_unique<TlsStream>(target.shown(), std::move(raw), *std::move(layer));
  NC_TRY(stream->handshake());
  return std::unique_ptr<NetStream>(std::move(stream));
}

}  // namespace nc::tier
