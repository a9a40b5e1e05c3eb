// What the planner's tests share: random instances, real traces, waste by its definition.
#pragma once

#include <charconv>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "bucketing/planner/axis.hpp"
#include "bucketing/planner/cost.hpp"
#include "bucketing/planner/optimum.hpp"
#include "bucketing/planner/sizes.hpp"

namespace nc::buckets::test {

// The same numbers everywhere, whatever the standard library.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}
  std::uint64_t below(std::uint64_t bound) { return engine_() % bound; }
  std::uint64_t between(std::uint64_t least, std::uint64_t most) {
    return least + below(most - least + 1);
  }
  SizeCounts sizes(std::size_t count, Size most, std::uint64_t most_count) {
    SizeCounts out;
    for (std::size_t i = 0; i < count; ++i) {
      out.push_back({static_cast<Size>(between(1, most)), between(1, most_count)});
    }
    normalise(out);
    return out;
  }

 private:
  std::mt19937_64 engine_;
};

struct Trace {
  SizeCounts first, rest, all;
};

// Rows of whole numbers under a line of names.
inline std::vector<std::vector<std::uint64_t>> read_numbers(const std::string& name) {
  const std::string path = NC_SOURCE_DIR "/tests/data/lengths/" + name + ".csv";
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) throw std::runtime_error("cannot read " + path);
  std::vector<std::vector<std::uint64_t>> rows;
  while (std::getline(file, line)) {
    std::vector<std::uint64_t> row;
    const char* at = line.data();
    const char* const end = at + line.size();
    while (at < end) {
      std::uint64_t value = 0;
      at = std::from_chars(at, end, value).ptr + 1;
      row.push_back(value);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

inline Trace read_trace(const std::string& name) {
  Trace trace;
  for (const auto& row : read_numbers(name)) {
    const auto size = static_cast<Size>(row.at(0));
    if (row.at(1) > 0) trace.first.push_back({size, row.at(1)});
    if (row.at(2) > 0) trace.rest.push_back({size, row.at(2)});
    trace.all.push_back({size, row.at(1) + row.at(2)});
  }
  return trace;
}

inline std::vector<Candidate> candidates(const SizeCounts& sizes, Size tile,
                                         const CostModel& cost) {
  SizeCounts ends;
  for (const SizeCount& one : sizes) ends.push_back({*Axis{tile, tile, 0}.up(one.size), one.count});
  normalise(ends);
  std::vector<Candidate> out;
  for (const SizeCount& end : ends) out.push_back({end.size, false, end.count, cost.at(end.size)});
  return out;
}

inline std::vector<Size> ends(const std::vector<Candidate>& candidates, const Choice& choice) {
  std::vector<Size> out;
  for (const std::uint32_t pick : choice.picks) out.push_back(candidates[pick].end);
  return out;
}

// sum(count f(bucket)) / sum(count f(size)) - 1, in per cent.
inline double waste(const std::vector<Size>& buckets, const SizeCounts& sizes,
                    const CostModel& cost) {
  double padded = 0;
  double unpadded = 0;
  std::size_t b = 0;
  for (const SizeCount& one : sizes) {
    while (buckets.at(b) < one.size) ++b;
    padded += static_cast<double>(cost.at(buckets[b])) * static_cast<double>(one.count);
    unpadded += static_cast<double>(cost.at(one.size)) * static_cast<double>(one.count);
  }
  return (padded / unpadded - 1) * 100;
}

}  // namespace nc::buckets::test
