// What buckets would do for given lengths: plans and what padding to them wastes.
#pragma once

#include <cstdint>
#include <vector>

#include "bucketing/planner/cost.hpp"
#include "bucketing/planner/sizes.hpp"

namespace nc::cli {

struct SimulationInput {
  buckets::SizeCounts learned;    // what the plan is made of
  buckets::SizeCounts evaluated;  // what it is judged on
  buckets::Size largest = 0;      // of both: the declared maximum
  buckets::Size tile = 1;
  std::uint32_t max_buckets = 8;
  buckets::CostModel cost = buckets::CostModel::linear();
};

struct SimulatedPlan {
  std::vector<buckets::Size> buckets;
  std::uint64_t used = 0;  // buckets that at least one call goes to: graphs that are compiled
  double waste = 0;        // cost padded / cost unpadded - 1, over `evaluated`
};

struct Simulation {
  SimulatedPlan plan;     // the best at most max_buckets for `learned`; ends at the largest length
  SimulatedPlan powers;   // powers of two, from the tile on
  SimulatedPlan tiles;    // every multiple of the tile: the least waste there is
  SimulatedPlan optimum;  // the best at most max_buckets for `evaluated`, known afterwards
  std::vector<double> optimum_by_count;  // [k - 1]: the waste of the best k buckets
};

Simulation simulate(const SimulationInput& input);

}  // namespace nc::cli
