// Reading our JSON records strictly: the first thing that is wrong is kept and told with its place.
// Brings in Boost.JSON: include it from .cpp files of cache/ only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <boost/json.hpp>

#include "base/hash.hpp"
#include "base/result.hpp"

namespace nc {

// Parses one JSON object. kTooLarge over `limit`; kInvalid when it is not JSON, not UTF-8, not an
// object, nested too deeply.
Result<boost::json::object> parse_json_object(std::string_view text, std::uint64_t limit,
                                              std::string_view what);

using TextCheck = bool (*)(std::string_view);
bool is_kind_name(std::string_view s);       // [a-z0-9_-]{1,32}
bool is_namespace_name(std::string_view s);  // [A-Za-z0-9._-]{1,64}, not "." or ".."
bool is_output_name(std::string_view s);     // no '/', no control characters, not "." or ".."

class JsonFields {
 public:
  static constexpr std::int64_t kMaxInteger = 1LL << 53;  // what every JSON reader keeps exactly
  static constexpr std::size_t kMaxText = 1024;

  JsonFields(const boost::json::object& object, std::string where)
      : object_(object), where_(std::move(where)) {}

  // Each reads one field into `out`; an absent field leaves it alone, after the first error they
  // all do nothing.
  JsonFields& text(std::string_view name, std::string& out, std::size_t max = kMaxText,
                   TextCheck check = nullptr);
  JsonFields& digest(std::string_view name, Sha256& out);
  JsonFields& parts(std::string_view name, KeyParts& out);
  JsonFields& strings(std::string_view name, std::map<std::string, std::string>& out);
  template <class Int>
  JsonFields& integer(std::string_view name, Int& out, std::int64_t min, std::int64_t max) {
    if (auto value = read_integer(name, min, max)) out = static_cast<Int>(*value);
    return *this;
  }
  // The field "v" must be there and be this; kUnsupported for another, with what to do.
  JsonFields& version(std::int64_t only, std::string_view action = "use a newer neuroncache");
  // The field must be there.
  JsonFields& require(std::string_view name);

  // The member, or null when it is absent or something was wrong before.
  const boost::json::value* member(std::string_view name) const;
  void fail(Code code, std::string_view name, std::string_view problem);
  Status done() const;

 private:
  std::optional<std::int64_t> read_integer(std::string_view name, std::int64_t min,
                                           std::int64_t max);

  const boost::json::object& object_;
  std::string where_;
  std::optional<Error> error_;
};

boost::json::array parts_to_json(const KeyParts& parts);
// kKeyMismatch when `parts` do not hash to `key`.
Status check_key(const KeyParts& parts, const ActionKey& key, std::string_view what);

}  // namespace nc
