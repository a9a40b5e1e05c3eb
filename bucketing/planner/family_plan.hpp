// The buckets in force for one family, and the pure map from a size to its bucket.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bucketing/planner/axis.hpp"

namespace nc::buckets {

struct FamilyPlan {
  std::string family;
  Axis axis;
  // Ascending points of the axis. One that is none: the only size of a family that never varied.
  std::vector<Size> buckets;
  Size num = 3, den = 2;  // the growth of the ladder above the last bucket
  bool varies = false;    // more than one size was ever seen

  bool operator==(const FamilyPlan&) const = default;

  // From the last bucket on; without buckets from the axis's first point on.
  Ladder beyond() const;
  // The first bucket >= n, above the last one the ladder; nullopt: n is over the axis's max.
  std::optional<Size> bucket(Size n) const;
};

// 1 to 128 bytes of UTF-8 without control characters.
bool is_family_name(std::string_view name);
inline constexpr std::size_t kMaxBuckets = 256;  // of a family

}  // namespace nc::buckets
