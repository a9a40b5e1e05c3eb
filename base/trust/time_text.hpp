// Points in time in files that people read: "2026-11-30T19:19:01Z", UTC, whole seconds.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/clock.hpp"

namespace nc::trust {

// Years 1970..9999.
std::string time_text(Millis ms);
std::optional<Millis> parse_time(std::string_view text);

}  // namespace nc::trust
