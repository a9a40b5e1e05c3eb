#include "bucketing/planner/program_plan.hpp"

#include <utility>

#include <gtest/gtest.h>

#include "tests/unit/bucketing/planner/test_sizes.hpp"

namespace nc::buckets {
namespace {

using test::Dice;

FamilyAsk family(std::string name, const SizeCounts& sizes, const Axis& axis = {8, 8, 0}) {
  SizeHistogram histogram;
  histogram.add(1, to_cells(sizes));
  return {std::move(name), axis, History::of(histogram), {}, {}};
}

ProgramAsk three_families(Dice& dice) {
  ProgramAsk ask;
  for (const char* name : {"a", "b", "c"})
    ask.families.push_back(family(name, dice.sizes(300, 900, 9)));
  ask.limits.max_buckets = 10;
  return ask;
}

// Three axes of ten buckets would be 1,000 artifacts.
TEST(ProgramPlan, ArtifactsOfAllFamiliesTogetherAreBounded) {
  Dice dice(14);
  ProgramAsk ask = three_families(dice);
  ask.max_artifacts = 1'000'000;
  EXPECT_GT(plan_program(ask).plan.artifacts(), 200U);
  for (const std::uint64_t most : {200U, 27U, 4U, 1U}) {
    ask.max_artifacts = most;
    const auto planned = plan_program(ask);
    EXPECT_LE(planned.plan.artifacts(), most);
    EXPECT_TRUE(Plan::parse(planned.plan.text()).ok());
  }
}

TEST(ProgramPlan, FixedFamiliesStay) {
  Dice dice(15);
  ProgramAsk ask = three_families(dice);
  ask.families[1].fixed = FamilyPlan{"b", {8, 8, 0}, {64, 72, 80}, 2, 1, true};
  ask.max_artifacts = 3;
  const auto planned = plan_program(ask);
  EXPECT_EQ(planned.plan.families[1], *ask.families[1].fixed);
  EXPECT_LE(planned.plan.artifacts(), 3U);
}

// Batches of a fixed number of tokens: long ones are small. Rectangles follow the hyperbola.
ProgramAsk hyperbola() {
  SizeCounts batches;
  SizeCounts lengths;
  JointAsk joint{"batch", "length", {}};
  for (Size length = 16; length <= 1024; length += 16) {
    const Size batch = 4096 / length;
    batches.push_back({batch, 10});
    lengths.push_back({length, 10});
    joint.cells.push_back({{batch, length}, 10 * PairHistogram::kUnit});
  }
  normalise(batches);
  normalise(lengths);
  std::sort(joint.cells.begin(), joint.cells.end());
  ProgramAsk ask;
  ask.families = {family("batch", batches, {1, 1, 0}), family("length", lengths, {16, 16, 0})};
  ask.joints = {joint};
  ask.limits.max_buckets = 4;
  return ask;
}

TEST(ProgramPlan, DependentSizesAreServedByRectangles) {
  ProgramAsk ask = hyperbola();
  const Plan together = plan_program(ask).plan;
  ASSERT_EQ(together.joints.size(), 1U);
  EXPECT_LE(together.artifacts(), 16U);
  const auto cells = std::exchange(ask.joints, {})[0].cells;
  const Plan alone = plan_program(ask).plan;
  const auto padded = [&](const Plan& plan) {
    double sum = 0;
    for (const auto& cell : cells) {
      const auto buckets = plan.buckets(cell.key);
      EXPECT_TRUE(buckets[0] >= cell.key[0] && buckets[1] >= cell.key[1]);
      sum += static_cast<double>(buckets[0].value_or(0)) * buckets[1].value_or(0);
    }
    return sum;
  };
  EXPECT_LT(padded(together), 0.8 * padded(alone));
}

TEST(ProgramPlan, TheOrderOfAPairDoesNotMatter) {
  const ProgramAsk ask = hyperbola();
  ProgramAsk turned = ask;
  JointAsk& joint = turned.joints[0];
  std::swap(joint.first, joint.second);
  for (auto& cell : joint.cells) std::swap(cell.key[0], cell.key[1]);
  std::sort(joint.cells.begin(), joint.cells.end());
  const Plan plan = plan_program(turned).plan;
  ASSERT_EQ(plan.joints.size(), 1U);
  EXPECT_TRUE(Plan::parse(plan.text()).ok());
  for (const auto& cell : ask.joints[0].cells) EXPECT_TRUE(plan.buckets(cell.key)[0]);
}

TEST(ProgramPlan, IndependentSizesKeepTheirOwnBuckets) {
  SizeCounts sizes{{64, 100}, {128, 100}};
  JointAsk joint{"a", "b", {}};
  for (const Size a : {64U, 128U}) {
    for (const Size b : {64U, 128U}) joint.cells.push_back({{a, b}, 50});
  }
  ProgramAsk ask;
  ask.families = {family("a", sizes), family("b", sizes)};
  ask.joints = {joint};
  EXPECT_TRUE(plan_program(ask).plan.joints.empty());
}

}  // namespace
}  // namespace nc::buckets
