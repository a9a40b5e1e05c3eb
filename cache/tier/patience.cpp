#include "cache/tier/patience.hpp"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <thread>

#include "base/thread_annotations.hpp"

namespace nc::tier {

struct Patience::Job {
  std::function<void()> work;
  bool taken = false;
  bool done = false;
};

struct Patience::State {
  Mutex mutex;
  std::condition_variable_any wake;  // there is a job, or it is over
  std::condition_variable_any done;
  std::deque<std::shared_ptr<Job>> jobs NC_GUARDED_BY(mutex);
  std::size_t threads NC_GUARDED_BY(mutex) = 0;
  std::size_t idle NC_GUARDED_BY(mutex) = 0;
  bool stopping NC_GUARDED_BY(mutex) = false;

  void work() {
    MutexLock lock(mutex);
    for (;;) {
      ++idle;
      while (jobs.empty() && !stopping) wake.wait(mutex);
      --idle;
      if (stopping) return;
      const auto job = std::move(jobs.front());
      jobs.pop_front();
      job->taken = true;
      mutex.unlock();
      job->work();
      job->work = nullptr;  // what it holds goes without the lock
      mutex.lock();
      job->done = true;
      done.notify_all();
    }
  }
};

Patience::Patience(std::string what, Millis timeout_ms)
    : what_(std::move(what)), timeout_ms_(timeout_ms), state_(std::make_shared<State>()) {}

Patience::~Patience() {
  MutexLock lock(state_->mutex);
  state_->stopping = true;
  state_->wake.notify_all();
}

Status Patience::wait(std::function<void()> work) {
  const auto job = std::make_shared<Job>();
  job->work = std::move(work);
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms_);
  State& state = *state_;
  MutexLock lock(state.mutex);
  state.jobs.push_back(job);
  if (state.idle < state.jobs.size() && state.threads < kMaxThreads) {
    ++state.threads;
    std::thread([kept = state_] { kept->work(); }).detach();
  }
  state.wake.notify_one();
  while (!job->done) {
    if (state.done.wait_until(state.mutex, until) == std::cv_status::timeout && !job->done) {
      if (!job->taken) std::erase(state.jobs, job);
      return Error{Code::kTimeout,
                   what_ + " did not answer within " + std::to_string(timeout_ms_) + " ms",
                   "look whether it is mounted and its server is up"};
    }
  }
  return {};
}

}  // namespace nc::tier
