// Random interleavings of many clients against the promises of the lease table: at most one holder
// per key, fences grow, every parked request is woken exactly once, and every look-up is counted
// exactly once.
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "daemon/leases.hpp"

namespace nc::daemon {
namespace {

class World {
 public:
  explicit World(std::uint32_t seed) : dice_(seed) {}

  void step() {
    switch (roll(12)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return ask();
      case 4:
        return commit();
      case 5:
        return end(LeaseTable::End::kReleased);
      case 6:
        return end(LeaseTable::End::kDied);
      case 7:
        return end(LeaseTable::End::kFailed);
      case 8:
        return beat();
      case 9:
        return hang_up();
      case 10:
        return pass(roll(4000));
      case 11:
        return pass(roll(30'000));
    }
  }

  void finish() {
    for (std::uint64_t connection = 1; connection <= kConnections; ++connection) {
      apply(table_.connection_closed(connection));
    }
    pass(61'000);
    pass(61'000);
    EXPECT_EQ(parked_.size(), 0U);
    EXPECT_EQ(table_.tickets(), 0U);
    EXPECT_EQ(started_, outcomes_) << "every look-up ends exactly once";
  }

 private:
  static constexpr std::uint64_t kConnections = 12;
  static constexpr int kKeys = 3;

  std::uint32_t roll(std::uint32_t sides) { return dice_() % sides; }
  ActionKey key(std::uint32_t n) {
    return Sha256::of(as_bytes(std::string(1, static_cast<char>('a' + n))));
  }

  void ask() {
    LeaseTable::Ask ask;
    ask.request.key = key(roll(kKeys));
    ask.connection = 1 + roll(kConnections);
    ask.wait_ms = roll(2) ? roll(5000) : 0;
    // Sometimes goes on with a ticket of this key.
    std::vector<std::string> mine;
    for (const auto& [ticket, of] : tickets_) {
      if (of == ask.request.key) mine.push_back(ticket);
    }
    if (!mine.empty() && roll(3) != 0)
      ask.ticket = mine[roll(static_cast<std::uint32_t>(mine.size()))];
    if (ask.ticket.empty()) ++started_;
    const int id = ++last_request_;
    const ActionKey of = ask.request.key;
    const std::string ticket = ask.ticket;
    tickets_.erase(ticket);
    ask.wake = [this, id, of](Wake wake) {
      ASSERT_EQ(parked_.erase(id), 1U) << "woken twice, or never parked";
      switch (wake.kind) {
        case Wake::Kind::kGranted:
          return granted(wake.lease);
        case Wake::Kind::kEnded:
          ++outcomes_;
          return;
        case Wake::Kind::kStillBusy:
          tickets_[wake.progress.ticket] = of;
          return;
        case Wake::Kind::kGone:
          return;  // counted as abandoned
      }
    };
    const bool waits = ask.wait_ms > 0;
    auto answer = table_.ask(std::move(ask));
    if (answer.kind == LeaseTable::Answer::Kind::kParked) {
      ASSERT_TRUE(waits);
      parked_.insert(id);
    }
    apply(std::move(answer.effects));
    if (answer.kind == LeaseTable::Answer::Kind::kGranted) granted(answer.lease);
    if (answer.kind == LeaseTable::Answer::Kind::kBusy) tickets_[answer.progress.ticket] = of;
  }

  void granted(const Lease& lease) {
    ++outcomes_;
    EXPECT_GT(lease.fence, last_fence_);
    last_fence_ = lease.fence;
    ASSERT_EQ(holders_.count(lease.request.key), 0U) << "two holders of one key";
    holders_[lease.request.key] = lease;
  }

  std::optional<Lease> any_holder() {
    if (holders_.empty()) return std::nullopt;
    auto it = holders_.begin();
    std::advance(it, roll(static_cast<std::uint32_t>(holders_.size())));
    return it->second;
  }

  void commit() {
    if (auto lease = any_holder()) {
      EXPECT_TRUE(table_.may_commit(lease->request.key, lease->id).ok());
      apply(table_.settled(lease->request.key));
    }
  }
  void end(LeaseTable::End why) {
    if (auto lease = any_holder()) apply(table_.end(lease->id, why));
  }
  void beat() {
    if (auto lease = any_holder()) {
      EXPECT_EQ(table_.heartbeat(lease->id, lease->request.key, lease->fence, ""),
                LeaseTable::Beat::kExtended);
    }
  }
  void hang_up() { apply(table_.connection_closed(1 + roll(kConnections))); }
  void pass(Millis ms) {
    clock_.advance(ms);
    apply(table_.tick());
  }

  void apply(Effects effects) {
    for (const std::string& id : effects.ended) {
      std::erase_if(holders_, [&id](const auto& holder) { return holder.second.id == id; });
    }
    outcomes_ += effects.abandoned.size();
    for (auto& wake : effects.wakes) wake();
    // Which ticket was abandoned is not told; one that is used after that would be a look-up of its
    // own.
    if (!effects.abandoned.empty()) tickets_.clear();
  }

  std::mt19937 dice_;
  FakeClock clock_;
  FakeRandom random_;
  LeaseTable table_{clock_, random_, {}};
  std::map<ActionKey, Lease> holders_;
  std::map<std::string, ActionKey> tickets_;  // between two requests
  std::set<int> parked_;
  int last_request_ = 0;
  std::uint64_t last_fence_ = 0;
  std::size_t started_ = 0;
  std::size_t outcomes_ = 0;
};

TEST(LeaseProperties, HoldUnderRandomInterleavings) {
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    for (int i = 0; i < 300; ++i) world.step();
    world.finish();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace nc::daemon
