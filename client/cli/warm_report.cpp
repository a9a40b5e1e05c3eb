#include "client/cli/warm_report.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "client/cli/render.hpp"

namespace nc::cli {
namespace {

using client::ActionOutcome;

std::string name_of(const ActionOutcome& o) {
  return fmt::format("{} {}", short_key(o.key), o.label.empty() ? o.kind : o.label);
}

// Why it was not there, in one line; the parts that differ, when something like it is stored.
std::string cause_of(const ActionOutcome& o) {
  if (o.outcome == "hit") return {};
  std::string out = o.miss.cause;
  if (out.empty()) out = o.outcome == "waited" ? "built by another process meanwhile" : "";
  if (o.miss.nearest) {
    std::vector<std::string> names;
    for (const auto& d : o.miss.nearest->differs) names.push_back(d.name);
    out += fmt::format("; nearest {}", short_key(o.miss.nearest->key));
    if (!names.empty()) out += fmt::format(" differs in {}", fmt::join(names, ", "));
  }
  return out;
}

std::string failure_of(const ActionOutcome& o) {
  std::string out = o.failure_class;
  if (!o.message.empty()) out += (out.empty() ? "" : ": ") + o.message;
  return out.empty() ? "failed" : out;
}

void list(std::string& out, const WarmReport& report, std::string_view outcome,
          std::string_view title) {
  bool first = true;
  for (const ActionOutcome& o : report.outcomes) {
    if (o.outcome != outcome) continue;
    if (std::exchange(first, false)) out += fmt::format("{}:\n", title);
    out += fmt::format("  {}  {}\n", printable(o.kind), printable(name_of(o)));
    if (outcome == "failed") {
      out += fmt::format("    {}\n", printable(failure_of(o)));
      if (!o.log_line.empty()) out += fmt::format("    {}\n", printable(o.log_line));
    } else if (!o.message.empty()) {
      out += fmt::format("    {}\n", printable(o.message));
    }
  }
}

void list_misses(std::string& out, const WarmReport& report, std::size_t width) {
  bool first = true;
  for (const ActionOutcome& o : report.outcomes) {
    if (o.outcome == "hit") continue;
    if (std::exchange(first, false)) out += "Not there:\n";
    out += fmt::format("  {}  {}  {}\n    {}\n", printable(o.kind), printable(name_of(o)),
                       o.outcome, printable(cause_of(o)));
    if (!o.miss.nearest || o.miss.nearest->differs.empty()) continue;
    Table table({{"", "name"},
                 {"wanted", "wanted", Table::Align::kLeft, true},
                 {"stored", "have", Table::Align::kLeft, true}});
    for (const auto& d : o.miss.nearest->differs)
      table.add({printable(d.name), printable(d.wanted), printable(d.have)});
    out += table.text(width, 4);
  }
}

bj::object action_json(const ActionOutcome& o) {
  bj::object out{{"key", o.key},
                 {"outcome", o.outcome},
                 {"kind", o.kind},
                 {"label", o.label},
                 {"program", o.program},
                 {"compiler", o.compiler},
                 {"build_seconds", static_cast<double>(o.build_ms) / 1000},
                 {"class", o.failure_class},
                 {"message", o.message},
                 {"log_line", o.log_line},
                 {"cause", o.miss.cause}};
  bj::value nearest;
  if (o.miss.nearest) {
    bj::array differs;
    for (const auto& d : o.miss.nearest->differs)
      differs.push_back(bj::object{{"name", d.name}, {"wanted", d.wanted}, {"have", d.have}});
    nearest = bj::object{{"key", o.miss.nearest->key}, {"differs", std::move(differs)}};
  }
  out["nearest"] = std::move(nearest);
  return out;
}

struct Fault {
  std::string type, message;
};

std::optional<Fault> fault_of(const WarmReport& report, const ActionOutcome& o) {
  if (o.outcome == "failed")
    return Fault{o.failure_class.empty() ? "failed" : o.failure_class, failure_of(o)};
  if (o.outcome == "unfinished")
    return Fault{"unfinished", o.message.empty() ? "it was needed and is not built" : o.message};
  if (report.misses_fail && o.outcome != "hit") return Fault{"miss", cause_of(o)};
  return std::nullopt;
}

}  // namespace

WarmCounts WarmReport::counts() const {
  WarmCounts c;
  for (const ActionOutcome& o : outcomes) {
    ++c.needed;
    ++(o.outcome == "hit"      ? c.there
       : o.outcome == "built"  ? c.built
       : o.outcome == "waited" ? c.waited
       : o.outcome == "failed" ? c.failed
                               : c.unfinished);
  }
  for (const Uncached& one : uncached) c.uncached += one.wanted() ? 0 : one.times;
  return c;
}

std::vector<Uncached> uncached_of(std::string_view lines) {
  std::vector<Uncached> out;
  for (std::size_t begin = 0; begin < lines.size();) {
    const std::size_t end = std::min(lines.find('\n', begin), lines.size());
    const std::string_view line = lines.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t tab = line.find('\t');
    if (tab == std::string_view::npos) continue;
    const Uncached one{std::string(line.substr(0, tab)), std::string(line.substr(tab + 1))};
    const auto known = std::find_if(out.begin(), out.end(), [&](const Uncached& o) {
      return o.label == one.label && o.why == one.why;
    });
    if (known == out.end()) {
      out.push_back(one);
    } else {
      ++known->times;
    }
  }
  return out;
}

std::string counts_text(const WarmCounts& c) {
  std::string out =
      fmt::format("{} needed, {} built, {} already there", c.needed, c.built, c.there);
  if (c.waited > 0) out += fmt::format(", {} built by others", c.waited);
  if (c.failed > 0) out += fmt::format(", {} failed", c.failed);
  if (c.unfinished > 0) out += fmt::format(", {} left undone", c.unfinished);
  if (c.uncached > 0) out += fmt::format("; {} compiled without the cache", c.uncached);
  return out;
}

std::string warm_text(const WarmReport& report, std::size_t width) {
  std::string out;
  if (report.verb == "replay") list_misses(out, report, width);
  list(out, report, "failed", "Failed");
  list(out, report, "unfinished", "Left undone");
  if (!report.uncached.empty()) out += "Compiled without the cache:\n";
  for (const Uncached& one : report.uncached) {
    out += fmt::format("  {}  {}{}\n", printable(one.label), printable(one.why),
                       one.times > 1 ? fmt::format(" ({} times)", one.times) : "");
  }
  if (report.status.value_or(0) != 0)
    out += fmt::format("The command ended with status {}.\n", *report.status);
  out +=
      fmt::format("{} '{}': {}; {}.\n", report.verb == "replay" ? "Replay" : "Warm-up",
                  report.recording, counts_text(report.counts()), format_duration(report.seconds));
  return out;
}

std::string warm_tab(const WarmReport& report) {
  Table table({{"", "key"},
               {"", "outcome"},
               {"", "kind"},
               {"", "label"},
               {"", "compiler"},
               {"", "build_s"},
               {"", "class"},
               {"", "cause"},
               {"", "differs"}});
  for (const ActionOutcome& o : report.outcomes) {
    std::vector<std::string> names;
    if (o.miss.nearest) {
      for (const auto& d : o.miss.nearest->differs) names.push_back(d.name);
    }
    table.add({o.key, o.outcome, o.kind, o.label, o.compiler,
               fmt::format("{}", static_cast<double>(o.build_ms) / 1000), o.failure_class,
               o.miss.cause, fmt::format("{}", fmt::join(names, ","))});
  }
  for (const Uncached& one : report.uncached)
    table.add({"", "uncached", "neff", one.label, "", "", "", one.why, ""});
  return table.tab();
}

bj::object warm_json(const WarmReport& report) {
  const WarmCounts c = report.counts();
  bj::array command;
  for (const std::string& word : report.command) command.emplace_back(word);
  bj::array actions;
  for (const ActionOutcome& o : report.outcomes) actions.push_back(action_json(o));
  bj::array uncached;
  for (const Uncached& one : report.uncached)
    uncached.push_back(bj::object{{"label", one.label}, {"why", one.why}, {"times", one.times}});
  bj::value status;
  if (report.status) status = *report.status;
  return {{"recording", report.recording},
          {"command", std::move(command)},
          {"status", std::move(status)},
          {"seconds", report.seconds},
          {"counts", bj::object{{"needed", c.needed},
                                {"there", c.there},
                                {"built", c.built},
                                {"waited", c.waited},
                                {"failed", c.failed},
                                {"unfinished", c.unfinished},
                                {"uncached", c.uncached}}},
          {"whole", c.whole()},
          {"actions", std::move(actions)},
          {"uncached", std::move(uncached)}};
}

std::string xml_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        // Control characters have no form in XML 1.0; a line's end has one.
        if (c == '\n' || c == '\t') {
          out += fmt::format("&#{};", static_cast<int>(c));
        } else {
          out += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
        }
    }
  }
  return out;
}

