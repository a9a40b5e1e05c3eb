#include "daemon/disk_pool.hpp"

#include <exception>

#include "base/log.hpp"

namespace nc::daemon {

DiskPool::DiskPool(std::size_t threads, std::size_t max_waiting)
    : slow_limit_(threads > 1 ? threads - 1 : 1), max_waiting_(max_waiting) {
  threads_.reserve(threads);
  for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
}

DiskPool::~DiskPool() {
  stop();
}

bool DiskPool::post(Lane lane, std::function<void()> work) {
  {
    MutexLock lock(mutex_);
    if (stopping_ || quick_.size() + slow_.size() >= max_waiting_) return false;
    (lane == Lane::kQuick ? quick_ : slow_).push_back(std::move(work));
  }
  wake_.notify_one();
  return true;
}

void DiskPool::stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (auto& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

bool DiskPool::runnable() const {
  return !quick_.empty() || (!slow_.empty() && running_slow_ < slow_limit_);
}

void DiskPool::run() {
  for (;;) {
    std::function<void()> work;
    bool slow = false;
    {
      MutexLock lock(mutex_);
      while (!runnable()) {
        if (stopping_ && quick_.empty() && slow_.empty()) return;
        wake_.wait(mutex_);
      }
      slow = quick_.empty();
      auto& queue = slow ? slow_ : quick_;
      work = std::move(queue.front());
      queue.pop_front();
      if (slow) ++running_slow_;
    }
    guarded("a thread of the pool", work);
    work = nullptr;  // its captures go before the lock is taken again
    if (slow) {
      MutexLock lock(mutex_);
      --running_slow_;
      if (!slow_.empty() || stopping_) wake_.notify_all();
    }
  }
}

void guarded(std::string_view where, const std::function<void()>& work) noexcept {
  try {
    work();
  } catch (const std::exception& e) {
    log::error("daemon", "{}: {}", where, e.what());
  } catch (...) {
    log::error("daemon", "{}: an exception of unknown type", where);
  }
}

}  // namespace nc::daemon
