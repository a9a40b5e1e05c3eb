#include "daemon/action_record.hpp"

#include <algorithm>
#include <utility>

#include <boost/json.hpp>
#include <fmt/format.h>

#include "cache/json_fields.hpp"
#include "cache/output_list.hpp"

namespace nc::daemon {
namespace {

namespace js = boost::json;

constexpr std::string_view kWhat = "recorded action";
constexpr std::string_view kRecordMember = "record";

KeyParts entry_parts(const ActionKey& action) {
  return {{std::string(kWhat), action.hex()}};
}

Result<std::vector<std::string>> read_arguments(const js::value& value) {
  const js::array* array = value.if_array();
  if (array == nullptr || array->empty() || array->size() > ActionRecord::kMaxArguments) {
    return Error{Code::kInvalid,
                 fmt::format("{}: \"argv\" is not an array of 1 to {} arguments", kWhat,
                             ActionRecord::kMaxArguments),
                 ""};
  }
  std::vector<std::string> out;
  out.reserve(array->size());
  for (const js::value& item : *array) {
    if (!item.is_string()) {
      return Error{Code::kInvalid, fmt::format("{}: argv[{}] is not a string", kWhat, out.size()),
                   ""};
    }
    out.emplace_back(item.get_string());
  }
  return out;
}

}  // namespace

Result<ActionRecord> ActionRecord::parse(std::string_view text) {
  NC_ASSIGN(const js::object object, parse_json_object(text, kMaxBytes, kWhat));
  ActionRecord r;
  JsonFields fields(object, std::string(kWhat));
  fields.version(1);
  fields.require("key").require("kind").require("parts").require("argv").require("inputs");
  fields.digest("key", r.key)
      .text("kind", r.kind, 32, is_kind_name)
      .text("namespace", r.name_space, 64, is_namespace_name)
      .text("label", r.label)
      .text("program", r.program)
      .text("model", r.model)
      .text("compiler", r.compiler)
      .parts("parts", r.parts)
      .strings("env", r.env);
  NC_TRY(fields.done());
  NC_ASSIGN(r.argv, read_arguments(*fields.member("argv")));
  NC_ASSIGN(r.inputs, outputs_from_json(*fields.member("inputs"), kWhat, "inputs", "input"));
  NC_TRY(check_key(r.parts, r.key, kWhat));
  constexpr std::size_t kDefaultsRoom = 16 << 10;
  if (text.size() > kMaxBytes - kDefaultsRoom && r.to_json().size() > kMaxBytes) {
    return Error{Code::kTooLarge,
                 fmt::format("{}: over {} in its canonical form", kWhat, format_size(kMaxBytes)),
                 ""};
  }
  return r;
}

std::string ActionRecord::to_json() const {
  js::array arguments;
  for (const std::string& one : argv) arguments.emplace_back(one);
  js::object variables;
  for (const auto& [name, value] : env) variables.emplace(name, value);
  js::object object;
  object["v"] = 1;
  object["key"] = key.hex();
  object["namespace"] = name_space;
  object["kind"] = kind;
  object["label"] = label;
  object["program"] = program;
  object["model"] = model;
  object["compiler"] = compiler;
  object["parts"] = parts_to_json(parts);
  object["argv"] = std::move(arguments);
  object["env"] = std::move(variables);
  object["inputs"] = outputs_to_json(inputs);
  return js::serialize(object);
}

bool has_parts(const KeyParts& parts, const KeyParts& wanted) {
  return std::ranges::all_of(
      wanted, [&](const auto& part) { return std::ranges::find(parts, part) != parts.end(); });
}

std::uint64_t ActionRecord::bytes() const {
  std::uint64_t sum = 0;
  for (const Output& input : inputs) sum += input.size;
  return sum;
}

ActionKey ActionRecord::entry_key(const ActionKey& action) {
  return action_key(entry_parts(action)).value();
}

Manifest ActionRecord::to_entry(Millis now_ms) const {
  Manifest entry;
  entry.key = entry_key(key);
  entry.kind = kEntryKind;
  entry.name_space = name_space;
  entry.label = label;
  entry.model = model;
  entry.compiler = compiler;
  entry.created_ms = now_ms;
  entry.parts = entry_parts(key);
  entry.outputs = inputs;
  entry.meta.emplace(kRecordMember, to_json());
  return entry;
}

Result<ActionRecord> ActionRecord::from_entry(const Manifest& entry) {
  const auto text = entry.meta.find(std::string(kRecordMember));
  if (entry.kind != kEntryKind || text == entry.meta.end()) {
    return Error{Code::kInvalid, "entry " + entry.key.hex() + " is not a recorded action", ""};
  }
  return parse(text->second);
}

}  // namespace nc::daemon
