// How often each size was seen: bounded in memory, decayed, and mergeable.
//
// A generation is a number that grows with time (the daemon uses days). Counts are kept exactly per
// generation, for the newest kGenerations of those that saw anything: a program that rests forgets
// nothing. On reading, a generation counts half as much as the next newer one.
//
// A generation holds at most kMaxCells distinct sizes; when there are more, sizes are rounded up to
// a coarser grid, level by level:
//
//   a size n in (2^k, 2^(k+1)] is rounded up to a multiple of 2^e,
//     e = min(level, max(0, k - 5))            for level <= 26: at most 1/32 too large
//     e = min(k, max(0, k - 5) + level - 26)   above
//
// Grids are nested and a generation's level is the least that fits all it ever saw, hence the same
// whichever way the counts came together: add() and merge() in any order and grouping give the same
// bytes. Up to level 7 nothing is lost for buckets that are multiples of 128.
//
// Dims 1: sizes of a family. Dims 2: pairs of sizes that came together, both on the same level.
// Not thread-safe.
//
//   generation = version:u8 dims:u8 level:u8 number:varint smallest:varint* largest:varint*
//                count:varint cell* sum:u32        smallest, largest: over all time, one per dim
//   cell       = (size - size of the cell before):zigzag varint, per dim, then count:varint
//   version    = 1; varint: LEB128; sum: low 32 bits of the XXH3-128 of all before, little endian
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bucketing/planner/sizes.hpp"

namespace nc::buckets {

template <std::size_t Dims>
class Histogram {
 public:
  static constexpr std::size_t kGenerations = 8;
  static constexpr std::size_t kMaxCells = 2048;
  static constexpr std::uint64_t kMaxCount = 1ULL << 38;  // of a cell; more is not counted
  // The weight of a call of the newest generation in weighted().
  static constexpr std::uint64_t kUnit = 1ULL << (kGenerations - 1);

  using Key = std::array<Size, Dims>;
  struct Cell {
    Key key{};
    std::uint64_t count = 0;
    auto operator<=>(const Cell&) const = default;
  };

  void add(std::uint32_t generation, std::span<const Cell> cells);
  void merge(const Histogram& other);

  // All cells with their decayed weights, ascending.
  std::vector<Cell> weighted() const;

  bool empty() const { return !seen_; }
  Key smallest() const { return smallest_; }  // over all time, exact, one per dim; of nothing: 0
  Key largest() const { return largest_; }
  std::uint64_t calls() const;  // in the generations that are kept
  std::size_t cells() const;    // held in memory
  std::vector<std::uint32_t> generations() const;

  // One generation as bytes; "" when it is not there.
  std::string encode(std::uint32_t generation) const;
  // Adds an encoded generation. False: damaged, or of another version; nothing is changed.
  bool decode(std::string_view bytes);

  bool operator==(const Histogram&) const = default;

 private:
  struct Generation {
    std::uint32_t number = 0;
    unsigned level = 0;
    std::vector<Cell> cells;  // ascending
    bool operator==(const Generation&) const = default;
  };

  Generation& generation(std::uint32_t number);
  static void insert(Generation& into, unsigned level, std::span<const Cell> cells);
  void note(const Key& smallest, const Key& largest);
  void forget_old();

  std::vector<Generation> generations_;  // ascending
  bool seen_ = false;
  Key smallest_{};
  Key largest_{};
};

using SizeHistogram = Histogram<1>;
using PairHistogram = Histogram<2>;

extern template class Histogram<1>;
extern template class Histogram<2>;

// `size` on the grid of `level`; see above.
Size coarsened(Size size, unsigned level);

std::vector<SizeHistogram::Cell> to_cells(const SizeCounts& counts);
SizeCounts to_counts(std::span<const SizeHistogram::Cell> cells);

}  // namespace nc::buckets
