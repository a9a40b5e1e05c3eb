#include "client/lease_keeper.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "base/thread_annotations.hpp"

namespace nc::client {

struct LeaseKeeper::Impl {
  Impl(ClientOptions options, Lease l) : client(std::move(options)), lease(std::move(l)) {
    thread = std::thread([this] { run(); });
  }

  ~Impl() {
    {
      MutexLock lock(mutex);
      stopping = true;
    }
    wake.notify_all();
    thread.join();
  }

  void run() {
    Millis ttl_ms = lease.ttl_ms;
    Millis last_good_ms = system_clock().monotonic_ms();
    for (;;) {
      const Millis normal_ms =
          lease.heartbeat_ms > 0 ? lease.heartbeat_ms : std::max<Millis>(ttl_ms / 3, 1);
      if (!sleep(trouble_now() ? std::min<Millis>(normal_ms, 500) : normal_ms)) return;
      const auto beat = client.heartbeat(lease, status_now());
      const Millis now = system_clock().monotonic_ms();
      if (beat.ok()) {
        ttl_ms = beat->ttl_ms;
        last_good_ms = now;
      }
      MutexLock lock(mutex);
      if (beat.ok()) {
        cancelled = cancelled || beat->cancel;
        waiters = beat->waiters;
      }
      trouble = beat.ok() ? "" : beat.error().text();
      lost = beat.is(Code::kLeaseLost) || (!beat.ok() && now - last_good_ms >= ttl_ms);
      if (beat.is(Code::kLeaseLost)) return;
    }
  }

  // False when it is time to stop.
  bool sleep(Millis ms) NC_NO_THREAD_SAFETY_ANALYSIS {
    std::unique_lock<Mutex> lock(mutex);
    wake.wait_for(lock, std::chrono::milliseconds(ms),
                  [this]() NC_NO_THREAD_SAFETY_ANALYSIS { return stopping; });
    return !stopping;
  }

  BuildStatus status_now() {
    MutexLock lock(mutex);
    return status;
  }

  bool trouble_now() {
    MutexLock lock(mutex);
    return !trouble.empty();
  }

  Client client;  // the thread's own
  const Lease lease;
  Mutex mutex;
  std::condition_variable_any wake;
  bool stopping NC_GUARDED_BY(mutex) = false;
  bool lost NC_GUARDED_BY(mutex) = false;
  bool cancelled NC_GUARDED_BY(mutex) = false;
  std::int64_t waiters NC_GUARDED_BY(mutex) = 0;
  BuildStatus status NC_GUARDED_BY(mutex);
  std::string trouble NC_GUARDED_BY(mutex);
  std::thread thread;
};

LeaseKeeper::LeaseKeeper(ClientOptions options, Lease lease) {
  options.request_timeout_ms =
      std::min(options.request_timeout_ms, std::max<Millis>(lease.ttl_ms / 2, 100));
  impl_ = std::make_unique<Impl>(std::move(options), std::move(lease));
}
LeaseKeeper::~LeaseKeeper() = default;
LeaseKeeper::LeaseKeeper(LeaseKeeper&&) noexcept = default;
LeaseKeeper& LeaseKeeper::operator=(LeaseKeeper&&) noexcept = default;

void LeaseKeeper::set_progress(std::string text) {
  MutexLock lock(impl_->mutex);
  impl_->status.progress = std::move(text);
}

void LeaseKeeper::set_admission(const Admission& admission) {
  MutexLock lock(impl_->mutex);
  impl_->status.reserved_bytes = admission.reserved_bytes;
  impl_->status.cores = admission.cores;
}

void LeaseKeeper::set_detached(bool detached) {
  MutexLock lock(impl_->mutex);
  impl_->status.detached = detached;
}

bool LeaseKeeper::cancelled() const {
  MutexLock lock(impl_->mutex);
  return impl_->cancelled;
}

std::int64_t LeaseKeeper::waiters() const {
  MutexLock lock(impl_->mutex);
  return impl_->waiters;
}

bool LeaseKeeper::lost() const {
  MutexLock lock(impl_->mutex);
  return impl_->lost;
}

std::string LeaseKeeper::trouble() const {
  MutexLock lock(impl_->mutex);
  return impl_->trouble;
}

}  // namespace nc::client
