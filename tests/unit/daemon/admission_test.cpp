#include "daemon/admission.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/daemon/fake_memory.hpp"

namespace nc::daemon {
namespace {

using Kind = AdmissionQueue::Answer::Kind;
using testing::ElementsAre;
using testing::IsEmpty;

class Admissions : public testing::Test {
 protected:
  Admissions() { run(queue.set_limits({1000, 8})); }

  Kind ask(const std::string& lease, std::uint64_t bytes, unsigned cores = 1, bool alone = false,
           Millis wait_ms = 0) {
    AdmissionQueue::Wakes wakes;
    last = queue.ask(
        lease, 1, {bytes, cores, alone}, wait_ms,
        [this, lease](const AdmissionQueue::Answer& answer) {
          if (answer.kind == Kind::kAdmitted) woken.push_back(lease);
          if (answer.kind == Kind::kWaiting) told_to_wait.push_back(lease);
        },
        wakes);
    run(wakes);
    return last.kind;
  }
  void run(const AdmissionQueue::Wakes& wakes) {
    for (const auto& wake : wakes) wake();
  }

  FakeClock clock;
  FakeMemory memory;
  AdmissionQueue queue{clock, memory};
  AdmissionQueue::Answer last;
  std::vector<std::string> woken, told_to_wait;
};

TEST_F(Admissions, WhatFitsStartsAtOnceAndTheRestWaits) {
  EXPECT_EQ(ask("a", 600), Kind::kAdmitted);
  EXPECT_EQ(last.granted.bytes, 600U);
  EXPECT_EQ(ask("b", 400), Kind::kAdmitted);
  EXPECT_EQ(ask("c", 1), Kind::kWaiting);
  EXPECT_TRUE(last.joined);
  EXPECT_EQ(last.ahead, 0U);
  EXPECT_EQ(last.running, 2U);
  EXPECT_EQ(last.reserved, 1000U);
  EXPECT_EQ(last.budget, 1000U);
  EXPECT_EQ(ask("d", 1), Kind::kWaiting);
  EXPECT_EQ(last.ahead, 1U);
  EXPECT_EQ(ask("c", 1), Kind::kWaiting);
  EXPECT_FALSE(last.joined) << "it keeps its place";
  run(queue.release("b"));
  EXPECT_TRUE(queue.admitted("c"));
  EXPECT_TRUE(queue.admitted("d"));
}

TEST_F(Admissions, CoresAreCountedAsMemoryIs) {
  EXPECT_EQ(ask("a", 1, 6), Kind::kAdmitted);
  EXPECT_EQ(ask("b", 1, 3), Kind::kWaiting);
  EXPECT_EQ(ask("c", 1, 2), Kind::kAdmitted);
  run(queue.release("a"));
  EXPECT_TRUE(queue.admitted("b"));
}

TEST_F(Admissions, MoreCoresThanThereAreMeansAll) {
  EXPECT_EQ(ask("a", 1, 64), Kind::kAdmitted);
  EXPECT_EQ(last.granted.cores, 8U);
  EXPECT_EQ(ask("b", 1), Kind::kWaiting);
}

TEST_F(Admissions, OneThatNeedsMoreThanThereIsRunsAlone) {
  EXPECT_EQ(ask("small", 10), Kind::kAdmitted);
  EXPECT_EQ(ask("huge", 5000), Kind::kWaiting);
  run(queue.release("small"));
  EXPECT_TRUE(queue.admitted("huge"));
  EXPECT_EQ(ask("small", 10), Kind::kWaiting) << "nothing beside it";
  run(queue.release("huge"));
  EXPECT_TRUE(queue.admitted("small"));
}

TEST_F(Admissions, OneThatAsksToBeAloneIs) {
  EXPECT_EQ(ask("a", 10), Kind::kAdmitted);
  EXPECT_EQ(ask("alone", 10, 1, true), Kind::kWaiting);
  run(queue.release("a"));
  EXPECT_TRUE(queue.admitted("alone"));
  EXPECT_EQ(ask("b", 10), Kind::kWaiting);
  run(queue.release("alone"));
  EXPECT_TRUE(queue.admitted("b"));
}

TEST_F(Admissions, SmallOnesPassABigOneButNotForEver) {
  EXPECT_EQ(ask("first", 500), Kind::kAdmitted);
  EXPECT_EQ(ask("big", 900), Kind::kWaiting);
  std::string last_small;
  for (unsigned i = 0; i < AdmissionQueue::kMaxOvertakes; ++i) {
    last_small = "small" + std::to_string(i);
    EXPECT_EQ(ask(last_small, 100), Kind::kAdmitted) << i;
    run(queue.release(last_small));
  }
  EXPECT_EQ(ask("one more", 100), Kind::kWaiting) << "it would fit, but the big one has its turn";
  run(queue.release("first"));
  EXPECT_TRUE(queue.admitted("big"));
  EXPECT_TRUE(queue.admitted("one more"));
}

TEST_F(Admissions, AParkedRequestIsWokenOnce) {
  EXPECT_EQ(ask("a", 1000), Kind::kAdmitted);
  EXPECT_EQ(ask("b", 600, 1, false, 5000), Kind::kParked);
  EXPECT_EQ(ask("c", 300, 1, false, 5000), Kind::kParked);
  clock.advance(2000);
  run(queue.release("a"));
  EXPECT_THAT(woken, ElementsAre("b", "c"));
  clock.advance(10'000);
  run(queue.tick());
  EXPECT_EQ(woken.size(), 2U);
  EXPECT_THAT(told_to_wait, IsEmpty());
  EXPECT_EQ(ask("b", 600), Kind::kAdmitted) << "asking again changes nothing";
  EXPECT_EQ(last.waited_ms, 0) << "the wait was told before";
}

TEST_F(Admissions, AWaitEndsWhenItsTimeIsOver) {
  EXPECT_EQ(ask("a", 1000), Kind::kAdmitted);
  EXPECT_EQ(ask("b", 600, 1, false, 5000), Kind::kParked);
  EXPECT_EQ(queue.next_deadline(), clock.monotonic_ms() + 5000);
  clock.advance(5000);
  run(queue.tick());
  EXPECT_THAT(told_to_wait, ElementsAre("b"));
  EXPECT_FALSE(queue.next_deadline());
  clock.advance(1000);
  run(queue.release("a"));
  EXPECT_EQ(ask("b", 600), Kind::kAdmitted);
  EXPECT_EQ(last.waited_ms, 6000);
}

TEST_F(Admissions, AskingElsewhereAnswersTheOlderRequest) {
  EXPECT_EQ(ask("a", 1000), Kind::kAdmitted);
  EXPECT_EQ(ask("b", 600, 1, false, 5000), Kind::kParked);
  EXPECT_EQ(ask("b", 600, 1, false, 5000), Kind::kParked);
  EXPECT_THAT(told_to_wait, ElementsAre("b"));
  run(queue.release("b"));
  EXPECT_THAT(told_to_wait, ElementsAre("b", "b")) << "and so does the end of the lease";
}

TEST_F(Admissions, OneThatNeedsMoreGoesBackToTheFront) {
  EXPECT_EQ(ask("a", 300), Kind::kAdmitted);
  EXPECT_EQ(ask("b", 300), Kind::kAdmitted);
  EXPECT_EQ(ask("c", 900), Kind::kWaiting);
  EXPECT_EQ(ask("a", 800), Kind::kWaiting);
  EXPECT_EQ(last.ahead, 0U);
  EXPECT_EQ(last.reserved, 300U);
  run(queue.release("b"));
  EXPECT_TRUE(queue.admitted("a"));
  EXPECT_FALSE(queue.admitted("c"));
  EXPECT_EQ(ask("a", 500), Kind::kAdmitted);
  EXPECT_EQ(last.granted.bytes, 800U) << "one that needs less keeps what it has";
}

TEST_F(Admissions, AnAdoptedBuildCountsEvenOverTheBudget) {
  queue.adopt("old", 1, {5000, 2, false});
  EXPECT_EQ(ask("a", 1), Kind::kWaiting);
  EXPECT_EQ(ask("old", 5000), Kind::kAdmitted);
  run(queue.release("old"));
  EXPECT_TRUE(queue.admitted("a"));
  queue.adopt("a", 1, {1, 1, false});
  EXPECT_EQ(queue.view().reserved, 1U) << "known already";
}

TEST_F(Admissions, ABuildThatIsNotKnownIsReleasedWithoutHarm) {
  EXPECT_THAT(queue.release("nobody"), IsEmpty());
}

TEST_F(Admissions, DrainingAdmitsNothingAndAnswersAll) {
  EXPECT_EQ(ask("a", 1000), Kind::kAdmitted);
  EXPECT_EQ(ask("b", 10, 1, false, 5000), Kind::kParked);
  run(queue.drain());
  EXPECT_THAT(told_to_wait, ElementsAre("b"));
  run(queue.release("a"));
  EXPECT_FALSE(queue.admitted("b"));
  EXPECT_EQ(ask("c", 10, 1, false, 5000), Kind::kWaiting);
}

TEST_F(Admissions, LimitsChangeWhileBuildsRun) {
  EXPECT_EQ(ask("a", 1000, 8), Kind::kAdmitted);
  EXPECT_EQ(ask("b", 500), Kind::kWaiting);
  run(queue.set_limits({2000, 2}));
  EXPECT_FALSE(queue.admitted("b")) << "no core is free";
  run(queue.set_limits({2000, 9}));
  EXPECT_TRUE(queue.admitted("b"));
}

TEST_F(Admissions, UnsetTheBudgetFollowsTheHost) {
  run(queue.set_limits({0, 8}));
  memory.free = 1000;
  EXPECT_EQ(ask("a", 500), Kind::kAdmitted);
  EXPECT_EQ(ask("b", 400), Kind::kWaiting);
  EXPECT_EQ(last.budget, 800U);
  // What the build takes is missing at the host, and counted with it.
  memory.of[1] = 450;
  memory.free = 550;
  clock.advance(1000);
  EXPECT_EQ(queue.view().budget, 800U);
  // It takes more than it should: that is not to be had.
  memory.of[1] = 700;
  memory.free = 300;
  clock.advance(1000);
  EXPECT_EQ(queue.view().budget, 640U);
  // Somebody else gives some back: found out without a word.
  memory.of[1] = 450;
  memory.free = 1000;
  ASSERT_TRUE(queue.next_deadline());
  clock.advance(1000);
  run(queue.tick());
  EXPECT_TRUE(queue.admitted("b"));
}

TEST_F(Admissions, AHostThatTellsNothingBuildsOneAtATime) {
  run(queue.set_limits({0, 8}));
  memory.free = std::nullopt;
  EXPECT_EQ(ask("a", 10), Kind::kAdmitted);
  EXPECT_EQ(ask("b", 10), Kind::kWaiting);
  run(queue.release("a"));
  EXPECT_TRUE(queue.admitted("b"));
}

TEST_F(Admissions, ProcessesAreNotLookedAtForEachQuestion) {
  run(queue.set_limits({0, 8}));
  ask("a", 10);
  for (int i = 0; i < 50; ++i) ask("b" + std::to_string(i), 10);
  EXPECT_EQ(memory.looks, 1);
}

TEST_F(Admissions, TooManyAreRefused) {
  EXPECT_EQ(ask("a", 1000), Kind::kAdmitted);
  for (std::size_t i = 0; i < AdmissionQueue::kMaxWaiting; ++i) {
    ASSERT_EQ(ask("w" + std::to_string(i), 1000), Kind::kWaiting);
  }
  EXPECT_EQ(ask("one more", 1), Kind::kRefused);
  EXPECT_EQ(ask("w0", 1000), Kind::kWaiting) << "who stands in line stays there";
}

}  // namespace
}  // namespace nc::daemon
