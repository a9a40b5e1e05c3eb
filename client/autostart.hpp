// Finding and starting the daemon when a client needs it and nobody listens.
//
// Any number of clients may do this at once: each that finds no listener starts `neuroncached
// --detach`, the daemons agree among themselves (by their lock) which one stays, and every client
// polls the socket until it answers.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/result.hpp"

namespace nc::client {

struct LaunchOptions {
  std::string socket_path;
  std::string daemon_path;             // the setting; empty: look for it
  std::vector<std::string> arguments;  // more flags, e.g. "--dir", "/x"
  Millis timeout_ms = 5'000;           // until it listens
};

// The setting, else `neuroncached` beside the running program, else the first on `path` ($PATH).
// kNotFound says where it looked.
Result<std::string> find_daemon(const std::string& daemon_path, const std::string& path);

// Returns when something listens at the socket. kNotFound: no daemon program. kUnavailable: it
// ended, with what it said. kTimeout: it does not listen yet.
Status ensure_daemon(const LaunchOptions& options);

// True when a connection can be made. kDenied and the like are errors; nobody there is `false`.
Result<bool> listening(const std::string& socket_path, Millis timeout_ms);

// A daemon of one's own over the store's files, read-only, at a private socket; ends with this
// object (or this process).
class PrivateDaemon {
 public:
  // `arguments` as in LaunchOptions. Its socket is in a new directory under $XDG_RUNTIME_DIR or
  // /tmp.
  static Result<PrivateDaemon> start(LaunchOptions options);
  ~PrivateDaemon();
  PrivateDaemon(PrivateDaemon&& other) noexcept;
  PrivateDaemon& operator=(PrivateDaemon&&) = delete;

  const std::string& socket_path() const { return socket_path_; }

 private:
  PrivateDaemon() = default;
  std::string dir_, socket_path_;
  pid_t pid_ = 0;
};

}  // namespace nc::client
