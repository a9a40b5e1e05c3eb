// Reading JSON objects leniently: a field that is missing or of another type gives the default, as
// the protocol asks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include "base/result.hpp"

namespace nc::client::json {

namespace bj = boost::json;

// `what` names the document in the error (kInvalid), e.g. "the daemon's answer to /v1/stats".
Result<bj::object> parse_object(std::string_view text, std::string_view what);
std::string serialize(const bj::object& object);

std::string text(const bj::object& object, std::string_view name);
bool boolean(const bj::object& object, std::string_view name, bool otherwise = false);
std::int64_t integer(const bj::object& object, std::string_view name, std::int64_t otherwise = 0);
std::uint64_t natural(const bj::object& object, std::string_view name);  // 0 when negative
std::optional<double> number(const bj::object& object, std::string_view name);
const bj::object* object(const bj::object& object,
                         std::string_view name);  // nullptr when absent or null
const bj::array* array(const bj::object& object, std::string_view name);
std::optional<double> as_number(const bj::value& value);

}  // namespace nc::client::json
