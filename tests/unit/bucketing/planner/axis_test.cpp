#include "bucketing/planner/axis.hpp"

#include <gtest/gtest.h>

#include "bucketing/planner/cost.hpp"
#include "bucketing/planner/family_plan.hpp"
#include "tests/unit/bucketing/planner/test_sizes.hpp"

namespace nc::buckets {
namespace {

using test::Dice;

TEST(Axis, RoundsUpToTheTileWithinFloorAndMax) {
  const Axis axis{128, 256, 317};
  EXPECT_EQ(axis.up(0), 256U);
  EXPECT_EQ(axis.up(1), 256U);
  EXPECT_EQ(axis.up(256), 256U);
  EXPECT_EQ(axis.up(257), 317U);  // the max itself, never more
  EXPECT_EQ(axis.up(317), 317U);
  EXPECT_EQ(axis.up(318), std::nullopt);
  EXPECT_TRUE(axis.has(317));
  EXPECT_FALSE(axis.has(300));
  EXPECT_FALSE(axis.has(128));
}

TEST(Ladder, PointsRiseAndCover) {
  Dice dice(9);
  for (int round = 0; round < 500; ++round) {
    Ladder ladder;
    ladder.tile = static_cast<Size>(dice.between(1, 300));
    ladder.base = static_cast<Size>(dice.between(1, 3000));
    ladder.den = static_cast<Size>(dice.between(1, 10));
    ladder.num = ladder.den + static_cast<Size>(dice.between(1, 10));
    if (dice.below(2) == 0) ladder.max = ladder.base + static_cast<Size>(dice.below(5000));
    const Size top = static_cast<Size>(dice.between(1, 20'000));
    const auto points = ladder.up_to(top);
    ASSERT_EQ(points.front(), ladder.base);
    for (std::size_t i = 1; i < points.size(); ++i) ASSERT_GT(points[i], points[i - 1]);
    if (ladder.max != 0) {
      ASSERT_LE(points.back(), ladder.max);
    }
    const auto n = static_cast<Size>(dice.between(0, points.back()));
    const auto found = ladder.find(n);
    ASSERT_EQ(found, *std::lower_bound(points.begin(), points.end(), n));
    for (const Size point : points) ASSERT_EQ(ladder.find(point), point);
  }
}

TEST(Ladder, EndsAtTheLargestSize) {
  const Ladder ladder{kMaxSize - 1, 3, 2, 128, 0};
  EXPECT_EQ(ladder.find(kMaxSize), kMaxSize);
  EXPECT_EQ(ladder.find(kMaxSize + 1), std::nullopt);
  EXPECT_EQ((Ladder{4, 2, 1, 1, 8}.find(9)), std::nullopt);
}

TEST(PowersOfTwo, BeginAtTheTile) {
  EXPECT_EQ(powers_of_two(128, 1000), (std::vector<Size>{128, 256, 512, 1024}));
  EXPECT_EQ(powers_of_two(1, 4), (std::vector<Size>{1, 2, 4}));
  EXPECT_EQ(powers_of_two(100, 100), (std::vector<Size>{128}));
}

TEST(FamilyPlan, EveryBucketIsItsOwn) {
  FamilyPlan plan{"seq", {128, 128, 0}, {128, 512, 640}, 3, 2, true};
  for (const Size bucket : plan.buckets) EXPECT_EQ(plan.bucket(bucket), bucket);
  EXPECT_EQ(plan.bucket(0), 128U);
  EXPECT_EQ(plan.bucket(129), 512U);
  EXPECT_EQ(plan.bucket(641), 1024U);  // 640 x 3/2 = 960, up to the tile
  EXPECT_EQ(plan.bucket(1025), 1536U);
}

// An odd maximum: every size gets a bucket that is no larger than it.
TEST(FamilyPlan, NoBucketExceedsTheMax) {
  for (const Size max : {Size{317}, Size{528}, Size{131'072}, Size{100}}) {
    const FamilyPlan plan{"seq", {128, 128, max}, {}, 3, 2, true};
    for (Size n = 0; n <= max; n += max > 1000 ? 97 : 1) {
      const auto bucket = plan.bucket(n);
      ASSERT_TRUE(bucket && *bucket >= n && *bucket <= max) << n;
    }
    EXPECT_EQ(plan.bucket(max), max);
    EXPECT_EQ(plan.bucket(max + 1), std::nullopt);
  }
}

TEST(FamilyName, IsPrintable) {
  EXPECT_TRUE(is_family_name("L['x'].size()[1]"));
  EXPECT_FALSE(is_family_name(""));
  EXPECT_FALSE(is_family_name("a\nb"));
  EXPECT_FALSE(is_family_name(std::string(129, 'a')));
  EXPECT_FALSE(is_family_name("\xff"));
}

TEST(CostModel, NeverFalls) {
  const CostModel models[] = {
      CostModel::linear(), CostModel::quadratic(), CostModel::mixed(4096),
      CostModel::measured({{128, 10}, {512, 9}, {1024, 40}, {2048, 41}}).value()};
  for (const CostModel& model : models) {
    std::uint64_t before = 0;
    for (Size n = 1; n < 5000; ++n) {
      ASSERT_GE(model.at(n), before) << n;
      before = model.at(n);
    }
    ASSERT_LT(model.at(kMaxSize), 1ULL << 63);
  }
}

TEST(CostModel, InterpolatesWhatWasMeasured) {
  const auto model = CostModel::measured({{1024, 40}, {128, 10}, {512, 9}}).value();
  EXPECT_EQ(model.at(1), 10U);
  EXPECT_EQ(model.at(128), 10U);
  EXPECT_EQ(model.at(512), 10U);  // a larger size was not slower
  EXPECT_EQ(model.at(768), 25U);
  EXPECT_EQ(model.at(1024), 40U);
  EXPECT_EQ(model.at(2048), 80U);
  EXPECT_TRUE(CostModel::measured({}).is(Code::kInvalid));
  EXPECT_TRUE(CostModel::measured({{0, 1}}).is(Code::kInvalid));
  EXPECT_TRUE(CostModel::measured({{5, 1}, {5, 2}}).is(Code::kInvalid));
  EXPECT_TRUE(CostModel::measured({{5, 1ULL << 50}}).is(Code::kInvalid));
}

}  // namespace
}  // namespace nc::buckets
