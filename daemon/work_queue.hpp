// The queue of recorded actions that somebody is to build: pure logic, in memory, with the records
// that a restart begins with. Thread-safe.
//
//   queued --take--> building --committed--> built
//     ^                 |---- failed the same way each time, or too often --> failed
//     '-- its builder died or had bad luck (at most kMaxAttempts times), or gave it back --'
//
// An action is in it once. Jobs that ended are kept for kKeepMs, for whoever asks how it went.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/hash.hpp"
#include "base/thread_annotations.hpp"

namespace nc::daemon {

enum class JobState { kQueued, kBuilding, kBuilt, kFailed };
std::string_view job_state_name(JobState state);
std::optional<JobState> parse_job_state(std::string_view name);

struct Job {
  ActionKey key;
  std::uint64_t number = 0;  // order of arrival
  JobState state = JobState::kQueued;
  unsigned attempts = 0;  // how often it was taken
  std::string label, compiler;
  std::string failure_class, message;  // of the last failure
  Millis queued_ms = 0;
  Millis ended_ms = 0;  // when it was built or failed for good
  std::string lease;    // while building

  // The record in the table "queue" (docs/formats.md), without the lease's name.
  std::string encode() const;
  static std::optional<Job> decode(std::string_view text);
};

class WorkQueue {
 public:
  static constexpr std::size_t kMaxJobs = 20'000;
  static constexpr unsigned kMaxAttempts = 3;
  static constexpr Millis kKeepMs = 24LL * 3'600'000;

  explicit WorkQueue(Clock& clock) : clock_(clock) {}

  // Records to be written (nullopt: erased), by key in hex.
  using Changes = std::vector<std::pair<std::string, std::optional<std::string>>>;

  enum class Added { kQueued, kAlready, kFull };
  // One that ended is queued again.
  Added add(const ActionKey& key, std::string label, std::string compiler, Changes& changes)
      NC_EXCLUDES(mutex_);
  // The first queued ones, in order.
  std::vector<Job> next(std::size_t most) const NC_EXCLUDES(mutex_);
  // False: somebody else took it.
  bool take(const ActionKey& key, const std::string& lease, Changes& changes) NC_EXCLUDES(mutex_);
  // There is an entry now, whoever made it.
  void built(const ActionKey& key, Changes& changes) NC_EXCLUDES(mutex_);
  // `again`: it may go better another time.
  void failed(const ActionKey& key, std::string_view failure_class, std::string_view message,
              bool again, Changes& changes) NC_EXCLUDES(mutex_);
  // Its builder gave it back untried: that is no attempt.
  void given_back(const std::string& lease, Changes& changes) NC_EXCLUDES(mutex_);
  // Its builder is gone.
  void lease_ended(const std::string& lease, Changes& changes) NC_EXCLUDES(mutex_);
  // Removes those that wait; how many.
  std::size_t clear(Changes& changes) NC_EXCLUDES(mutex_);
  void forget_old(Changes& changes) NC_EXCLUDES(mutex_);

  // `lease`: of a build that goes on over the restart; without one it is queued again.
  void restore(Job job, std::optional<std::string> lease) NC_EXCLUDES(mutex_);

  struct Counts {
    std::size_t queued = 0, building = 0, built = 0, failed = 0;
  };
  Counts counts() const NC_EXCLUDES(mutex_);
  // In order of arrival, those after number `after`.
  std::vector<Job> list(std::optional<JobState> state, std::uint64_t after, std::size_t limit) const
      NC_EXCLUDES(mutex_);

 private:
  using Jobs = std::map<ActionKey, Job>;
  void put(Job& job, Changes& changes) NC_REQUIRES(mutex_);
  void back(Job& job, std::string_view failure_class, std::string_view message) NC_REQUIRES(mutex_);
  void end(Job& job, JobState state) NC_REQUIRES(mutex_);
  void remove(Jobs::iterator at, Changes& changes) NC_REQUIRES(mutex_);
  bool make_room(Changes& changes) NC_REQUIRES(mutex_);

  Clock& clock_;
  mutable Mutex mutex_;
  Jobs jobs_ NC_GUARDED_BY(mutex_);
  std::map<std::uint64_t, ActionKey> order_ NC_GUARDED_BY(mutex_);
  std::map<std::string, ActionKey> leases_ NC_GUARDED_BY(mutex_);
  std::uint64_t last_number_ NC_GUARDED_BY(mutex_) = 0;
};

}  // namespace nc::daemon
