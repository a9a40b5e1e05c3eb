#include "bucketing/planner/sizes.hpp"

#include <algorithm>

namespace nc::buckets {

void normalise(SizeCounts& counts, std::uint64_t most) {
  std::sort(counts.begin(), counts.end());
  std::size_t kept = 0;
  for (const SizeCount& one : counts) {
    if (one.count == 0) continue;
    if (kept > 0 && counts[kept - 1].size == one.size) {
      std::uint64_t& sum = counts[kept - 1].count;
      sum = one.count > most - std::min(sum, most) ? most : sum + one.count;
    } else {
      counts[kept++] = {one.size, std::min(one.count, most)};
    }
  }
  counts.resize(kept);
}

std::uint64_t total(const SizeCounts& counts) {
  std::uint64_t sum = 0;
  for (const SizeCount& one : counts) {
    if (one.count >= kMaxTotal - sum) return kMaxTotal;
    sum += one.count;
  }
  return sum;
}

}  // namespace nc::buckets
