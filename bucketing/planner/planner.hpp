// From the sizes of a family to its buckets.
//
// - Never seen: no buckets; the ladder serves, or its points up to the axis's max when there is
// one.
// - Seen at one size: that size, so that nothing is padded.
// - Else the cheapest plan by price: a bucket is worth having when it saves more than building it
//   costs; one whose artifact exists already costs next to nothing. Then fewer or more buckets, as
//   the limits ask. The plan in force stays unless the new one gains more than 1 % after paying for
//   what is new.
//
// All of it is a pure function of the arguments, the same on every host.
#pragma once

#include <cstdint>
#include <optional>

#include "bucketing/planner/cost.hpp"
#include "bucketing/planner/family_plan.hpp"
#include "bucketing/planner/histogram.hpp"

namespace nc::buckets {

// The sizes that a plan is made for.
struct History {
  SizeCounts sizes;                // weights; a call of today weighs SizeHistogram::kUnit
  Size smallest = 0, largest = 0;  // ever seen, exact
  bool empty = true;

  static History of(const SizeHistogram& histogram);
};

inline constexpr std::uint32_t kMaxWastePpm = 10'000'000;

struct Limits {
  std::uint32_t max_buckets = 16;              // 1 to kMaxBuckets
  std::optional<std::uint32_t> max_waste_ppm;  // of the unpadded cost, in millionths; 0 to the most
};

struct Planned {
  FamilyPlan plan;
  bool waste_met = true;
  bool kept = false;  // it is the plan in force
};

// What was measured of a program; 0: not known.
struct Measured {
  std::uint64_t compile_ms = 0;  // what building one artifact takes; unknown: a minute is assumed
  std::uint64_t call_us = 0;     // what one call takes
};

// `in_force` may be null.
Planned plan_family(const std::string& family, const History& history, const Axis& axis,
                    const CostModel& cost, const Limits& limits, const Measured& measured,
                    const FamilyPlan* in_force);

// The price of building an artifact in units of weight x cost. Where times are known (costs that
// are times; or the time of a call, which `calls` of them and `unpadded` turn into a cost): a tenth
// of the build's own time (a host that compiles costs about a tenth of one that trains). Else a
// thousandth of the history's unpadded cost per minute of building, between 1/16 and 16 times that.
// `calls`: the weight of the history.
Wide build_price(const CostModel& cost, Wide unpadded, Wide calls, const Measured& measured);

// What the sizes cost unpadded and padded. Sizes of 0 and those without a bucket are left out.
struct PaddingCost {
  Wide unpadded = 0, padded = 0;
  // padded / unpadded - 1; nullopt: there is no size to speak of.
  std::optional<double> waste() const;
};
PaddingCost padding_cost(const FamilyPlan& plan, const SizeCounts& sizes, const CostModel& cost);

}  // namespace nc::buckets
