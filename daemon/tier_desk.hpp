// Where look-ups that the store does not answer ask the shared tiers, on threads of their own. One
// flight per key: while it lasts, the daemon itself holds the key's lease, so that whoever wants to
// build waits for it as for any builder, without holding a thread. Without tiers it does nothing.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/settings.hpp"
#include "base/thread_annotations.hpp"
#include "cache/tier/chain.hpp"
#include "cache/trust/policy.hpp"
#include "daemon/disk_pool.hpp"
#include "daemon/lease_keeper.hpp"
#include "daemon/leases.hpp"

namespace nc::daemon {

class TierDesk {
 public:
  struct Deps {
    Store& store;
    LeaseTable& leases;
    LeaseKeeper& keeper;
    Clock& clock;
  };
  explicit TierDesk(Deps deps) : deps_(deps) {}
  ~TierDesk();
  TierDesk(const TierDesk&) = delete;
  TierDesk& operator=(const TierDesk&) = delete;

  struct Problem {
    std::string address, problem;
  };
  // Once, before anybody asks. `problems`: addresses of the settings that cannot be used.
  void open(std::unique_ptr<tier::Chain> chain, std::vector<Problem> problems, Builder self);
  Status restore();
  void start();
  void stop() NC_EXCLUDES(mutex_);  // ends flights at their next piece; waits for them

  bool any() const { return chain_ != nullptr && !chain_->empty(); }
  tier::Chain& chain() { return *chain_; }
  const std::vector<Problem>& problems() const { return problems_; }

  // Before the lease of `request.key` is asked for: has the tiers asked unless they were a moment
  // ago. Whoever then asks for the lease waits for the answer.
  void before_build(const Request& request) NC_EXCLUDES(mutex_);
  // For who does not build: `then` is called once, true when the entry is in the store now. False,
  // at once or later: it is not, or it takes too long.
  void look(const Request& request, std::function<void(bool)> then) NC_EXCLUDES(mutex_);
  // Whether the entry came from a tier a moment ago: who waited for it waited for no builder.
  bool fetched(const ActionKey& key) const NC_EXCLUDES(mutex_);

  // Entries are on their way to a tier.
  bool busy() const { return any() && chain_->busy(); }
  // An entry was built here.
  void published(const ActionKey& key);
  // On one of the desk's threads. False: too much is waiting already, or it stops.
  bool post(std::function<void()> work);
  // Every second or so: keeps leases, ends looks that take too long, probes sick tiers.
  void tick() NC_EXCLUDES(mutex_);

 private:
  struct Flight {
    Request request;
    std::optional<Lease> lease;
    std::shared_ptr<std::atomic<std::uint64_t>> bytes;  // that came so far
    struct Looker {
      std::function<void(bool)> then;
      Millis until_ms = 0;
    };
    std::vector<Looker> lookers;
  };
  bool begin(const Request& request) NC_REQUIRES(mutex_);
  void fly(const ActionKey& key) NC_EXCLUDES(mutex_);
  void land(const ActionKey& key, bool found) NC_EXCLUDES(mutex_);
  void remember(const ActionKey& key, bool found) NC_REQUIRES(mutex_);

  const Deps deps_;
  std::unique_ptr<tier::Chain> chain_;
  std::vector<Problem> problems_;
  Builder self_;

  mutable Mutex mutex_;
  std::unordered_map<ActionKey, Flight, Sha256Hash> flights_ NC_GUARDED_BY(mutex_);
  struct Answer {
    bool found = false;
    Millis at_ms = 0;
  };
  std::unordered_map<ActionKey, Answer, Sha256Hash> answers_ NC_GUARDED_BY(mutex_);
  bool stopping_ NC_GUARDED_BY(mutex_) = false;
  bool probing_ NC_GUARDED_BY(mutex_) = false;
  std::unique_ptr<DiskPool> pool_;  // from start() on
};

// The chain of the setting `tiers`; addresses that cannot be used go to `problems`, and to the log.
// `policy` outlives it.
std::unique_ptr<tier::Chain> open_chain(const Settings& settings, Store& store,
                                        const trust::Policy& policy, bool read_only,
                                        std::vector<TierDesk::Problem>& problems);

}  // namespace nc::daemon
