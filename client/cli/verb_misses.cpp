#include <algorithm>

#include <fmt/format.h>

#include "client/cli/output.hpp"
#include "client/cli/render.hpp"
#include "client/cli/session.hpp"

namespace nc::cli {
namespace {

using client::MissRecord;

std::string cause_words(std::string_view cause) {
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"never_built", "never built here, and nothing like it is stored"},
      {"evicted", "was stored, and evicted to make room (raise max_bytes, or pin it)"},
      {"pruned", "was stored, and pruned"},
      {"corrupt", "was stored, and found damaged"},
      {"failure_expired", "was a failure, due to be tried again"},
      {"parts_differ", "something like it is stored, but not the same"},
  };
  for (const auto& [name, words] : kWords) {
    if (name == cause) return std::string(words);
  }
  return std::string(cause);
}

std::string record_text(const MissRecord& m, Millis now, std::size_t width) {
  std::string what = m.label.empty() ? m.model : m.label;
  if (!m.program.empty()) what += (what.empty() ? "from " : ", from ") + m.program;
  std::string out = fmt::format(
      "{}  {}  {}{}{}\n  {}\n", short_key(m.key), format_ago(m.time_ms, now), printable(m.kind),
      what.empty() ? "" : "  ", printable(what), cause_words(m.reason.cause));
  if (!m.reason.nearest) return out;
  const client::NearestEntry& near = *m.reason.nearest;
  out += fmt::format("  nearest: {}, built {}{}{}\n", short_key(near.key),
                     format_ago(near.created_ms, now),
                     near.host.empty() ? "" : " on " + printable(near.host),
                     near.differs.empty() ? "" : "; it differs in");
  Table table({{"", "name"},
               {"wanted", "wanted", Table::Align::kLeft, true},
               {"stored", "have", Table::Align::kLeft, true}});
  constexpr std::size_t kShown = 8;
  const auto value = [](const std::string& v) {
    return v.empty() ? std::string("(nothing)") : printable(v);
  };
  for (std::size_t i = 0; i < std::min(kShown, near.differs.size()); ++i) {
    table.add({printable(near.differs[i].name), value(near.differs[i].wanted),
               value(near.differs[i].have)});
  }
  if (!table.empty()) out += table.text(width, 4);
  if (near.differs.size() > kShown)
    out += fmt::format("    and {} more\n", near.differs.size() - kShown);
  return out;
}

bj::object record_json(const MissRecord& m) {
  bj::object out{{"time_ms", m.time_ms},   {"key", m.key},     {"namespace", m.name_space},
                 {"kind", m.kind},         {"label", m.label}, {"program", m.program},
                 {"compiler", m.compiler}, {"model", m.model}};
  const bj::object reason = miss_json(m.reason);
  for (const auto& item : reason) out[item.key()] = item.value();
  return out;
}

Result<int> run(Context& context) {
  NC_ASSIGN(const auto limit_option, context.count_option("limit"));
  const std::uint64_t limit = limit_option.value_or(20);
  const auto name_space = context.option("namespace");
  const std::string prefix = context.option("KEY").value_or("");
  if (!prefix.empty()) NC_TRY(check_key(prefix));
  NC_ASSIGN(Session session, Session::open(context, Session::Need::kRead));
  std::vector<MissRecord> records;
  if (session.source() != Session::Source::kNone) {
    constexpr std::size_t kJournal = 10'000;  // filters look at the whole journal
    const bool filtered = name_space || !prefix.empty();
    NC_ASSIGN(records,
              session.client().misses(filtered ? kJournal : std::max<std::uint64_t>(limit, 1)));
  }
  std::erase_if(records, [&](const MissRecord& m) {
    return (name_space && m.name_space != *name_space) || !m.key.starts_with(prefix);
  });
  if (records.size() > limit) records.resize(limit);
  switch (context.format()) {
    case Format::kJson: {
      bj::array out;
      for (const MissRecord& m : records) out.push_back(record_json(m));
      print_json(
          bj::object{{"source", std::string(session.source_name())}, {"misses", std::move(out)}});
      break;
    }
    case Format::kTab: {
      Table table({{"", "time_ms"},
                   {"", "key"},
                   {"", "namespace"},
                   {"", "kind"},
                   {"", "label"},
                   {"", "program"},
                   {"", "cause"},
                   {"", "nearest"},
                   {"", "differs"}});
      for (const MissRecord& m : records) {
        std::vector<std::string> names;
        if (m.reason.nearest) {
          for (const auto& d : m.reason.nearest->differs) names.push_back(d.name);
        }
        table.add({fmt::format("{}", m.time_ms), m.key, m.name_space, m.kind, m.label, m.program,
                   m.reason.cause, m.reason.nearest ? m.reason.nearest->key : "",
                   fmt::format("{}", fmt::join(names, ","))});
      }
      print(table.tab());
      break;
    }
    case Format::kText: {
      if (records.empty()) print("No misses in the journal.\n");
      const Millis now = system_clock().wall_ms();
      bool first = true;
      for (const MissRecord& m : records) {
        if (!first) print("\n");
        first = false;
        print(record_text(m, now, terminal_width()));
      }
      break;
    }
  }
  return kOk;
}

constexpr ArgumentSpec kArguments[] = {
    {"KEY", "Only misses of this key, or of keys that begin so.", false, false, ""}};
constexpr OptionSpec kOptions[] = {
    {"namespace", "NAME", "Only misses of this namespace.", ""},
    {"limit", "N", "Print at most N, the newest first (default 20).", ""},
};

}  // namespace

extern constinit const Verb kMissesVerb{
    .name = "misses",
    .summary = "Explain the latest misses: the nearest stored entry and what differs.",
    .details =
        "Each look-up that found nothing is kept in a journal of bounded size with its cause.",
    .arguments = kArguments,
    .options = kOptions,
    .examples = "neuroncache misses --limit 3",
    .run = run};

}  // namespace nc::cli
