// What still has to go to the tiers: (entry, tier) pairs, bounded, in the records of the store, so
// that a restart or a kill loses none. Sent by threads of its own, the oldest first, each pair
// again after a growing pause until it is done. A tier that cannot be written now holds up nobody
// else.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/hash.hpp"
#include "base/random.hpp"
#include "base/thread_annotations.hpp"
#include "cache/store.hpp"

namespace nc::tier {

class WriteBack {
 public:
  struct Options {
    std::size_t max_items = 100'000;
    std::size_t threads = 2;
    Millis first_pause_ms = 2'000;
    Millis longest_pause_ms = 600'000;
  };
  enum class Refusal {
    kNone,
    kThis,  // the tier does not take this one, as things are
    kAll,   // nor any other: it is full, or denies
  };
  struct Outcome {
    bool done = false;                 // it need not be sent again
    Millis wait_ms = 0;                // not done: > 0: the whole tier has to wait for so long
    Refusal refusal = Refusal::kNone;  // not done: waiting will not help soon
  };
  // Sends one; blocks. Called by several threads at once.
  using Send = std::function<Outcome(const ActionKey& key, const std::string& tier)>;

  WriteBack(Store& store, Clock& clock, Random& random, Send send)
      : WriteBack(store, clock, random, std::move(send), Options()) {}
  WriteBack(Store& store, Clock& clock, Random& random, Send send, Options options);
  ~WriteBack();
  WriteBack(const WriteBack&) = delete;
  WriteBack& operator=(const WriteBack&) = delete;

  // Takes up what an earlier process left. Pairs for other tiers than these are dropped.
  Status restore(const std::vector<std::string>& tiers) NC_EXCLUDES(mutex_);
  void start() NC_EXCLUDES(mutex_);
  void stop() NC_EXCLUDES(mutex_);  // waits for the sends that are under way

  // Written down when it returns. False: the queue is full, or the record could not be written.
  bool add(const ActionKey& key, const std::string& tier) NC_EXCLUDES(mutex_);
  // Sends it before all others of its tier, if it waits. One that failed keeps its pause.
  void hurry(const ActionKey& key, const std::string& tier) NC_EXCLUDES(mutex_);
  // Added and not done with yet.
  bool pending(const ActionKey& key, const std::string& tier) const NC_EXCLUDES(mutex_);
  // Pending, and nobody should wait for it: the tier refused it, or everything, when it was asked
  // last, or it has failed often.
  bool stuck(const ActionKey& key, const std::string& tier) const NC_EXCLUDES(mutex_);
  // Sends one pair whose time has come; false: there is none.
  bool step() NC_EXCLUDES(mutex_);

  struct Counts {
    std::size_t waiting = 0;
    std::size_t sending = 0;
  };
  Counts counts(const std::string& tier) const NC_EXCLUDES(mutex_);
  std::uint64_t dropped() const NC_EXCLUDES(mutex_);  // the queue was full

 private:
  struct Item {
    ActionKey key;
    int attempts = 0;
  };
  struct Queue {
    std::deque<Item> ready;
    std::multimap<Millis, Item> later;  // by monotonic time
    std::set<ActionKey> known;          // ready, later and being sent
    std::set<ActionKey> again;          // being sent, and added meanwhile
    std::set<ActionKey> stuck;          // of `known`
    bool refuses = false;               // all of them
    Millis blocked_until = 0;
    std::size_t sending = 0;
  };
  void run() NC_EXCLUDES(mutex_);
  bool begin_anew(Queue& queue, const ActionKey& key) NC_REQUIRES(mutex_);
  void settle(const std::string& tier, Item item, const Outcome& outcome) NC_EXCLUDES(mutex_);

  Store& store_;
  Clock& clock_;
  Random& random_;
  const Send send_;
  const Options options_;
  mutable Mutex mutex_;
  std::condition_variable_any wake_;
  std::map<std::string, Queue> queues_ NC_GUARDED_BY(mutex_);
  std::string last_ NC_GUARDED_BY(mutex_);  // tier that was served last: they take turns
  std::size_t size_ NC_GUARDED_BY(mutex_) = 0;
  std::uint64_t dropped_ NC_GUARDED_BY(mutex_) = 0;
  bool stopping_ NC_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace nc::tier
