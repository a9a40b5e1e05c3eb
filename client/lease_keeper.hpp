// Keeps a lease alive while its holder builds: a thread with its own connection that sends
// heartbeats.
#pragma once

#include <memory>
#include <string>

#include "client/client.hpp"

namespace nc::client {

class LeaseKeeper {
 public:
  // Starts at once. Beats every lease.heartbeat_ms (a third of the ttl when 0). Trouble reaching
  // the daemon is retried until the ttl is over: a daemon that restarts meanwhile adopts the lease
  // again.
  LeaseKeeper(ClientOptions options, Lease lease);
  ~LeaseKeeper();  // stops beating; does not give the lease back
  LeaseKeeper(LeaseKeeper&&) noexcept;
  LeaseKeeper& operator=(LeaseKeeper&&) noexcept;

  // Shown to whoever waits for this build; sent with the next beat.
  void set_progress(std::string text);
  // What the build was admitted with, from now on sent with each beat.
  void set_admission(const Admission& admission);
  // Nobody but those who wait for it wants the result: the daemon may ask to end the build.
  void set_detached(bool detached);
  // True once another builder has it, or nobody could be told for the whole ttl: what is built must
  // then be committed without counting on it (the daemon decides by the fence).
  bool lost() const;
  // True once the daemon said that nobody wants the build any more.
  bool cancelled() const;
  // How many waited for it when last heard.
  std::int64_t waiters() const;
  // The last trouble in words, "" when well.
  std::string trouble() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace nc::client
