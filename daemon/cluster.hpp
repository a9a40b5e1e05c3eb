// One build per cluster: before a key is built here, this host takes the key's lease in a shared
// tier (cache/tier/lease.hpp), or waits for the host that has it.
//
// While that goes on, a lease of nobody stands in the lease table for the other host's, so that
// whoever asks waits as for a local build and is told who builds. Then
//   the entry came         it is in the local store; all who wait are woken to look it up
//   the lease came         the lease in the table goes to the one who has waited longest
//   nobody to be asked     the same, without a lease of the cluster (counted)
// The cluster's lease lives as long as local leases of the key follow each other. It ends when the
// entry can be seen in the tier, or a moment after the last local lease.
//
// Threads of its own do all that may block. Thread-safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "base/thread_annotations.hpp"
#include "cache/tier/lease.hpp"
#include "daemon/lease_keeper.hpp"

namespace nc::daemon {

// What the leases need of the tiers.
class ClusterDoor {
 public:
  virtual ~ClusterDoor() = default;
  virtual tier::Engine& engine() = 0;  // where the leases are
  virtual bool well() = 0;             // false: it fails; do not wait for it
  virtual void stop() {}               // ends what bring() is about
  // Whether the entry can be seen in the tier of the leases; then it is in the local store as well,
  // unless it is not believed here. Blocks.
  virtual Result<bool> bring(const ActionKey& key) = 0;
  // What becomes of an entry that was published here: nothing while it is on its way; else whether
  // it can be seen in that tier. Blocks.
  virtual std::optional<bool> sent(const ActionKey& key) = 0;
};

class Cluster final : public LeaseFollower {
 public:
  struct Options {
    tier::ClusterLease::Options lease;
    double polls_per_s = 50;
    std::size_t threads = 4;
    std::string host;
    bool persist = true;  // leases are written down for a restart
  };
  struct Deps {
    LeaseTable& table;
    LeaseKeeper& keeper;
    Store& store;
    Clock& clock;
    Random& random;
  };
  Cluster(Deps deps, std::unique_ptr<ClusterDoor> door, Options options);
  ~Cluster() override;

  // Leases of an earlier process go on, or are given back. After LeaseKeeper::restore().
  Status restore() NC_EXCLUDES(mutex_);
  void start() NC_EXCLUDES(mutex_);
  void stop() NC_EXCLUDES(mutex_);
  void set_wait(Millis ms) { wait_ms_ = ms; }  // 0: for as long as the other host builds

  // A local lease was granted. False: this host may not build the key yet; the lease is taken back,
  // and the caller asks the table again, which lets it wait.
  bool granted(const Lease& lease) NC_EXCLUDES(mutex_);
  // The holder of this local lease has published; `shared`: and the entry may go to the tiers.
  // False: another host has the cluster's lease by now, so that the entry stays here.
  bool published(const std::string& lease, bool shared = true) NC_EXCLUDES(mutex_);
  // Its build failed in a way that every host has to find out for itself.
  void failed(const std::string& lease) NC_EXCLUDES(mutex_);

  void lease_ended(const std::string& lease) override NC_EXCLUDES(mutex_);
  void tick() override {}
  std::optional<Millis> next_deadline() const override { return std::nullopt; }

  struct View {
    std::string tier;
    std::size_t waiting = 0, held = 0, publishing = 0;
  };
  View view() const NC_EXCLUDES(mutex_);
  const tier::LeaseCounters& counters() const { return counters_; }

 private:
  using State = tier::ClusterLease::State;
  using End = tier::ClusterLease::End;
  enum class Phase {
    kAsking,      // `stand_in` is in the table
    kReady,       // may be built here; nobody does yet
    kBound,       // `bound` builds
    kPublishing,  // built; on its way to the tier
    kOver,
  };
  struct Slot {
    Request request;
    std::shared_ptr<tier::ClusterLease> lease;  // none: built without
    Phase phase = Phase::kAsking;
    std::string stand_in;
    std::string bound;
    End how = End::kReleased;
    Millis since = 0;
    Millis until = 0;  // kReady: for so long; kPublishing: given up then
    Millis pause = 0;  // kPublishing: between two looks
    std::optional<Millis> due;
    bool busy = false;
    bool again = false;
    bool written = false;
  };
  using SlotPtr = std::shared_ptr<Slot>;

  void run() NC_EXCLUDES(mutex_);
  // Each does what is due of a slot that no other thread works on.
  void work(const ActionKey& key, const SlotPtr& slot) NC_EXCLUDES(mutex_);
  std::optional<Millis> asking(const ActionKey& key, Slot& slot) NC_EXCLUDES(mutex_);
  std::optional<Millis> publishing(const ActionKey& key, Slot& slot) NC_EXCLUDES(mutex_);
  std::optional<Millis> keep(Slot& slot) NC_EXCLUDES(mutex_);
  void finish(const ActionKey& key, Slot& slot, End how) NC_EXCLUDES(mutex_);

  SlotPtr open(const Request& request) NC_REQUIRES(mutex_);
  std::unique_ptr<tier::ClusterLease> make_lease(const Request& request);
  Lease stand_in(const Request& request);
  void describe(const Slot& slot, const tier::ClusterLease& lease) NC_EXCLUDES(mutex_);
  SlotPtr bound_to(const std::string& lease) NC_REQUIRES(mutex_);
  void drop(const ActionKey& key, Slot& slot) NC_REQUIRES(mutex_);
  void schedule(const ActionKey& key, Slot& slot, std::optional<Millis> due) NC_REQUIRES(mutex_);
  void kick(const ActionKey& key, Slot& slot) NC_REQUIRES(mutex_);
  void write(const ActionKey& key, const std::string& local, const tier::ClusterLease& lease);
  void erase(const ActionKey& key);
  Millis now() const { return deps_.clock.monotonic_ms(); }

  const Deps deps_;
  const std::unique_ptr<ClusterDoor> door_;
  const Options options_;
  std::atomic<Millis> wait_ms_{0};
  tier::LeaseCounters counters_;
  tier::LeasePace pace_;

  mutable Mutex mutex_;
  std::condition_variable_any wake_;
  std::map<ActionKey, SlotPtr> slots_ NC_GUARDED_BY(mutex_);
  std::map<std::string, ActionKey> by_bound_ NC_GUARDED_BY(mutex_);
  std::set<std::pair<Millis, ActionKey>> due_ NC_GUARDED_BY(mutex_);
  bool stopping_ NC_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace nc::daemon
