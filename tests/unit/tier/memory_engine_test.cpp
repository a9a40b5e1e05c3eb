#include "cache/tier/memory_engine.hpp"

#include "tests/unit/tier/engine_contract.hpp"

namespace nc::tier {
namespace {

struct MemoryEngineTest : testing::Test {
  FakeClock clock;
  std::shared_ptr<MemoryObjects> objects = std::make_shared<MemoryObjects>(clock);
  MemoryEngine engine{objects};
};

TEST_F(MemoryEngineTest, DoesWhatAnEngineDoes) {
  check_engine_contract(engine, "t/");
}

TEST_F(MemoryEngineTest, FaultsAreUsedUpInTheirOrder) {
  objects->put("a", "text");
  engine.script(Call::kGet, {.code = Code::kDenied});
  engine.script(Call::kGet, {.code = Code::kBusy}, 2);
  EXPECT_TRUE(engine.get("a", 9).is(Code::kDenied));
  EXPECT_TRUE(engine.get("a", 9).is(Code::kBusy));
  EXPECT_TRUE(engine.head("a").ok());  // another kind of call
  EXPECT_TRUE(engine.get("a", 9).is(Code::kBusy));
  EXPECT_EQ(engine.get("a", 9).value(), "text");
  EXPECT_EQ(engine.calls(Call::kGet), 4U);
  EXPECT_EQ(engine.calls(), 5U);
}

TEST_F(MemoryEngineTest, BodiesAreSpoiled) {
  objects->put("a", "0123456789");
  objects->put("b", "other");
  engine.script(Call::kGet, {.kind = Fault::Kind::kTruncated});
  EXPECT_EQ(engine.get("a", 99).value(), "01234");
  engine.script(Call::kFetch, {.kind = Fault::Kind::kShort});
  EXPECT_TRUE(fetch_all(engine, "a").is(Code::kCorrupt));
  engine.script(Call::kFetch, {.kind = Fault::Kind::kGarbage});
  EXPECT_NE(fetch_all(engine, "a").value(), "0123456789");
  engine.script(Call::kFetch, {.kind = Fault::Kind::kOther, .other = "b"});
  EXPECT_EQ(fetch_all(engine, "a").value(), "other");
  engine.script(Call::kFetch, {.kind = Fault::Kind::kLonger});
  EXPECT_EQ(fetch_all(engine, "a").value().size(), 1010U);
  engine.script(Call::kGet, {.kind = Fault::Kind::kAbsent});
  EXPECT_TRUE(engine.get("a", 99).is(Code::kNotFound));
}

TEST_F(MemoryEngineTest, AnAnswerGetsLostAfterItHappened) {
  const Fault lost{.kind = Fault::Kind::kLost, .code = Code::kTimeout};
  engine.script(Call::kCreate, lost);
  EXPECT_TRUE(engine.create("a", as_bytes("x"), 0).is(Code::kTimeout));
  EXPECT_FALSE(engine.create("a", as_bytes("y"), 0).value());
  engine.script(Call::kPut, lost);
  EXPECT_TRUE(engine.put("b", as_bytes("x")).is(Code::kTimeout));
  engine.script(Call::kRemove, lost);
  EXPECT_TRUE(engine.remove("b").is(Code::kTimeout));
  EXPECT_EQ(objects->names(), std::vector<std::string>{"a"});
}

TEST_F(MemoryEngineTest, DelaysPassOnTheClockAndEndInATimeout) {
  MemoryEngine::Options options;
  options.timeout_ms = 1000;
  options.wait = [&](Millis ms) { clock.advance(ms); };
  MemoryEngine slow(objects, options);
  objects->put("a", "text");
  slow.script(Call::kGet, {.kind = Fault::Kind::kDelay, .delay_ms = 300});
  EXPECT_TRUE(slow.get("a", 9).ok());
  EXPECT_EQ(clock.monotonic_ms(), 300);
  slow.script(Call::kGet, {.kind = Fault::Kind::kDelay, .delay_ms = 90'000});
  EXPECT_TRUE(slow.get("a", 9).is(Code::kTimeout));
  EXPECT_EQ(clock.monotonic_ms(), 1300);
}

TEST_F(MemoryEngineTest, ClientsShareTheObjectsAndNothingElse) {
  MemoryEngine other(objects);
  other.set_down(Code::kUnavailable);
  ASSERT_TRUE(engine.put("a", as_bytes("x")).ok());
  EXPECT_TRUE(other.get("a", 9).is(Code::kUnavailable));
  other.set_down(std::nullopt);
  EXPECT_EQ(other.get("a", 9).value(), "x");
  other.set_read_only(true);
  EXPECT_TRUE(other.put("b", as_bytes("x")).is(Code::kReadOnly));
}

TEST_F(MemoryEngineTest, WhatIsKeptForATimeGoesThen) {
  ASSERT_TRUE(engine.create("a", as_bytes("x"), 500).value());
  clock.advance(499);
  EXPECT_FALSE(engine.create("a", as_bytes("y"), 500).value());
  clock.advance(1);
  EXPECT_TRUE(engine.get("a", 9).is(Code::kNotFound));
  EXPECT_TRUE(engine.create("a", as_bytes("z"), 0).value());
  clock.advance(1'000'000);
  EXPECT_TRUE(engine.get("a", 9).ok());
}

TEST_F(MemoryEngineTest, AFullOneSaysSo) {
  MemoryEngine::Options options;
  options.max_bytes = 10;
  MemoryEngine small(objects, options);
  EXPECT_TRUE(small.put("a", as_bytes("0123456789")).ok());
  EXPECT_TRUE(small.put("b", as_bytes("0")).is(Code::kNoSpace));
}

}  // namespace
}  // namespace nc::tier
