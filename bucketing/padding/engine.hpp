// The padding engine: from a request of docs/padding.md to its answer.
#pragma once

#include <string_view>

#include <boost/json/value.hpp>

#include "base/result.hpp"

namespace nc::padding {

// Changes whenever an answer to the same request may.
inline constexpr std::string_view kEngineVersion = "5";

// Analyses and rewrites. A graph that cannot be padded is an answer (a refusal), no error.
// Errors: kInvalid, kTooLarge (the request), kUnsupported (a version of it that is not spoken),
// kInternal (a fault of the engine; nothing was proved). Pure: no I/O, no shared state.
Result<boost::json::value> plan(const boost::json::value& request);

}  // namespace nc::padding
