// Recorded actions, by the name of their recording, and the queue of those that somebody is to
// build; both written down. Thread-safe; everything may wait for the disk.
//
// What a recording names is kept from eviction. It is bounded: what was recorded longest ago goes,
// when it is older than recordings_ttl, or beyond kMaxActions; when the inputs together have more
// than recordings_bytes, the inputs go, and the name stays with the reason, so that nobody takes a
// part of a recording for the whole.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/settings.hpp"
#include "base/thread_annotations.hpp"
#include "cache/store.hpp"
#include "daemon/action_record.hpp"
#include "daemon/lease_keeper.hpp"
#include "daemon/work_queue.hpp"

namespace nc::daemon {

struct RecordedAction {  // as it is listed
  ActionKey key;
  std::string label, compiler;
  std::uint64_t bytes = 0;     // of its inputs
  std::uint64_t build_ms = 0;  // how long its build took; 0: not known
  Millis recorded_ms = 0;      // the last time
  std::string lost;            // why it cannot be built again, "" when it can

  std::string encode() const;  // the record in the table "recordings", without the key
  static std::optional<RecordedAction> decode(std::string_view text);
};

class Work final : public LeaseFollower {
 public:
  static constexpr std::size_t kMaxActions = 50'000;

  Work(Store& store, Clock& clock) : store_(store), clock_(clock), queue_(clock) {}

  // After LeaseKeeper::restore().
  Status restore(const LeaseTable& leases, bool persist) NC_EXCLUDES(mutex_);
  void configure(const Settings& settings) NC_EXCLUDES(mutex_);
  // Forgets what is too old; call it now and then.
  void maintain() NC_EXCLUDES(mutex_);

  // ---- Recordings ----
  // True: it was not in this recording yet. kNotFound: an input was not uploaded.
  Result<bool> record(const std::string& name, const ActionRecord& action) NC_EXCLUDES(mutex_);
  // Notes an action that was needed under this name but could not be kept (`lost` says why). False:
  // it is recorded already.
  bool record_lost(const std::string& name, RecordedAction action) NC_EXCLUDES(mutex_);
  // kNotFound when it was never recorded, or forgotten.
  Result<ActionRecord> find(const ActionKey& key);

  struct Recording {
    std::string name;
    std::size_t actions = 0;
    std::uint64_t bytes = 0;
    Millis first_ms = 0, last_ms = 0;  // recorded
  };
  std::vector<Recording> recordings() const NC_EXCLUDES(mutex_);
  // By key, those after `after`. kNotFound: there is no such recording.
  Result<std::vector<RecordedAction>> actions(const std::string& name,
                                              const std::optional<ActionKey>& after,
                                              std::size_t limit) const NC_EXCLUDES(mutex_);
  Status forget(const std::string& name) NC_EXCLUDES(mutex_);

  // ---- The queue ----
  WorkQueue::Added enqueue(const ActionKey& key, const std::string& label,
                           const std::string& compiler);
  bool take(const ActionKey& key, const std::string& lease);
  void built(const ActionKey& key);
  void failed(const ActionKey& key, FailureClass failure_class, std::string_view message);
  // Its builder wants to do without it; that is no attempt. Call it before the lease ends.
  void given_back(const std::string& lease);
  std::size_t clear_queue();
  const WorkQueue& queue() const { return queue_; }

  void lease_ended(const std::string& lease) override;
  void tick() override {}
  std::optional<Millis> next_deadline() const override { return std::nullopt; }

 private:
  using Actions = std::map<ActionKey, RecordedAction>;
  struct Held {
    std::shared_ptr<void> hold;
    std::size_t recordings = 0;
    std::uint64_t bytes = 0;
  };
  using Changes = std::vector<Store::RecordChange>;

  void put(const std::string& name, RecordedAction action) NC_REQUIRES(mutex_);
  void hold(const RecordedAction& action) NC_REQUIRES(mutex_);
  void let_go(const RecordedAction& action) NC_REQUIRES(mutex_);
  void erase(const std::string& name, const ActionKey& key, Changes& changes) NC_REQUIRES(mutex_);
  void bound(Changes& changes) NC_REQUIRES(mutex_);
  void write(std::string_view table, Changes changes);
  void write_queue(WorkQueue::Changes changes);

  Store& store_;
  Clock& clock_;
  WorkQueue queue_;
  std::atomic<bool> persist_{false};
  mutable Mutex mutex_;
  std::map<std::string, Actions> recordings_ NC_GUARDED_BY(mutex_);
  std::map<ActionKey, Held> held_ NC_GUARDED_BY(mutex_);
  std::size_t rows_ NC_GUARDED_BY(mutex_) = 0;
  std::uint64_t bytes_ NC_GUARDED_BY(mutex_) = 0;  // of distinct actions
  std::uint64_t max_bytes_ NC_GUARDED_BY(mutex_) = 4ULL << 30;
  Millis ttl_ms_ NC_GUARDED_BY(mutex_) = 30LL * 24 * 3'600'000;
};

}  // namespace nc::daemon
