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
  std::string state;
  fields.version(1, "use one version of neuroncache on all hosts");
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
  object["host"] = utf8_head(host, kMaxText);
  object["program"] = utf8_head(program, kMaxText);
  object["label"] = utf8_head(label, kMaxText);
  object["progress"] = utf8_head(progress, kMaxText);
  object["pid"] = std::clamp<std::int64_t>(pid, 0, std::int64_t{1} << 31);
  object["building_ms"] = std::clamp<Millis>(building_ms, 0, JsonFields::kMaxInteger);
  return json::serialize(object);
}

}  // namespace nc::tier
