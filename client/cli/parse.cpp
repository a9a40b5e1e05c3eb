#include "client/cli/parse.hpp"

#include <algorithm>
#include <deque>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/credentials.hpp"

namespace nc::cli {
namespace {

// Everything CLI11 writes into while it parses.
struct Storage {
  std::deque<std::vector<std::string>> lists;
  struct Slot {
    const CLI::App* app;
    std::string name;
    CLI::Option* option;
    const std::vector<std::string>* list;
  };
  std::vector<Slot> slots;
};

void declare(CLI::App& app, Storage& storage, std::string_view name, const std::string& flags,
             bool takes_value, bool many) {
  auto& list = storage.lists.emplace_back();
  CLI::Option* option = takes_value ? app.add_option(flags, list) : app.add_flag(flags);
  if (!takes_value) option->disable_flag_override();  // --switch=no is an error, not a switch
  if (takes_value && !many)
    option->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->allow_extra_args(false);
  storage.slots.push_back({&app, std::string(name), option, &list});
}

void declare_options(CLI::App& app, Storage& storage, std::span<const OptionSpec> options) {
  for (const OptionSpec& option : options) {
    if (option.name == "help") {
      declare(app, storage, "help", "--help,-h", false, false);
    } else {
      declare(app, storage, option.name, fmt::format("--{}", option.name), !option.value.empty(),
              false);
    }
  }
}

Error usage(std::string message, const Verb* verb) {
  return {Code::kInvalid, std::move(message),
          verb == nullptr ? "see `neuroncache help`"
                          : fmt::format("see `neuroncache {} --help`", verb->name)};
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& names,
                         std::string_view dashes = "") {
  const auto nearest = nearest_name(word, names);
  return nearest ? fmt::format("; did you mean {}{}?", dashes, *nearest) : "";
}

Error unknown_option(std::string_view word, const Verb* verb) {
  std::vector<std::string> names;
  const auto add = [&](std::span<const OptionSpec> options) {
    for (const OptionSpec& option : options) names.emplace_back(option.name);
  };
  add(global_options());
  if (verb != nullptr) add(verb->options);
  std::string_view name = word.substr(0, word.find('='));
  name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
  return usage(fmt::format("there is no option {}{}{}", word.substr(0, word.find('=')),
                           verb == nullptr ? "" : fmt::format(" for {}", verb->name),
                           did_you_mean(name, names, "--")),
               verb);
}

Error unknown_verb(const std::string& first, const std::string& second) {
  std::vector<std::string> names;
  std::vector<std::string> subs;
  for (const Verb* verb : verb_table()) {
    const std::string_view group = verb->name.substr(0, verb->name.find(' '));
    names.emplace_back(group);
    if (group == first && group != verb->name)
      subs.emplace_back(verb->name.substr(group.size() + 1));
  }
  if (subs.empty())
    return usage(fmt::format("there is no verb '{}'{}", first, did_you_mean(first, names)),
                 nullptr);
  const std::string list = fmt::format("{}", fmt::join(subs, ", "));
  if (second.empty())
    return {Code::kInvalid, fmt::format("{} needs one of: {}", first, list),
            "see `neuroncache help`"};
  return {Code::kInvalid,
          fmt::format("there is no verb '{} {}'{}", first, second, did_you_mean(second, subs)),
          fmt::format("one of: {}", list)};
}

Status check_choice(std::string_view what, std::string_view value, std::string_view choices,
                    const Verb* verb) {
  if (choices.empty()) return {};
  std::vector<std::string> names;
  for (std::size_t start = 0; start <= choices.size();) {
    const std::size_t end = std::min(choices.find('|', start), choices.size());
    names.emplace_back(choices.substr(start, end - start));
    start = end + 1;
  }
  if (std::find(names.begin(), names.end(), value) != names.end()) return {};
  return usage(fmt::format("{} '{}' is not one of {}{}", what, value, fmt::join(names, ", "),
                           did_you_mean(value, names)),
               verb);
}

Status check(const Parsed& parsed) {
  const auto check_options = [&](std::span<const OptionSpec> options) -> Status {
    for (const OptionSpec& option : options) {
      const auto it = parsed.values.find(option.name);
      if (it == parsed.values.end()) continue;
      for (const std::string& value : it->second) {
        NC_TRY(check_choice(fmt::format("--{}", option.name), value, option.choices, parsed.verb));
      }
    }
    return {};
  };
  NC_TRY(check_options(global_options()));
  NC_TRY(check_options(parsed.verb->options));
  for (const ArgumentSpec& argument : parsed.verb->arguments) {
    const auto it = parsed.values.find(argument.name);
    if (it == parsed.values.end() || it->second.empty()) {
      if (argument.required)
        return usage(fmt::format("{} needs {}", parsed.verb->name, argument.name), parsed.verb);
      continue;
    }
    for (const std::string& value : it->second) {
      NC_TRY(check_choice(argument.name, value, argument.choices, parsed.verb));
    }
  }
  return {};
}

// A verb that runs a command has it behind "--", where nothing is ours to understand.
constexpr std::string_view kCommand = "COMMAND";

bool runs_a_command(std::string_view word) {
  const Verb* verb = find_verb(word);
  return verb != nullptr && std::any_of(verb->arguments.begin(), verb->arguments.end(),
                                        [](const ArgumentSpec& a) { return a.name == kCommand; });
}

Result<Parsed> parse_words(const std::vector<std::string>& words) {
  Storage storage;
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  app.require_subcommand(0, 1);  // one verb; what follows it is an argument, even "stats"
  declare_options(app, storage, global_options());
  declare(app, storage, "version", "--version", false, false);
  std::map<const CLI::App*, const Verb*> verbs;
  std::map<std::string, CLI::App*, std::less<>> groups;
  for (const Verb* verb : verb_table()) {
    CLI::App* parent = &app;
    std::string_view name = verb->name;
    if (const std::size_t space = name.find(' '); space != std::string_view::npos) {
      CLI::App*& group = groups[std::string(name.substr(0, space))];
      if (group == nullptr) {
        group = app.add_subcommand(std::string(name.substr(0, space)));
        group->set_help_flag();
        group->allow_extras();
        group->fallthrough();
        group->require_subcommand(0, 1);
      }
      parent = group;
      name = name.substr(space + 1);
    }
    CLI::App* sub = parent->add_subcommand(std::string(name));
    sub->set_help_flag();
    sub->allow_extras();
    sub->fallthrough();
    verbs[sub] = verb;
    declare_options(*sub, storage, verb->options);
    for (const ArgumentSpec& argument : verb->arguments) {
      declare(*sub, storage, argument.name, std::string(argument.name), true, argument.many);
    }
  }

  std::string trouble;
  try {
    app.parse(
        std::vector<std::string>(words.rbegin(), words.rend()));  // CLI11 takes them backwards
  } catch (const CLI::ArgumentMismatch& e) {
    trouble = e.what();
    if (const auto end = trouble.find(" was given a disallowed flag override");
        end != std::string::npos) {
      trouble = fmt::format("--{} is a switch, it takes no value", trouble.substr(0, end));
    }
  } catch (const CLI::Error& e) {
    trouble = e.what();
  }

  Parsed parsed;
  const CLI::App* deepest = &app;
  for (auto subs = deepest->get_subcommands(); !subs.empty(); subs = deepest->get_subcommands())
    deepest = subs.front();
  if (const auto it = verbs.find(deepest); it != verbs.end()) parsed.verb = it->second;

  for (const auto& slot : storage.slots) {
    if (slot.option->count() == 0 || (slot.app != &app && slot.app != deepest)) continue;
    parsed.values[slot.name] = slot.list->empty() ? std::vector<std::string>{""} : *slot.list;
  }
  parsed.help = parsed.values.contains("help");

  const std::vector<std::string> extras = app.remaining(true);
  if (parsed.verb == nullptr) {
    if (parsed.values.contains("version")) {
      parsed.verb = &kVersionVerb;
      return parsed;
    }
    const std::string group = deepest == &app ? "" : deepest->get_name();
    std::string word;
    for (const std::string& extra : extras) {
      if (!extra.starts_with('-')) {
        word = extra;
        break;
      }
      return unknown_option(extra, nullptr);
    }
    if (!group.empty() && !(word.empty() && parsed.help)) return unknown_verb(group, word);
    if (group.empty() && !word.empty()) return unknown_verb(word, "");
    parsed.verb = &kHelpVerb;
    if (!group.empty()) parsed.values["VERB"] = {group};
    parsed.help = false;
    NC_TRY(check(parsed));
    return parsed;
  }
  if (parsed.help) return parsed;
  for (const std::string& extra : extras) {
    if (extra.starts_with('-') && extra.size() > 1) return unknown_option(extra, parsed.verb);
  }
  if (!trouble.empty()) {
    // "--limit: 1 required TEXT missing"
    const std::size_t colon = trouble.find(':');
    const std::string option = trouble.substr(0, colon);
    if (option.starts_with("--") && colon != std::string::npos)
      return usage(fmt::format("{} needs a value", option), parsed.verb);
    return usage(trouble, parsed.verb);
  }
  if (!extras.empty()) {
    return usage(
        fmt::format("{} does not take '{}'", parsed.verb->name, shown_address(extras.front())),
        parsed.verb);
  }
  NC_TRY(check(parsed));
  return parsed;
}

}  // namespace

Result<Parsed> parse(const std::vector<std::string>& words) {
  const auto mark = std::find(words.begin(), words.end(), "--");
  if (mark == words.end() || std::none_of(words.begin(), mark, runs_a_command))
    return parse_words(words);
  NC_ASSIGN(Parsed parsed, parse_words({words.begin(), mark}));
  const std::vector<std::string> command(mark + 1, words.end());
  if (!parsed.help && runs_a_command(parsed.verb->name) && !command.empty())
    parsed.values[std::string(kCommand)] = command;
  return parsed;
}

Format format_of(const Parsed& parsed) {
  const auto it = parsed.values.find("format");
  if (it == parsed.values.end()) return Format::kText;
  return it->second.back() == "json"  ? Format::kJson
         : it->second.back() == "tab" ? Format::kTab
                                      : Format::kText;
}

Format guess_format(const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--format=json") return Format::kJson;
    if (words[i] == "--format" && i + 1 < words.size() && words[i + 1] == "json")
      return Format::kJson;
  }
  return Format::kText;
}

}  // namespace nc::cli
