#include "client/cli/simulation.hpp"

#include <algorithm>

#include "bucketing/planner/axis.hpp"
#include "bucketing/planner/optimum.hpp"

namespace nc::cli {
namespace {

using buckets::Size;
using buckets::SizeCounts;
using buckets::Wide;

std::vector<buckets::Candidate> candidates_of(const SizeCounts& sizes, Size largest, Size tile,
                                              const buckets::CostModel& cost) {
  const buckets::Axis axis{tile, tile, 0};
  SizeCounts ends;
  for (const auto& one : sizes) ends.push_back({*axis.up(one.size), one.count});
  buckets::normalise(ends);
  std::vector<buckets::Candidate> out;
  for (const auto& end : ends) out.push_back({end.size, false, end.count, cost.at(end.size)});
  const Size top = *axis.up(largest);
  if (out.empty() || out.back().end != top) out.push_back({top, false, 0, cost.at(top)});
  return out;
}

Wide unpadded_cost(const SimulationInput& input) {
  Wide sum = 0;
  for (const auto& one : input.evaluated)
    sum += static_cast<Wide>(input.cost.at(one.size)) * one.count;
  return sum;
}

double share(Wide padded, Wide unpadded) {
  if (unpadded <= 0) return 0;
  return static_cast<double>(padded - unpadded) / static_cast<double>(unpadded);
}

SimulatedPlan judge(std::vector<Size> ends, const SimulationInput& input) {
  SimulatedPlan out;
  Wide padded = 0;
  auto at = input.evaluated.begin();
  for (const Size end : ends) {
    const auto begin = at;
    for (; at != input.evaluated.end() && at->size <= end; ++at) {
      padded += static_cast<Wide>(input.cost.at(end)) * at->count;
    }
    if (at != begin) ++out.used;
  }
  out.buckets = std::move(ends);
  out.waste = share(padded, unpadded_cost(input));
  return out;
}

std::vector<Size> best(const std::vector<buckets::Candidate>& candidates, std::uint32_t most) {
  std::vector<Size> ends;
  for (const auto pick : buckets::best_at_most(candidates, {}, most).picks) {
    ends.push_back(candidates[pick].end);
  }
  return ends;
}

// Every multiple that a length rounds up to.
std::vector<Size> tiles(const SimulationInput& input) {
  const buckets::Axis axis{input.tile, input.tile, 0};
  std::vector<Size> ends;
  for (const auto& one : input.evaluated) {
    const Size end = *axis.up(one.size);
    if (ends.empty() || ends.back() != end) ends.push_back(end);
  }
  return ends;
}

}  // namespace

Simulation simulate(const SimulationInput& input) {
  Simulation out;
  const auto learned = candidates_of(input.learned, input.largest, input.tile, input.cost);
  out.plan = judge(best(learned, input.max_buckets), input);
  out.powers = judge(buckets::powers_of_two(input.tile, input.largest), input);
  out.tiles = judge(tiles(input), input);
  const Size largest = input.evaluated.empty() ? input.largest : input.evaluated.back().size;
  const auto known = candidates_of(input.evaluated, largest, input.tile, input.cost);
  out.optimum = judge(best(known, input.max_buckets), input);
  const buckets::BestByCount by_count(known, {}, input.max_buckets);
  const Wide unpadded = unpadded_cost(input);
  for (std::uint32_t k = 1; k <= by_count.most(); ++k) {
    out.optimum_by_count.push_back(share(by_count.sum(k), unpadded));
  }
  return out;
}

}  // namespace nc::cli
