// Threads that may block: on the disk, or on the shared tiers. One of them is always free of slow
// work (hashing, writing, whole-store requests), so that look-ups stay quick under load.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <string_view>
#include <thread>
#include <vector>

#include "base/thread_annotations.hpp"

namespace nc::daemon {

enum class Lane { kQuick, kSlow };

class DiskPool {
 public:
  static constexpr std::size_t kUnbounded = static_cast<std::size_t>(-1);

  // `max_waiting`: so much work waits at most, besides what runs.
  explicit DiskPool(std::size_t threads, std::size_t max_waiting = kUnbounded);
  ~DiskPool();  // runs what is queued, then joins
  DiskPool(const DiskPool&) = delete;
  DiskPool& operator=(const DiskPool&) = delete;

  // Work must not throw; should it, the exception is logged and dropped. False: it is dropped, as
  // too much is waiting, or after stop().
  bool post(Lane lane, std::function<void()> work) NC_EXCLUDES(mutex_);
  void stop() NC_EXCLUDES(mutex_);

 private:
  void run() NC_EXCLUDES(mutex_);
  bool runnable() const NC_REQUIRES(mutex_);

  const std::size_t slow_limit_;
  const std::size_t max_waiting_;
  Mutex mutex_;
  std::condition_variable_any wake_;
  std::deque<std::function<void()>> quick_ NC_GUARDED_BY(mutex_);
  std::deque<std::function<void()>> slow_ NC_GUARDED_BY(mutex_);
  std::size_t running_slow_ NC_GUARDED_BY(mutex_) = 0;
  bool stopping_ NC_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

// Runs `work`; an exception is logged under `where` and goes no further.
void guarded(std::string_view where, const std::function<void()>& work) noexcept;

}  // namespace nc::daemon
