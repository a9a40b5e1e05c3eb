// Builds that went well and whose output could not be stored, for a moment: whoever waited for one
// is told, and builds for itself. Taking the build over one after the other, all would wait for the
// same trouble again and again. Who asks later tries anew. Thread-safe; never waits.
#pragma once

#include <optional>
#include <unordered_map>
#include <utility>

#include "base/clock.hpp"
#include "base/hash.hpp"
#include "base/thread_annotations.hpp"
#include "cache/manifest.hpp"

namespace nc::daemon {

class Unstored {
 public:
  static constexpr Millis kKnownMs = 10'000;  // longer than a waiter is between two requests

  explicit Unstored(Clock& clock) : clock_(clock) {}

  void put(const ActionKey& key, Failure failure) NC_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    const Millis now = clock_.monotonic_ms();
    std::erase_if(known_, [now](const auto& one) { return one.second.until <= now; });
    known_[key] = {std::move(failure), now + kKnownMs};
  }
  std::optional<Failure> get(const ActionKey& key) const NC_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    const auto at = known_.find(key);
    if (at == known_.end() || at->second.until <= clock_.monotonic_ms()) return std::nullopt;
    return at->second.failure;
  }

 private:
  struct Known {
    Failure failure;
    Millis until = 0;  // monotonic
  };

  Clock& clock_;
  mutable Mutex mutex_;
  std::unordered_map<ActionKey, Known, Sha256Hash> known_ NC_GUARDED_BY(mutex_);
};

}  // namespace nc::daemon
