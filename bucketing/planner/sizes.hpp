// Sizes, counts and exact arithmetic of the planner.
//
// All decisions are made in integers and without an order that depends on the machine, so that
// every host makes the same plan, byte for byte, from the same counts. Floating point appears in
// figures for people only.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

namespace nc::buckets {

// The length of one dimension, in elements.
using Size = std::uint32_t;
inline constexpr Size kMaxSize = (1U << 31) - 1;

// Sums of weight x cost. Inputs are bounded so that no sum of the planner leaves its range: weights
// add up to at most kMaxTotal, costs are below 2^63, and prices below 1/64 of a sum.
__extension__ typedef __int128 Wide;  // NOLINT(modernize-use-using): `using` takes no __extension__
inline constexpr std::uint64_t kMaxTotal = 1ULL << 60;

struct SizeCount {
  Size size = 0;
  std::uint64_t count = 0;
  auto operator<=>(const SizeCount&) const = default;
};
// Ascending, each size once, counts above 0.
using SizeCounts = std::vector<SizeCount>;

// Sorts, adds up equal sizes, drops counts of 0. Sums stop at `most`.
void normalise(SizeCounts& counts, std::uint64_t most = kMaxTotal);

// The sum of all counts; stops at kMaxTotal.
std::uint64_t total(const SizeCounts& counts);

}  // namespace nc::buckets
