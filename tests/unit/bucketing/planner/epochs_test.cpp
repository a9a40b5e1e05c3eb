#include "bucketing/planner/epochs.hpp"

#include <gtest/gtest.h>

#include "tests/unit/bucketing/planner/test_sizes.hpp"

namespace nc::buckets {
namespace {

using test::Dice;

Plan sample() {
  Plan plan;
  plan.program = Sha256::of(as_bytes("program"));
  plan.epoch = 3;
  plan.families = {{"batch", {1, 1, 64}, {8, 32}, 3, 2, true},
                   {"frames of L['x']", {1, 1, 0}, {}, 2, 1, false},
                   {"seq", {128, 128, 0}, {128, 512, 4096}, 3, 2, true}};
  plan.joints = {{0, 2, {{8, 128}, {4, 512}, {32, 4096}}}};
  return plan;
}

TEST(Epochs, TheTextIsTheGrammar) {
  const Plan plan = sample();
  EXPECT_EQ(plan.text(),
            "neuroncache-plan 1\n"
            "program " +
                plan.program.hex() +
                "\n"
                "epoch 3\n"
                "family tile 1 floor 1 max 64 ratio 3/2 varies 1 buckets 8,32 name batch\n"
                "family tile 1 floor 1 max - ratio 2/1 varies 0 buckets - name frames of L['x']\n"
                "family tile 128 floor 128 max - ratio 3/2 varies 1 buckets 128,512,4096 name seq\n"
                "joint 0 2 buckets 8x128,4x512,32x4096\n");
  EXPECT_EQ(plan.digest(), Sha256::of(as_bytes(plan.text())));
  const auto read = Plan::parse(plan.text());
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, plan);
}

TEST(Epochs, JointsComeFirst) {
  const Plan plan = sample();
  const auto buckets = [&](Size batch, Size frames, Size seq) {
    const std::array sizes{batch, frames, seq};
    return plan.buckets(sizes);
  };
  using Row = std::vector<std::optional<Size>>;
  EXPECT_EQ(buckets(1, 1, 1), (Row{8, 1, 128}));  // both cover; the first has the least product
  EXPECT_EQ(buckets(2, 3, 200), (Row{4, 4, 512}));
  EXPECT_EQ(buckets(9, 2, 100), (Row{32, 2, 4096}));
  EXPECT_EQ(buckets(9, 2, 5000), (Row{32, 2, 6144}));  // none covers: each its own way
  EXPECT_EQ(buckets(65, 2, 100), (Row{std::nullopt, 2, 128}));
  EXPECT_EQ(plan.artifacts(), 3U);
}

TEST(Epochs, AnyPlanReadsBack) {
  Dice dice(13);
  for (int round = 0; round < 200; ++round) {
    Plan plan;
    plan.program = Sha256::of(as_bytes(std::to_string(round)));
    plan.epoch = dice.below(1'000'000);
    const std::size_t count = dice.below(6);
    for (std::size_t i = 0; i < count; ++i) {
      FamilyPlan family;
      family.family = "f" + std::to_string(i);
      family.axis = {static_cast<Size>(dice.between(1, 128)), 1, 0};
      for (const SizeCount& one : dice.sizes(dice.below(9), kMaxSize, 1)) {
        family.buckets.push_back(one.size);
      }
      family.varies = dice.below(2) == 0;
      plan.families.push_back(std::move(family));
    }
    if (count >= 2) {
      JointPlan joint{0, 1, {}};
      for (int i = 0; i < 5; ++i) {
        joint.buckets.push_back(
            {static_cast<Size>(dice.between(1, 99)), static_cast<Size>(dice.between(1, 99))});
      }
      sort_rectangles(joint.buckets);
      plan.joints = {joint};
    }
    const auto read = Plan::parse(plan.text());
    ASSERT_TRUE(read.ok()) << plan.text();
    ASSERT_EQ(*read, plan);
  }
}

TEST(Epochs, OtherTextsAreRefused) {
  const std::string good = sample().text();
  const auto changed = [&](std::string_view from, std::string_view to) {
    std::string text = good;
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  const std::string bad[] = {
      "",
      changed("plan 1", "plan 2"),
      changed("epoch 3", "epoch 03"),
      changed("epoch 3", "epoch -3"),
      changed("tile 128", "tile 0"),
      changed("512,4096", "512,512"),
      changed("512,4096", "512,3000000000"),
      changed("ratio 3/2", "ratio 2/2"),
      changed("varies 1", "varies 2"),
      changed("max 64", "max 30"),
      changed("name batch", "name zoo"),
      changed("name batch", "name seq"),
      changed("name batch", "name "),
      changed("joint 0 2", "joint 2 0"),
      changed("joint 0 2", "joint 0 3"),
      changed("8x128,4x512", "4x512,8x128"),
      changed("8x128", "8x0"),
      good + "joint 1 2 buckets 1x1\n",
      good + "x",
      good.substr(0, good.size() - 1),
  };
  for (const std::string& text : bad) EXPECT_TRUE(Plan::parse(text).is(Code::kInvalid)) << text;
}

}  // namespace
}  // namespace nc::buckets
