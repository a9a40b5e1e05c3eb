// Answers to look-ups that were given a moment ago, so that the ranks of a job that all ask for the
// same keys are answered from memory. An answer is good while the store says that the entry is the
// same (Store::reuse) and its files were seen to be there within kFreshMs. Thread-safe; never
// waits.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/clock.hpp"
#include "base/hash.hpp"
#include "base/thread_annotations.hpp"

namespace nc::daemon {

class HitMemo {
 public:
  static constexpr Millis kFreshMs = 1'000;
  static constexpr std::size_t kMaxAnswer = 64 << 10;
  static constexpr std::size_t kMaxTotal = 4 << 20;  // bytes of answers

  struct Answer {
    std::string text;
    std::uint64_t generation = 0;
    double seconds_saved = 0;
    std::string only_for = {};  // the namespace whose look-ups may have it; "": all
  };

  explicit HitMemo(Clock& clock) : clock_(clock) {}

  // Remembers an answer whose files were just looked at; a large one is not kept.
  void put(const ActionKey& key, Answer answer) NC_EXCLUDES(mutex_);
  std::shared_ptr<const Answer> get(const ActionKey& key) NC_EXCLUDES(mutex_);
  std::size_t bytes() const NC_EXCLUDES(mutex_);

 private:
  struct Kept {
    ActionKey key;
    std::shared_ptr<const Answer> answer;
    Millis fresh_until = 0;  // monotonic
  };
  using Order = std::list<Kept>;

  void drop(Order::iterator kept) NC_REQUIRES(mutex_);

  Clock& clock_;
  mutable Mutex mutex_;
  Order order_ NC_GUARDED_BY(mutex_);  // oldest first, so that what is stale is at the front
  std::unordered_map<ActionKey, Order::iterator, Sha256Hash> by_key_ NC_GUARDED_BY(mutex_);
  std::size_t bytes_ NC_GUARDED_BY(mutex_) = 0;
};

}  // namespace nc::daemon
