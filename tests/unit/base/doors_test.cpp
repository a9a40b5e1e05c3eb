// Clock and randomness.
#include <set>

#include <gtest/gtest.h>

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/random.hpp"

namespace nc {
namespace {

TEST(Clock, TheFakeGoesWhereItIsPut) {
  FakeClock clock(1000);
  clock.advance(50);
  EXPECT_EQ(clock.wall_ms(), 1050);
  EXPECT_EQ(clock.monotonic_ms(), 50);
  clock.jump_wall(-500);
  EXPECT_EQ(clock.wall_ms(), 550);
  EXPECT_EQ(clock.monotonic_ms(), 50);
}

TEST(Clock, TheRealOneIsInMilliseconds) {
  EXPECT_GT(system_clock().wall_ms(), 1'600'000'000'000);
  EXPECT_LT(system_clock().wall_ms(), 16'000'000'000'000);
  const Millis before = system_clock().monotonic_ms();
  EXPECT_GE(system_clock().monotonic_ms(), before);
}

TEST(Random, IdsAreHexAndDiffer) {
  std::set<std::string> ids;
  for (int i = 0; i < 100; ++i) ids.insert(system_random().hex_id());
  EXPECT_EQ(ids.size(), 100U);
  for (const std::string& id : ids) EXPECT_TRUE(is_hex(id, 32)) << id;
}

TEST(Random, TheFakeCounts) {
  FakeRandom random;
  EXPECT_EQ(random.next(), 1U);
  EXPECT_EQ(random.hex_id(), "02000000000000000300000000000000");
}

}  // namespace
}  // namespace nc
