#include "cache/tier/lease_record.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "cache/json_fields.hpp"

namespace nc::tier {
namespace {

namespace json = boost::json;

constexpr std::string_view kWhat = "lease record";
constexpr std::array<std::pair<LeaseRecord::State, std::string_view>, 3> kStates{{
    {LeaseRecord::State::kHeld, "held"},
    {LeaseRecord::State::kReleased, "released"},
    {LeaseRecord::State::kApart, "apart"},
}};

std::string cut(std::string_view text) {
  if (text.size() > LeaseRecord::kMaxText) text = text.substr(0, LeaseRecord::kMaxText);
  while (!text.empty() && !is_utf8(text)) text.remove_suffix(1);
  return std::string(text);
}

Result<LeaseRecord::State> parse_state(std::string_view name) {
  for (const auto& [value, known] : kStates) {
    if (known == name) return value;
  }
  return Error{Code::kInvalid, fmt::format("{}: \"{}\" is no state", kWhat, name), ""};
}

}  // namespace

Result<LeaseRecord> LeaseRecord::parse(std::string_view text) {
  NC_ASSIGN(const json::object object, parse_json_object(text, kMaxBytes, kWhat));
  LeaseRecord record;
  JsonFields fields(object, std::string(kWhat));
  std::int64_t version = 0;
  std::string state;
  fields.require("v").integer("v", version, 0, JsonFields::kMaxInteger);
  NC_TRY(fields.done());
  if (version != 1) {
    return Error{Code::kUnsupported,
                 fmt::format("{} of version {}, only 1 is known", kWhat, version),
                 "use one version of neuroncache on all hosts"};
  }
  fields.require("state").require("holder").require("beat").require("period_ms");
  fields.text("state", state, 32)
      .text("holder", record.holder, 32, [](std::string_view s) { return is_hex(s, 32); })
      .integer("beat", record.beat, 1, JsonFields::kMaxInteger)
      .integer("period_ms", record.period_ms, kMinPeriodMs, kMaxPeriodMs)
      .text("host", record.host, kMaxText)
      .text("program", record.program, kMaxText)
      .text("label", record.label, kMaxText)
      .text("progress", record.progress, kMaxText)
      .integer("pid", record.pid, 0, std::int64_t{1} << 31)
      .integer("building_ms", record.building_ms, 0, JsonFields::kMaxInteger);
  NC_TRY(fields.done());
  NC_ASSIGN(record.state, parse_state(state));
  return record;
}

std::string LeaseRecord::to_text() const {
  json::object object;
  object["v"] = 1;
  for (const auto& [value, name] : kStates) {
    if (value == state) object["state"] = json::string_view(name.data(), name.size());
  }
  object["holder"] = holder;
  object["beat"] = beat;
  object["period_ms"] = std::clamp(period_ms, kMinPeriodMs, kMaxPeriodMs);
  object["host"] = cut(host);
  object["program"] = cut(program);
  object["label"] = cut(label);
  object["progress"] = cut(progress);
  object["pid"] = std::clamp<std::int64_t>(pid, 0, std::int64_t{1} << 31);
  object["building_ms"] = std::clamp<Millis>(building_ms, 0, JsonFields::kMaxInteger);
  return json::serialize(object);
}

}  // namespace nc::tier
