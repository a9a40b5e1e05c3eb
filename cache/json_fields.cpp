#include "cache/json_fields.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

namespace nc {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxDepth = 16;
constexpr std::size_t kMaxParts = 1024;
constexpr std::size_t kMaxPartName = 255;
constexpr std::size_t kMaxMeta = 256;

bool all_of(std::string_view s, std::string_view punctuation, bool upper) {
  return std::all_of(s.begin(), s.end(), [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (upper && c >= 'A' && c <= 'Z') ||
           punctuation.find(c) != std::string_view::npos;
  });
}

bool has_control(std::string_view s) {
  return std::any_of(s.begin(), s.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

std::string_view view(const json::string& s) {
  return {s.data(), s.size()};
}

}  // namespace

Result<json::object> parse_json_object(std::string_view text, std::uint64_t limit,
                                       std::string_view what) {
  if (text.size() > limit) {
    return Error{Code::kTooLarge,
                 fmt::format("{} of {} is over the limit of {}", what, format_size(text.size()),
                             format_size(limit)),
                 ""};
  }
  json::parse_options options;
  options.max_depth = kMaxDepth;
  json::error_code error;
  // One piece of memory that goes as a whole; the returned object holds on to it.
  auto memory = json::make_shared_resource<json::monotonic_resource>(text.size() + 4096);
  json::value value =
      json::parse(json::string_view(text.data(), text.size()), error, std::move(memory), options);
  if (error) {
    return Error{Code::kInvalid, fmt::format("{} is not valid JSON: {}", what, error.message()),
                 ""};
  }
  if (!value.is_object()) {
    return Error{Code::kInvalid, fmt::format("{} is not a JSON object", what), ""};
  }
  return std::move(value.get_object());
}

bool is_kind_name(std::string_view s) {
  return !s.empty() && s.size() <= 32 && all_of(s, "_-", false);
}

bool is_namespace_name(std::string_view s) {
  return !s.empty() && s.size() <= 64 && all_of(s, "._-", true) && s != "." && s != "..";
}

bool is_output_name(std::string_view s) {
  return !s.empty() && s.size() <= 255 && s != "." && s != ".." &&
         s.find('/') == std::string_view::npos && !has_control(s);
}

const json::value* JsonFields::member(std::string_view name) const {
  if (error_) return nullptr;
  return object_.if_contains(json::string_view(name.data(), name.size()));
}

void JsonFields::fail(Code code, std::string_view name, std::string_view problem) {
  if (error_) return;
  error_ = Error{code, fmt::format("{}: \"{}\" {}", where_, name, problem), ""};
}

Status JsonFields::done() const {
  if (error_) return *error_;
  return {};
}

JsonFields& JsonFields::require(std::string_view name) {
  if (!error_ && member(name) == nullptr) fail(Code::kInvalid, name, "is missing");
  return *this;
}

JsonFields& JsonFields::version(std::int64_t only, std::string_view action) {
  std::int64_t found = only;
  require("v").integer("v", found, 0, kMaxInteger);
  if (!error_ && found != only) {
    error_ = Error{Code::kUnsupported,
                   fmt::format("{} of version {}, only {} is known", where_, found, only),
                   std::string(action)};
  }
  return *this;
}

JsonFields& JsonFields::text(std::string_view name, std::string& out, std::size_t max,
                             TextCheck check) {
  const json::value* value = member(name);
  if (value == nullptr) return *this;
  const json::string* s = value->if_string();
  if (s == nullptr) {
    fail(Code::kInvalid, name, "is not a string");
  } else if (s->size() > max) {
    fail(Code::kTooLarge, name, fmt::format("has {} bytes, {} are allowed", s->size(), max));
  } else if (check != nullptr && !check(view(*s))) {
    fail(Code::kInvalid, name, "has a character or a length that is not allowed");
  } else {
    out.assign(s->data(), s->size());
  }
  return *this;
}

JsonFields& JsonFields::digest(std::string_view name, Sha256& out) {
  std::string hex;
  text(name, hex, 64);
  if (member(name) == nullptr) return *this;
  if (auto parsed = Sha256::from_hex(hex)) {
    out = *parsed;
  } else {
    fail(Code::kInvalid, name, "is not 64 lower-case hex digits");
  }
  return *this;
}

std::optional<std::int64_t> JsonFields::read_integer(std::string_view name, std::int64_t min,
                                                     std::int64_t max) {
  const json::value* value = member(name);
  if (value == nullptr) return std::nullopt;
  const std::int64_t* i = value->if_int64();  // larger ones are uint64, with a point double
  if (i == nullptr || *i < min || *i > max) {
    fail(Code::kInvalid, name, fmt::format("is not an integer in {}..{}", min, max));
    return std::nullopt;
  }
  return *i;
}

JsonFields& JsonFields::parts(std::string_view name, KeyParts& out) {
  const json::value* value = member(name);
  if (value == nullptr) return *this;
  const json::array* array = value->if_array();
  if (array == nullptr) {
    fail(Code::kInvalid, name, "is not an array");
    return *this;
  }
  if (array->size() > kMaxParts) {
    fail(Code::kTooLarge, name, fmt::format("has more than {} parts", kMaxParts));
    return *this;
  }
  out.clear();
  out.reserve(array->size());
  for (const json::value& item : *array) {
    const json::array* pair = item.if_array();
    if (pair == nullptr || pair->size() != 2 || !(*pair)[0].is_string() ||
        !(*pair)[1].is_string()) {
      fail(Code::kInvalid, name, fmt::format("[{}] is not a pair of strings", out.size()));
      return *this;
    }
    const json::string& part = (*pair)[0].get_string();
    if (part.empty() || part.size() > kMaxPartName) {
      fail(Code::kInvalid, name,
           fmt::format("[{}] has a name of {} bytes, 1..{} are allowed", out.size(), part.size(),
                       kMaxPartName));
      return *this;
    }
    out.emplace_back(view(part), view((*pair)[1].get_string()));
  }
  return *this;
}

JsonFields& JsonFields::strings(std::string_view name, std::map<std::string, std::string>& out) {
  const json::value* value = member(name);
  if (value == nullptr) return *this;
  const json::object* object = value->if_object();
  if (object == nullptr) {
    fail(Code::kInvalid, name, "is not an object");
    return *this;
  }
  if (object->size() > kMaxMeta) {
    fail(Code::kTooLarge, name, fmt::format("has more than {} members", kMaxMeta));
    return *this;
  }
  out.clear();
  for (const auto& [key, item] : *object) {
    if (!item.is_string() || key.size() > kMaxPartName) {
      fail(Code::kInvalid, name, "has a member that is not a string, or a name over 255 bytes");
      return *this;
    }
    out.emplace(std::string_view(key.data(), key.size()), view(item.get_string()));
  }
  return *this;
}

json::array parts_to_json(const KeyParts& parts) {
  json::array array;
  array.reserve(parts.size());
  for (const auto& [name, value] : parts) array.push_back(json::array{name, value});
  return array;
}

Status check_key(const KeyParts& parts, const ActionKey& key, std::string_view what) {
  auto hashed = action_key(parts);
  if (!hashed.ok()) return std::move(hashed).error().context(what);
  if (*hashed == key) return {};
  return Error{
      Code::kKeyMismatch,
      fmt::format("{}: its parts hash to {}, not to its key {}", what, hashed->hex(), key.hex()),
      "compute the key from the parts that are sent (docs/protocol.md)"};
}

}  // namespace nc
