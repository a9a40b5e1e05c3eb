// Sizes and durations as people write them.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "base/bytes.hpp"

namespace nc {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr double kKi = 1024.0;

// A bare K, M, G, T is binary, as in most tools; KB, MB, GB, TB are decimal.
constexpr std::array kSizeUnits = {
    Unit{"", 1},
    Unit{"b", 1},
    Unit{"k", kKi},
    Unit{"kib", kKi},
    Unit{"m", kKi* kKi},
    Unit{"mib", kKi* kKi},
    Unit{"g", kKi* kKi* kKi},
    Unit{"gib", kKi* kKi* kKi},
    Unit{"t", kKi* kKi* kKi* kKi},
    Unit{"tib", kKi* kKi* kKi* kKi},
    Unit{"kb", 1e3},
    Unit{"mb", 1e6},
    Unit{"gb", 1e9},
    Unit{"tb", 1e12},
};

// From long to short: "2h30m" is fine, "30m2h" and "1h1h" are not.
constexpr std::array kDurationUnits = {
    Unit{"w", 604800}, Unit{"d", 86400}, Unit{"h", 3600},  Unit{"m", 60},
    Unit{"min", 60},   Unit{"s", 1},     Unit{"ms", 1e-3}, Unit{"us", 1e-6},
};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

void skip_blanks(std::string_view& text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
}

struct Number {
  std::uint64_t whole = 0;
  double fraction = 0;
};

// Digits with an optional fraction; no sign, no exponent, no locale.
std::optional<Number> take_number(std::string_view& text) {
  Number number;
  std::size_t digits = 0;
  for (; !text.empty() && is_digit(text.front()); text.remove_prefix(1), ++digits) {
    const auto digit = static_cast<std::uint64_t>(text.front() - '0');
    if (number.whole > (std::numeric_limits<std::uint64_t>::max() - digit) / 10)
      return std::nullopt;
    number.whole = number.whole * 10 + digit;
  }
  if (digits == 0) return std::nullopt;
  if (!text.empty() && text.front() == '.') {
    text.remove_prefix(1);
    double place = 0.1;
    std::size_t decimals = 0;
    for (; !text.empty() && is_digit(text.front()); text.remove_prefix(1), ++decimals) {
      number.fraction += place * (text.front() - '0');
      place /= 10;
    }
    if (decimals == 0) return std::nullopt;
  }
  return number;
}

std::string take_word(std::string_view& text) {
  std::string word;
  for (; !text.empty() && is_letter(text.front()); text.remove_prefix(1)) {
    word.push_back(lower(text.front()));
  }
  return word;
}

Error bad_size(std::string_view text) {
  return {Code::kInvalid, fmt::format("\"{}\" is not a size", text),
          "write bytes with an optional unit, such as 4096, 1.5 MB or 10GiB"};
}

Error bad_duration(std::string_view text) {
  return {Code::kInvalid, fmt::format("\"{}\" is not a duration", text),
          "write numbers with units, such as 250ms, 90s, 2h30m or 7d"};
}

}  // namespace

Result<std::uint64_t> parse_size(std::string_view text) {
  std::string_view rest = text;
  skip_blanks(rest);
  const auto number = take_number(rest);
  if (!number) return bad_size(text);
  skip_blanks(rest);
  const std::string word = take_word(rest);
  skip_blanks(rest);
  const auto* unit = std::ranges::find(kSizeUnits, std::string_view(word), &Unit::name);
  if (unit == kSizeUnits.end() || !rest.empty()) return bad_size(text);
  const auto factor = static_cast<std::uint64_t>(unit->factor);
  const auto extra = static_cast<std::uint64_t>(std::llround(number->fraction * unit->factor));
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  if (number->whole > kMax / factor || number->whole * factor > kMax - extra) return bad_size(text);
  return number->whole * factor + extra;
}

Result<double> parse_duration_s(std::string_view text) {
  std::string_view rest = text;
  skip_blanks(rest);
  double seconds = 0;
  double last_factor = std::numeric_limits<double>::infinity();
  bool first = true;
  while (first || !rest.empty()) {
    const auto number = take_number(rest);
    if (!number) return bad_duration(text);
    skip_blanks(rest);
    std::string word = take_word(rest);
    skip_blanks(rest);
    if (word.empty() && first && rest.empty()) word = "s";  // a bare number: seconds
    const auto* unit = std::ranges::find(kDurationUnits, std::string_view(word), &Unit::name);
    if (unit == kDurationUnits.end() || unit->factor >= last_factor) return bad_duration(text);
    last_factor = unit->factor;
    seconds += (static_cast<double>(number->whole) + number->fraction) * unit->factor;
    first = false;
  }
  // A million years: beyond it, milliseconds would not fit 64 bits any more.
  if (seconds > 3.2e13) return bad_duration(text);
  return seconds;
}

std::string format_size(std::uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  static constexpr std::array<std::string_view, 6> kNames = {"KiB", "MiB", "GiB",
                                                             "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / kKi;
  std::size_t unit = 0;
  // 1023.95 would print as "1024.0".
  while (value >= 1023.95 && unit + 1 < kNames.size()) {
    value /= kKi;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kNames[unit]);
}

std::string format_duration(double seconds) {
  if (!(seconds > 0)) return "0 s";
  if (seconds < 0.0095) return fmt::format("{:.1f} ms", seconds * 1e3);
  if (seconds < 0.9995) return fmt::format("{:.0f} ms", seconds * 1e3);
  if (seconds < 59.95) return fmt::format("{:.1f} s", seconds);
  if (seconds > 9e15) return "forever";
  const auto total = static_cast<std::uint64_t>(std::llround(seconds));
  if (total < 3600) return fmt::format("{}m {}s", total / 60, total % 60);
  if (total < 86400) return fmt::format("{}h {}m", total / 3600, total % 3600 / 60);
  return fmt::format("{}d {}h", total / 86400, total % 86400 / 3600);
}

}  // namespace nc
