// A bare blocking client on a Unix socket: what is measured is the other end.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "base/unique_fd.hpp"

namespace nc::bench {

inline sockaddr_un socket_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    std::fprintf(stderr, "%s is too long for a socket\n", path.c_str());
    std::exit(2);
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

class SocketClient {
 public:
  // False when nobody listens.
  bool connect(const std::string& path) {
    fd_ = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_un address = socket_address(path);
    return ::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }

  void send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) fail("send");
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
  }

  // Appends what is there; false at the end of the stream.
  bool receive(std::string& out) const {
    char buffer[64 << 10];
    const ssize_t n = ::recv(fd_.get(), buffer, sizeof(buffer), 0);
    if (n < 0) fail("receive");
    out.append(buffer, static_cast<std::size_t>(n));
    return n > 0;
  }

  void receive_exactly(std::string& out, std::size_t size) const {
    out.clear();
    while (out.size() < size) {
      if (!receive(out)) fail("receive");
    }
  }

  // One HTTP exchange; the answer with its head.
  std::string exchange(std::string_view request) const {
    send(request);
    std::string answer;
    std::size_t size = 0;
    while (size == 0 || answer.size() < size) {
      if (!receive(answer)) fail("receive");
      const auto head = answer.find("\r\n\r\n");
      if (size != 0 || head == std::string::npos) continue;
      size = head + 4 + content_length(std::string_view(answer).substr(0, head));
    }
    return answer;
  }

 private:
  static std::size_t content_length(std::string_view head) {
    constexpr std::string_view kName = "content-length:";
    for (std::size_t at = 0; at + kName.size() < head.size(); ++at) {
      if (::strncasecmp(head.data() + at, kName.data(), kName.size()) == 0) {
        return std::strtoull(head.data() + at + kName.size(), nullptr, 10);
      }
    }
    return 0;
  }

  [[noreturn]] static void fail(const char* what) {
    std::perror(what);
    std::exit(2);
  }

  UniqueFd fd_;
};

}  // namespace nc::bench
