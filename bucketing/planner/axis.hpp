// Where the buckets of a dimension may end, and the geometric ladder that serves sizes of which
// nothing is known.
#pragma once

#include <optional>
#include <vector>

#include "bucketing/planner/sizes.hpp"

namespace nc::buckets {

// The points at which a dimension's buckets may end: multiples of `tile` from `floor` (rounded up)
// on, and `max`. With a `max` no bucket is larger, whether it is a multiple of the tile or not.
struct Axis {
  Size tile = 1;
  Size floor = 1;
  Size max = 0;  // 0: not known
  bool operator==(const Axis&) const = default;

  // The least such point >= n (n 0 counts as 1); nullopt: n is over max, or
  // over kMaxSize.
  std::optional<Size> up(Size n) const;
  // Is `end` such a point?
  bool has(Size end) const { return end > 0 && up(end) == end; }
};

// base, then each point is the last one times num / den, rounded up, at least one more, rounded up
// to the tile; a point over max (or over kMaxSize) becomes it and is the last. Wastes at most
// num / den - 1 beyond its base, up to one tile.
struct Ladder {
  Size base = 1;
  Size num = 3, den = 2;  // num > den > 0
  Size tile = 1;
  Size max = 0;  // 0: none
  bool operator==(const Ladder&) const = default;

  Size next(Size point) const;              // > point, unless point is the last
  std::optional<Size> find(Size n) const;   // the first point >= n; nullopt as in Axis::up()
  std::vector<Size> up_to(Size top) const;  // all points up to the first >= top
};

// Powers of two that are multiples of no less than `tile`: what people use by hand.
std::vector<Size> powers_of_two(Size tile, Size top);

}  // namespace nc::buckets
