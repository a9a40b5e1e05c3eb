// The daemon's protocol over TCP: accepts connections, speaks TLS with them on a thread of its own
// (a flood of handshakes costs local clients nothing), and hands the plain bytes on through a
// socket pair, so that behind it everything is as for a local connection. Who a caller is is
// settled by the requests (daemon/access.hpp); of TLS only the name in a verified client
// certificate is used.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "daemon/access.hpp"

namespace nc::daemon {

class TcpListener {
 public:
  struct Options {
    std::string address;    // "10.0.0.7:8443", "[::]:8443"; numbers only, port 0: any
    std::string cert, key;  // PEM files: the chain, and its key without a passphrase
    std::string client_ca;  // PEM file; when set, only clients with a certificate of it come in
    bool plain = false;     // no TLS; for loopback addresses only
    std::size_t max_connections = 64;
    Millis handshake_ms = 10'000;  // for the handshake, and then for the first byte
    Millis stall_ms = 30'000;      // an answer of which the client takes nothing for so long
    Millis idle_ms = 300'000;      // no byte in either direction
  };
  struct Counts {
    std::uint64_t open = 0, accepted = 0, turned_away = 0, failed_handshakes = 0, timed_out = 0;
  };
  // Takes one end of a socket pair; false: no more.
  using Adopt = std::function<bool(UniqueFd, std::shared_ptr<const Remote>)>;

  // kInvalid, kDenied (plain text beyond loopback; a key that others can read), kNotFound, kIo.
  static Result<std::unique_ptr<TcpListener>> open(FileSystem& fs, Clock& clock, Options options,
                                                   Adopt adopt);
  // Whether certificate, key and client CA can be used, without listening: until when the
  // certificate is good (wall clock), nothing for plain text. As open().
  static Result<std::optional<Millis>> check(FileSystem& fs, const Options& options);
  ~TcpListener();  // cuts off what is open
  TcpListener(const TcpListener&) = delete;
  TcpListener& operator=(const TcpListener&) = delete;

  const std::string& bound() const;  // the address with its port
  Counts counts() const;
  // Reads certificate, key and client CA again, for connections from now on.
  Status reload();
  void stop_accepting();

 private:
  struct Impl;
  explicit TcpListener(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace nc::daemon
