// The planner against real traces: the known optimum, powers of two, plans learned on a part.
#include <gtest/gtest.h>

#include "bucketing/planner/joint_plan.hpp"
#include "tests/unit/bucketing/planner/test_sizes.hpp"

namespace nc::buckets {
namespace {

using test::Trace;

struct Known {
  const char* name;
  Size tile;
  // Waste in per cent of the optimum with 8 and with 16 buckets, linear and quadratic; 0: so many
  // buckets do not exist.
  double linear8, quadratic8, linear16, quadratic16;
  double powers_linear, powers_quadratic;  // of the powers of two, and how many are used
  std::size_t powers;
  bool halves_linear, halves_quadratic;  // 8 buckets waste at most half of what the powers do
  bool learns_below_powers;
};

constexpr Known kKnown[] = {
    {"azure23-code", 128, 18.6, 22.6, 9.0, 11.0, 38.3, 80.3, 7, true, true, true},
    {"azure23-conv", 128, 16.0, 25.7, 8.5, 11.2, 43.7, 97.8, 8, true, true, true},
    {"mooncake-conv", 128, 30.2, 46.0, 13.6, 19.9, 43.3, 106.3, 8, false, true, true},
    {"mooncake-synth", 128, 23.9, 33.7, 10.0, 12.7, 47.5, 121.7, 12, false, true, true},
    {"arxiv-summ", 128, 9.1, 14.5, 4.7, 7.3, 33.1, 73.0, 6, true, true, true},
    {"servegen-r1", 128, 48.4, 53.9, 21.0, 21.2, 44.4, 104.8, 10, false, false, false},
    {"servegen-msmall", 128, 97.1, 169.2, 78.4, 57.1, 97.4, 126.6, 12, false, false, false},
    {"servegen-image", 128, 10.8, 14.5, 0, 0, 59.3, 168.0, 5, true, true, true},
    {"librispeech-dev", 128, 18.4, 34.9, 9.6, 16.4, 43.1, 112.9, 5, true, true, true},
    {"opennmt-ende", 8, 13.7, 26.0, 0, 0, 41.6, 108.0, 5, true, true, true},
};

class Traces : public testing::TestWithParam<Known> {};
INSTANTIATE_TEST_SUITE_P(All, Traces, testing::ValuesIn(kKnown), [](const auto& one) {
  std::string name = one.param.name;
  std::erase(name, '-');
  return name;
});

std::size_t used(const std::vector<Size>& buckets, const SizeCounts& sizes) {
  std::size_t count = 0;
  auto at = sizes.begin();
  for (const Size bucket : buckets) {
    const auto begin = at;
    while (at != sizes.end() && at->size <= bucket) ++at;
    if (at != begin) ++count;
  }
  return count;
}

double best(const SizeCounts& sizes, Size tile, const CostModel& cost, std::uint32_t k) {
  const auto candidates = test::candidates(sizes, tile, cost);
  const BestByCount found(candidates, {}, k);
  return test::waste(test::ends(candidates, found.choice(found.most())), sizes, cost);
}

// Learned on the first part, with the largest size of all as the declared maximum.
std::vector<Size> learned(const Trace& trace, Size tile, const CostModel& cost, std::uint32_t k) {
  auto candidates = test::candidates(trace.first, tile, cost);
  const Size top = *Axis{tile, tile, 0}.up(trace.all.back().size);
  if (candidates.back().end != top) candidates.push_back({top, false, 0, cost.at(top)});
  const BestByCount found(candidates, {}, k);
  return test::ends(candidates, found.choice(found.most()));
}

constexpr double kRounding = 0.051;  // the table has one decimal

TEST_P(Traces, TheOptimumIsTheKnownOne) {
  const Known& known = GetParam();
  const Trace trace = test::read_trace(known.name);
  const auto linear = CostModel::linear();
  const auto quadratic = CostModel::quadratic();
  EXPECT_NEAR(best(trace.all, known.tile, linear, 8), known.linear8, kRounding);
  EXPECT_NEAR(best(trace.all, known.tile, quadratic, 8), known.quadratic8, kRounding);
  if (known.linear16 == 0) return;
  EXPECT_NEAR(best(trace.all, known.tile, linear, 16), known.linear16, kRounding);
  EXPECT_NEAR(best(trace.all, known.tile, quadratic, 16), known.quadratic16, kRounding);
}

TEST_P(Traces, WasteIsHalfOfThatOfPowersOfTwo) {
  const Known& known = GetParam();
  const Trace trace = test::read_trace(known.name);
  const auto powers = powers_of_two(known.tile, trace.all.back().size);
  EXPECT_EQ(used(powers, trace.all), known.powers);
  const double linear = test::waste(powers, trace.all, CostModel::linear());
  const double quadratic = test::waste(powers, trace.all, CostModel::quadratic());
  EXPECT_NEAR(linear, known.powers_linear, kRounding);
  EXPECT_NEAR(quadratic, known.powers_quadratic, kRounding);
  const double ours = best(trace.all, known.tile, CostModel::linear(), 8);
  const double ours_quadratic = best(trace.all, known.tile, CostModel::quadratic(), 8);
  if (known.halves_linear) {
    EXPECT_LE(ours, linear / 2);
  }
  if (known.halves_quadratic) {
    EXPECT_LE(ours_quadratic, quadratic / 2);
  }
  // With as many buckets as there are powers of two there is no better plan, hence never a worse.
  const auto count = static_cast<std::uint32_t>(powers.size());
  EXPECT_LE(best(trace.all, known.tile, CostModel::linear(), count), linear);
  EXPECT_LE(best(trace.all, known.tile, CostModel::quadratic(), count), quadratic);
}

TEST_P(Traces, ATenthOfTheTraceIsEnoughToPlan) {
  const Known& known = GetParam();
  const bool floor_bound = std::string_view(known.name) == "servegen-msmall";
  const Size tile = floor_bound ? 16 : known.tile;
  const Trace trace = test::read_trace(known.name);
  const auto linear = CostModel::linear();
  const double powers = test::waste(powers_of_two(tile, trace.all.back().size), trace.rest, linear);
  for (const std::uint32_t k : {8U, 16U}) {
    const double ours = test::waste(learned(trace, tile, linear, k), trace.rest, linear);
    const double bound = floor_bound ? 20 : 10;
    EXPECT_LE(ours, best(trace.rest, tile, linear, k) + bound) << k;
    if (known.learns_below_powers || k >= known.powers) {
      EXPECT_LE(ours, powers) << k;
    }
  }
}

// Rectangles for images, against the known waste of greedy plans.
TEST(JointTrace, FreeRectanglesWasteWhatTheyShould) {
  std::vector<PairHistogram::Cell> cells;
  SizeCounts widths;
  SizeCounts heights;
  for (const auto& row : test::read_numbers("coco2014")) {
    cells.push_back({{static_cast<Size>(row.at(0)), static_cast<Size>(row.at(1))}, row.at(2)});
    widths.push_back({static_cast<Size>(row.at(0)), 1});
    heights.push_back({static_cast<Size>(row.at(1)), 1});
  }
  const auto sides = [](SizeCounts& counts) {
    normalise(counts);
    std::vector<Size> out;
    for (const SizeCount& one : counts) out.push_back(one.size);
    return out;
  };
  const auto first = sides(widths);
  const auto second = sides(heights);
  constexpr double kPixels = 32'355'194'908.0;
  constexpr std::pair<std::size_t, double> kWaste[] = {{1, 48.4}, {2, 22.9}, {4, 11.5},
                                                       {8, 6.1},  {16, 4.1}, {32, 3.4}};
  for (const auto& [count, waste] : kWaste) {
    const Rectangles rectangles = plan_joint(cells, first, second, 0, count);
    EXPECT_LE(rectangles.size(), count);
    const auto padded = static_cast<double>(joint_cost(rectangles, cells, 0));
    EXPECT_NEAR((padded / kPixels - 1) * 100, waste, 0.2) << count;
  }
}

TEST(JointPlan, EveryRectangleRepaysItsPrice) {
  test::Dice dice(10);
  std::vector<PairHistogram::Cell> cells;
  std::vector<Size> sides;
  for (Size side = 8; side <= 128; side += 8) sides.push_back(side);
  for (const Size a : sides) {
    for (const Size b : sides) {
      if (dice.below(3) == 0) cells.push_back({{a, b}, dice.between(1, 1000)});
    }
  }
  cells.push_back({{128, 128}, 1});
  std::sort(cells.begin(), cells.end());
  cells.erase(std::unique(cells.begin(), cells.end(),
                          [](const auto& a, const auto& b) { return a.key == b.key; }),
              cells.end());
  const Wide price = 2'000'000;
  const Rectangles plan = plan_joint(cells, sides, sides, price, 64);
  ASSERT_GT(plan.size(), 2U);
  for (const auto& cell : cells) ASSERT_TRUE(covering(plan, cell.key));
  const Wide cost = joint_cost(plan, cells, price);
  for (std::size_t i = 0; i < plan.size(); ++i) {
    if (plan[i] == Pair{128, 128}) continue;
    Rectangles without = plan;
    without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_TRUE(joint_cost(without, cells, price) > cost);
  }
  EXPECT_EQ(plan_joint(cells, sides, sides, price * 100'000, 64).size(), 1U);
  EXPECT_EQ(plan_joint(cells, sides, sides, 0, 5).size(), 5U);
}

}  // namespace
}  // namespace nc::buckets
