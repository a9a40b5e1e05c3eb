// Random builds against the promises of admission: nothing is admitted past the budget, one is
// always admitted when nothing runs, nobody is passed more often than promised, everybody has a
// turn, and every parked request is woken exactly once.
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "daemon/admission.hpp"
#include "tests/unit/daemon/fake_memory.hpp"

namespace nc::daemon {
namespace {

using Kind = AdmissionQueue::Answer::Kind;

class World {
 public:
  World(std::uint32_t seed, bool automatic) : dice_(seed), automatic_(automatic) {
    memory_.free = kHost;
    run(queue_.set_limits({automatic ? 0 : kHost, kCores}));
  }

  void step() {
    switch (roll(8)) {
      case 0:
      case 1:
      case 2:
        return ask_new();
      case 3:
        return ask_again();
      case 4:
      case 5:
        return end_one();
      case 6:
        return grow();
      case 7:
        clock_.advance(roll(3000));
        run(queue_.tick());
        return check();
    }
  }

  void finish() {
    while (!builds_.empty()) {
      const auto view = queue_.view();
      ASSERT_FALSE(view.running.empty()) << "somebody waits and nobody runs";
      end(view.running.front().lease);
    }
    EXPECT_EQ(queue_.view().reserved, 0U);
    EXPECT_EQ(queue_.view().cores_used, 0U);
    EXPECT_TRUE(parked_.empty());
  }

 private:
  static constexpr std::uint64_t kHost = 1'000'000;
  static constexpr unsigned kCores = 16;

  std::uint32_t roll(std::uint32_t sides) { return dice_() % sides; }
  void run(const AdmissionQueue::Wakes& wakes) {
    for (const auto& wake : wakes) wake();
  }

  void ask_new() {
    if (builds_.size() >= 64) return;
    const std::string lease = "l" + std::to_string(++last_);
    Demand demand{roll(10) == 0 ? kHost * 2 : roll(600'000), 1 + roll(8), roll(20) == 0};
    builds_[lease] = demand;
    ask(lease, demand);
  }
  void ask_again() {
    if (builds_.empty()) return;
    auto it = std::next(builds_.begin(), roll(static_cast<std::uint32_t>(builds_.size())));
    if (roll(6) == 0 && queue_.admitted(it->first)) it->second.bytes += 50'000;  // it was killed
    ask(it->first, it->second);
  }
  void ask(const std::string& lease, const Demand& demand) {
    AdmissionQueue::Wakes wakes;
    const Millis wait_ms = roll(2) ? roll(5000) : 0;
    const int request = ++requests_;
    const auto answer = queue_.ask(
        lease, pid(lease), demand, wait_ms,
        [this, request](const AdmissionQueue::Answer&) {
          EXPECT_EQ(parked_.erase(request), 1U) << "woken twice, or never parked";
        },
        wakes);
    ASSERT_NE(answer.kind, Kind::kRefused);
    if (answer.kind == Kind::kParked) parked_.insert(request);
    run(wakes);
    check();
  }
  void end_one() {
    if (builds_.empty()) return;
    end(std::next(builds_.begin(), roll(static_cast<std::uint32_t>(builds_.size())))->first);
  }
  void end(const std::string lease) {
    builds_.erase(lease);
    if (auto it = memory_.of.find(pid(lease)); it != memory_.of.end()) {
      *memory_.free += it->second;
      memory_.of.erase(it);
    }
    run(queue_.release(lease));
    check();
  }
  // A running build takes some of what it reserved.
  void grow() {
    for (const auto& [lease, demand] : builds_) {
      if (!queue_.admitted(lease) || roll(3) != 0) continue;
      std::uint64_t& has = memory_.of[pid(lease)];
      const std::uint64_t more = std::min({demand.bytes - std::min(has, demand.bytes),
                                           std::uint64_t{roll(100'000)}, *memory_.free});
      has += more;
      *memory_.free -= more;
    }
  }
  static std::int64_t pid(const std::string& lease) { return std::stoll(lease.substr(1)); }

  void check() {
    const auto view = queue_.view();
    const std::uint64_t most = automatic_ ? kHost * 8 / 10 : kHost;
    EXPECT_LE(view.budget, most);
    std::uint64_t reserved = 0;
    unsigned cores = 0;
    bool alone = false;
    for (const auto& one : view.running) {
      reserved += one.demand.bytes;
      cores += one.demand.cores;
      alone = alone || one.demand.alone;
    }
    EXPECT_EQ(view.reserved, reserved);
    if (view.running.size() > 1) {
      EXPECT_LE(reserved, most);
      EXPECT_LE(cores, kCores);
      EXPECT_FALSE(alone);
    }
    EXPECT_FALSE(view.running.empty() && !view.waiting.empty()) << "one can always run";
    for (const auto& one : view.waiting) {
      EXPECT_LE(one.overtaken, AdmissionQueue::kMaxOvertakes);
    }
    EXPECT_EQ(view.running.size() + view.waiting.size(), builds_.size());
  }

  std::mt19937 dice_;
  const bool automatic_;
  FakeClock clock_;
  FakeMemory memory_;
  AdmissionQueue queue_{clock_, memory_};
  std::map<std::string, Demand> builds_;
  std::set<int> parked_;
  int last_ = 0, requests_ = 0;
};

TEST(AdmissionProperty, SixtyFourBuildsNeverExceedTheBudget) {
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    for (const bool automatic : {false, true}) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << (automatic ? " automatic" : ""));
      World world(seed, automatic);
      for (int i = 0; i < 400; ++i) world.step();
      world.finish();
      if (testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace nc::daemon
