// Leases of the cluster under every fault we could think of, in virtual time: which host does what
// in which order is drawn from a seed, over thousands of seeds.
#include <gtest/gtest.h>

#include "cache/tier/layout.hpp"
#include "cache/tier/lease.hpp"
#include "tests/unit/tier/simulated_cluster.hpp"

namespace nc::tier {
namespace {

constexpr std::uint64_t kSeeds = sim::kSanitized ? 20 : 250;
constexpr Millis kPeriod = 4'000;

class SeededRandom final : public Random {
 public:
  explicit SeededRandom(std::uint64_t seed) : random_(seed) {}
  std::uint64_t next() override { return random_(); }

 private:
  std::mt19937_64 random_;
};

struct Plan {
  int hosts = 4;
  sim::Link::Faults faults = {};
  double crash = 0;     // chance that an attempt of a host ends so
  double cut = 0;       // chance of a partition in an attempt
  double no_entry = 0;  // chance that a build gives nothing
  double garbage = 0;   // chance that an attempt finds somebody scribbling over a lease
};

struct Outcome {
  int builds = 0;  // begun
  int published = 0;
  int refused = 0;  // builds that ended without a believed lease
  int alone = 0;
  int crashes = 0;
  std::vector<std::string> wrong;
  LeaseCounters counters;
  Millis took_ms = 0;
};

// One key that every host wants.
class Scenario {
 public:
  Scenario(std::uint64_t seed, Plan plan) : world_(seed), plan_(plan) {}

  void run(Outcome& outcome) {
    out_ = &outcome;
    for (int i = 0; i < plan_.hosts; ++i) {
      world_.spawn([this, i] { host(i); });
    }
    world_.run([this] { check(); });
    outcome.took_ms = world_.now();
  }

 private:
  struct Held {
    ClusterLease* lease = nullptr;
  };

  void host(int number) {
    const double rate = 0.98 + 0.01 * static_cast<double>(world_.random(5));
    const sim::SkewedClock clock(world_, static_cast<Millis>(world_.random(1'000'000)), rate,
                                 static_cast<Millis>(world_.random(7'200'000)) - 3'600'000);
    sim::Link link(world_, objects_);
    LeasePace pace(1000);
    for (int attempt = 0; attempt < 40; ++attempt) {
      link.faults = plan_.faults;
      // After a while the faults are over, so that every run has an end.
      if (attempt > 6) link.faults = {};
      const bool faulty = attempt <= 6;
      if (faulty && world_.chance(plan_.crash)) {
        link.dies_at = world_.now() + static_cast<Millis>(world_.random(4 * kPeriod));
      }
      if (faulty && world_.chance(plan_.cut)) {
        const Millis from = world_.now() + static_cast<Millis>(world_.random(3 * kPeriod));
        const Millis until = from + static_cast<Millis>(world_.random(4 * kPeriod));
        world_.at(from, [&link, until, alive = alive_[number] = std::make_shared<bool>(true)] {
          if (*alive) link.cut_until = until;
        });
      }
      if (faulty && world_.chance(plan_.garbage)) {
        world_.at(world_.now() + static_cast<Millis>(world_.random(2 * kPeriod)), [this] {
          if (objects_.bytes.empty()) return;
          auto it = objects_.bytes.begin();
          std::advance(it, static_cast<long>(world_.random(objects_.bytes.size())));
          if (parse_lease(it->first)) it->second = "{\"v\": 1, \"sta";
        });
      }
      bool done = false;
      try {
        done = attempt_once(number, clock, link, pace);
      } catch (const sim::Crash&) {
        ++out_->crashes;
        held_.erase(number);
        link.dies_at = -1;
        world_.sleep_until(world_.now() + static_cast<Millis>(world_.random(3 * kPeriod)));
      }
      if (auto& alive = alive_[number]) *alive = false;
      link.cut_until = 0;
      if (done) return;
    }
    out_->wrong.push_back("a host never came to an end");
  }

  bool attempt_once(int number, const sim::SkewedClock& clock, sim::Link& link, LeasePace& pace) {
    SeededRandom random(world_.random(~std::uint64_t{0}));
    auto there = [&link, this]() -> Result<bool> {
      const auto entry = link.get(entry_name(key_), 100);
      if (entry.is(Code::kNotFound)) return false;
      if (!entry.ok()) return entry.error();
      return true;
    };
    if (const auto known = there(); known.ok() && *known) return true;
    auto lease = std::make_unique<ClusterLease>(
        ClusterLease::Deps{link, const_cast<sim::SkewedClock&>(clock), random, out_->counters, pace,
                           there},
        ClusterLease::Options{kPeriod, kPeriod / 2}, key_,
        ClusterLease::Who{"host" + std::to_string(number), "sim", "", number + 1});
    held_[number] = {lease.get()};
    struct Leave {
      std::map<int, Held>& held;
      int number;
      ~Leave() { held.erase(number); }
    } leave{held_, number};
    using State = ClusterLease::State;
    std::optional<Millis> next = clock.monotonic_ms();
    while (next && (lease->state() == State::kSeeking || lease->state() == State::kWaiting)) {
      link.rest_until(clock.world_time(*next));
      next = lease->step();
    }
    if (lease->state() == State::kSettled) return true;
    const bool alone = lease->state() == State::kAlone;
    out_->alone += alone ? 1 : 0;
    ++out_->builds;
    const Millis built = world_.now() + static_cast<Millis>(world_.random(3 * kPeriod));
    while (world_.now() < built) {
      const Millis due = next ? clock.world_time(*next) : built;
      link.rest_until(std::min(due, built));
      if (next && due <= world_.now()) next = lease->step();
    }
    if (!alone && !lease->believed()) {
      ++out_->refused;
      return false;
    }
    if (world_.chance(plan_.no_entry)) {
      lease->end(ClusterLease::End::kReleased);
      return false;
    }
    if (!alone && !fences_.insert(lease->fence()).second && plan_.garbage == 0) {
      out_->wrong.push_back("two published under fence " + std::to_string(lease->fence()));
    }
    const auto stored = link.create(entry_name(key_), as_bytes("entry"), 0);
    if (!stored.ok()) {
      if (const auto known = there(); !known.ok() || !*known) return false;
    } else if (*stored) {
      ++out_->published;
    }
    lease->end(ClusterLease::End::kPublished);
    return true;
  }

