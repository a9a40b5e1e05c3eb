#include "cache/tier/lease.hpp"

#include <gtest/gtest.h>

#include "cache/tier/layout.hpp"
#include "cache/tier/memory_engine.hpp"

namespace nc::tier {
namespace {

using State = ClusterLease::State;
using End = ClusterLease::End;
constexpr Millis kPeriod = 60'000;

// Hosts with a lease each on one key of one tier.
class LeaseTest : public ::testing::Test {
 protected:
  struct Host {
    Host(LeaseTest& test, const std::string& name, std::shared_ptr<MemoryObjects> objects)
        : engine(std::move(objects),
                 {"memory:", {true, true, true}, 5'000, 0, [&test](Millis) { test.meddle(); }}),
          lease({engine, test.clock, test.random, counters, pace,
                 [&test]() -> Result<bool> {
                   if (test.entry_broken) return Error{Code::kIo, "cannot look", ""};
                   return test.entry;
                 }},
                {kPeriod, 5'000}, test.key, {name, "train.py", "llama fw", 42}) {}
    MemoryEngine engine;
    LeaseCounters counters;
    LeasePace pace{100};
    ClusterLease lease;
    std::optional<Millis> next = 0;
  };

  Host& add(const std::string& name) {
    hosts.push_back(std::make_unique<Host>(*this, name, objects));
    return *hosts.back();
  }
  // Lets time pass for those hosts that live.
  void pass(Millis ms, const std::vector<Host*>& living) {
    const Millis until = clock.monotonic_ms() + ms;
    for (;;) {
      Millis soonest = until;
      for (Host* host : living) {
        if (host->next && *host->next <= clock.monotonic_ms()) host->next = host->lease.step();
        if (host->next) soonest = std::min(soonest, *host->next);
      }
      if (clock.monotonic_ms() >= until) return;
      clock.advance(std::max<Millis>(1, soonest - clock.monotonic_ms()));
    }
  }
  std::string object(std::uint64_t fence) {
    const auto found = objects->get(lease_name(key, fence));
    return found ? found->bytes : "";
  }

  FakeClock clock;
  FakeRandom random;
  bool entry = false;
  bool entry_broken = false;             // whether there is one cannot be found out
  std::function<void()> meddle = [] {};  // what happens while an engine is slow
  const ActionKey key = Sha256::of(as_bytes("some action"));
  std::shared_ptr<MemoryObjects> objects = std::make_shared<MemoryObjects>(clock);
  std::vector<std::unique_ptr<Host>> hosts;
};

TEST_F(LeaseTest, TheFirstHoldsAndTheOthersSeeWhoBuilds) {
  Host& a = add("a");
  Host& b = add("b");
  a.lease.set_progress("pass 1");
  clock.advance(1'000'000'000);
  a.next = b.next = clock.monotonic_ms();
  pass(1, {&a, &b});
  ASSERT_TRUE(b.lease.holder().has_value());
  EXPECT_LT(b.lease.holder()->building_ms, 1'000);
  EXPECT_EQ(a.lease.state(), State::kHeld);
  EXPECT_TRUE(a.lease.believed());
  EXPECT_EQ(a.lease.fence(), 1U);
  EXPECT_EQ(b.lease.state(), State::kWaiting);
  EXPECT_FALSE(b.lease.believed());
  a.lease.set_progress("pass 2");
  pass(kPeriod, {&a, &b});
  const auto holder = b.lease.holder();
  ASSERT_TRUE(holder.has_value());
  EXPECT_EQ(holder->host, "a");
  EXPECT_EQ(holder->pid, 42);
  EXPECT_EQ(holder->label, "llama fw");
  EXPECT_EQ(holder->progress, "pass 2");
  EXPECT_GT(holder->building_ms, kPeriod / 4);
}

TEST_F(LeaseTest, AnEntryThatCannotBeLookedForEndsTheWait) {
  entry_broken = true;
  Host& first = add("first");  // creates, and may not believe
  pass(4 * kPeriod, {&first});
  EXPECT_EQ(first.lease.state(), State::kAlone);
  Host& second = add("second");  // finds what the first one left
  second.next = clock.monotonic_ms();
  pass(4 * kPeriod, {&second});
  EXPECT_EQ(second.lease.state(), State::kAlone);
  EXPECT_LE(second.counters.requests, 40U);
}

TEST_F(LeaseTest, AHolderThatBeatsIsNeverSucceeded) {
  Host& a = add("a");
  Host& b = add("b");
  pass(20 * kPeriod, {&a, &b});
  EXPECT_TRUE(a.lease.believed());
  EXPECT_EQ(b.lease.state(), State::kWaiting);
  // The bounds that the header states.
  EXPECT_LE(a.counters.requests, 2U + 3 * 4 * 20 * 4 / 3);
  EXPECT_LE(b.counters.requests, 4U + 12 + 6 * 20);
}

TEST_F(LeaseTest, PublishedRemovesTheRowAndEndsTheWait) {
  Host& a = add("a");
  Host& b = add("b");
  pass(1, {&a, &b});
  entry = true;
  a.lease.end(End::kPublished);
  EXPECT_TRUE(objects->names().empty());
  pass(kPeriod / 2, {&b});
  EXPECT_EQ(b.lease.state(), State::kSettled);
  EXPECT_TRUE(objects->names().empty());
}

TEST_F(LeaseTest, WithoutRemovalThePublishedLeaseIsReleased) {
  MemoryEngine engine(objects, {"memory:", {true, false, false}, 5'000, 0, {}});
  LeaseCounters counters;
  LeasePace pace(100);
  ClusterLease lease({engine, clock, random, counters, pace, [this] { return Result(entry); }},
                     {kPeriod, 5'000}, key, {"a", "", "", 1});
  lease.step();
  ASSERT_EQ(lease.state(), State::kHeld);
  entry = true;
  lease.end(End::kPublished);
  const auto record = LeaseRecord::parse(object(1));
  ASSERT_TRUE(record.ok());
  EXPECT_EQ(record->state, LeaseRecord::State::kReleased);
}

TEST_F(LeaseTest, ReleasedGoesToTheNextAtOnceAndByFence) {
  Host& a = add("a");
  Host& b = add("b");
  Host& c = add("c");
  pass(1, {&a, &b, &c});
  a.lease.end(End::kReleased);
  pass(kPeriod / 3, {&b, &c});
  EXPECT_TRUE(b.lease.believed() != c.lease.believed());
  Host& winner = b.lease.believed() ? b : c;
  EXPECT_EQ(winner.lease.fence(), 2U);
  EXPECT_EQ(winner.counters.takeovers, 0U);
}

TEST_F(LeaseTest, WhatCannotBeSharedIsBuiltByAllAtOnceButAnewLater) {
  Host& a = add("a");
  Host& b = add("b");
  Host& c = add("c");
  pass(1, {&a, &b, &c});
  a.lease.end(End::kApart);
  pass(kPeriod / 3, {&b, &c});
  EXPECT_EQ(b.lease.state(), State::kAlone);
  EXPECT_EQ(c.lease.state(), State::kAlone);
  EXPECT_EQ(b.counters.apart, 1U);
  EXPECT_NE(b.lease.reason().find("host a"), std::string::npos);
  Host& later = add("later");  // did not wait for that build, and so tries again
  pass(1, {&later});
  EXPECT_TRUE(later.lease.believed());
}

TEST_F(LeaseTest, ASilentHolderIsSucceededWithinTwoPeriods) {
  for (int round = 0; round < 20; ++round) {
    hosts.clear();
    objects = std::make_shared<MemoryObjects>(clock);
    Host& a = add("a");
    Host& b = add("b");
    Host& c = add("c");
    pass(1 + round * 1'700, {&a, &b, &c});
    ASSERT_TRUE(a.lease.believed());
    pass(2 * kPeriod, {&b, &c});  // a is dead
    EXPECT_FALSE(a.lease.believed());
    EXPECT_EQ((b.lease.believed() ? 1 : 0) + (c.lease.believed() ? 1 : 0), 1);
    EXPECT_EQ(b.counters.takeovers + c.counters.takeovers, 1U);
    pass(kPeriod, {&a, &b, &c});  // a was only asleep
    EXPECT_EQ(a.lease.state(), State::kLost);
    EXPECT_EQ(a.counters.lost, 1U);
    ASSERT_TRUE(a.lease.holder().has_value());
    EXPECT_EQ(a.lease.holder()->host, b.lease.believed() ? "b" : "c");
  }
}

TEST_F(LeaseTest, WallClocksDoNotMatter) {
  Host& a = add("a");
  Host& b = add("b");
  pass(1, {&a, &b});
  for (int i = 0; i < 10; ++i) {
    clock.jump_wall(i % 2 == 0 ? 3'600'000 : -7'200'000);
    pass(kPeriod / 2, {&a, &b});
  }
  EXPECT_TRUE(a.lease.believed());
  EXPECT_EQ(b.lease.state(), State::kWaiting);
}

TEST_F(LeaseTest, TheHolderThatWakesBetweenSightAndTakeOverIsWaitedFor) {
  Host& a = add("a");
  Host& b = add("b");
  pass(1, {&a, &b});
  pass(kPeriod - 2'000, {&b});                 // b has seen no beat for nearly a period
  meddle = [&a] { a.next = a.lease.step(); };  // a beats after b's last look, before its create()
  b.engine.script(Call::kCreate, {Fault::Kind::kDelay, Code::kTimeout, 1});
  pass(kPeriod / 4, {&b});
  ASSERT_EQ(b.lease.fence(), 2U);
  EXPECT_TRUE(a.lease.believed());
  EXPECT_FALSE(b.lease.believed());
  pass(kPeriod / 2, {&a, &b});
  EXPECT_EQ(a.lease.state(), State::kLost);
  EXPECT_FALSE(b.lease.believed());
  pass(kPeriod, {&a, &b});
  EXPECT_TRUE(b.lease.believed());
}

TEST_F(LeaseTest, WhoWaitsForTheOneBeforeLetsNobodyInSooner) {
  Host& a = add("a");
  Host& b = add("b");
  pass(1, {&a, &b});
  pass(kPeriod - 2'000, {&b});
  meddle = [&a] { a.next = a.lease.step(); };
  b.engine.script(Call::kCreate, {Fault::Kind::kDelay, Code::kTimeout, 1});
  pass(kPeriod / 4, {&b});
  ASSERT_EQ(b.lease.fence(), 2U);
  b.lease.end(End::kReleased);
  Host& c = add("c");
  pass(kPeriod / 2, {&c});
  EXPECT_FALSE(c.lease.believed());
}

TEST_F(LeaseTest, ALostAnswerToCreateIsFoundOut) {
  Host& a = add("a");
  a.engine.script(Call::kCreate, {Fault::Kind::kLost, Code::kTimeout});
  pass(1, {&a});
  EXPECT_TRUE(a.lease.believed());
  EXPECT_EQ(a.lease.fence(), 1U);
}

TEST_F(LeaseTest, ACreateThatArrivesLateIsTakenUp) {
  Host& a = add("a");
  a.engine.script(Call::kCreate, {Fault::Kind::kFail, Code::kTimeout});
  a.next = a.lease.step();
  EXPECT_EQ(a.lease.state(), State::kSeeking);
  LeaseRecord late;  // as a wrote it
  late.holder = a.lease.id();
  late.period_ms = kPeriod;
  ASSERT_TRUE(objects->create(lease_name(key, 1), late.to_text(), 0));
  pass(5'000, {&a});
  EXPECT_TRUE(a.lease.believed());
  EXPECT_EQ(a.lease.fence(), 1U);
  EXPECT_GT(LeaseRecord::parse(object(1))->beat, 1U);
}

TEST_F(LeaseTest, ATierThatIsGoneCostsABoundedWait) {
  Host& a = add("a");
  a.engine.set_down(Code::kUnavailable);
  pass(10'000, {&a});
  EXPECT_EQ(a.lease.state(), State::kAlone);
  EXPECT_EQ(a.counters.alone, 1U);
  EXPECT_FALSE(a.lease.reason().empty());
  EXPECT_LE(a.engine.calls(), 40U);
}

TEST_F(LeaseTest, ATierThatRefusesCostsNoWait) {
  for (const Code code : {Code::kDenied, Code::kReadOnly, Code::kUnsupported}) {
    Host& a = add("a");
    a.engine.set_down(code);
    a.lease.step();
    EXPECT_EQ(a.lease.state(), State::kAlone);
    EXPECT_EQ(a.engine.calls(), 1U);
  }
}

TEST_F(LeaseTest, APartitionedWaiterBuildsForItselfAfterAPeriod) {
  Host& a = add("a");
  Host& b = add("b");
  pass(1'000, {&a, &b});
  b.engine.set_down(Code::kTimeout);
  pass(kPeriod / 2, {&a, &b});
  EXPECT_EQ(b.lease.state(), State::kWaiting);
  pass(kPeriod, {&a, &b});
  EXPECT_EQ(b.lease.state(), State::kAlone);
  EXPECT_TRUE(a.lease.believed());
}

TEST_F(LeaseTest, APartitionedHolderStopsBelievingAndGoesOnWhenNobodyTookOver) {
  Host& a = add("a");
  pass(1'000, {&a});
  a.engine.set_down(Code::kTimeout);
  pass(kPeriod, {&a});
  EXPECT_EQ(a.lease.state(), State::kHeld);
  EXPECT_FALSE(a.lease.believed());
  a.engine.set_down(std::nullopt);
  pass(kPeriod / 4, {&a});
  EXPECT_TRUE(a.lease.believed());
}

TEST_F(LeaseTest, GarbageIsNobodysAfterAPeriod) {
  for (const std::string& bytes :
       {std::string("\x00\xff garbage", 10), std::string(), std::string(100'000, '{'),
        std::string("{\"v\": 2}"), std::string("{\"v\": 1, \"state\": \"held\"}")}) {
    objects = std::make_shared<MemoryObjects>(clock);
    objects->put(lease_name(key, 1), bytes);
    Host& a = add("a");
    pass(kPeriod - 1'000, {&a});
    EXPECT_FALSE(a.lease.believed());
    pass(kPeriod / 2, {&a});
    EXPECT_TRUE(a.lease.believed());
    EXPECT_EQ(a.lease.fence(), 2U);
    EXPECT_EQ(a.counters.garbage, 1U);
  }
}

TEST_F(LeaseTest, ALongRowIsFoundByHalving) {
  LeaseRecord old;
  old.state = LeaseRecord::State::kReleased;
  old.holder = std::string(32, 'a');
  for (std::uint64_t n = 1; n <= 1000; ++n) objects->put(lease_name(key, n), old.to_text());
  Host& a = add("a");
  pass(1, {&a});
  EXPECT_EQ(a.lease.fence(), 1001U);
  EXPECT_TRUE(a.lease.believed());
  EXPECT_LE(a.counters.requests, 26U);
  entry = true;
  a.lease.end(End::kPublished);
  EXPECT_EQ(objects->names().size(), 745U);  // 256 at a time; the rest is a row still
  EXPECT_FALSE(object(745).empty());
}

TEST_F(LeaseTest, AnEntryThatCameMeanwhileEndsTheAttempt) {
  Host& a = add("a");
  entry = true;
  pass(1, {&a});
  EXPECT_EQ(a.lease.state(), State::kSettled);
  EXPECT_TRUE(objects->names().empty());
}

TEST_F(LeaseTest, AnObjectThatTheTierForgotIsMadeAgain) {
  Host& a = add("a");
  pass(1, {&a});
  objects->remove(lease_name(key, 1));
  pass(kPeriod / 2, {&a});
  EXPECT_TRUE(a.lease.believed());
  EXPECT_FALSE(object(1).empty());
  objects->remove(lease_name(key, 1));
  Host& b = add("b");
  pass(1, {&b});
  pass(kPeriod / 2, {&a, &b});
  EXPECT_EQ(a.lease.state(), State::kLost);
  EXPECT_TRUE(b.lease.believed());
}

TEST_F(LeaseTest, AfterARestartTheLeaseIsHeldAgain) {
  Host& a = add("a");
  pass(1, {&a});
  const std::string id = a.lease.id();
  Host& again = add("a");
  again.lease.resume(id, 1);
  EXPECT_FALSE(again.lease.believed());
  pass(1, {&again});
  EXPECT_TRUE(again.lease.believed());
  EXPECT_EQ(LeaseRecord::parse(object(1))->holder, id);

  Host& wrong = add("b");
  wrong.lease.resume(std::string(32, 'f'), 1);
  wrong.lease.end(End::kReleased);  // before it knew: another's is left alone
  EXPECT_EQ(LeaseRecord::parse(object(1))->state, LeaseRecord::State::kHeld);
  Host& late = add("c");
  late.lease.resume(std::string(32, 'f'), 1);
  pass(1, {&late});
  EXPECT_EQ(late.lease.state(), State::kLost);
}

TEST_F(LeaseTest, AWaitCanBeGivenUp) {
  Host& a = add("a");
  Host& b = add("b");
  pass(1, {&a, &b});
  b.lease.give_up("waited for long enough");
  EXPECT_EQ(b.lease.state(), State::kAlone);
  EXPECT_EQ(b.lease.step(), std::nullopt);
  a.lease.give_up("holders do not wait");
  EXPECT_TRUE(a.lease.believed());
}

TEST_F(LeaseTest, ThePollsOfAllKeysTogetherAreBounded) {
  LeasePace pace(10);
  for (int i = 0; i < 1000; ++i) pace.enter();
  EXPECT_EQ(pace.shortest_ms(), 100'000);
  for (int i = 0; i < 999; ++i) pace.leave();
  EXPECT_EQ(pace.shortest_ms(), 100);
}

TEST(LeaseRecord, RoundTripAndCuts) {
  LeaseRecord record;
  record.state = LeaseRecord::State::kApart;
  record.holder = std::string(32, '7');
  record.beat = 12;
  record.period_ms = 5'000;
  record.host = "trn-7";
  record.program = std::string(1'000, '\x01');
  record.label = std::string(255, 'x') + "é";
  record.progress = "bad \xff utf-8";
  record.pid = 4711;
  record.building_ms = 99;
  const std::string text = record.to_text();
  EXPECT_LE(text.size(), LeaseRecord::kMaxBytes);
  const auto again = LeaseRecord::parse(text);
  ASSERT_TRUE(again.ok()) << again.error().text();
  EXPECT_EQ(again->state, LeaseRecord::State::kApart);
  EXPECT_EQ(again->holder, record.holder);
  EXPECT_EQ(again->beat, 12U);
  EXPECT_EQ(again->period_ms, 5'000);
  EXPECT_EQ(again->program.size(), LeaseRecord::kMaxText);
  EXPECT_EQ(again->label, std::string(255, 'x'));
  EXPECT_EQ(again->progress, "bad ");
  EXPECT_EQ(again->pid, 4711);
  EXPECT_EQ(again->to_text(), text);
}

TEST(LeaseRecord, StrictParser) {
  const std::string good = R"({"v":1,"state":"held","holder":"0123456789abcdef0123456789abcdef",)"
                           R"("beat":1,"period_ms":60000})";
  ASSERT_TRUE(LeaseRecord::parse(good).ok());
  const auto with = [&good](std::string_view from, std::string_view to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return LeaseRecord::parse(text);
  };
  EXPECT_TRUE(with("\"v\":1", "\"v\":2").is(Code::kUnsupported));
  EXPECT_FALSE(with("held", "kept").ok());
  EXPECT_FALSE(with("0123", "012").ok());
  EXPECT_FALSE(with("0123", "012G").ok());
  EXPECT_FALSE(with("\"beat\":1", "\"beat\":0").ok());
  EXPECT_FALSE(with("\"beat\":1", "\"beat\":1.5").ok());
  EXPECT_FALSE(with("60000", "10").ok());
  EXPECT_FALSE(with("60000", "99999999").ok());
  EXPECT_FALSE(with(",\"period_ms\":60000", "").ok());
  EXPECT_TRUE(with("60000", "60000,\"new\":[1]").ok());
  EXPECT_FALSE(LeaseRecord::parse("").ok());
  EXPECT_FALSE(LeaseRecord::parse(good + "x").ok());
  EXPECT_FALSE(LeaseRecord::parse(good + std::string(9'000, ' ')).ok());
}

}  // namespace
}  // namespace nc::tier
