#include "client/cli/length_column.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "client/cli/output.hpp"

namespace nc::cli {
namespace {

constexpr std::uint64_t kMaxWeight = 1ULL << 48;  // of a row, in units

Error wrong(std::string_view problem) {
  return {Code::kInvalid, std::string(problem), ""};
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::string quoted(std::string_view cell) {
  constexpr std::size_t kShown = 40;
  return fmt::format("'{}{}'", printable(cell.substr(0, kShown)),
                     cell.size() > kShown ? "..." : "");
}

LengthCounts counts_of(std::unordered_map<buckets::Size, std::uint64_t> counts, std::uint64_t rows,
                       std::uint64_t zeros) {
  LengthCounts out;
  out.rows = rows;
  out.zeros = zeros;
  out.sizes.reserve(counts.size());
  for (const auto& [size, count] : counts) out.sizes.push_back({size, count});
  buckets::normalise(out.sizes);
  return out;
}

}  // namespace

Result<std::uint64_t> read_decimal(std::string_view text, std::uint64_t unit, std::uint64_t most) {
  text = trimmed(text);
  if (text.empty()) return wrong("is empty");
  std::uint64_t whole = 0;
  const char* const end = text.data() + text.size();
  const auto integer = std::from_chars(text.data(), end, whole);
  if (integer.ec == std::errc() && integer.ptr == end) {
    if (whole > most / unit) return wrong(fmt::format("{} is too large", quoted(text)));
    return whole * unit;
  }
  double value = 0;
  const auto number = std::from_chars(text.data(), end, value);
  const bool too_large = number.ec == std::errc::result_out_of_range && number.ptr == end;
  if ((number.ec != std::errc() && !too_large) || number.ptr != end || !std::isfinite(value)) {
    return wrong(fmt::format("{} is not a number", quoted(text)));
  }
  if (value < 0) return wrong(fmt::format("{} is negative", quoted(text)));
  const double scaled = std::round(value * static_cast<double>(unit));
  if (too_large || scaled > static_cast<double>(most)) {
    return wrong(fmt::format("{} is too large", quoted(text)));
  }
  if (unit == 1 && value != std::floor(value)) {
    return wrong(fmt::format("{} is not a whole number", quoted(text)));
  }
  return static_cast<std::uint64_t>(scaled);
}

Result<std::size_t> LengthColumn::find(const CsvReader::Record& record,
                                       const std::string& name) const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < record.size(); ++i) {
    names.emplace_back(trimmed(record[i]));
    if (names.back() == name) return i;
  }
  constexpr std::size_t kShown = 12;
  std::string list;
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i) {
    list += (i == 0 ? "" : ", ") + quoted(names[i]);
  }
  if (names.size() > kShown) list += fmt::format(" and {} more", names.size() - kShown);
  const auto near = nearest_name(name, names);
  return Error{Code::kInvalid,
               fmt::format("there is no column {}; there are {}", quoted(name), list),
               near ? fmt::format("did you mean {}?", quoted(*near)) : "name one of these"};
}

Status LengthColumn::read_names(const CsvReader::Record& record) {
  NC_ASSIGN(column_at_, find(record, column_));
  if (!weight_.empty()) {
    NC_ASSIGN(weight_at_, find(record, weight_));
  }
  named_ = true;
  return {};
}

Status LengthColumn::add(std::uint64_t line, const CsvReader::Record& record) {
  if (!named_) return read_names(record);
  const auto cell = [&](std::size_t at, const std::string& name, std::uint64_t unit,
                        std::uint64_t most) -> Result<std::uint64_t> {
    if (at >= record.size()) {
      return Error{Code::kInvalid,
                   fmt::format("line {} has {} fields, the column {} is number {}", line,
                               record.size(), quoted(name), at + 1),
                   "correct the file"};
    }
    auto value = read_decimal(record[at], unit, most);
    if (value.ok()) return value;
    return Error{Code::kInvalid,
                 fmt::format("line {}, column {}: {}", line, quoted(name), value.error().message),
                 "lengths are whole numbers from 0 to 2147483647, weights numbers from 0"};
  };
  NC_ASSIGN(const std::uint64_t length, cell(column_at_, column_, 1, buckets::kMaxSize));
  std::uint64_t weight = kWeightUnit;
  if (weight_at_) {
    NC_ASSIGN(weight, cell(*weight_at_, weight_, kWeightUnit, kMaxWeight));
  }
  Part& part = parts_[rows_++ < first_ ? 0 : 1];
  if (length == 0 || weight == 0) {
    ++part.zeros;
    return {};
  }
  if (weight > buckets::kMaxTotal - weights_) {
    return Error{Code::kInvalid, fmt::format("line {}: the weights add up to too much", line),
                 "divide the weights by a thousand"};
  }
  weights_ += weight;
  part.counts[static_cast<buckets::Size>(length)] += weight;
  ++part.rows;
  return {};
}

Status LengthColumn::finish() const {
  if (!named_)
    return Error{Code::kInvalid, "the file is empty", "its first line names the columns"};
  if (parts_[0].rows + parts_[1].rows > 0) return {};
  return Error{Code::kInvalid, "the file has no row with a length above 0", "check the column"};
}

LengthCounts LengthColumn::part(int which) const {
  const Part& part = parts_[which];
  return counts_of(part.counts, part.rows, part.zeros);
}

LengthCounts LengthColumn::all() const {
  auto counts = parts_[0].counts;
  for (const auto& [size, count] : parts_[1].counts) counts[size] += count;
  return counts_of(std::move(counts), parts_[0].rows + parts_[1].rows,
                   parts_[0].zeros + parts_[1].zeros);
}

}  // namespace nc::cli
