// Accepts connections, gives each to an I/O thread, and ends in order: no new connections, what
// runs may finish, then out.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include "base/unique_fd.hpp"
#include "daemon/service.hpp"

namespace nc::daemon {

class Server {
 public:
  struct Options {
    std::size_t io_threads = 2;
    std::uint64_t max_connections = 4096;
    std::optional<gid_t> group = std::nullopt;  // served, too: Scope::kWrite
  };
  // `listener` is bound and listens. Sets service.shut_down.
  Server(Service& service, UniqueFd listener, Options options);
  ~Server();

  // Serves on this thread and its own until shut down and drained. `on_closed` runs when no new
  // connection is taken any more (the socket's name can go); `on_hangup` for each SIGHUP.
  Status run(std::function<void()> on_closed, std::function<void()> on_hangup);
  // From any thread. Running requests get `drain_ms`; a second call shortens it.
  void shut_down(Millis drain_ms);
  // Serves one more connection, which somebody else accepted: the end of a socket pair. From any
  // thread; false: we are ending.
  bool adopt(UniqueFd socket, std::shared_ptr<const Remote> remote);
  void set_request_timeout(Millis ms);
  // Wall time does not matter: since when, on the monotonic clock, no connection has been open; 0:
  // there is one.
  Millis idle_since() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace nc::daemon
