#include "bucketing/planner/histogram.hpp"

#include <gtest/gtest.h>

#include "tests/unit/bucketing/planner/test_sizes.hpp"

namespace nc::buckets {
namespace {

using test::Dice;

template <std::size_t Dims>
std::string bytes(const Histogram<Dims>& histogram) {
  std::string out;
  for (const auto number : histogram.generations()) out += histogram.encode(number);
  return out;
}

SizeHistogram of(std::uint32_t generation, const SizeCounts& counts) {
  SizeHistogram out;
  out.add(generation, to_cells(counts));
  return out;
}

TEST(Histogram, KeepsCountsExactly) {
  SizeHistogram histogram;
  EXPECT_TRUE(histogram.empty());
  histogram.add(7, to_cells({{100, 2}, {3, 1}}));
  histogram.add(7, to_cells({{100, 5}, {0, 4}, {9, 0}}));
  EXPECT_EQ(histogram.calls(), 12U);
  EXPECT_EQ(histogram.smallest()[0], 0U);
  EXPECT_EQ(histogram.largest()[0], 100U);
  const std::uint64_t unit = SizeHistogram::kUnit;
  const SizeCounts expected{{0, 4 * unit}, {3, unit}, {100, 7 * unit}};
  EXPECT_EQ(to_counts(histogram.weighted()), expected);
}

TEST(Histogram, OlderGenerationsCountHalf) {
  SizeHistogram histogram;
  histogram.add(3, to_cells({{10, 4}}));
  histogram.add(900, to_cells({{10, 1}, {20, 1}}));
  const std::uint64_t unit = SizeHistogram::kUnit;
  const SizeCounts expected{{10, 4 * unit / 2 + unit}, {20, unit}};
  EXPECT_EQ(to_counts(histogram.weighted()), expected);
}

TEST(Histogram, KeepsTheNewestGenerationsAndTheExtremes) {
  SizeHistogram histogram;
  for (std::uint32_t day = 0; day < 20; ++day) histogram.add(day * 3, to_cells({{100 + day, 1}}));
  EXPECT_EQ(histogram.generations().size(), SizeHistogram::kGenerations);
  EXPECT_EQ(histogram.generations().front(), 12U * 3);
  EXPECT_EQ(histogram.smallest()[0], 100U);
  const SizeHistogram before = histogram;
  histogram.add(5, to_cells({{110, 1}}));  // too old to be kept
  EXPECT_EQ(histogram, before);
}

// The bar of the planner: counters merged in any order and grouping give the same bytes.
TEST(Histogram, MergesToTheSameBytesInAnyOrder) {
  Dice dice(5);
  for (int round = 0; round < 20; ++round) {
    std::vector<SizeHistogram> parts;
    const Size most = round % 2 == 0 ? 3000 : kMaxSize;
    for (std::size_t i = 0; i < 12; ++i) {
      const auto generation = static_cast<std::uint32_t>(dice.below(12));
      parts.push_back(of(generation, dice.sizes(dice.between(1, 900), most, 9)));
    }
    SizeHistogram in_order;
    for (const auto& part : parts) in_order.merge(part);
    for (std::size_t i = parts.size() - 1; i > 0; --i)
      std::swap(parts[i], parts[dice.below(i + 1)]);
    SizeHistogram shuffled;
    for (const auto& part : parts) shuffled.merge(part);
    while (parts.size() > 1) {  // as a tree
      const std::size_t at = dice.below(parts.size() - 1);
      parts[at].merge(parts[at + 1]);
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
    ASSERT_EQ(bytes(in_order), bytes(shuffled));
    ASSERT_EQ(bytes(in_order), bytes(parts[0]));
    ASSERT_EQ(in_order, parts[0]);
  }
}

TEST(Histogram, PairsMergeToTheSameBytesInAnyOrder) {
  Dice dice(6);
  std::vector<PairHistogram> parts(6);
  for (auto& part : parts) {
    for (int i = 0; i < 600; ++i) {
      const PairHistogram::Cell cell{
          {static_cast<Size>(dice.between(1, 5000)), static_cast<Size>(dice.between(1, kMaxSize))},
          dice.between(1, 5)};
      part.add(static_cast<std::uint32_t>(dice.below(3)), {{cell}});
    }
  }
  PairHistogram forward;
  PairHistogram backward;
  for (const auto& part : parts) forward.merge(part);
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) backward.merge(*part);
  EXPECT_EQ(bytes(forward), bytes(backward));
}

TEST(Histogram, IsBoundedAndRoundsUpByLittle) {
  Dice dice(7);
  SizeHistogram histogram;
  std::uint64_t calls = 0;
  for (int i = 0; i < 20; ++i) {
    const auto sizes = dice.sizes(2000, kMaxSize, 3);
    calls += total(sizes);
    histogram.add(1, to_cells(sizes));
    ASSERT_LE(histogram.cells(), SizeHistogram::kMaxCells);
  }
  EXPECT_EQ(histogram.calls(), calls);
  for (unsigned level = 0; level <= 31; ++level) {
    for (int i = 0; i < 200; ++i) {
      const auto size = static_cast<Size>(dice.between(0, kMaxSize));
      const Size coarse = coarsened(size, level);
      ASSERT_GE(coarse, size);
      ASSERT_EQ(coarsened(coarse, level), coarse);
      ASSERT_EQ(coarsened(coarse, level + (level < 31 ? 1 : 0)),
                coarsened(size, level + (level < 31 ? 1 : 0)));
      if (level <= 26) {
        ASSERT_LE(coarse - size, size / 32);
      }
    }
  }
}

TEST(Histogram, LosesNothingForTilesOf128) {
  const auto trace = test::read_trace("mooncake-synth");
  const auto histogram = of(1, trace.all);
  ASSERT_LE(histogram.cells(), SizeHistogram::kMaxCells);
  ASSERT_GT(trace.all.size(), SizeHistogram::kMaxCells);
  const auto tiled = [](const SizeCounts& counts, std::uint64_t unit) {
    SizeCounts out;
    for (const SizeCount& one : counts) {
      out.push_back({(one.size + 127) / 128 * 128, one.count / unit});
    }
    normalise(out);
    return out;
  };
  EXPECT_EQ(tiled(to_counts(histogram.weighted()), SizeHistogram::kUnit), tiled(trace.all, 1));
}

TEST(Histogram, CountsStopInsteadOfOverflowing) {
  SizeHistogram histogram;
  for (int i = 0; i < 3; ++i) histogram.add(1, to_cells({{5, UINT64_MAX}}));
  EXPECT_EQ(histogram.calls(), SizeHistogram::kMaxCount);
  SizeHistogram twice = histogram;
  twice.merge(twice);
  EXPECT_EQ(twice.calls(), SizeHistogram::kMaxCount);
}

TEST(Histogram, ReadsBackWhatItWrote) {
  Dice dice(8);
  SizeHistogram histogram;
  for (std::uint32_t day = 0; day < 5; ++day) {
    histogram.add(day, to_cells(dice.sizes(700, 1'000'000, 1000)));
  }
  SizeHistogram read;
  for (const auto number : histogram.generations())
    ASSERT_TRUE(read.decode(histogram.encode(number)));
  EXPECT_EQ(read, histogram);
  EXPECT_EQ(histogram.encode(99), "");
}

TEST(Histogram, DamageIsFoundAndChangesNothing) {
  const std::string good = of(3, {{1, 1}, {128, 4}, {1000, 77}}).encode(3);
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const int bit : {0, 3, 7}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      SizeHistogram histogram;
      EXPECT_FALSE(histogram.decode(bad)) << i;
      EXPECT_TRUE(histogram.empty());
    }
    SizeHistogram histogram;
    EXPECT_FALSE(histogram.decode(good.substr(0, i)));
  }
  PairHistogram pairs;
  EXPECT_FALSE(pairs.decode(good));
}

}  // namespace
}  // namespace nc::buckets
