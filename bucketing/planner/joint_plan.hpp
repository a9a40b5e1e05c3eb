// Two dimensions planned together: rectangles of any shape instead of the grid of two lists of
// buckets. A call goes to the covering rectangle with the least product; equally small ones go by
// the least first side.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "bucketing/planner/histogram.hpp"

namespace nc::buckets {

using Pair = std::array<Size, 2>;

// Rectangles in the order of choice: by product, then first side. Each may be chosen: none has
// another one before it that covers as much.
using Rectangles = std::vector<Pair>;

// The rectangle that serves `sizes`; nullopt: none covers.
std::optional<Pair> covering(const Rectangles& rectangles, const Pair& sizes);

void sort_rectangles(Rectangles& rectangles);

// What `cells` cost: padded elements, and a price for each rectangle.
Wide joint_cost(const Rectangles& rectangles, std::span<const PairHistogram::Cell> cells,
                Wide price);

// Greedy: from the rectangle that covers everything on, the one that saves most is added while it
// saves more than `price`; then those that do not repay any more are taken out. At most `most`
// rectangles, of sides from `first` and `second` (ascending; their last ones cover every cell). The
// work is the product of both counts, of the cells and of the rectangles.
Rectangles plan_joint(std::span<const PairHistogram::Cell> cells, std::span<const Size> first,
                      std::span<const Size> second, Wide price, std::size_t most);

}  // namespace nc::buckets
