#include "client/cli/rebuild_plan.hpp"

#include <gtest/gtest.h>

namespace nc::cli {
namespace {

TEST(Shards, EachKeyIsInOne) {
  for (const std::uint64_t count : {1U, 3U, 8U}) {
    for (int i = 0; i < 200; ++i) {
      const ActionKey key = Digest::of(as_bytes(std::to_string(i)));
      int in = 0;
      for (std::uint64_t index = 1; index <= count; ++index) in += Shard{index, count}.has(key);
      EXPECT_EQ(in, 1);
    }
  }
}

TEST(Shards, AsTheyAreWritten) {
  const auto shard = parse_shard("2/8");
  ASSERT_TRUE(shard.ok());
  EXPECT_EQ(shard->index, 2U);
  EXPECT_EQ(shard->count, 8U);
  EXPECT_TRUE(parse_shard("1/1").ok());
  for (const char* bad : {"", "1", "0/3", "4/3", "a/b", "1/0", "1/3x", "1 /3", "-1/3", "1/"})
    EXPECT_FALSE(parse_shard(bad).ok()) << bad;
}

TEST(Costs, OfWhatIsMissingOnly) {
  std::vector<RebuildItem> items(4);
  items[0].there = true;
  items[0].seconds = 100;
  items[1].seconds = 5;
  items[2].seconds = 7;
  items[2].guessed = true;
  items[3].obstacle = "no compiler";
  items[3].seconds = 9;
  RebuildCost cost = cost_of(items);
  EXPECT_EQ(cost.there, 1U);
  EXPECT_EQ(cost.missing, 2U);
  EXPECT_EQ(cost.blocked, 1U);
  EXPECT_EQ(cost.guessed, 1U);
  EXPECT_EQ(cost.seconds, 12);
  items[1].seconds = 0;
  cost = cost_of(items);
  EXPECT_EQ(cost.unknown, 1U);
}

}  // namespace
}  // namespace nc::cli
