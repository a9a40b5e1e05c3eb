// A fixed number of threads and a bounded queue: the way to get work off the threads that serve
// sockets.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "base/result.hpp"
#include "base/thread_annotations.hpp"

namespace nc {

class ThreadPool {
 public:
  // At most `max_queued` jobs wait while all threads work; 0 counts as 1.
  ThreadPool(std::size_t threads, std::size_t max_queued);
  ~ThreadPool();  // runs what is queued, then ends the threads; not to be called from a job
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Runs `job` on some thread, in the order of the calls. A job must not throw. kBusy: the queue is
  // full; kDraining: drain() was called. Then `job` was not and will not be run.
  Status submit(std::function<void()> job) NC_EXCLUDES(mutex_);
  // Takes no more jobs and waits until those it has are done.
  void drain() NC_EXCLUDES(mutex_);
  std::size_t queued() const NC_EXCLUDES(mutex_);  // not yet started

 private:
  void work() NC_EXCLUDES(mutex_);

  const std::size_t max_queued_;
  mutable Mutex mutex_;
  std::condition_variable_any wake_;  // a job, or the end
  std::condition_variable_any idle_;  // nothing is queued or running
  std::deque<std::function<void()>> jobs_ NC_GUARDED_BY(mutex_);
  std::size_t running_ NC_GUARDED_BY(mutex_) = 0;
  bool draining_ NC_GUARDED_BY(mutex_) = false;
  bool ending_ NC_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace nc
