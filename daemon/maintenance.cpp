#include "daemon/maintenance.hpp"

#include <chrono>
#include <utility>

#include "daemon/disk_pool.hpp"

namespace nc::daemon {

Maintenance::Maintenance(std::vector<std::function<void()>> jobs)
    : jobs_(std::move(jobs)), thread_([this] { run(); }) {}

Maintenance::~Maintenance() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Maintenance::run() {
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (!stopping_) wake_.wait_for(mutex_, std::chrono::seconds(1));
      if (stopping_) return;
    }
    for (const auto& job : jobs_) guarded("maintenance", job);
  }
}

}  // namespace nc::daemon
