#include "base/thread_pool.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace nc {

ThreadPool::ThreadPool(std::size_t threads, std::size_t max_queued)
    : max_queued_(std::max<std::size_t>(max_queued, 1)) {
  threads = std::max<std::size_t>(threads, 1);
  threads_.reserve(threads);
  for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

ThreadPool::~ThreadPool() {
  drain();
  {
    MutexLock lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Status ThreadPool::submit(std::function<void()> job) {
  {
    MutexLock lock(mutex_);
    if (draining_)
      return Error{Code::kDraining, "no new work is taken: shutting down", "try again later"};
    if (jobs_.size() >= max_queued_) {
      return Error{Code::kBusy, std::to_string(jobs_.size()) + " jobs are waiting already",
                   "try again later"};
    }
    jobs_.push_back(std::move(job));
  }
  wake_.notify_one();
  return {};
}

void ThreadPool::drain() {
  MutexLock lock(mutex_);
  draining_ = true;
  while (!jobs_.empty() || running_ > 0) idle_.wait(mutex_);
}

std::size_t ThreadPool::queued() const {
  MutexLock lock(mutex_);
  return jobs_.size();
}

void ThreadPool::work() {
  while (true) {
    std::function<void()> job;
    {
      MutexLock lock(mutex_);
      while (jobs_.empty() && !ending_) wake_.wait(mutex_);
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
      ++running_;
    }
    job();
    job = nullptr;  // what it holds goes before the pool counts as idle
    MutexLock lock(mutex_);
    --running_;
    if (jobs_.empty() && running_ == 0) idle_.notify_all();
  }
}

}  // namespace nc
