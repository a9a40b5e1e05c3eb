// What one call costs at a size, in whole units of its own; only ratios between costs matter.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "bucketing/planner/sizes.hpp"

namespace nc::buckets {

class CostModel {
 public:
  static CostModel linear() { return {Kind::kLinear, 0, {}}; }        // n
  static CostModel quadratic() { return {Kind::kQuadratic, 0, {}}; }  // n^2
  // n + n^2 / at, in units of 1 / at: linear far below `at` (at least 1), quadratic far above it.
  static CostModel mixed(Size at) { return {Kind::kMixed, at, {}}; }

  // Measured: (size, time of a call), with the time in any unit below 2^40. Between two sizes it is
  // interpolated, below the first it is that of the first, above the last it grows in proportion. A
  // size that a larger one beats costs as much as the largest below it: costs never fall.
  // kInvalid: no point, a size of 0, a size twice, more than kMaxPoints.
  static constexpr std::size_t kMaxPoints = 1024;
  static Result<CostModel> measured(std::vector<std::pair<Size, std::uint64_t>> points);

  // Does not fall with n; below 2^63.
  std::uint64_t at(Size n) const;
  // Costs are times in the unit of the points, so that they compare with the time of a build.
  bool is_time() const { return kind_ == Kind::kMeasured; }

 private:
  enum class Kind { kLinear, kQuadratic, kMixed, kMeasured };
  CostModel(Kind kind, Size at, std::vector<std::pair<Size, std::uint64_t>> points)
      : kind_(kind), at_(at), points_(std::move(points)) {}

  Kind kind_;
  Size at_;
  std::vector<std::pair<Size, std::uint64_t>> points_;  // ascending in both
};

}  // namespace nc::buckets
