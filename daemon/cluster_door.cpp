#include "daemon/cluster_door.hpp"

#include <algorithm>
#include <atomic>
#include <type_traits>
#include <utility>

#include "base/log.hpp"
#include "cache/tier/layout.hpp"
#include "daemon/service.hpp"
#include "daemon/startup.hpp"

namespace nc::daemon {
namespace {

// Tells the breakers of the tier how each call went.
class LeaseEngine final : public tier::Engine {
 public:
  LeaseEngine(tier::Link& link, Clock& clock) : link_(link), clock_(clock) {}

  const std::string& address() const override { return link_.name(); }
  tier::Capabilities capabilities() const override { return link_.engine().capabilities(); }
  Result<std::string> get(const std::string& name, std::uint64_t limit) override {
    return timed(link_.reading(), [&] { return link_.engine().get(name, limit); });
  }
  Status put(const std::string& name, Bytes bytes) override {
    return timed(link_.writing(), [&] { return link_.engine().put(name, bytes); });
  }
  Result<bool> create(const std::string& name, Bytes bytes, Millis keep_ms) override {
    return timed(link_.writing(), [&] { return link_.engine().create(name, bytes, keep_ms); });
  }
  Status remove(const std::string& name) override {
    return timed(link_.writing(), [&] { return link_.engine().remove(name); });
  }
  Result<tier::ObjectInfo> head(const std::string& name) override {
    return timed(link_.reading(), [&] { return link_.engine().head(name); });
  }
  Result<std::uint64_t> fetch(const std::string& name, std::uint64_t offset, std::uint64_t limit,
                              const tier::Sink& sink) override {
    return link_.fetch(name, offset, limit, sink);
  }
  Status store(const std::string& name, tier::Source& source) override {
    return link_.store(name, source);
  }
  Result<tier::Page> list(const std::string& prefix, const std::string& after,
                          std::size_t limit) override {
    return timed(link_.reading(), [&] { return link_.engine().list(prefix, after, limit); });
  }

 private:
  template <class Call>
  std::invoke_result_t<Call> timed(tier::Breaker& breaker, Call&& call) {
    const Millis begin = clock_.monotonic_ms();
    std::invoke_result_t<Call> result = call();
    breaker.done(result.ok() ? Status() : Status(result.error()), clock_.monotonic_ms() - begin);
    return result;
  }

  tier::Link& link_;
  Clock& clock_;
};

class ChainDoor final : public ClusterDoor {
 public:
  ChainDoor(tier::Chain& chain, tier::Link& link, Clock& clock)
      : chain_(chain), link_(link), engine_(link, clock) {}

  tier::Engine& engine() override { return engine_; }
  bool well() override { return link_.reading().may_call() && link_.writing().may_call(); }
  void stop() override { stopping_ = true; }
  Result<bool> bring(const ActionKey& key) override {
    const auto there = visible(key);
    if (!there.ok() || !*there) return there;
    // One that is not good, or not believed here, is as good as none.
    return chain_.find(key, [this](std::uint64_t) { return !stopping_; }).found;
  }
  std::optional<bool> sent(const ActionKey& key) override {
    if (chain_.pending(key, link_)) {
      chain_.hurry(key, link_);
      return std::nullopt;
    }
    const auto there = visible(key);
    return there.ok() ? std::optional(*there) : std::nullopt;
  }

 private:
  Result<bool> visible(const ActionKey& key) {
    const auto info = engine_.head(tier::entry_name(key));
    if (info.is(Code::kNotFound) || info.is(Code::kCorrupt)) return false;
    if (!info.ok()) return info.error();
    return true;
  }

  tier::Chain& chain_;
  tier::Link& link_;
  LeaseEngine engine_;
  std::atomic<bool> stopping_{false};
};

}  // namespace

Result<std::unique_ptr<ClusterDoor>> open_cluster_door(tier::Chain& chain, Clock& clock,
                                                       const std::string& where) {
  NC_ASSIGN(tier::Link* const link, chain.lease_link(where == "auto" ? "" : where));
  return std::unique_ptr<ClusterDoor>(std::make_unique<ChainDoor>(chain, *link, clock));
}

std::unique_ptr<Cluster> open_cluster(Service& service, const Settings& settings) {
  const std::string& where = settings.text("cluster_leases");
  if (where == "off" || service.read_only || !service.tiers.any()) return nullptr;
  auto door = open_cluster_door(service.tiers.chain(), service.clock, where);
  if (!door.ok()) {
    log::warn("cluster", "each host builds for itself: {}", door.error().text());
    return nullptr;
  }
  Cluster::Options options;
  options.lease.period_ms = millis(settings, "cluster_lease_period");
  options.lease.patience_ms = std::min<Millis>(5'000, options.lease.period_ms);
  options.host = service.host;
  options.threads = 8;  // they wait for the tier, mostly
  auto cluster = std::make_unique<Cluster>(
      Cluster::Deps{service.leases, service.keeper, service.store, service.clock, system_random()},
      std::move(*door), std::move(options));
  service.keeper.add_follower(*cluster);
  return cluster;
}

}  // namespace nc::daemon
