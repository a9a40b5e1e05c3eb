// Lists of named blobs in JSON records. Brings in Boost.JSON: include it from .cpp files only.
#pragma once

#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "base/result.hpp"
#include "cache/manifest.hpp"

namespace nc {

// An array of {"name", "digest", "size", "mode"}: at most Manifest::kMaxOutputs, names unique.
// `field` is its name in the record `what`, `one` what a member is called in errors.
Result<std::vector<Output>> outputs_from_json(const boost::json::value& value,
                                              std::string_view what, std::string_view field,
                                              std::string_view one);
boost::json::array outputs_to_json(const std::vector<Output>& outputs);

}  // namespace nc
