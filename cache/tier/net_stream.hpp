// A connection of bytes to a server, plain or TLS, in which every wait is bounded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/result.hpp"
#include "cache/tier/tls_layer.hpp"

namespace nc::tier {

struct NetTarget {
  std::string host;
  std::uint16_t port = 0;
  bool tls = false;
  Millis timeout_ms = 5'000;  // to connect, and then without a byte
  TlsFiles files = {};

  std::string shown() const;  // "host:port"
};

class NetStream {
 public:
  virtual ~NetStream() = default;

  // kUnavailable: nobody there, or the connection broke; kTimeout; kIo: the other side cannot prove
  // who it is.
  static Result<std::unique_ptr<NetStream>> connect(const NetTarget& target);

  virtual Status write(Bytes bytes) = 0;                           // all of it
  virtual Result<std::size_t> read(std::span<std::byte> out) = 0;  // at least one; never 0
  // Nothing was asked and yet there is something to read: the other side has closed it, or talks
  // out of turn.
  virtual bool stale() const = 0;
};

}  // namespace nc::tier
