// Planning again and again while a trace goes by: what padding and compiling cost together, beside
// powers of two and a plan that is learned once.
#include <set>

#include <gtest/gtest.h>

#include "bucketing/planner/planner.hpp"
#include "tests/unit/bucketing/planner/test_sizes.hpp"

namespace nc::buckets {
namespace {

constexpr std::size_t kWindows = 20;

struct Known {
  const char* name;
  double price;  // of an artifact, as a share of all lengths of the trace
  // Known overheads in per cent.
  double powers, learn_once;
};
constexpr Known kKnown[] = {
    {"azure23-conv", 0.0001, 43.8, 19.7},  {"azure23-conv", 0.001, 44.5, 21.0},
    {"azure23-conv", 0.01, 51.7, 33.6},    {"azure23-code", 0.0001, 38.4, 15.3},
    {"azure23-code", 0.001, 39.0, 16.8},   {"azure23-code", 0.01, 45.3, 31.2},
    {"mooncake-conv", 0.0001, 43.4, 23.4}, {"mooncake-conv", 0.001, 44.4, 25.4},
    {"mooncake-conv", 0.01, 54.3, 45.2},
};

class Replanning : public testing::TestWithParam<Known> {};
INSTANTIATE_TEST_SUITE_P(All, Replanning, testing::ValuesIn(kKnown));

TEST_P(Replanning, CostsNoMoreThanPowersOfTwoOrLearningOnce) {
  const Known& known = GetParam();
  const auto rows = test::read_numbers(std::string(known.name) + ".windows");
  double real = 0;
  for (std::size_t w = 0; w < kWindows; ++w) real += static_cast<double>(rows[0].at(w + 1));
  const double price = known.price * real;

  const Axis axis{128, 128, 0};
  FamilyPlan plan{"seq", axis, powers_of_two(128, static_cast<Size>(rows.back()[0])), 3, 2, true};
  std::set<Size> built(plan.buckets.begin(), plan.buckets.end());
  SizeHistogram histogram;
  double padded = 0;
  int changes = 0;
  for (std::uint32_t w = 0; w < kWindows; ++w) {
    if (w > 0) {
      // The planner sets prices as shares of a history, which stands for what is to come: here
      // eight windows, as in the known figures.
      const double share = known.price * kWindows / 8;
      const auto compile_ms = static_cast<std::uint64_t>(share * 1000 * 60'000);
      const Planned planned = plan_family("seq", History::of(histogram), axis, CostModel::linear(),
                                          {256, {}}, {compile_ms, 0}, &plan);
      if (!planned.kept) {
        ++changes;
        plan = planned.plan;
        built.insert(plan.buckets.begin(), plan.buckets.end());
      }
    }
    SizeCounts window;
    for (std::size_t r = 1; r < rows.size(); ++r) {
      const std::uint64_t count = rows[r].at(w + 1);
      if (count == 0) continue;
      const auto size = static_cast<Size>(rows[r][0]);
      window.push_back({size, count});
      const Size bucket = *plan.bucket(size);
      built.insert(bucket);
      padded += static_cast<double>(bucket) * static_cast<double>(count);
    }
    histogram.add(w, to_cells(window));
  }
  const double overhead = ((padded + price * static_cast<double>(built.size())) / real - 1) * 100;
  RecordProperty("overhead", std::to_string(overhead));
  EXPECT_LE(overhead, std::min(known.powers, known.learn_once)) << built.size() << " built";
  EXPECT_LE(changes, 5);
  EXPECT_GE(changes, 1);
}

}  // namespace
}  // namespace nc::buckets
