#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "client/cli/output.hpp"
#include "client/cli/session.hpp"

namespace nc::cli {
namespace {

using client::Numbers;
using client::Stats;

double number(const Numbers& numbers, std::string_view name) {
  const auto it = numbers.find(std::string(name));
  return it == numbers.end() ? 0 : it->second;
}

// The counters that are always there, whatever the daemon's version.
constexpr std::array kAlways = {
    "lookups", "hits",   "waits", "builds", "failures", "bypasses", "compile_seconds_saved",
    "bytes",   "entries"};

// What was served without building, of all look-ups; nothing when nothing was asked.
std::optional<double> hit_rate(const Numbers& counters) {
  const double lookups = number(counters, "lookups");
  if (lookups <= 0) return std::nullopt;
  return (number(counters, "hits") + number(counters, "waits")) / lookups;
}

std::string percent(double part, double whole) {
  return whole <= 0 ? "-" : fmt::format("{:.1f} %", 100 * part / whole);
}

bj::object numbers_json(const Numbers& numbers) {
  bj::object out;
  for (const auto& [name, value] : numbers) out[name] = value;
  return out;
}

bj::object groups_json(const std::map<std::string, Numbers>& groups) {
  bj::object out;
  for (const auto& [name, numbers] : groups) out[name] = numbers_json(numbers);
  return out;
}

bj::object stats_json(const Stats& stats, const Session& session, const Context& context) {
  const auto rate = hit_rate(stats.counters);
  bj::array problems;
  for (const std::string& problem : stats.health.problems) problems.push_back(bj::string(problem));
  const std::string name_space = context.option("namespace").value_or("");
  return {{"source", std::string(session.source_name())},
          {"store", context.store_dir()},
          {"namespace", name_space.empty() ? bj::value(nullptr) : bj::value(name_space)},
          {"counters", numbers_json(stats.counters)},
          {"hit_rate", rate ? bj::value(*rate) : bj::value(nullptr)},
          {"bypass_reasons", numbers_json(stats.bypass_reasons)},
          {"kinds", groups_json(stats.kinds)},
          {"namespaces", groups_json(stats.namespaces)},
          {"limits", numbers_json(stats.limits)},
          {"builds", numbers_json(stats.builds)},
          {"health",
           {{"ok", stats.health.ok},
            {"problems", std::move(problems)},
            {"numbers", numbers_json(stats.health.numbers)}}}};
}

std::string stats_tab(const Stats& stats, const Session& session) {
  std::string out = fmt::format("name\tvalue\nsource\t{}\n", session.source_name());
  const auto rate = hit_rate(stats.counters);
  const auto add = [&](const std::string& prefix, const Numbers& numbers) {
    for (const auto& [name, value] : numbers)
      out += fmt::format("{}{}\t{}\n", prefix, printable(name), value);
  };
  add("", stats.counters);
  out += fmt::format("hit_rate\t{}\n", rate ? fmt::format("{}", *rate) : "");
  add("bypass.", stats.bypass_reasons);
  for (const auto& [name, numbers] : stats.kinds)
    add(fmt::format("kind.{}.", printable(name)), numbers);
  for (const auto& [name, numbers] : stats.namespaces)
    add(fmt::format("namespace.{}.", printable(name)), numbers);
  add("limit.", stats.limits);
  add("build.", stats.builds);
  add("health.", stats.health.numbers);
  out += fmt::format("health.ok\t{}\n", stats.health.ok ? 1 : 0);
  for (const std::string& problem : stats.health.problems)
    out += fmt::format("health.problem\t{}\n", printable(problem));
  return out;
}

// A table of groups with the columns that at least one of them has.
std::string groups_text(const char* title, const std::map<std::string, Numbers>& groups) {
  if (groups.empty()) return "";
  struct Known {
    const char* name;
    const char* title;
  };
  constexpr std::array kKnown = {Known{"entries", "entries"},
                                 Known{"bytes", "size"},
                                 Known{"lookups", "look-ups"},
                                 Known{"hits", "hits"},
                                 Known{"waits", "waits"},
                                 Known{"builds", "builds"},
                                 Known{"failures", "failures"},
                                 Known{"bypasses", "bypasses"},
                                 Known{"compile_seconds_saved", "time saved"}};
  std::vector<Table::Column> columns{{title, "name", Table::Align::kLeft, true}};
  std::vector<Known> shown;
  for (const Known& known : kKnown) {
    const bool any = std::any_of(groups.begin(), groups.end(),
                                 [&](const auto& g) { return g.second.contains(known.name); });
    if (!any) continue;
    shown.push_back(known);
    columns.push_back({known.title, known.name, Table::Align::kRight});
  }
  Table table(std::move(columns));
  for (const auto& [name, numbers] : groups) {
    std::vector<Cell> row{printable(name)};
    for (const Known& known : shown) {
      const double value = number(numbers, known.name);
      const std::string_view field = known.name;
      row.push_back(field == "bytes" ? size_cell(static_cast<std::uint64_t>(value))
                    : field == "compile_seconds_saved" ? seconds_cell(value)
                                                       : count_cell(value));
    }
    table.add(std::move(row));
  }
  return "\n" + table.text(terminal_width());
}

std::string health_text(const Stats& stats) {
  std::string out;
  const double failed = number(stats.health.numbers, "failed_writes");
  const double quarantined = number(stats.health.numbers, "quarantined");
  for (const std::string& problem : stats.health.problems)
    out += fmt::format("\nProblem: {}\n", printable(problem));
  if (!stats.health.ok && stats.health.problems.empty())
    out += "\nProblem: the store cannot be written\n";
  if (failed > 0)
    out += fmt::format("\n{} stores failed; see the daemon's log and `neuroncache doctor`\n",
                       format_count(failed));
  if (quarantined > 0) {
    out += fmt::format("\n{} damaged blobs were set aside; `neuroncache verify` checks the rest\n",
                       format_count(quarantined));
  }
  return out;
}

// What is being built; nothing when nothing is.
std::string builds_text(const Numbers& builds) {
  const double running = number(builds, "running");
  const double waiting = number(builds, "waiting");
  const double queued = number(builds, "queued");
  if (running + waiting + queued <= 0) return "";
  const auto size = [&](const char* name) {
    return format_size(static_cast<std::uint64_t>(number(builds, name)));
  };
  std::string out = fmt::format("Builds      {} running with {} of {}", format_count(running),
                                size("reserved_bytes"), size("budget_bytes"));
  if (waiting > 0) out += fmt::format(", {} waiting for room", format_count(waiting));
  if (queued > 0) out += fmt::format(", {} queued", format_count(queued));
  return out + "\n";
}

std::string stats_text(const Stats& stats, const Session& session, const Context& context) {
  const Numbers& c = stats.counters;
  std::string out;
  switch (session.source()) {
    case Session::Source::kDaemon:
      out += fmt::format("Daemon      running, pid {}, version {}\n", session.hello().pid,
                         session.hello().version);
      break;
    case Session::Source::kOffline:
      out += "Daemon      not running (read from disk)\n";
      break;
    case Session::Source::kNone:
      out += "Daemon      not running (nothing was cached yet)\n";
      break;
  }
  out += fmt::format("Store       {}\n", context.store_dir());
  const auto name_space = context.option("namespace");
  if (name_space) out += fmt::format("Namespace   {}\n", *name_space);
  const double bytes = number(c, "bytes");
  const double max_bytes = number(stats.limits, "max_bytes");
  out += fmt::format("Size        {}", format_size(static_cast<std::uint64_t>(bytes)));
  if (max_bytes > 0 && !name_space) {
    out += fmt::format(" of {} ({})", format_size(static_cast<std::uint64_t>(max_bytes)),
                       percent(bytes, max_bytes));
  }
  out += fmt::format(" in {}\n", counted(number(c, "entries"), "entry", "entries"));
  const double lookups = number(c, "lookups");
  const auto rate = hit_rate(c);
  out += fmt::format("Hit rate    {}\n", rate ? fmt::format("{:.1f} %", *rate * 100) : "-");
  out += fmt::format("Time saved  {} of compiling\n",
                     format_duration(number(c, "compile_seconds_saved")));
  out += builds_text(stats.builds);
  out += fmt::format("Health      {}\n\n", health_text(stats).empty() ? "good" : "see below");

  Table table({{"", "name"},
               {"", "count", Table::Align::kRight},
               {"", "share", Table::Align::kRight},
               {"", "meaning"}});
  table.add({"Look-ups", format_count(lookups), "", ""});
  const auto row = [&](const char* title, const char* name, const char* meaning) {
    table.add({title, format_count(number(c, name)), percent(number(c, name), lookups), meaning});
  };
  row("  hits", "hits", "served at once");
  row("  waits", "waits", "served after another process had built it");
  row("  builds", "builds", "not there: the caller built it");
  row("  failures", "failures", "a remembered compiler error was replayed");
  row("  bypasses", "bypasses", "the caller did without the cache");
  out += table.text(terminal_width());

  if (!stats.bypass_reasons.empty()) {
    Table reasons({{"Bypass reason", "reason", Table::Align::kLeft, true},
                   {"count", "count", Table::Align::kRight}});
    for (const auto& [reason, count] : stats.bypass_reasons)
      reasons.add({printable(reason), count_cell(count)});
    out += "\n" + reasons.text(terminal_width());
  }
  out += groups_text("Kind", stats.kinds);
  if (!name_space) out += groups_text("Namespace", stats.namespaces);
  return out + health_text(stats);
}

Result<int> run(Context& context) {
  NC_ASSIGN(Session session, Session::open(context, Session::Need::kRead));
  Stats stats;
  if (session.source() != Session::Source::kNone) {
    NC_ASSIGN(stats, session.client().stats(context.option("namespace").value_or("")));
  }
  for (const char* name : kAlways) stats.counters.try_emplace(name, 0);
  switch (context.format()) {
    case Format::kText:
      print(stats_text(stats, session, context));
      break;
    case Format::kJson:
      print_json(stats_json(stats, session, context));
      break;
    case Format::kTab:
      print(stats_tab(stats, session));
      break;
  }
  return kOk;
}

constexpr OptionSpec kOptions[] = {
    {"namespace", "NAME", "Count only what this namespace did.", ""},
};

}  // namespace

extern constinit const Verb kStatsVerb{
    .name = "stats",
    .summary = "Show hit rate, time saved, size and health.",
    .details =
        "The numbers survive restarts. Look-ups are the sum of hits, waits, builds, failures and "
        "bypasses. The hit rate\n"
        "counts what was served without building: hits and waits.",
    .arguments = {},
    .options = kOptions,
    .examples =
        "neuroncache stats --format json | jq .counters.builds # how often something was compiled",
    .run = run};

}  // namespace nc::cli
