// Completion scripts, made from the table of verbs.
#include <map>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "client/cli/help.hpp"

namespace nc::cli {
namespace {

struct Words {
  std::vector<std::string> groups_and_verbs;                 // first words
  std::map<std::string, std::vector<std::string>> subverbs;  // by group
};

Words words() {
  Words out;
  std::set<std::string> seen;
  for (const Verb* verb : verb_table()) {
    const std::size_t space = verb->name.find(' ');
    const std::string first(verb->name.substr(0, space));
    if (seen.insert(first).second) out.groups_and_verbs.push_back(first);
    if (space != std::string_view::npos)
      out.subverbs[first].emplace_back(verb->name.substr(space + 1));
  }
  return out;
}

std::string spaced(std::string_view choices) {
  std::string out(choices);
  for (char& c : out) c = c == '|' ? ' ' : c;
  return out;
}

std::vector<const OptionSpec*> all_options(const Verb& verb) {
  std::vector<const OptionSpec*> out;
  for (const OptionSpec& o : verb.options) out.push_back(&o);
  for (const OptionSpec& o : global_options()) out.push_back(&o);
  return out;
}

bool takes_file(const OptionSpec& option) {
  return option.value == "PATH" || option.value == "FILE";
}

std::string bash() {
  const Words w = words();
  std::string out =
      "# bash completion of neuroncache, made by `neuroncache completion bash`.\n"
      "_neuroncache() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb= i\n"
      "  COMPREPLY=()\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    case ${COMP_WORDS[i]} in -*) ;; *) verb=\"${verb:+$verb }${COMP_WORDS[i]}\" ;; esac\n"
      "  done\n"
      "  case $prev in\n";
  std::set<std::string> seen;
  for (const Verb* verb : verb_table()) {
    for (const OptionSpec* o : all_options(*verb)) {
      if (o->value.empty() || !seen.insert(std::string(o->name)).second) continue;
      if (!o->choices.empty()) {
        out += fmt::format("    --{}) COMPREPLY=($(compgen -W \"{}\" -- \"$cur\")); return ;;\n",
                           o->name, spaced(o->choices));
      } else if (takes_file(*o)) {
        out += fmt::format("    --{}) COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n", o->name);
      } else {
        out += fmt::format("    --{}) return ;;\n", o->name);
      }
    }
  }
  out += fmt::format(
      "  esac\n  case $verb in\n    '') COMPREPLY=($(compgen -W \"{}\" -- \"$cur\")) ;;\n",
      fmt::join(w.groups_and_verbs, " "));
  for (const auto& [group, subs] : w.subverbs) {
    out += fmt::format("    '{}') COMPREPLY=($(compgen -W \"{}\" -- \"$cur\")) ;;\n", group,
                       fmt::join(subs, " "));
  }
  for (const Verb* verb : verb_table()) {
    std::string list;
    for (const OptionSpec* o : all_options(*verb)) list += fmt::format("--{} ", o->name);
    std::string argument;
    if (!verb->arguments.empty()) {
      const ArgumentSpec& a = verb->arguments.front();
      if (!a.choices.empty())
        argument =
            fmt::format("COMPREPLY+=($(compgen -W \"{}\" -- \"$cur\")); ", spaced(a.choices));
      if (a.name == "FILE") argument = "COMPREPLY+=($(compgen -f -- \"$cur\")); ";
    }
    list.pop_back();
    out += fmt::format("    '{}'|'{} '*) COMPREPLY=($(compgen -W \"{}\" -- \"$cur\")); {};;\n",
                       verb->name, verb->name, list, argument);
  }
  return out + "  esac\n}\ncomplete -F _neuroncache neuroncache\n";
}

std::string quoted(std::string_view text) {  // within '...'
  std::string out;
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out;
}

std::string zsh_text(std::string_view text) {  // in a description: no colons or brackets
  std::string out;
  for (const char c : text) {
    if (c == ':' || c == '[' || c == ']') out += '\\';
    out += c;
  }
  return quoted(out);
}

std::string zsh_arguments(const Verb& verb) {
  std::string out = "_arguments";
  for (const OptionSpec* o : all_options(verb)) {
    std::string action;
    if (!o->value.empty()) {
      action = fmt::format(":{}:{}", o->value,
                           !o->choices.empty() ? fmt::format("({})", spaced(o->choices))
                           : takes_file(*o)    ? "_files"
                                               : " ");
    }
    out += fmt::format(" \\\n        '--{}[{}]{}'", o->name, zsh_text(o->help), action);
  }
  for (const ArgumentSpec& a : verb.arguments) {
    const std::string action = !a.choices.empty() ? fmt::format("({})", spaced(a.choices))
                               : a.name == "FILE" ? "_files"
                                                  : " ";
    out += fmt::format(" \\\n        '{}:{}:{}'", a.many ? "*" : "", a.name, action);
  }
  return out;
}

std::string zsh() {
  const Words w = words();
  std::string out =
      "#compdef neuroncache\n# zsh completion of neuroncache, made by `neuroncache completion "
      "zsh`.\n"
      "_neuroncache() {\n  local -a verbs\n  if (( CURRENT == 2 )); then\n    verbs=(\n";
  for (const std::string& first : w.groups_and_verbs) {
    const Verb* verb = find_verb(first);
    const std::string summary = verb != nullptr
                                    ? std::string(verb->summary)
                                    : fmt::format("{}", fmt::join(w.subverbs.at(first), ", "));
    out += fmt::format("      '{}:{}'\n", first, zsh_text(summary));
  }
  out +=
      "    )\n    _describe verb verbs\n    return\n  fi\n  local verb=$words[2]\n  case $verb "
      "in\n";
  for (const auto& [group, subs] : w.subverbs) {
    out += fmt::format(
        "    {}) if (( CURRENT == 3 )); then verbs=({}); _describe verb verbs; return; fi; "
        "verb=\"$verb $words[3]\"; "
        "shift words; (( CURRENT-- )) ;;\n",
        group, fmt::join(subs, " "));
  }
  out += "  esac\n  shift words; (( CURRENT-- ))\n  case $verb in\n";
  for (const Verb* verb : verb_table())
    out += fmt::format("    '{}')\n      {} ;;\n", verb->name, zsh_arguments(*verb));
  return out + "  esac\n}\ncompdef _neuroncache neuroncache\n";
}

std::string fish() {
  const Words w = words();
  std::string out =
      "# fish completion of neuroncache, made by `neuroncache completion fish`.\ncomplete -c "
      "neuroncache -f\n";
  for (const std::string& first : w.groups_and_verbs) {
    const Verb* verb = find_verb(first);
    out += fmt::format("complete -c neuroncache -n __fish_use_subcommand -a {}{}\n", first,
                       verb == nullptr ? "" : fmt::format(" -d '{}'", quoted(verb->summary)));
  }
  for (const Verb* verb : verb_table()) {
    const std::size_t space = verb->name.find(' ');
    std::string seen = fmt::format("__fish_seen_subcommand_from {}", verb->name.substr(0, space));
    if (space != std::string_view::npos) {
      const std::string sub(verb->name.substr(space + 1));
      out += fmt::format(
          "complete -c neuroncache -n '{}; and not __fish_seen_subcommand_from {}' -a {} -d '{}'\n",
          seen, fmt::join(w.subverbs.at(std::string(verb->name.substr(0, space))), " "), sub,
          quoted(verb->summary));
      seen += fmt::format("; and __fish_seen_subcommand_from {}", sub);
    }
    for (const OptionSpec& o : verb->options) {
      out += fmt::format("complete -c neuroncache -n '{}' -l {}{}{} -d '{}'\n", seen, o.name,
                         o.value.empty() ? "" : " -x",
                         o.choices.empty() ? "" : fmt::format(" -a '{}'", spaced(o.choices)),
                         quoted(o.help));
    }
    for (const ArgumentSpec& a : verb->arguments) {
      if (!a.choices.empty())
        out += fmt::format("complete -c neuroncache -n '{}' -a '{}'\n", seen, spaced(a.choices));
      if (a.name == "FILE") out += fmt::format("complete -c neuroncache -n '{}' -F\n", seen);
    }
  }
  for (const OptionSpec& o : global_options()) {
    const std::string how = o.value.empty() ? "" : takes_file(o) ? " -r -F" : " -x";
    out += fmt::format("complete -c neuroncache -l {}{}{} -d '{}'\n", o.name, how,
                       o.choices.empty() ? "" : fmt::format(" -a '{}'", spaced(o.choices)),
                       quoted(o.help));
  }
  return out;
}

}  // namespace

std::string completion_script(std::string_view shell) {
  return shell == "bash" ? bash() : shell == "zsh" ? zsh() : fish();
}

}  // namespace nc::cli
