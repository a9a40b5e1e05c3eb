// ls, show, misses: what is there, and why something was not.
#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "client/cli/output.hpp"
#include "client/cli/render.hpp"
#include "client/cli/session.hpp"

namespace nc::cli {
namespace {

using client::EntrySummary;

void sort_entries(std::vector<EntrySummary>& entries, std::string_view by, bool reverse) {
  const auto number = [&](const EntrySummary& e) -> double {
    if (by == "created") return static_cast<double>(e.created_ms);
    if (by == "size") return static_cast<double>(e.bytes);
    if (by == "build") return static_cast<double>(e.build_ms);
    if (by == "uses") return static_cast<double>(e.uses);
    return static_cast<double>(e.used_ms);
  };
  // The most first, but names from a to z; equal ones by key, so that two calls agree.
  std::sort(entries.begin(), entries.end(), [&](const EntrySummary& a, const EntrySummary& b) {
    if (by == "label" && a.label != b.label) return a.label < b.label;
    if (by != "key" && by != "label" && number(a) != number(b)) return number(a) > number(b);
    return a.key < b.key;
  });
  if (reverse) std::reverse(entries.begin(), entries.end());
}

Result<int> run_ls(Context& context) {
  NC_ASSIGN(const client::EntryFilter filter, context.filter());
  NC_ASSIGN(const auto limit, context.count_option("limit"));
  NC_ASSIGN(Session session, Session::open(context, Session::Need::kRead));
  std::vector<EntrySummary> entries;
  if (session.source() != Session::Source::kNone) {
    Progress progress("reading entries");
    NC_ASSIGN(entries, all_entries(session.client(), filter, &progress));
  }
  sort_entries(entries, context.option("sort").value_or("used"), context.flag("reverse"));
  const std::size_t total = entries.size();
  if (limit && *limit < entries.size()) entries.resize(*limit);
  std::uint64_t bytes = 0;
  for (const EntrySummary& e : entries) bytes += e.bytes;

  if (context.format() == Format::kJson) {
    print_json(bj::object{{"source", std::string(session.source_name())},
                          {"total", total},
                          {"entries", entries_json(entries)}});
    return kOk;
  }
  const Table table = entry_table(entries, system_clock().wall_ms());
  if (context.format() == Format::kTab) {
    print(table.tab());
  } else if (entries.empty()) {
    print("No entries.\n");
  } else {
    print(table.text(terminal_width()));
    const std::string of =
        entries.size() < total
            ? fmt::format("{} of ", format_count(static_cast<double>(entries.size())))
            : "";
    print(fmt::format("\n{}{}, {}\n", of, counted(static_cast<double>(total), "entry", "entries"),
                      format_size(bytes)));
  }
  return kOk;
}

std::string manifest_text(const client::EntryManifest& m) {
  std::string out;
  const client::ProducerInfo& p = m.producer;
  if (!p.host.empty() || !p.program.empty()) {
    out += fmt::format(
        "Built by    {} on {}{}\n", printable(p.program.empty() ? "an unnamed program" : p.program),
        printable(p.host.empty() ? "an unknown host" : p.host),
        p.version.empty() ? "" : fmt::format(" (neuroncache {})", printable(p.version)));
  }
  if (m.peak_rss_bytes > 0) out += fmt::format("Peak memory {}\n", format_size(m.peak_rss_bytes));
  Table outputs({{"OUTPUT", "output", Table::Align::kLeft},
                 {"SIZE", "size", Table::Align::kRight},
                 {"SHA-256", "digest"}});
  for (const client::OutputInfo& o : m.outputs)
    outputs.add({printable(o.name), size_cell(o.size), o.digest.hex()});
  out += "\n" + outputs.text(0);
  if (!m.meta.empty()) {
    Table meta({{"META", "name"}, {"VALUE", "value"}});
    for (const auto& [name, value] : m.meta) meta.add({printable(name), printable(value)});
    out += "\n" + meta.text(0);
  }
  return out;
}

// Line by line: newlines stay, other control characters do not reach the terminal.
std::string log_text(std::string_view log, std::string_view indent) {
  std::string out;
  while (!log.empty()) {
    const std::size_t end = std::min(log.find('\n'), log.size());
    out += indent;
    out += printable(log.substr(0, end)) + "\n";
    log.remove_prefix(std::min(end + 1, log.size()));
  }
  return out;
}

std::string failure_text(const client::FailureInfo& f, Millis now) {
  std::string out = fmt::format("Failure     {} (exit status {}), {}\n", printable(f.failure_class),
                                f.exit_code, printable(f.message));
  const Millis left = f.expires_ms - now;
  out += left > 0 ? fmt::format("Forgotten   in {}; then it is tried again\n",
                                format_duration(static_cast<double>(left) / 1000))
                  : "Forgotten   at the next look-up\n";
  if (!f.log.empty()) out += "\nLog:\n" + log_text(f.log, "  ");
  return out;
}

// The log of the build: kept with a failure, or as the output that has this name.
constexpr std::string_view kLogOutput = "log";

Result<std::string> log_of(Session& session, const client::EntryDetails& details) {
  if (details.failure) return details.failure->log;
  if (details.manifest) {
    for (const client::OutputInfo& output : details.manifest->outputs) {
      constexpr std::uint64_t kMaxLog = 64ULL << 20;
      if (output.name == kLogOutput) return session.client().download(output.digest, kMaxLog);
    }
  }
  return Error{Code::kNotFound,
               fmt::format("entry {} was stored without a log", details.summary.key.substr(0, 12)),
               "its outputs are in `neuroncache show`"};
}

std::string show_text(const client::EntryDetails& d, Millis now) {
  const EntrySummary& e = d.summary;
  std::string out = fmt::format("Key         {}\n", e.key);
  const auto line = [&](const char* title, const std::string& value) {
    if (!value.empty()) out += fmt::format("{:<11} {}\n", title, printable(value));
  };
  line("Kind", e.kind);
  line("Label", e.label);
  line("Namespace", e.name_space);
  line("Model", e.model);
  line("Compiler", e.compiler);
  line("State", state_words(e));
  line("Created", fmt::format("{} ({})", format_time(e.created_ms), format_ago(e.created_ms, now)));
  if (!e.failed) {
    line("Build took", format_duration(static_cast<double>(e.build_ms) / 1000));
    line("Used", e.uses == 0 ? std::string("never")
                             : fmt::format("{}, last {}",
                                           counted(static_cast<double>(e.uses), "time", "times"),
                                           format_ago(e.used_ms, now)));
    line("Size", format_size(e.bytes));
  }
  if (d.manifest) out += manifest_text(*d.manifest);
  if (d.failure) out += failure_text(*d.failure, now);
  const KeyParts& parts = d.manifest ? d.manifest->parts : d.failure_parts;
  if (!parts.empty()) {
    Table table({{"KEY PART", "part"}, {"VALUE", "value"}});
    for (const auto& [name, value] : parts) table.add({printable(name), printable(value)});
    out += "\n" + table.text(0);
  }
  return out;
}

std::string show_tab(const client::EntryDetails& d) {
  Table table({{"", "name"}, {"", "value"}});
  const bj::object entry = entry_json(d.summary);
  for (const auto& item : entry) {
    table.add({std::string(item.key()), plain_text(item.value())});
  }
  if (d.manifest) {
    for (const auto& o : d.manifest->outputs) table.add({"output." + o.name, o.digest.hex()});
    for (const auto& [name, value] : d.manifest->meta) table.add({"meta." + name, value});
  }
  if (d.failure) {
    table.add({"failure.class", d.failure->failure_class});
    table.add({"failure.message", d.failure->message});
    table.add({"failure.log", d.failure->log});
  }
  for (const auto& [name, value] : d.manifest ? d.manifest->parts : d.failure_parts)
    table.add({"part." + name, value});
  return table.tab();
}

Result<int> run_show(Context& context) {
  const std::string key = context.option("KEY").value_or("");
  NC_TRY(check_key(key));
  NC_ASSIGN(Session session, Session::open(context, Session::Need::kRead));
  if (session.source() == Session::Source::kNone) {
    return Error{Code::kNotFound, fmt::format("there is no entry {}: nothing was cached yet", key),
                 "see `neuroncache ls`"};
  }
  NC_ASSIGN(const client::EntryDetails details, session.client().show(key));
  std::optional<std::string> log;
  if (context.flag("log")) {
    NC_ASSIGN(log, log_of(session, details));
    if (context.format() != Format::kJson) return print(log_text(*log, "")), kOk;
  }
  switch (context.format()) {
    case Format::kText:
      print(show_text(details, system_clock().wall_ms()));
      break;
    case Format::kTab:
      print(show_tab(details));
      break;
    case Format::kJson: {
      bj::object out = entry_json(details.summary);
      out["manifest"] =
          details.manifest ? bj::value(manifest_json(*details.manifest)) : bj::value(nullptr);
      out["failure"] = nullptr;
      if (details.failure) {
        bj::object failure = failure_json(*details.failure);
        failure["parts"] = parts_json(details.failure_parts);
        out["failure"] = std::move(failure);
      }
      if (log) out["log"] = *log;
      print_json(out);
      break;
    }
  }
  return kOk;
}

constexpr OptionSpec kLsOptions[] = {
    kNamespaceOption,
    kCompilerOption,
    kModelOption,
    kKindOption,
    kOlderOption,
    kUnusedOption,
    kFailedOption,
    {"sort", "FIELD",
     "What comes first: the last used (the default), newest, largest, dearest to build, most used; "
     "or by name.",
     "used|created|size|build|uses|label|key"},
    {"reverse", "", "The other way round.", ""},
    {"limit", "N", "Print at most N.", ""},
};
constexpr OptionSpec kShowOptions[] = {
    {"log", "", "Print the log of the build, and nothing else (but for JSON).", ""},
};
constexpr ArgumentSpec kKeyArgument[] = {
    {"KEY", "The entry's key, or the beginning of it.", true, false, ""}};

}  // namespace

extern constinit const Verb kLsVerb{
    .name = "ls",
    .summary = "List entries.",
    .details = "Filters combine: an entry must pass all of them.",
    .arguments = {},
    .options = kLsOptions,
    .examples =
        "neuroncache ls --sort build --limit 10 # what would hurt most to lose\n"
        "neuroncache ls --failed # compiler errors that are being replayed",
    .run = run_ls};

extern constinit const Verb kShowVerb{
    .name = "show",
    .summary = "Show one entry: key parts, outputs, uses, or the failure and its log.",
    .details = "",
    .arguments = kKeyArgument,
    .options = kShowOptions,
    .examples =
        "neuroncache show 3f9a\n"
        "neuroncache show 3f9a --log # what the compiler said",
    .run = run_show};

}  // namespace nc::cli
