#include "daemon/peak_book.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>

#include <boost/json.hpp>

#include "cache/json_fields.hpp"

namespace nc::daemon {
namespace {

namespace js = boost::json;

constexpr int kVersion = 1;
constexpr unsigned kSmallest = 16;  // inputs below 64 KiB are all alike
constexpr unsigned kLargest = 40;
constexpr unsigned kNear = 3;
constexpr std::size_t kMaxCompiler = 1024;
constexpr std::uint64_t kMaxPeak = 1ULL << 50;

bool is_neuron_compiler(std::string_view compiler) {
  return compiler.starts_with("neuronx-cc");
}

std::string_view first_word(std::string_view text) {
  return text.substr(0, text.find(' '));
}

std::uint64_t scaled(std::uint64_t bytes, double by) {
  return static_cast<std::uint64_t>(static_cast<double>(bytes) * by);
}

}  // namespace

// Peaks of the compiler's whole process tree, measured over many builds of 2.27.
std::uint64_t first_guess(std::string_view compiler, unsigned size) {
  if (!is_neuron_compiler(compiler)) return PeakBook::kOtherGuess;
  constexpr unsigned kMebibyte = 20;
  constexpr std::array<std::uint64_t, 4> kMegabytes = {10'600, 14'400, 22'900, 30'000};
  constexpr std::uint64_t kMost = 107'000;
  const unsigned above = size > kMebibyte ? size - kMebibyte : 0;
  std::uint64_t megabytes = kMegabytes[std::min<std::size_t>(above, kMegabytes.size() - 1)];
  for (std::size_t i = kMegabytes.size(); i <= above && megabytes < kMost; ++i) {
    megabytes = megabytes * 3 / 2;
  }
  return std::min(megabytes, kMost) * 1'000'000;
}

std::uint64_t expected_peak(std::vector<std::uint64_t> peaks) {
  constexpr std::size_t kEnough = 4;
  const double margin = 1.15 + 0.5 / static_cast<double>(peaks.size());
  std::sort(peaks.begin(), peaks.end());
  if (peaks.size() >= kEnough && peaks.back() / 2 > peaks[peaks.size() - 2]) peaks.pop_back();
  const std::size_t rank = (peaks.size() * 9 + 9) / 10;  // nearest rank, from 1
  return scaled(peaks[rank - 1], margin);
}

// ---- Rows ----

std::string PeakRow::encode() const {
  js::array list;
  for (const std::uint64_t peak : peaks) list.emplace_back(peak);
  return js::serialize(
      js::object{{"v", kVersion}, {"peaks", std::move(list)}, {"used_ms", used_ms}});
}

std::optional<PeakRow> PeakRow::decode(std::string_view text) {
  constexpr std::size_t kMaxRecord = 16 << 10;
  const auto object = parse_json_object(text, kMaxRecord, "the record");
  if (!object.ok()) return std::nullopt;
  PeakRow row;
  int version = 0;
  JsonFields fields(*object, "the record");
  fields.integer("v", version, 1, 1000).integer("used_ms", row.used_ms, 0, JsonFields::kMaxInteger);
  const js::value* peaks = fields.member("peaks");
  if (!fields.done().ok() || version != kVersion || peaks == nullptr || !peaks->is_array()) {
    return std::nullopt;
  }
  for (const js::value& one : peaks->get_array()) {
    js::error_code error;
    const auto peak = one.to_number<std::uint64_t>(error);
    if (error || peak == 0 || peak > kMaxPeak || row.peaks.size() == kSamples) return std::nullopt;
    row.peaks.push_back(peak);
  }
  return row.peaks.empty() ? std::nullopt : std::optional(std::move(row));
}

PeakClass PeakClass::of(std::string_view compiler, std::uint64_t input_bytes) {
  const auto width = static_cast<unsigned>(std::bit_width(input_bytes));
  return {std::string(compiler.substr(0, kMaxCompiler)), std::clamp(width, kSmallest, kLargest)};
}

std::string PeakClass::record_key() const {
  std::string key = compiler;
  key.push_back('\0');
  return key += std::to_string(size);
}

std::optional<PeakClass> PeakClass::from_record_key(std::string_view key) {
  const std::size_t end = key.rfind('\0');
  if (end == std::string_view::npos || end > kMaxCompiler) return std::nullopt;
  PeakClass of{std::string(key.substr(0, end)), 0};
  const char* last = key.data() + key.size();
  const auto [stop, error] = std::from_chars(key.data() + end + 1, last, of.size);
  const bool sane = error == std::errc() && stop == last && of.size >= kSmallest &&
                    of.size <= kLargest && of.record_key() == key;
  return sane ? std::optional(std::move(of)) : std::nullopt;
}

// ---- The book ----

PeakBook::Estimate PeakBook::estimate(const PeakClass& of, std::uint64_t guess) const {
  MutexLock lock(mutex_);
  const auto learned = [&](const PeakClass& at) NC_NO_THREAD_SAFETY_ANALYSIS {
    const auto row = rows_.find(at);
    return row == rows_.end() ? 0 : expected_peak(row->second.peaks);
  };
  if (const std::uint64_t bytes = learned(of)) return {bytes, true};
  for (unsigned away = 1; away <= kNear; ++away) {
    // Rather the larger one: too much costs time, too little kills a build.
    if (const std::uint64_t bytes = learned({of.compiler, of.size + away})) return {bytes, true};
    if (away > of.size) continue;
    if (const std::uint64_t bytes = learned({of.compiler, of.size - away})) {
      const double ratio = static_cast<double>(first_guess(of.compiler, of.size)) /
                           static_cast<double>(first_guess(of.compiler, of.size - away));
      return {scaled(bytes, std::max(ratio, 1.0)), true};
    }
  }
  std::uint64_t other_version = 0;
  for (const auto& [row_class, row] : rows_) {
    if (row_class.size != of.size || first_word(row_class.compiler) != first_word(of.compiler)) {
      continue;
    }
    other_version = std::max(other_version, expected_peak(row.peaks));
  }
  if (other_version > 0) return {other_version, true};
  return {guess > 0 ? guess : first_guess(of.compiler, of.size), false};
}

PeakBook::Changes PeakBook::add(const PeakClass& of, std::uint64_t peak_bytes, Millis now_ms) {
  MutexLock lock(mutex_);
  Changes changes;
  if (peak_bytes == 0) return changes;
  PeakRow& row = rows_[of];
  row.peaks.push_back(std::min(peak_bytes, kMaxPeak));
  if (row.peaks.size() > PeakRow::kSamples) row.peaks.erase(row.peaks.begin());
  row.used_ms = now_ms;
  changes.emplace_back(of.record_key(), row.encode());
  if (rows_.size() > kMaxRows) {
    auto oldest = rows_.end();
    for (auto at = rows_.begin(); at != rows_.end(); ++at) {
      if (at->first == of) continue;
      if (oldest == rows_.end() || at->second.used_ms < oldest->second.used_ms) oldest = at;
    }
    changes.emplace_back(oldest->first.record_key(), std::nullopt);
    rows_.erase(oldest);
  }
  return changes;
}

bool PeakBook::load(std::string_view key, std::string_view value) {
  auto of = PeakClass::from_record_key(key);
  auto row = PeakRow::decode(value);
  if (!of || !row) return false;
  MutexLock lock(mutex_);
  rows_[*std::move(of)] = *std::move(row);
  return true;
}

std::vector<PeakBook::Learned> PeakBook::learned() const {
  MutexLock lock(mutex_);
  std::vector<Learned> all;
  for (const auto& [of, row] : rows_) {
    all.push_back({of, row.peaks.size(), *std::max_element(row.peaks.begin(), row.peaks.end()),
                   expected_peak(row.peaks)});
  }
  return all;
}

}  // namespace nc::daemon
