#include "daemon/cluster_door.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/log.hpp"
#include "cache/tier/layout.hpp"
#include "daemon/service.hpp"
#include "daemon/startup.hpp"

namespace nc::daemon {
namespace {

class ChainDoor final : public ClusterDoor {
 public:
  ChainDoor(tier::Chain& chain, tier::Link& link) : chain_(chain), link_(link) {}

  tier::Engine& engine() override { return link_.told(); }
  bool well() override { return link_.reading().may_call() && link_.writing().may_call(); }
  void stop() override { stopping_ = true; }
  Result<bool> bring(const ActionKey& key) override {
    auto there = visible(key);
    if (!there.ok() || !*there) return there;
    // One that is not good, or not believed here, is as good as none.
    return chain_.find(key, [this](std::uint64_t) { return !stopping_; }).found;
  }
  std::optional<bool> sent(const ActionKey& key) override {
    if (chain_.stuck(key, link_)) return false;
    if (chain_.pending(key, link_)) {
      chain_.hurry(key, link_);
      return std::nullopt;
    }
    const auto there = visible(key);
    return there.ok() ? std::optional(*there) : std::nullopt;
  }

 private:
  Result<bool> visible(const ActionKey& key) {
    const auto info = link_.told().head(tier::entry_name(key));
    if (info.is(Code::kNotFound)) return false;
    // What is no object leaves the entry its other places.
    if (!info.ok() && !info.is(Code::kCorrupt)) return info.error();
    return true;
  }

  tier::Chain& chain_;
  tier::Link& link_;
  std::atomic<bool> stopping_{false};
};

// This daemon is the tier of other hosts, which keep their leases here.
class DoorOfGuests final : public ClusterDoor {
 public:
  DoorOfGuests(GuestLeases& leases, Store& store) : leases_(leases), store_(store) {}

  tier::Engine& engine() override { return leases_; }
  bool well() override { return true; }
  Result<bool> bring(const ActionKey& key) override {
    NC_ASSIGN(const auto entry, store_.peek(key));
    return entry.has_value();
  }
  std::optional<bool> sent(const ActionKey& key) override {
    const auto there = bring(key);
    return there.ok() ? std::optional(*there) : std::nullopt;
  }

 private:
  GuestLeases& leases_;
  Store& store_;
};

// Where the leases are; null: nowhere.
std::unique_ptr<ClusterDoor> open_door(Service& service, const Settings& settings) {
  const std::string& where = settings.text("cluster_leases");
  if (where == "off" || service.read_only) return nullptr;
  if (service.tiers.any()) {
    auto door = open_cluster_door(service.tiers.chain(), where);
    if (door.ok()) return std::move(*door);
    log::warn("cluster", "no tier holds leases: {}", door.error().text());
  }
  if (where != "auto" || settings.text("listen").empty()) return nullptr;
  return std::make_unique<DoorOfGuests>(service.guest_leases, service.store);
}

}  // namespace

Result<std::unique_ptr<ClusterDoor>> open_cluster_door(tier::Chain& chain,
                                                       const std::string& where) {
  NC_ASSIGN(tier::Link* const link, chain.lease_link(where == "auto" ? "" : where));
  return std::unique_ptr<ClusterDoor>(std::make_unique<ChainDoor>(chain, *link));
}

std::unique_ptr<Cluster> open_cluster(Service& service, const Settings& settings) {
  auto door = open_door(service, settings);
  if (!door) return nullptr;
  Cluster::Options options;
  options.lease.period_ms = millis(settings, "cluster_lease_period");
  options.lease.patience_ms = std::min<Millis>(5'000, options.lease.period_ms);
  options.host = service.host;
  options.threads = 8;  // they wait for the tier, mostly
  auto cluster = std::make_unique<Cluster>(
      Cluster::Deps{service.leases, service.keeper, service.store, service.clock, system_random()},
      std::move(door), std::move(options));
  service.keeper.add_follower(*cluster);
  return cluster;
}

}  // namespace nc::daemon
