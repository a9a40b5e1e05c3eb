// The lower envelope of lines  y(f) = d - f w  that come with rising w, asked at rising f.
// Exact. Value is int64 or Wide; the caller makes sure that d - f w fits.
#pragma once

#include <cstdint>
#include <vector>

#include "bucketing/planner/sizes.hpp"

namespace nc::buckets {

// a x <= b y for any signed a, b of 127 bits and unsigned x, y of 63 bits.
bool product_at_most(Wide a, std::uint64_t x, Wide b, std::uint64_t y);

inline bool product_at_most(std::int64_t a, std::uint64_t x, std::int64_t b, std::uint64_t y) {
  return static_cast<Wide>(a) * static_cast<Wide>(x) <= static_cast<Wide>(b) * static_cast<Wide>(y);
}

template <class Value>
class LineEnvelope {
 public:
  struct Line {
    Value d;
    std::uint64_t w;
    std::uint32_t index;
    Value at(std::uint64_t f) const { return d - static_cast<Value>(f) * static_cast<Value>(w); }
  };

  explicit LineEnvelope(std::size_t most) { lines_.reserve(most); }
  void clear() {
    lines_.clear();
    front_ = 0;
  }

  // w is at least that of the line before. Of lines that are equally low the first stays.
  void push(Value d, std::uint64_t w, std::uint32_t index) {
    const Line line{d, w, index};
    while (lines_.size() > front_) {
      const Line& back = lines_.back();
      if (back.w == w) {
        if (d >= back.d) return;
      } else if (lines_.size() == front_ + 1 || !useless(lines_[lines_.size() - 2], back, line)) {
        break;
      }
      lines_.pop_back();
    }
    lines_.push_back(line);
  }

  // The lowest line at f; there is at least one. f is at least that of the call before.
  const Line& lowest(std::uint64_t f) {
    while (front_ + 1 < lines_.size() && lines_[front_ + 1].at(f) < lines_[front_].at(f)) ++front_;
    return lines_[front_];
  }

 private:
  // b is nowhere below both a and c: b and c cross no later than a and b.
  static bool useless(const Line& a, const Line& b, const Line& c) {
    return product_at_most(c.d - b.d, b.w - a.w, b.d - a.d, c.w - b.w);
  }

  std::vector<Line> lines_;
  std::size_t front_ = 0;
};

}  // namespace nc::buckets
