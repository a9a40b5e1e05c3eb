#include "bucketing/planner/family_plan.hpp"

#include <algorithm>

#include "base/bytes.hpp"

namespace nc::buckets {

Ladder FamilyPlan::beyond() const {
  const Size base = buckets.empty() ? axis.up(1).value_or(1) : buckets.back();
  return {base, num, den, axis.tile, axis.max};
}

std::optional<Size> FamilyPlan::bucket(Size n) const {
  const auto at = std::lower_bound(buckets.begin(), buckets.end(), n);
  if (at != buckets.end()) return *at;
  return beyond().find(n);
}

bool is_family_name(std::string_view name) {
  constexpr std::size_t kMost = 128;
  return !name.empty() && name.size() <= kMost && is_utf8(name) &&
         std::none_of(name.begin(), name.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

}  // namespace nc::buckets
