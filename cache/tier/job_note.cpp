#include "cache/tier/job_note.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "cache/json_fields.hpp"

namespace nc::tier {
namespace {

namespace json = boost::json;

constexpr std::string_view kWhat = "note of a job";
constexpr std::array<std::pair<JobNote::State, std::string_view>, 3> kStates{{
    {JobNote::State::kBuilding, "building"},
    {JobNote::State::kAgain, "again"},
    {JobNote::State::kFailed, "failed"},
}};

Result<JobNote::State> parse_state(std::string_view name) {
  for (const auto& [value, known] : kStates) {
    if (known == name) return value;
  }
  return Error{Code::kInvalid, fmt::format("{}: \"{}\" is no state", kWhat, name), ""};
}

// A log may hold anything; what is no text is shown as '?', so that one bad byte costs no more.
std::string tail(std::string_view text, std::size_t most) {
  if (text.size() > most) {
    text = text.substr(text.size() - most);
    // Not from the middle of a character.
    const auto inside = [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) == 0x80U; };
    for (int cut = 0; cut < 3 && inside(text.front()); ++cut) text.remove_prefix(1);
  }
  std::string out(text);
  if (is_utf8(out)) return out;
  std::ranges::replace_if(
      out, [](char c) { return static_cast<unsigned char>(c) >= 0x80; }, '?');
  return out;
}

}  // namespace

std::string_view job_note_state_name(JobNote::State state) {
  return kStates[static_cast<std::size_t>(state)].second;
}

Result<JobNote> JobNote::parse(std::string_view text) {
  NC_ASSIGN(const json::object object, parse_json_object(text, kMaxBytes, kWhat));
  JobNote note;
  JsonFields fields(object, std::string(kWhat));
  std::string state;
  fields.version(1, "use one version of neuroncache on all hosts");
  fields.require("state").require("attempts");
  fields.text("state", state, 32)
      .integer("attempts", note.attempts, 0, kMaxAttempts)
      .text("host", note.host, kMaxText)
      .text("compiler", note.compiler, kMaxText)
      .text("class", note.failure_class, kMaxText)
      .text("message", note.message, kMaxText)
      .text("log", note.log, kMaxLog);
  NC_TRY(fields.done());
  NC_ASSIGN(note.state, parse_state(state));
  return note;
}

std::string JobNote::to_text() const {
  json::object object;
  const auto name = job_note_state_name(state);
  object["v"] = 1;
  object["state"] = json::string_view(name.data(), name.size());
  object["attempts"] = std::min(attempts, kMaxAttempts);
  object["host"] = utf8_head(host, kMaxText);
  object["compiler"] = utf8_head(compiler, kMaxText);
  object["class"] = utf8_head(failure_class, kMaxText);
  object["message"] = utf8_head(message, kMaxText);
  object["log"] = tail(log, kMaxLog);
  // Control characters take six bytes each in JSON: should that be too much, the log goes.
  std::string text = json::serialize(object);
  if (text.size() <= kMaxBytes) return text;
  object["log"] = "";
  return json::serialize(object);
}

}  // namespace nc::tier
