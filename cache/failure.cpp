#include <array>

#include <fmt/format.h>

#include "cache/failure_policy.hpp"
#include "cache/json_fields.hpp"
#include "cache/manifest.hpp"

namespace nc {
namespace {

namespace json = boost::json;

// A log of 1 MiB may be six times as long in JSON.
constexpr std::uint64_t kMaxFailureJson = 8 << 20;

constexpr std::array<std::pair<FailureClass, std::string_view>, 8> kClasses{{
    {FailureClass::kDeterministic, "deterministic"},
    {FailureClass::kUncacheable, "uncacheable"},
    {FailureClass::kOutOfMemory, "out_of_memory"},
    {FailureClass::kKilled, "killed"},
    {FailureClass::kTimeout, "timeout"},
    {FailureClass::kDiskFull, "disk_full"},
    {FailureClass::kEnvironment, "environment"},
    {FailureClass::kCancelled, "cancelled"},
}};

}  // namespace

std::string_view failure_class_name(FailureClass c) {
  for (const auto& [value, name] : kClasses) {
    if (value == c) return name;
  }
  return "deterministic";
}

Result<FailureClass> parse_failure_class(std::string_view name) {
  std::string all;
  for (const auto& [value, known] : kClasses) {
    if (known == name) return value;
    if (!all.empty()) all += ", ";
    all += known;
  }
  return Error{Code::kInvalid, fmt::format("\"{}\" is no failure class", name.substr(0, 64)),
               "use one of " + all};
}

Result<Failure> Failure::parse(std::string_view text) {
  constexpr std::string_view kWhat = "failure record";
  NC_ASSIGN(const json::object object, parse_json_object(text, kMaxFailureJson, kWhat));
  Failure f;
  JsonFields fields(object, std::string(kWhat));
  std::string failure_class;
  fields.version(1);
  fields.require("key").digest("key", f.key);
  fields.require("class").text("class", failure_class, 64);
  fields.text("kind", f.kind, 32, [](std::string_view s) { return s.empty() || is_kind_name(s); });
  fields.text("namespace", f.name_space, 64, is_namespace_name);
  fields.text("label", f.label).text("model", f.model).text("compiler", f.compiler);
  fields.text("message", f.message, kMaxFailureMessage).text("log", f.log, kMaxFailureLog);
  fields.integer("exit_code", f.exit_code, -JsonFields::kMaxInteger, JsonFields::kMaxInteger);
  fields.integer("created_ms", f.created_ms, 0, JsonFields::kMaxInteger);
  fields.integer("expires_ms", f.expires_ms, 0, JsonFields::kMaxInteger);
  fields.parts("parts", f.parts);
  NC_TRY(fields.done());
  NC_ASSIGN(f.failure_class, parse_failure_class(failure_class));
  if (!f.parts.empty()) NC_TRY(check_key(f.parts, f.key, kWhat));
  return f;
}

std::string Failure::to_json() const {
  json::object object;
  object["v"] = 1;
  object["key"] = key.hex();
  object["class"] = json::string_view(failure_class_name(failure_class).data(),
                                      failure_class_name(failure_class).size());
  object["kind"] = kind;
  object["namespace"] = name_space;
  object["label"] = label;
  object["model"] = model;
  object["compiler"] = compiler;
  object["message"] = message;
  object["log"] = log;
  object["exit_code"] = exit_code;
  object["created_ms"] = created_ms;
  object["expires_ms"] = expires_ms;
  object["parts"] = parts_to_json(parts);
  return json::serialize(object);
}

}  // namespace nc
