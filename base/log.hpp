// Logging: one line per event, "time level component: text". Levels: trace debug info warn error
// off. The back end (spdlog) lives in log.cpp alone; callers pay formatting only when the level is
// on.
#pragma once

#include <string>
#include <string_view>

#include <fmt/format.h>

#include "base/result.hpp"

namespace nc::log {

enum class Level { kTrace, kDebug, kInfo, kWarn, kError, kOff };

// `file` empty: standard error. Rotates at 10 MiB, keeps 3. May be called again (reopens).
Status configure(std::string_view level, const std::string& file);
Result<Level> parse_level(std::string_view name);
void set_level(Level level);
bool enabled(Level level);
void write(Level level, std::string_view component, std::string_view text);

template <class... A>
void debug(std::string_view component, fmt::format_string<A...> f, A&&... a) {
  if (enabled(Level::kDebug))
    write(Level::kDebug, component, fmt::format(f, std::forward<A>(a)...));
}
template <class... A>
void info(std::string_view component, fmt::format_string<A...> f, A&&... a) {
  if (enabled(Level::kInfo)) write(Level::kInfo, component, fmt::format(f, std::forward<A>(a)...));
}
template <class... A>
void warn(std::string_view component, fmt::format_string<A...> f, A&&... a) {
  if (enabled(Level::kWarn)) write(Level::kWarn, component, fmt::format(f, std::forward<A>(a)...));
}
template <class... A>
void error(std::string_view component, fmt::format_string<A...> f, A&&... a) {
  if (enabled(Level::kError))
    write(Level::kError, component, fmt::format(f, std::forward<A>(a)...));
}

}  // namespace nc::log
