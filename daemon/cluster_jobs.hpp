// This host's part in the cluster's queue of builds (cache/tier/job_queue.hpp): it puts recorded
// actions there, offers jobs to its workers, and tells the queue how they ended. Who builds is
// decided by the lease of the key (cluster.hpp), which a worker's job is taken under.
//
// Nothing is kept over a restart: a job whose end was not told to the queue is looked at by the
// next host that comes by, which drops it when the entry is there, and counts an attempt when not.
//
// What blocks on the tier says so: call it where that is no harm. Thread-safe.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "base/settings.hpp"
#include "base/thread_annotations.hpp"
#include "cache/tier/chain.hpp"
#include "cache/tier/job_queue.hpp"
#include "daemon/action_record.hpp"
#include "daemon/lease_keeper.hpp"

namespace nc::daemon {

class ClusterJobs final : public LeaseFollower {
 public:
  struct Options {
    std::string host;
    Millis look_ms = 10'000;  // so old may be what we know of the queue
  };
  struct Deps {
    tier::Chain& chain;
    tier::Link& link;
    Store& store;
    Clock& clock;
    Random& random;
  };
  ClusterJobs(Deps deps, Options options);

  const std::string& tier() const { return deps_.link.name(); }

  // ---- For people; these block ----
  // The action is recorded here. kNotFound, kDenied, kBusy (the queue is full).
  enum class Added { kQueued, kAlready, kBuilt };
  Result<Added> add(const ActionKey& action) NC_EXCLUDES(mutex_);
  struct Shown {
    ActionKey key;
    std::string state;  // queued | building | failed
    std::string label, compiler;
    tier::JobNote note;
    std::string problem;  // why no worker of this host would take it
  };
  struct Counts {
    std::size_t queued = 0;    // nobody has tried yet
    std::size_t building = 0;  // somebody has
    std::size_t failed = 0;
  };
  struct Page {
    Counts counts;
    std::vector<Shown> jobs;
    std::optional<ActionKey> next;
  };
  Result<Page> page(const std::optional<ActionKey>& after, std::size_t limit) NC_EXCLUDES(mutex_);
  // Removes those that nobody has begun, or those that failed; how many.
  Result<std::size_t> clear(bool failed, bool dry_run) NC_EXCLUDES(mutex_);

  // ---- For workers; these block ----
  // Jobs that may be taken, in an order that is this host's own.
  Result<std::vector<ActionKey>> candidates() NC_EXCLUDES(mutex_);
  // The job, if it is one of that compiler and believed here.
  std::optional<ActionRecord> offer(const ActionKey& key, std::string_view compiler,
                                    const KeyParts& parts) NC_EXCLUDES(mutex_);
  // The lease is held: brings what the build needs. False: there is nothing to be built any more.
  Result<bool> begin(const ActionRecord& job, const std::string& lease,
                     const tier::Progress& progress) NC_EXCLUDES(mutex_);
  // Whether the lease is one of a job; its end has to be told before the lease ends.
  bool holds(const std::string& lease) const NC_EXCLUDES(mutex_);
  void failed(const std::string& lease, const Failure& failure) NC_EXCLUDES(mutex_);
  void given_back(const std::string& lease) NC_EXCLUDES(mutex_);
  // It failed here before, and would again.
  void known_failure(const ActionKey& key, const Failure& failure) NC_EXCLUDES(mutex_);
  // Removes jobs whose entries others can see by now.
  void settle() NC_EXCLUDES(mutex_);

  // ---- At once ----
  // An entry is here.
  void built(const ActionKey& key) NC_EXCLUDES(mutex_);
  bool unsettled() const NC_EXCLUDES(mutex_);

  void lease_ended(const std::string& lease) override NC_EXCLUDES(mutex_);
  void tick() override {}
  std::optional<Millis> next_deadline() const override { return std::nullopt; }

  struct Counters {
    std::atomic<std::uint64_t> added{0};    // by this host
    std::atomic<std::uint64_t> taken{0};    // by its workers
    std::atomic<std::uint64_t> removed{0};  // their entries are there
    std::atomic<std::uint64_t> failed{0};   // told so by this host
    std::atomic<std::uint64_t> refused{0};  // not believed, or no record of an action
    std::atomic<std::uint64_t> errors{0};   // of the tier
  };
  const Counters& counters() const { return counters_; }

 private:
  struct Known {  // of a job that was read
    std::string label, compiler;
    KeyParts compiler_parts;
  };
  struct Taken {
    ActionKey key;
    std::string compiler;
    std::shared_ptr<void> hold;
  };

  Result<std::vector<tier::JobQueue::Listed>> listed(Millis at_most_ms) NC_EXCLUDES(mutex_);
  Result<ActionRecord> read(const ActionKey& key) NC_EXCLUDES(mutex_);
  void forget(const ActionKey& key) NC_EXCLUDES(mutex_);
  void put_off(const ActionKey& key, std::string why) NC_EXCLUDES(mutex_);
  Result<Known> known(const ActionKey& key) NC_EXCLUDES(mutex_);
  std::optional<Taken> release(const std::string& lease) NC_EXCLUDES(mutex_);
  void told(const ActionKey& key, const Status& status);
  tier::JobNote note_of(const Failure& failure, const std::string& compiler) const;

  const Deps deps_;
  const Options options_;
  tier::JobQueue queue_;
  const ActionKey origin_;  // where this host begins
  Counters counters_;

  mutable Mutex mutex_;
  std::vector<tier::JobQueue::Listed> jobs_ NC_GUARDED_BY(mutex_);
  std::optional<Millis> jobs_at_ NC_GUARDED_BY(mutex_);
  std::map<ActionKey, Known> known_ NC_GUARDED_BY(mutex_);
  struct PutOff {
    Millis until_ms = 0;
    std::string why;
  };
  std::map<ActionKey, PutOff> put_off_ NC_GUARDED_BY(mutex_);
  std::map<std::string, Taken> taken_ NC_GUARDED_BY(mutex_);  // by lease
  std::set<ActionKey> built_ NC_GUARDED_BY(mutex_);           // and still in the queue
};

struct Service;
// In the tier of the cluster's leases. Nothing: there is none, or it cannot hold a queue.
std::unique_ptr<ClusterJobs> open_cluster_jobs(Service& service, const Settings& settings);

}  // namespace nc::daemon
