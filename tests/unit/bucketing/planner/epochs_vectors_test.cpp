// tests/data/epochs.jsonl: plans with sizes and their buckets, which the map in Python must give as
// well (tests/torch/test_epochs.py). One plan a line. NC_WRITE_DATA=1 writes it anew.
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "bucketing/planner/epochs.hpp"
#include "tests/unit/bucketing/planner/test_sizes.hpp"

namespace nc::buckets {
namespace {

using test::Dice;

constexpr const char* kFile = NC_SOURCE_DIR "/tests/data/epochs.jsonl";

FamilyPlan random_family(Dice& dice, std::string name) {
  FamilyPlan plan;
  plan.family = std::move(name);
  plan.axis.tile = static_cast<Size>(dice.below(2) == 0 ? 1 : dice.between(1, 128));
  plan.axis.floor = plan.axis.tile * static_cast<Size>(dice.between(1, 3));
  if (dice.below(3) == 0) {
    plan.axis.max = plan.axis.floor + static_cast<Size>(dice.between(0, 5000));
  }
  // One draw per statement: compilers evaluate a call's arguments in different orders.
  const Size longest = dice.below(2) == 0 ? 500 : 60'000;
  const auto count = dice.below(10);
  SizeCounts ends = dice.sizes(count, longest, 1);
  for (const SizeCount& one : ends) {
    const auto end = plan.axis.up(one.size);
    if (end && (plan.buckets.empty() || *end > plan.buckets.back())) plan.buckets.push_back(*end);
  }
  constexpr std::pair<Size, Size> kRatios[] = {{3, 2}, {2, 1}, {5, 4}, {9, 7}};
  std::tie(plan.num, plan.den) = kRatios[dice.below(4)];
  plan.varies = dice.below(4) != 0;
  return plan;
}

Plan random_plan(Dice& dice, int number) {
  Plan plan;
  plan.program = Sha256::of(as_bytes(std::to_string(number)));
  plan.epoch = dice.between(1, 1000);
  for (const char* name : {"B", "a b", "s\xc3\xa9q"}) {
    if (dice.below(3) != 0) plan.families.push_back(random_family(dice, name));
  }
  if (plan.families.size() >= 2 && dice.below(2) == 0) {
    JointPlan joint{0, 1, {}};
    for (int i = 0; i < 6; ++i) {
      joint.buckets.push_back(
          {static_cast<Size>(dice.between(1, 300)), static_cast<Size>(dice.between(1, 300))});
    }
    sort_rectangles(joint.buckets);
    plan.joints.push_back(std::move(joint));
  }
  return plan;
}

std::string vectors() {
  Dice dice(16);
  std::string out;
  for (int number = 0; number < 30; ++number) {
    const Plan plan = random_plan(dice, number);
    EXPECT_TRUE(Plan::parse(plan.text()).ok()) << plan.text();
    std::string lines = plan.text();
    for (std::size_t at = 0; (at = lines.find('\n', at)) != std::string::npos; at += 2) {
      lines.replace(at, 1, "\\n");
    }
    out += fmt::format(R"({{"text":"{}","digest":"{}","maps":[)", lines, plan.digest().hex());
    for (int i = 0; i < 60; ++i) {
      std::vector<Size> sizes;
      for (std::size_t f = 0; f < plan.families.size(); ++f) {
        const Size most = i % 3 == 0 ? 300 : i % 3 == 1 ? 10'000 : 300'000;
        sizes.push_back(static_cast<Size>(i == 0 ? 0 : i == 1 ? 1 : dice.below(most)));
      }
      std::string buckets;
      for (const auto& bucket : plan.buckets(sizes)) {
        buckets += (buckets.empty() ? "" : ",") + (bucket ? std::to_string(*bucket) : "null");
      }
      out += fmt::format("{}[[{}],[{}]]", i == 0 ? "" : ",", fmt::join(sizes, ","), buckets);
    }
    out += "]}\n";
  }
  return out;
}

TEST(EpochsVectors, AreThoseInTheFile) {
  const std::string now = vectors();
  if (std::getenv("NC_WRITE_DATA") != nullptr) std::ofstream(kFile) << now;
  std::ifstream file(kFile);
  std::stringstream kept;
  kept << file.rdbuf();
  EXPECT_EQ(kept.str(), now)
      << "when the map has changed: NC_WRITE_DATA=1 and look at the difference";
}

}  // namespace
}  // namespace nc::buckets
