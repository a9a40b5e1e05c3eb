// Lengths, and how often each was seen, from a column of a CSV file.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "bucketing/planner/sizes.hpp"
#include "client/cli/csv.hpp"

namespace nc::cli {

// Weights are kept to three decimals.
inline constexpr std::uint64_t kWeightUnit = 1000;

struct LengthCounts {
  buckets::SizeCounts sizes;  // counts in units of 1 / kWeightUnit; no size 0
  std::uint64_t rows = 0;     // used
  std::uint64_t zeros = 0;    // rows that were left out: length or weight 0
};

// Takes the records of a file: the first one names the columns.
class LengthColumn {
 public:
  // `weight` empty: each row counts once.
  LengthColumn(std::string column, std::string weight)
      : column_(std::move(column)), weight_(std::move(weight)) {}

  // Rows with a number below `first` (from 0) go to part 0, the others to part 1.
  void split_at(std::uint64_t first) { first_ = first; }

  // kInvalid names the line: no such column (with those there are), a cell that is missing, not a
  // number, negative, not whole, or too large.
  Status add(std::uint64_t line, const CsvReader::Record& record);
  // After the last record. kInvalid: there was none.
  Status finish() const;

  std::uint64_t rows() const { return rows_; }  // all, without the names
  LengthCounts part(int which) const;
  LengthCounts all() const;

 private:
  struct Part {
    std::unordered_map<buckets::Size, std::uint64_t> counts;
    std::uint64_t rows = 0, zeros = 0;
  };

  Status read_names(const CsvReader::Record& record);
  Result<std::size_t> find(const CsvReader::Record& record, const std::string& name) const;

  std::string column_, weight_;
  std::uint64_t first_ = 0;
  bool named_ = false;
  std::size_t column_at_ = 0;
  std::optional<std::size_t> weight_at_;
  std::uint64_t rows_ = 0;
  std::uint64_t weights_ = 0;
  Part parts_[2];
};

// A number of at least 0, times `unit`, rounded; at most `most`. kInvalid says what is wrong.
Result<std::uint64_t> read_decimal(std::string_view text, std::uint64_t unit, std::uint64_t most);

}  // namespace nc::cli
