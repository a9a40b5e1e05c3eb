#include "client/cli/help.hpp"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

namespace nc::cli {
namespace {

constexpr std::size_t kWidth = 96;

std::vector<std::string> split(std::string_view text, std::string_view separator) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const std::size_t end = text.find(separator);
    out.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + separator.size());
  }
  return out;
}

std::string wrap(std::string_view text, std::size_t indent, std::size_t first_used = 0) {
  std::string out(first_used == 0 ? indent : 0, ' ');
  std::size_t used = std::max(indent, first_used);
  bool start = true;
  for (const std::string& word : split(text, " ")) {
    if (!start && used + 1 + word.size() > kWidth) {
      out += "\n" + std::string(indent, ' ');
      used = indent;
      start = true;
    }
    if (!start) {
      out += ' ';
      ++used;
    }
    out += word;
    used += word.size();
    start = false;
  }
  return out + "\n";
}

std::string option_form(const OptionSpec& option) {
  std::string form = fmt::format("--{}", option.name);
  if (option.name == "help") form = "-h, --help";
  if (!option.choices.empty()) {
    form += fmt::format(" {}", option.choices);
  } else if (!option.value.empty()) {
    form += fmt::format(" {}", option.value);
  }
  return form;
}

std::string option_list(std::span<const OptionSpec> options) {
  std::string out;
  std::size_t width = 0;
  for (const OptionSpec& option : options) width = std::max(width, option_form(option).size());
  for (const OptionSpec& option : options) {
    out += fmt::format("  {:<{}}  ", option_form(option), width) +
           wrap(option.help, width + 4, width + 4);
  }
  return out;
}

std::string argument_form(const ArgumentSpec& argument) {
  std::string form(argument.choices.empty() ? argument.name : argument.choices);
  if (argument.many) form += "...";
  return argument.required ? form : fmt::format("[{}]", form);
}

struct Example {
  std::string command, meaning;
};
std::vector<Example> examples_of(const Verb& verb) {
  std::vector<Example> out;
  for (const std::string& line : split(verb.examples, "\n")) {
    const std::size_t hash = line.find(" # ");
    out.push_back({line.substr(0, hash), hash == std::string::npos ? "" : line.substr(hash + 3)});
  }
  return out;
}

// "\n\n" in a verb's details separates paragraphs; a single newline is only a break in the source.
std::vector<std::string> paragraphs(std::string_view text) {
  auto out = split(text, "\n\n");
  for (std::string& p : out) std::replace(p.begin(), p.end(), '\n', ' ');
  return out;
}

std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (out.empty() && (c == '.' || c == '\'')) {
      out += std::string("\\&") + c;
    } else {
      out += c;
    }
  }
  return out;
}

std::string roff_options(std::span<const OptionSpec> options) {
  std::string out;
  for (const OptionSpec& option : options)
    out += fmt::format(".TP\n.B {}\n{}\n", roff(option_form(option)), roff(option.help));
  return out;
}

std::string anchor(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), ' ', '-');
  return out;
}

std::string markdown_options(std::span<const OptionSpec> options) {
  std::string out = "| option | meaning |\n|---|---|\n";
  for (const OptionSpec& option : options) {
    std::string form = option_form(option);
    for (std::size_t at = 0; (at = form.find('|', at)) != std::string::npos; at += 2)
      form.insert(at, "\\");
    out += fmt::format("| `{}` | {} |\n", form, option.help);
  }
  return out + "\n";
}

constexpr std::string_view kAbout =
    "neuroncache keeps what compilers for Trainium and torch.compile produce, so that nothing is "
    "compiled twice. This "
    "program looks into the cache and looks after it; the daemon neuroncached serves it.";
constexpr std::string_view kFormats =
    "Every verb prints for people unless told otherwise. --format json prints one JSON document "
    "(schemas: "
    "docs/json-schemas). --format tab prints one record a line, fields separated by a tab; the "
    "first line names the "
    "fields; sizes are bytes, times milliseconds since 1970, durations seconds. Notes and progress "
    "go to standard error.";
constexpr std::string_view kReading =
    "Verbs that only read never start a lasting daemon: when none runs they read the store from "
    "disk. Verbs that change "
    "the store start the daemon when none runs, unless the setting autostart is off.";
constexpr struct {
  int status;
  std::string_view meaning;
} kStatuses[] = {
    {kOk, "It worked."},
    {kFailed,
     "It did not work, or the answer is no (a problem was found, nothing by that name, not "
     "running)."},
    {kUsage, "The command line or a setting is wrong."},
    {kUnreachable, "Nobody could be asked: the daemon does not run or does not answer."},
    {kMisses, "Of `replay --fail-on-miss`: something was not there."},
};

}  // namespace

std::string usage_line(const Verb& verb) {
  std::string out = fmt::format("neuroncache {} [OPTIONS]", verb.name);
  for (const ArgumentSpec& argument : verb.arguments) out += " " + argument_form(argument);
  return out;
}

std::string group_help(std::string_view group) {
  std::string out;
  for (const Verb* verb : verb_table()) {
    if (verb->name.starts_with(group) && verb->name.substr(group.size()).starts_with(' ')) {
      out += fmt::format("  {:<16}  {}\n", verb->name, verb->summary);
    }
  }
  if (out.empty()) return out;
  return out + fmt::format("\n`neuroncache {} VERB --help` explains one.\n", group);
}

