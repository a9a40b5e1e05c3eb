// Keeps the lease table true to the world: writes leases down so that a restart knows them, watches
// builders and takes their leases when they die, lets time pass. One thread; everything here may
// block on the disk.
#pragma once

#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/thread_annotations.hpp"
#include "base/unique_fd.hpp"
#include "daemon/leases.hpp"

namespace nc::daemon {

// What hangs on leases: told when one ends, and given the time. Called on any thread, outside of
// locks; may wait for the disk.
class LeaseFollower {
 public:
  virtual ~LeaseFollower() = default;
  virtual void lease_ended(const std::string& lease) = 0;
  virtual void tick() = 0;
  virtual std::optional<Millis> next_deadline() const = 0;  // monotonic, of the next tick
};

class LeaseKeeper {
 public:
  struct Deps {
    LeaseTable& table;
    Store& store;
    Processes& processes;
    Clock& clock;
  };
  // `persist` false (a read-only store): nothing is written down.
  LeaseKeeper(Deps deps, bool persist);
  ~LeaseKeeper();
  LeaseKeeper(const LeaseKeeper&) = delete;
  LeaseKeeper& operator=(const LeaseKeeper&) = delete;

  // Before anything else. It must outlive stop().
  void add_follower(LeaseFollower& follower) { followers_.push_back(&follower); }
  // Takes up the leases of builders that still live. Before start().
  Status restore();
  Status start();
  void stop();

  // Follows up on a lease that was just granted or adopted. When it returns, a restart knows the
  // lease.
  void follow(const Lease& lease) NC_EXCLUDES(mutex_);
  // Follows up on what a change of the table brought about.
  void apply(const Effects& effects) NC_EXCLUDES(mutex_);
  // A deadline may have moved nearer.
  void nudge();

 private:
  void run();
  void step(int timeout_ms) NC_EXCLUDES(mutex_);
  void watch(const Lease& lease) NC_EXCLUDES(mutex_);
  void unwatch(const std::string& id) NC_EXCLUDES(mutex_);
  void check_unwatchable() NC_EXCLUDES(mutex_);
  int timeout_ms() const NC_EXCLUDES(mutex_);
  void extend_fence(std::uint64_t fence) NC_EXCLUDES(mutex_);

  const Deps deps_;
  const bool persist_;
  std::vector<LeaseFollower*> followers_;
  UniqueFd epoll_;
  UniqueFd nudge_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;

  mutable Mutex mutex_;
  std::map<std::string, UniqueFd> watched_ NC_GUARDED_BY(mutex_);  // lease id -> pidfd
  std::map<int, std::string> by_fd_ NC_GUARDED_BY(mutex_);
  std::map<std::string, ProcessId> unwatchable_ NC_GUARDED_BY(mutex_);  // asked for once a second
  std::uint64_t fence_limit_ NC_GUARDED_BY(mutex_) = 0;  // written down: a restart begins there
};

// The form of a lease on disk.
std::string lease_to_record(const Lease& lease);
Result<Lease> lease_from_record(std::string_view record);

}  // namespace nc::daemon
