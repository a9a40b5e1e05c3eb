#include "cache/tier/breaker.hpp"

#include <gtest/gtest.h>

namespace nc::tier {
namespace {

Status error(Code code) {
  return Error{code, "no", ""};
}

struct BreakerTest : testing::Test {
  // Fails as often as it may within `ms`, each call taking `call_ms`; gives the number of calls.
  int suffer(Millis ms, Millis call_ms, Code code) {
    int calls = 0;
    const auto end = clock.monotonic_ms() + ms;
    while (clock.monotonic_ms() < end) {
      if (breaker.may_probe()) {
        ++calls;
        clock.advance(call_ms);
        breaker.done(error(code), call_ms);
      } else {
        clock.advance(10);
      }
    }
    return calls;
  }

  FakeClock clock;
  FakeRandom random;
  Breaker breaker{clock, random};
};

TEST_F(BreakerTest, AnswersKeepItClosed) {
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(breaker.may_call());
    breaker.done(i % 2 == 0 ? Status() : error(Code::kNotFound), 5'000);
  }
  EXPECT_EQ(breaker.view().state, Breaker::State::kClosed);
}

TEST_F(BreakerTest, ATimeoutOpensItAtOnceAndCostsSecondsInTotal) {
  EXPECT_EQ(suffer(1'000, 5'000, Code::kTimeout), 1);
  EXPECT_EQ(breaker.view().state, Breaker::State::kOpen);
  EXPECT_EQ(breaker.view().problem, "no");
  // Of an hour of looking up, the probes take a small part.
  EXPECT_LE(suffer(3'600'000, 5'000, Code::kTimeout), 3'600 / 30 + 10);
}

TEST_F(BreakerTest, QuickFailuresOpenItAfterSome) {
  EXPECT_EQ(suffer(400, 1, Code::kUnavailable), 3);
}

TEST_F(BreakerTest, ASuccessBetweenFailuresForgetsThem) {
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(breaker.may_call());
    breaker.done(error(Code::kUnavailable), 1);
    ASSERT_TRUE(breaker.may_call());
    breaker.done(Status(), 1);
  }
}

TEST_F(BreakerTest, OneProbeDecides) {
  suffer(400, 1, Code::kUnavailable);
  while (!breaker.may_probe()) clock.advance(10);
  EXPECT_EQ(breaker.view().state, Breaker::State::kHalfOpen);
  EXPECT_FALSE(breaker.may_probe());
  EXPECT_FALSE(breaker.may_call());
  breaker.done(Status(), 1);
  EXPECT_EQ(breaker.view().state, Breaker::State::kClosed);
  EXPECT_EQ(breaker.view().problem, "");
  EXPECT_TRUE(breaker.may_call());
}

TEST_F(BreakerTest, AProbeThatNeverEndsDoesNotShutItForEver) {
  suffer(400, 1, Code::kUnavailable);
  while (!breaker.may_probe()) clock.advance(10);
  EXPECT_FALSE(breaker.may_probe());
  clock.advance(60'000);
  EXPECT_TRUE(breaker.may_probe());
}

TEST_F(BreakerTest, DeniedOpensAtOnceAndForLonger) {
  const int calls = suffer(4 * 3'600'000, 1, Code::kDenied);
  EXPECT_GE(calls, 10);
  EXPECT_LE(calls, 4 * 12 + 12);
}

TEST_F(BreakerTest, LateAnswersDoNotCloseIt) {
  ASSERT_TRUE(breaker.may_call());
  ASSERT_TRUE(breaker.may_call());
  breaker.done(error(Code::kDenied), 1);
  breaker.done(Status(), 1);
  EXPECT_EQ(breaker.view().state, Breaker::State::kOpen);
  EXPECT_FALSE(breaker.may_call());
}

TEST(Jitter, StaysWithinHalf) {
  FakeRandom random;
  for (int i = 0; i < 3000; ++i) {
    const auto ms = jittered(1000, random);
    EXPECT_GE(ms, 500);
    EXPECT_LE(ms, 1500);
  }
}

}  // namespace
}  // namespace nc::tier