std::string overview_help() {
  std::string out = wrap(kAbout, 0) + "\nUsage: neuroncache VERB [OPTIONS] [ARGUMENTS]\n\nVerbs:\n";
  for (const Verb* verb : verb_table())
    out += fmt::format("  {:<16}  {}\n", verb->name, verb->summary);
  out += "\nOptions of every verb:\n" + option_list(global_options());
  out += "\n`neuroncache VERB --help` explains one verb, `man neuroncache` all of them.\n";
  return out;
}

std::string verb_help(const Verb& verb) {
  std::string out = wrap(verb.summary, 0) + "\nUsage: " + usage_line(verb) + "\n";
  for (const std::string& p : paragraphs(verb.details)) out += "\n" + wrap(p, 0);
  if (!verb.arguments.empty()) {
    out += "\nArguments:\n";
    for (const ArgumentSpec& a : verb.arguments)
      out += fmt::format("  {:<10}  ", a.name) + wrap(a.help, 14, 14);
  }
  if (!verb.options.empty()) out += "\nOptions:\n" + option_list(verb.options);
  out += "\nOptions of every verb:\n" + option_list(global_options());
  if (!verb.examples.empty()) {
    out += "\nExamples:\n";
    for (const Example& e : examples_of(verb)) {
      out += e.meaning.empty() ? "" : fmt::format("  # {}\n", e.meaning);
      out += fmt::format("  {}\n", e.command);
    }
  }
  return out;
}

std::string man_page() {
  std::string out = fmt::format(
      ".\\\" Made by `neuroncache help --man`.\n.TH NEURONCACHE 1 \"\" \"neuroncache {}\" \"User "
      "Commands\"\n.SH NAME\n"
      "neuroncache \\- look into and look after the compile cache\n.SH SYNOPSIS\n.B "
      "neuroncache\n.I VERB\n[OPTIONS] "
      "[ARGUMENTS]\n.SH DESCRIPTION\n{}\n.PP\n{}\n.PP\n{}\n.SH OPTIONS\nThese are taken by every "
      "verb.\n{}.SH VERBS\n",
      NC_VERSION, roff(kAbout), roff(kFormats), roff(kReading), roff_options(global_options()));
  for (const Verb* verb : verb_table()) {
    out += fmt::format(".SS {}\n{}\n.PP\n.B {}\n", roff(verb->name), roff(verb->summary),
                       roff(usage_line(*verb)));
    for (const std::string& p : paragraphs(verb->details)) out += fmt::format(".PP\n{}\n", roff(p));
    for (const ArgumentSpec& a : verb->arguments)
      out += fmt::format(".TP\n.I {}\n{}\n", roff(a.name), roff(a.help));
    out += roff_options(verb->options);
    for (const Example& e : examples_of(*verb)) {
      out += fmt::format(".PP\n.EX\n{}\n.EE\n", roff(e.command));
      if (!e.meaning.empty()) out += fmt::format(".RS\n{}\n.RE\n", roff(e.meaning));
    }
  }
  out += ".SH EXIT STATUS\n";
  for (const auto& s : kStatuses) out += fmt::format(".TP\n.B {}\n{}\n", s.status, roff(s.meaning));
  out +=
      ".SH ENVIRONMENT\nEvery setting can be given as an environment variable; docs/settings.md "
      "and\n.B neuroncache config "
      "show\nlist them.\n.SH SEE ALSO\n.BR neuroncached (1)\n";
  return out;
}

std::string markdown() {
  std::string out = fmt::format(
      "# The command line\n\n<!-- Made by `neuroncache help --markdown`. "
      "-->\n\n{}\n\n{}\n\n{}\n\n## Options of every verb\n\n{}"
      "## Exit status\n\n| status | meaning |\n|---|---|\n",
      kAbout, kFormats, kReading, markdown_options(global_options()));
  for (const auto& s : kStatuses) out += fmt::format("| {} | {} |\n", s.status, s.meaning);
  out +=
      "\nAn error is two lines on standard error: what happened, and what to do. With `--format "
      "json` it is also\n"
      "`{\"error\": {\"code\", \"message\", \"action\"}}` on standard output.\n\n## Verbs\n\n";
  for (const Verb* verb : verb_table()) {
    out += fmt::format("- [{}](#{}): {}\n", verb->name, anchor(verb->name), verb->summary);
  }
  for (const Verb* verb : verb_table()) {
    out += fmt::format("\n### {}\n\n{}\n\n```\n{}\n```\n\n", verb->name, verb->summary,
                       usage_line(*verb));
    for (const std::string& p : paragraphs(verb->details)) out += p + "\n\n";
    for (const ArgumentSpec& a : verb->arguments)
      out += fmt::format("- `{}`: {}\n", a.name, a.help);
    if (!verb->arguments.empty()) out += "\n";
    if (!verb->options.empty()) out += markdown_options(verb->options);
    for (const Example& e : examples_of(*verb)) {
      out += fmt::format("    {}{}\n", e.command, e.meaning.empty() ? "" : "    # " + e.meaning);
    }
  }
  return out;
}

}  // namespace nc::cli
