#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cache/failure_policy.hpp"
#include "tests/unit/cache/policy_helpers.hpp"

namespace nc {
namespace {

using ::testing::HasSubstr;

constexpr Millis kHour = 3'600'000;
constexpr Millis kNow = 1'700'000'000'000;

Failure some(FailureClass c = FailureClass::kDeterministic) {
  Failure f;
  f.parts = {{"graph", "g"}};
  f.key = *action_key(f.parts);
  f.failure_class = c;
  f.message = "unsupported operator aten::foo";
  f.log = "line 1\nline 2\n";
  f.exit_code = -6;
  f.kind = "graph";
  f.compiler = "inductor 2.13.0";
  return f;
}

TEST(Failure, OnlyPropertiesOfTheInputAreRemembered) {
  using F = FailureClass;
  for (const auto c : {F::kDeterministic, F::kUncacheable}) {
    EXPECT_TRUE(prepare_failure(some(c), kNow, kHour)) << failure_class_name(c);
  }
  for (const auto c :
       {F::kOutOfMemory, F::kKilled, F::kTimeout, F::kDiskFull, F::kEnvironment, F::kCancelled}) {
    EXPECT_FALSE(prepare_failure(some(c), kNow, kHour)) << failure_class_name(c);
  }
  EXPECT_FALSE(prepare_failure(some(), kNow, 0));
}

TEST(Failure, ClassNamesRoundTrip) {
  for (int i = 0; i < 8; ++i) {
    const auto c = static_cast<FailureClass>(i);
    EXPECT_EQ(*parse_failure_class(failure_class_name(c)), c);
  }
  EXPECT_TRUE(parse_failure_class("oom").is(Code::kInvalid));
  EXPECT_THAT(parse_failure_class("oom").error().action, HasSubstr("out_of_memory"));
}

TEST(Failure, ExpiresAndNeverLastsLongerBecauseAClockJumped) {
  Failure given = some();
  given.expires_ms = 1;  // a caller's idea of it does not count
  const Failure f = *prepare_failure(given, kNow, kHour);
  EXPECT_EQ(f.expires_ms, kNow + kHour);
  EXPECT_FALSE(failure_expired(f, kNow, kHour));
  EXPECT_FALSE(failure_expired(f, kNow + kHour - 1, kHour));
  EXPECT_TRUE(failure_expired(f, kNow + kHour, kHour));
  EXPECT_TRUE(failure_expired(f, kNow - 1, kHour));    // the clock went back
  EXPECT_TRUE(failure_expired(f, kNow + 2000, 1000));  // the setting was lowered
  EXPECT_FALSE(failure_expired(f, kNow + 1, 100 * kHour));
  EXPECT_TRUE(failure_expired(f, kNow + kHour, 100 * kHour));  // raised: as it was promised
}

TEST(Failure, RoundTrip) {
  const Failure f = *prepare_failure(some(), kNow, kHour);
  auto back = Failure::parse(f.to_json());
  ASSERT_TRUE(back.ok()) << back.error().text();
  EXPECT_EQ(back->to_json(), f.to_json());
  EXPECT_EQ(back->exit_code, -6);
  EXPECT_EQ(back->parts, f.parts);
  EXPECT_EQ(back->failure_class, FailureClass::kDeterministic);

  Failure without_parts = f;
  without_parts.parts.clear();
  EXPECT_TRUE(Failure::parse(without_parts.to_json()).ok());
  Failure wrong = f;
  wrong.parts = {{"graph", "h"}};
  EXPECT_TRUE(Failure::parse(wrong.to_json()).is(Code::kKeyMismatch));
  for (std::size_t n = 0; n < f.to_json().size(); ++n) {
    EXPECT_FALSE(Failure::parse(f.to_json().substr(0, n)).ok());
  }
}

TEST(Failure, AnyBytesOfALogCanBeKept) {
  Failure f = some();
  f.message = "bad \xff bytes\nsecond line";
  f.log.clear();
  for (int i = 0; i < 256; ++i) f.log.push_back(static_cast<char>(i));
  f.log += "\xed\xa0\x80 \xc0\xaf \xf5\x80\x80\x80 \xe2\x82\xac \xe2\x82";
  const Failure kept = *prepare_failure(f, kNow, kHour);
  EXPECT_EQ(kept.message, "bad ? bytes");
  EXPECT_THAT(kept.log, HasSubstr("\xe2\x82\xac"));
  auto back = Failure::parse(kept.to_json());
  ASSERT_TRUE(back.ok()) << back.error().text();
  EXPECT_EQ(back->log, kept.log);
}

TEST(Failure, LongTextsAreCutAndStillReadable) {
  Failure f = some();
  f.message = std::string(5000, 'm');
  f.log = "HEAD" + std::string(3 << 20, '\x01') + "TAIL";
  const Failure kept = *prepare_failure(f, kNow, kHour);
  EXPECT_LE(kept.message.size(), kMaxFailureMessage);
  EXPECT_LE(kept.log.size(), kMaxFailureLog);
  EXPECT_EQ(kept.message.find('\n'), std::string::npos);
  EXPECT_TRUE(kept.log.starts_with("HEAD"));
  EXPECT_TRUE(kept.log.ends_with("TAIL"));
  EXPECT_THAT(kept.log, HasSubstr("bytes left out"));
  EXPECT_TRUE(Failure::parse(kept.to_json()).ok());  // every byte of it escaped
}

TEST(CutMiddle, NeverOverTheLimitNeverInsideACharacter) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += i % 2 == 0 ? "\xe2\x82\xac" : "x";
  for (std::size_t limit = 0; limit <= text.size() + 1; ++limit) {
    const std::string cut = cut_middle(text, limit);
    ASSERT_LE(cut.size(), std::max(limit, text.size() <= limit ? text.size() : 0));
    Failure f = some();
    f.log = cut;
    ASSERT_EQ(prepare_failure(f, kNow, kHour)->log, cut) << "not UTF-8 at " << limit;
  }
  EXPECT_EQ(cut_middle("short", 5), "short");
}

}  // namespace
}  // namespace nc
