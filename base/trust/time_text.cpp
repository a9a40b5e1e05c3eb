#include "base/trust/time_text.hpp"

#include <charconv>
#include <ctime>

#include <fmt/format.h>

namespace nc::trust {
namespace {

constexpr Millis kLast = 253'402'300'799'000;  // 9999-12-31T23:59:59Z

std::optional<int> number(std::string_view text) {
  int value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value;
}

}  // namespace

std::string time_text(Millis ms) {
  const std::time_t seconds = std::min(std::max<Millis>(ms, 0), kLast) / 1000;
  std::tm tm{};
  ::gmtime_r(&seconds, &tm);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", tm.tm_year + 1900, tm.tm_mon + 1,
                     tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec);
}

std::optional<Millis> parse_time(std::string_view text) {
  if (text.size() != 20) return std::nullopt;
  const auto year = number(text.substr(0, 4));
  const auto month = number(text.substr(5, 2));
  const auto day = number(text.substr(8, 2));
  const auto hour = number(text.substr(11, 2));
  const auto minute = number(text.substr(14, 2));
  const auto second = number(text.substr(17, 2));
  if (!year || !month || !day || !hour || !minute || !second) return std::nullopt;
  std::tm tm{};
  tm.tm_year = *year - 1900;
  tm.tm_mon = *month - 1;
  tm.tm_mday = *day;
  tm.tm_hour = *hour;
  tm.tm_min = *minute;
  tm.tm_sec = *second;
  const Millis ms = static_cast<Millis>(::timegm(&tm)) * 1000;
  // Also refuses the 31st of February, and every separator that is not ours.
  if (ms < 0 || time_text(ms) != text) return std::nullopt;
  return ms;
}

}  // namespace nc::trust