std::string warm_junit(const WarmReport& report) {
  std::string cases;
  std::size_t failures = 0;
  for (const ActionOutcome& o : report.outcomes) {
    cases += fmt::format("    <testcase classname=\"{}\" name=\"{}\" time=\"{:.3f}\"",
                         xml_text("neuroncache." + (o.kind.empty() ? "action" : o.kind)),
                         xml_text(name_of(o)),
                         o.outcome == "hit" ? 0.0 : static_cast<double>(o.build_ms) / 1000);
    const auto fault = fault_of(report, o);
    if (!fault) {
      cases += "/>\n";
      continue;
    }
    ++failures;
    cases += fmt::format(">\n      <failure type=\"{}\" message=\"{}\">{}</failure>\n",
                         xml_text(fault->type), xml_text(fault->message), xml_text(o.log_line));
    cases += "    </testcase>\n";
  }
  std::size_t tests = report.outcomes.size();
  for (const Uncached& one : report.uncached) {
    if (one.wanted()) continue;
    ++tests;
    ++failures;
    cases += fmt::format(
        "    <testcase classname=\"neuroncache.uncached\" name=\"{}\" time=\"0.000\">\n"
        "      <failure type=\"uncached\" message=\"{}\"/>\n    </testcase>\n",
        xml_text(one.label), xml_text(one.why));
  }
  if (report.status.value_or(0) != 0) {
    ++tests;
    ++failures;
    cases += fmt::format(
        "    <testcase classname=\"neuroncache.command\" name=\"command\" time=\"{:.3f}\">\n"
        "      <failure type=\"status\" message=\"the command ended with status {}\"/>\n"
        "    </testcase>\n",
        report.seconds, *report.status);
  }
  const std::string head = fmt::format(
      "name=\"neuroncache {}\" tests=\"{}\" failures=\"{}\" errors=\"0\" "
      "time=\"{:.3f}\"",
      report.verb, tests, failures, report.seconds);
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {}>\n  <testsuite {}>\n{}"
      "  </testsuite>\n</testsuites>\n",
      head, head, cases);
}

}  // namespace nc::cli
