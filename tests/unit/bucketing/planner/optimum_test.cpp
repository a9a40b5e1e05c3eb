#include "bucketing/planner/optimum.hpp"

#include <gtest/gtest.h>

#include "bucketing/planner/line_envelope.hpp"
#include "tests/unit/bucketing/planner/test_sizes.hpp"

namespace nc::buckets {
namespace {

using test::Dice;

// O(K n^2), by the definition: best[k][j] of the first j candidates with exactly k buckets.
std::vector<Wide> brute_force(const std::vector<Candidate>& candidates, const Prices& prices,
                              std::size_t most) {
  const std::size_t n = candidates.size();
  std::vector<std::uint64_t> sums(n + 1, 0);
  for (std::size_t i = 0; i < n; ++i) sums[i + 1] = sums[i] + candidates[i].weight;
  constexpr Wide kNever = static_cast<Wide>(1) << 126;
  std::vector<Wide> best(n + 1, kNever);
  best[0] = 0;
  std::vector<Wide> out;
  for (std::size_t k = 1; k <= std::min(most, n); ++k) {
    std::vector<Wide> next(n + 1, kNever);
    for (std::size_t j = 1; j <= n; ++j) {
      const Candidate& last = candidates[j - 1];
      for (std::size_t i = 0; i < j; ++i) {
        if (best[i] == kNever) continue;
        const Wide cost = static_cast<Wide>(last.cost) * (sums[j] - sums[i]);
        next[j] = std::min(next[j], best[i] + cost + prices.of(last));
      }
    }
    best = next;
    out.push_back(best[n]);
  }
  return out;
}

Wide sum_of(const std::vector<Candidate>& candidates, const Prices& prices, const Choice& choice) {
  Wide sum = choice.cost;
  for (const std::uint32_t pick : choice.picks) sum += prices.of(candidates[pick]);
  return sum;
}

CostModel cost_of(std::uint64_t which) {
  switch (which % 4) {
    case 0:
      return CostModel::linear();
    case 1:
      return CostModel::quadratic();
    case 2:
      return CostModel::mixed(24'576);
    default:
      return CostModel::measured({{1, 50}, {40, 50}, {100, 90}, {300, 80}, {400, 1000}}).value();
  }
}

struct Instance {
  std::vector<Candidate> candidates;
  Prices prices;
};

Instance random_instance(Dice& dice) {
  Instance out;
  const CostModel cost = cost_of(dice.below(4));
  const Size most = dice.below(2) == 0 ? 60 : 500'000;
  const auto sizes = dice.sizes(dice.between(1, 40), most, dice.below(2) == 0 ? 3 : 1'000'000);
  out.candidates = test::candidates(sizes, dice.below(2) == 0 ? 1 : 8, cost);
  for (Candidate& one : out.candidates) {
    one.resident = dice.below(4) == 0;
    if (dice.below(8) == 0) one.weight = 0;
  }
  Wide total = 0;
  for (const Candidate& one : out.candidates) total += static_cast<Wide>(one.cost) * one.weight;
  const auto share = static_cast<Wide>(dice.between(10, 2000));
  if (dice.below(3) != 0) out.prices = {total / share, total / share / 50};
  return out;
}

TEST(Optimum, IsTheBruteForceOptimum) {
  Dice dice(1);
  for (int round = 0; round < 400; ++round) {
    const auto [candidates, prices] = random_instance(dice);
    constexpr std::uint32_t kMost = 10;
    const auto expected = brute_force(candidates, prices, kMost);
    const BestByCount found(candidates, prices, kMost);
    ASSERT_EQ(found.most(), expected.size());
    for (std::uint32_t k = 1; k <= found.most(); ++k) {
      ASSERT_TRUE(found.sum(k) == expected[k - 1]) << "round " << round << ", k " << k;
      const Choice choice = found.choice(k);
      ASSERT_EQ(choice.picks.size(), k);
      ASSERT_EQ(choice.picks.back() + 1, candidates.size());
      ASSERT_TRUE(sum_of(candidates, prices, choice) == expected[k - 1]);
      ASSERT_TRUE(std::is_sorted(choice.picks.begin(), choice.picks.end()));
    }
  }
}

TEST(Optimum, PricedIsTheBestOverAllCounts) {
  Dice dice(2);
  for (int round = 0; round < 400; ++round) {
    const auto [candidates, prices] = random_instance(dice);
    const auto by_count = brute_force(candidates, prices, candidates.size());
    const Wide best = *std::min_element(by_count.begin(), by_count.end());
    const Choice priced = best_priced(candidates, prices);
    ASSERT_TRUE(sum_of(candidates, prices, priced) == best) << "round " << round;
    const BestByCount all(candidates, prices, static_cast<std::uint32_t>(candidates.size()));
    ASSERT_TRUE(all.sum(all.cheapest()) == best);
  }
}

TEST(Optimum, AtMostIsTheBestOfTheCounts) {
  Dice dice(17);
  for (int round = 0; round < 400; ++round) {
    const auto [candidates, prices] = random_instance(dice);
    const auto by_count = brute_force(candidates, prices, candidates.size());
    for (std::uint32_t most = 1; most <= std::min<std::size_t>(12, candidates.size()); ++most) {
      const Choice choice = best_at_most(candidates, prices, most);
      ASSERT_LE(choice.picks.size(), most);
      const Wide best = *std::min_element(by_count.begin(), by_count.begin() + most);
      ASSERT_TRUE(sum_of(candidates, prices, choice) == best) << "round " << round;
    }
  }
  EXPECT_TRUE(best_at_most({}, {}, 3).picks.empty());
}

// Sums beyond 64 bits: small numbers times a large factor have the same optimum.
TEST(Optimum, IsExactBeyond64Bits) {
  Dice dice(3);
  for (int round = 0; round < 100; ++round) {
    auto [candidates, prices] = random_instance(dice);
    const BestByCount narrow(candidates, prices, 6);
    constexpr std::uint64_t kFactor = 1ULL << 28;
    auto wide = candidates;
    for (Candidate& one : wide) one.weight *= kFactor;
    const Prices wide_prices{prices.fresh * kFactor, prices.resident * kFactor};
    const BestByCount found(wide, wide_prices, 6);
    for (std::uint32_t k = 1; k <= narrow.most(); ++k) {
      ASSERT_TRUE(found.sum(k) == narrow.sum(k) * kFactor);
      ASSERT_EQ(found.choice(k).picks, narrow.choice(k).picks);
    }
    ASSERT_EQ(best_priced(wide, wide_prices).picks, best_priced(candidates, prices).picks);
  }
}

TEST(Optimum, AtTheBoundsOfTheNumbers) {
  const CostModel cost = CostModel::mixed(kMaxSize);
  std::vector<Candidate> candidates;
  for (const Size end : {Size{1} << 20, Size{1} << 30, kMaxSize}) {
    candidates.push_back({end, false, kMaxTotal / 3, cost.at(end)});
  }
  const BestByCount found(candidates, {}, 3);
  const auto expected = brute_force(candidates, {}, 3);
  for (std::uint32_t k = 1; k <= 3; ++k) EXPECT_TRUE(found.sum(k) == expected[k - 1]);
}

TEST(Optimum, OfNothingIsNothing) {
  EXPECT_TRUE(best_priced({}, {}).picks.empty());
  EXPECT_EQ(BestByCount({}, {}, 4).most(), 0U);
}

TEST(Optimum, CostsFallAndGainsShrinkWithTheCount) {
  Dice dice(4);
  const auto sizes = dice.sizes(200, 4000, 100);
  const auto candidates = test::candidates(sizes, 8, CostModel::quadratic());
  const BestByCount found(candidates, {}, 64);
  for (std::uint32_t k = 2; k < found.most(); ++k) {
    EXPECT_TRUE(found.sum(k) <= found.sum(k - 1));
    EXPECT_TRUE(found.sum(k - 1) - found.sum(k) >= found.sum(k) - found.sum(k + 1)) << k;
  }
}

TEST(LineEnvelope, ComparesProductsExactly) {
  const Wide big = static_cast<Wide>(1) << 120;
  EXPECT_TRUE(product_at_most(big, 3, big, 3));
  EXPECT_TRUE(product_at_most(big - 1, 3, big, 3));
  EXPECT_FALSE(product_at_most(big + 1, 3, big, 3));
  EXPECT_TRUE(product_at_most(-big - 1, 3, -big, 3));
  EXPECT_FALSE(product_at_most(-big + 1, 3, -big, 3));
  EXPECT_TRUE(product_at_most(-big, 1, big, 1));
  EXPECT_FALSE(product_at_most(big, 1, -big, 1));
  EXPECT_TRUE(product_at_most(Wide{0}, 1, -big, 0));
  EXPECT_TRUE(product_at_most(-big, 0, Wide{0}, 7));
  // 2^120 x (2^60 + 1) against (2^120 + 2^60) x 2^60: equal but for 2^120 - 2^120 = 0.
  const std::uint64_t x = (1ULL << 60) + 1;
  const Wide b = big + (static_cast<Wide>(1) << 60);
  EXPECT_TRUE(product_at_most(big, x, b, 1ULL << 60));
  EXPECT_TRUE(product_at_most(b, 1ULL << 60, big, x));
  EXPECT_FALSE(product_at_most(b + 1, 1ULL << 60, big, x));
}

}  // namespace
}  // namespace nc::buckets
