// What has to happen every second or so, on a thread that may block on the disk.
#pragma once

#include <condition_variable>
#include <functional>
#include <thread>
#include <vector>

#include "base/thread_annotations.hpp"

namespace nc::daemon {

class Maintenance {
 public:
  explicit Maintenance(std::vector<std::function<void()>> jobs);
  ~Maintenance();  // waits for the job that is running
  Maintenance(const Maintenance&) = delete;
  Maintenance& operator=(const Maintenance&) = delete;

 private:
  void run() NC_EXCLUDES(mutex_);

  const std::vector<std::function<void()>> jobs_;
  Mutex mutex_;
  std::condition_variable_any wake_;
  bool stopping_ NC_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace nc::daemon