  void check() {
    int believers = 0;
    for (const auto& [number, held] : held_) believers += held.lease->believed() ? 1 : 0;
    if (believers > 1) {
      out_->wrong.push_back(std::to_string(believers) + " believe they hold at " +
                            std::to_string(world_.now()));
    }
  }

  sim::Objects objects_;
  std::map<int, Held> held_;
  std::map<int, std::shared_ptr<bool>> alive_;
  std::set<std::uint64_t> fences_;
  const ActionKey key_ = Sha256::of(as_bytes("key"));
  Outcome* out_ = nullptr;
  sim::World world_;
  const Plan plan_;
};

// Runs `plan` with many seeds; every host comes to an end, and no two ever hold at once.
struct Totals {
  int builds = 0, published = 0, refused = 0, alone = 0, crashes = 0;
  std::uint64_t takeovers = 0, lost = 0, garbage = 0, requests = 0;
};
Totals run_many(const Plan& plan, std::uint64_t seeds, int most_builds = 0) {
  Totals totals;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    Outcome outcome;
    Scenario(seed, plan).run(outcome);
    EXPECT_TRUE(outcome.wrong.empty()) << "seed " << seed << ": " << outcome.wrong.front();
    EXPECT_LE(outcome.published, 1) << "seed " << seed;
    if (most_builds > 0) {
      EXPECT_LE(outcome.builds, most_builds) << "seed " << seed;
    }
    totals.builds += outcome.builds;
    totals.published += outcome.published;
    totals.refused += outcome.refused;
    totals.alone += outcome.alone;
    totals.crashes += outcome.crashes;
    totals.takeovers += outcome.counters.takeovers;
    totals.lost += outcome.counters.lost;
    totals.garbage += outcome.counters.garbage;
    totals.requests += outcome.counters.requests;
    if (::testing::Test::HasFailure()) break;
  }
  return totals;
}

TEST(LeaseSimulation, WithoutFaultsEachKeyIsBuiltOnce) {
  const Totals totals = run_many({}, kSeeds, 1);
  EXPECT_EQ(totals.builds, static_cast<int>(kSeeds));
  EXPECT_EQ(totals.alone, 0);
  EXPECT_EQ(totals.takeovers, 0U);
  // Of four hosts: the holder's beats and the others' polls over at most three periods.
  EXPECT_LE(totals.requests, kSeeds * (12 * 4 + 3 * (12 + 6 * 4) + 40));
}

TEST(LeaseSimulation, ABuildThatGivesNothingIsSucceededAtOnceByOne) {
  Plan plan;
  plan.no_entry = 0.5;
  const Totals totals = run_many(plan, kSeeds / 2);
  EXPECT_EQ(totals.alone, 0);
  EXPECT_EQ(totals.takeovers, 0U);
  EXPECT_EQ(totals.published, static_cast<int>(kSeeds / 2));
}

TEST(LeaseSimulation, HostsThatCrashAreSucceeded) {
  Plan plan;
  plan.crash = 0.6;
  const Totals totals = run_many(plan, kSeeds);
  EXPECT_GT(totals.crashes, static_cast<int>(kSeeds / 2));
  EXPECT_GT(totals.takeovers, 0U);
  EXPECT_EQ(totals.alone, 0);
  EXPECT_EQ(totals.refused, 0);
}

TEST(LeaseSimulation, LostAnswersAndErrors) {
  Plan plan;
  plan.faults.lost = 0.15;
  plan.faults.error = 0.1;
  const Totals totals = run_many(plan, kSeeds);
  EXPECT_GT(totals.builds, 0);
}

TEST(LeaseSimulation, RequestsThatArriveLongAfterTheirCallerGaveUp) {
  Plan plan;
  plan.faults.late = 0.15;
  plan.faults.late_by_ms = 3 * kPeriod;
  run_many(plan, kSeeds);
}

TEST(LeaseSimulation, Partitions) {
  Plan plan;
  plan.cut = 0.7;
  const Totals totals = run_many(plan, kSeeds);
  EXPECT_GT(totals.refused, 0);
  EXPECT_GT(totals.alone, 0);
}

TEST(LeaseSimulation, SlowTier) {
  Plan plan;
  plan.faults.latency_ms = kPeriod / 2;
  plan.faults.timeout_ms = kPeriod;
  const Totals totals = run_many(plan, kSeeds / 8);
  EXPECT_GT(totals.builds, 0);
}

TEST(LeaseSimulation, EverythingAtOnce) {
  Plan plan;
  plan.hosts = 6;
  plan.crash = 0.3;
  plan.cut = 0.3;
  plan.no_entry = 0.2;
  plan.garbage = 0;
  plan.faults = {0.05, 0.05, 0.05, 2 * kPeriod, 200, 500};
  run_many(plan, kSeeds);
}

TEST(LeaseSimulation, ScribbledLeasesHoldNobodyUp) {
  Plan plan;
  plan.garbage = 0.8;
  plan.crash = 0.2;
  const Totals totals = run_many(plan, kSeeds / 2);
  EXPECT_GT(totals.garbage, 0U);
}

}  // namespace
}  // namespace nc::tier
