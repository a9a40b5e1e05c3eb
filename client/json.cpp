#include "client/json.hpp"

#include <limits>
#include <system_error>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>

namespace nc::client::json {

Result<bj::object> parse_object(std::string_view text, std::string_view what) {
  boost::system::error_code ec;
  bj::value value = bj::parse(bj::string_view(text.data(), text.size()), ec);
  if (ec || !value.is_object()) {
    return Error{
        Code::kInvalid,
        fmt::format("{} is not a JSON object{}{}", what, ec ? ": " : "", ec ? ec.message() : ""),
        "is another program listening there? check the socket setting"};
  }
  return std::move(value.get_object());
}

std::string serialize(const bj::object& object) {
  return bj::serialize(object);
}

namespace {
const bj::value* find(const bj::object& object, std::string_view name) {
  return object.if_contains(bj::string_view(name.data(), name.size()));
}
}  // namespace

std::string text(const bj::object& object, std::string_view name) {
  const bj::value* value = find(object, name);
  if (value == nullptr || !value->is_string()) return {};
  return {value->get_string().data(), value->get_string().size()};
}

bool boolean(const bj::object& object, std::string_view name, bool otherwise) {
  const bj::value* value = find(object, name);
  return value != nullptr && value->is_bool() ? value->get_bool() : otherwise;
}

std::optional<double> as_number(const bj::value& value) {
  if (value.is_int64()) return static_cast<double>(value.get_int64());
  if (value.is_uint64()) return static_cast<double>(value.get_uint64());
  if (value.is_double()) return value.get_double();
  return std::nullopt;
}

std::int64_t integer(const bj::object& object, std::string_view name, std::int64_t otherwise) {
  const bj::value* value = find(object, name);
  if (value == nullptr) return otherwise;
  if (value->is_int64()) return value->get_int64();
  if (value->is_uint64()) return std::numeric_limits<std::int64_t>::max();
  if (value->is_double()) {
    const double v = value->get_double();
    constexpr double kLimit = 9.2e18;
    return v > -kLimit && v < kLimit ? static_cast<std::int64_t>(v) : otherwise;
  }
  return otherwise;
}

std::uint64_t natural(const bj::object& object, std::string_view name) {
  const bj::value* value = find(object, name);
  if (value != nullptr && value->is_uint64()) return value->get_uint64();
  const std::int64_t v = integer(object, name);
  return v < 0 ? 0 : static_cast<std::uint64_t>(v);
}

std::optional<double> number(const bj::object& object, std::string_view name) {
  const bj::value* value = find(object, name);
  return value == nullptr ? std::nullopt : as_number(*value);
}

const bj::object* object(const bj::object& object, std::string_view name) {
  const bj::value* value = find(object, name);
  return value == nullptr ? nullptr : value->if_object();
}

const bj::array* array(const bj::object& object, std::string_view name) {
  const bj::value* value = find(object, name);
  return value == nullptr ? nullptr : value->if_array();
}

}  // namespace nc::client::json
