#include "cache/tier/dates.hpp"

#include <array>
#include <charconv>
#include <chrono>

namespace nc::tier {
namespace {

std::optional<int> number(std::string_view text, std::size_t from, std::size_t digits) {
  if (text.size() < from + digits) return std::nullopt;
  int value = 0;
  const char* begin = text.data() + from;
  const auto [at, error] = std::from_chars(begin, begin + digits, value);
  if (error != std::errc() || at != begin + digits || value < 0) return std::nullopt;
  return value;
}

std::optional<Millis> point(std::optional<int> year, std::optional<int> month,
                            std::optional<int> day, std::string_view time) {
  using namespace std::chrono;
  const auto h = number(time, 0, 2);
  const auto m = number(time, 3, 2);
  const auto s = number(time, 6, 2);
  if (!year || !month || !day || !h || !m || !s || time[2] != ':' || time[5] != ':') {
    return std::nullopt;
  }
  const year_month_day date{std::chrono::year(*year),
                            std::chrono::month(static_cast<unsigned>(*month)),
                            std::chrono::day(static_cast<unsigned>(*day))};
  if (!date.ok() || *h > 23 || *m > 59 || *s > 60) return std::nullopt;
  const auto whole = sys_days(date) + hours(*h) + minutes(*m) + seconds(*s);
  return duration_cast<milliseconds>(whole.time_since_epoch()).count();
}

}  // namespace

std::optional<Millis> parse_http_date(std::string_view text) {
  constexpr std::array<std::string_view, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                        "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  if (text.size() != 29 || text.substr(3, 2) != ", " || !text.ends_with(" GMT")) {
    return std::nullopt;
  }
  std::optional<int> month;
  for (std::size_t i = 0; i < kMonths.size(); ++i) {
    if (text.substr(8, 3) == kMonths.at(i)) month = static_cast<int>(i) + 1;
  }
  return point(number(text, 12, 4), month, number(text, 5, 2), text.substr(17, 8));
}

std::optional<Millis> parse_iso_date(std::string_view text) {
  if (text.size() < 20 || text.size() > 32 || !text.ends_with('Z') || text[4] != '-' ||
      text[7] != '-' || text[10] != 'T' || (text[19] != 'Z' && text[19] != '.')) {
    return std::nullopt;
  }
  return point(number(text, 0, 4), number(text, 5, 2), number(text, 8, 2), text.substr(11, 8));
}

}  // namespace nc::tier
