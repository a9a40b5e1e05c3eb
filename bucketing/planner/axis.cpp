#include "bucketing/planner/axis.hpp"

#include <algorithm>
#include <bit>

namespace nc::buckets {
namespace {

Size round_up(std::uint64_t n, Size tile, Size max) {
  const std::uint64_t up = (n + tile - 1) / tile * tile;
  return static_cast<Size>(std::min<std::uint64_t>(up, max == 0 ? kMaxSize : max));
}

}  // namespace

std::optional<Size> Axis::up(Size n) const {
  if (n > (max == 0 ? kMaxSize : max)) return std::nullopt;
  return round_up(std::max({n, floor, Size{1}}), tile, max);
}

Size Ladder::next(Size point) const {
  const std::uint64_t grown = (static_cast<std::uint64_t>(point) * num + den - 1) / den;
  const Size after = round_up(std::max<std::uint64_t>(grown, std::uint64_t{point} + 1), tile, max);
  return std::max(after, point);
}

std::optional<Size> Ladder::find(Size n) const {
  if (n > (max == 0 ? kMaxSize : max)) return std::nullopt;
  Size point = base;
  while (point < n) point = next(point);
  return point;
}

std::vector<Size> Ladder::up_to(Size top) const {
  std::vector<Size> points{base};
  while (points.back() < std::min(top, max == 0 ? kMaxSize : max)) {
    points.push_back(next(points.back()));
  }
  return points;
}

std::vector<Size> powers_of_two(Size tile, Size top) {
  const Size first = std::bit_ceil(std::max<Size>(tile, 1));
  return Ladder{first, 2, 1, 1, 0}.up_to(top);
}

}  // namespace nc::buckets
