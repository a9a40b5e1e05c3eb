#include "bucketing/planner/joint_plan.hpp"

#include <algorithm>
#include <tuple>

namespace nc::buckets {
namespace {

using Cell = PairHistogram::Cell;

std::uint64_t area(const Pair& sides) {
  return static_cast<std::uint64_t>(sides[0]) * sides[1];
}

bool covers(const Pair& rectangle, const Pair& sizes) {
  return sizes[0] <= rectangle[0] && sizes[1] <= rectangle[1];
}

bool before(const Pair& a, const Pair& b) {
  return std::make_tuple(area(a), a[0]) < std::make_tuple(area(b), b[0]);
}

// A cell with what it costs per call under the rectangles chosen until now.
struct Served {
  Pair sizes;
  std::uint64_t count;
  std::uint64_t area;
};

Wide saving(const Pair& rectangle, std::span<const Served> cells) {
  const std::uint64_t own = area(rectangle);
  Wide sum = 0;
  for (const Served& cell : cells) {
    if (cell.sizes[0] > rectangle[0]) break;  // ascending
    if (cell.area > own && cell.sizes[1] <= rectangle[1]) {
      sum += static_cast<Wide>(cell.area - own) * static_cast<Wide>(cell.count);
    }
  }
  return sum;
}

Wide served_cost(const Rectangles& rectangles, std::span<const Cell> cells) {
  Wide sum = 0;
  for (const Cell& cell : cells) {
    if (const auto rectangle = covering(rectangles, cell.key)) {
      sum += static_cast<Wide>(area(*rectangle)) * static_cast<Wide>(cell.count);
    }
  }
  return sum;
}

// Takes out, again and again, the rectangle that is missed least, while it costs more than it
// saves.
void take_out_idle(Rectangles& rectangles, std::span<const Cell> cells, Wide price,
                   const Pair& canvas) {
  for (;;) {
    const Wide now = served_cost(rectangles, cells);
    std::optional<std::size_t> least;
    Wide least_loss = price;
    for (std::size_t i = 0; i < rectangles.size(); ++i) {
      if (rectangles[i] == canvas) continue;
      Rectangles without = rectangles;
      without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
      const Wide loss = served_cost(without, cells) - now;
      if (loss < least_loss || (loss == least_loss && !least)) {
        least = i;
        least_loss = loss;
      }
    }
    if (!least) return;
    rectangles.erase(rectangles.begin() + static_cast<std::ptrdiff_t>(*least));
  }
}

}  // namespace

void sort_rectangles(Rectangles& rectangles) {
  std::sort(rectangles.begin(), rectangles.end(), before);
  rectangles.erase(std::unique(rectangles.begin(), rectangles.end()), rectangles.end());
}

std::optional<Pair> covering(const Rectangles& rectangles, const Pair& sizes) {
  for (const Pair& rectangle : rectangles) {
    if (covers(rectangle, sizes)) return rectangle;
  }
  return std::nullopt;
}

Wide joint_cost(const Rectangles& rectangles, std::span<const Cell> cells, Wide price) {
  return served_cost(rectangles, cells) + price * static_cast<Wide>(rectangles.size());
}

Rectangles plan_joint(std::span<const Cell> cells, std::span<const Size> first,
                      std::span<const Size> second, Wide price, std::size_t most) {
  if (cells.empty() || first.empty() || second.empty() || most == 0) return {};
  const Pair canvas{first.back(), second.back()};
  std::vector<Served> served;
  served.reserve(cells.size());
  for (const Cell& cell : cells) served.push_back({cell.key, cell.count, area(canvas)});
  Rectangles chosen{canvas};
  while (chosen.size() < most) {
    Pair best = canvas;
    Wide best_saving = price;
    for (const Size a : first) {
      for (const Size b : second) {
        const Wide saved = saving({a, b}, served);
        if (saved <= best_saving) continue;
        best = {a, b};
        best_saving = saved;
      }
    }
    if (best == canvas) break;
    chosen.push_back(best);
    for (Served& cell : served) {
      if (covers(best, cell.sizes)) cell.area = std::min(cell.area, area(best));
    }
  }
  sort_rectangles(chosen);
  take_out_idle(chosen, cells, price, canvas);
  return chosen;
}

}  // namespace nc::buckets
