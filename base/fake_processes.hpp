// Processes that exist because a test says so. Thread-safe.
#pragma once

#include <map>
#include <vector>

#include "base/process.hpp"
#include "base/thread_annotations.hpp"
#include "base/unique_fd.hpp"

namespace nc {

class FakeProcesses final : public Processes {
 public:
  Result<ProcessId> identify(pid_t pid) override;
  bool alive(const ProcessId& id) override;
  Result<pid_t> spawn(
      const SpawnOptions& options) override;  // starts one and remembers the options
  Result<int> exit_fd(pid_t pid) override;    // a real descriptor, readable after kill()

  ProcessId start(pid_t pid);  // replaces a living one; each start has other start_ticks
  void kill(pid_t pid);        // no such process: nothing happens
  void fail_next_spawn(Error error);
  void set_exit_fd_supported(bool supported);
  std::vector<SpawnOptions> spawned() const;

 private:
  struct Living {
    std::uint64_t start_ticks = 0;
    UniqueFd ended;  // eventfd; duplicates of it are given out
  };

  mutable Mutex mutex_;
  std::map<pid_t, Living> living_ NC_GUARDED_BY(mutex_);
  std::vector<SpawnOptions> spawned_ NC_GUARDED_BY(mutex_);
  std::optional<Error> spawn_error_ NC_GUARDED_BY(mutex_);
  std::uint64_t last_start_ NC_GUARDED_BY(mutex_) = 0;
  pid_t last_pid_ NC_GUARDED_BY(mutex_) = 1'000'000;  // above pid_max: never a real process
  bool exit_fd_supported_ NC_GUARDED_BY(mutex_) = true;

  ProcessId start_locked(pid_t pid) NC_REQUIRES(mutex_);
  void kill_locked(pid_t pid) NC_REQUIRES(mutex_);
};

}  // namespace nc
