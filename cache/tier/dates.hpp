// Points in time as HTTP and AWS write them.
#pragma once

#include <optional>
#include <string_view>

#include "base/clock.hpp"

namespace nc::tier {

// "Fri, 24 May 2013 00:00:00 GMT" -> ms since the epoch; nothing for any other form.
std::optional<Millis> parse_http_date(std::string_view text);
// "2013-05-24T00:00:00Z", also with a fraction of seconds.
std::optional<Millis> parse_iso_date(std::string_view text);

}  // namespace nc::tier
