// version, help, completion: what needs neither settings nor a store.
#include <fmt/format.h>

#include "client/cli/help.hpp"
#include "client/cli/output.hpp"
#include "client/protocol.hpp"

namespace nc::cli {
namespace {

Result<int> run_version(Context& context) {
  switch (context.format()) {
    case Format::kText:
      print(fmt::format("neuroncache {} (protocol {})\n", NC_VERSION, protocol::kVersion));
      break;
    case Format::kJson:
      print_json(
          bj::object{{"version", NC_VERSION},
                     {"protocol", {{"min", protocol::kMinVersion}, {"max", protocol::kVersion}}}});
      break;
    case Format::kTab:
      print(fmt::format("name\tvalue\nversion\t{}\nprotocol_min\t{}\nprotocol_max\t{}\n",
                        NC_VERSION, protocol::kMinVersion, protocol::kVersion));
      break;
  }
  return kOk;
}

bj::array options_json(std::span<const OptionSpec> options) {
  bj::array out;
  for (const OptionSpec& o : options) {
    out.push_back(bj::object{{"name", std::string(o.name)},
                             {"value", std::string(o.value)},
                             {"choices", std::string(o.choices)},
                             {"help", std::string(o.help)}});
  }
  return out;
}

bj::object verb_json(const Verb& verb) {
  bj::array arguments;
  for (const ArgumentSpec& a : verb.arguments) {
    arguments.push_back(bj::object{{"name", std::string(a.name)},
                                   {"required", a.required},
                                   {"many", a.many},
                                   {"help", std::string(a.help)}});
  }
  return {{"name", std::string(verb.name)},
          {"summary", std::string(verb.summary)},
          {"usage", usage_line(verb)},
          {"arguments", std::move(arguments)},
          {"options", options_json(verb.options)}};
}

Result<int> run_help(Context& context) {
  if (context.flag("man")) return print(man_page()), kOk;
  if (context.flag("markdown")) return print(markdown()), kOk;
  const std::string name = fmt::format("{}", fmt::join(context.all("VERB"), " "));
  const Verb* verb = find_verb(name);
  const std::string group = name.empty() || verb != nullptr ? "" : group_help(name);
  if (!name.empty() && verb == nullptr && group.empty()) {
    return Error{Code::kInvalid, fmt::format("there is no verb '{}'", name),
                 "see `neuroncache help`"};
  }
  if (context.format() == Format::kText) {
    print(verb != nullptr ? verb_help(*verb) : name.empty() ? overview_help() : group);
    return kOk;
  }
  bj::array verbs;
  Table table({{"", "verb"}, {"", "summary"}});
  for (const Verb* v : verb_table()) {
    const bool wanted =
        name.empty() || v == verb || (verb == nullptr && v->name.starts_with(name + " "));
    if (!wanted) continue;
    verbs.push_back(verb_json(*v));
    table.add({std::string(v->name), std::string(v->summary)});
  }
  if (context.format() == Format::kTab) {
    print(table.tab());
  } else {
    print_json(
        bj::object{{"verbs", std::move(verbs)}, {"options", options_json(global_options())}});
  }
  return kOk;
}

Result<int> run_completion(Context& context) {
  const std::string shell = context.option("SHELL").value_or("");
  const std::string script = completion_script(shell);
  switch (context.format()) {
    case Format::kText:
      print(script);
      break;
    case Format::kJson:
      print_json(bj::object{{"shell", shell}, {"script", script}});
      break;
    case Format::kTab:
      print(fmt::format("shell\tscript_bytes\n{}\t{}\n", shell, script.size()));
      break;
  }
  return kOk;
}

constexpr ArgumentSpec kHelpArguments[] = {
    {"VERB", "The verb to explain; none: all of them, one line each.", false, true, ""}};
constexpr OptionSpec kHelpOptions[] = {
    {"man", "", "Print the man page's source.", ""},
    {"markdown", "", "Print this reference as Markdown.", ""},
};
constexpr ArgumentSpec kShellArgument[] = {{"SHELL", "Which shell.", true, false, "bash|zsh|fish"}};

}  // namespace

extern constinit const Verb kVersionVerb{.name = "version",
                                         .summary = "Print the version.",
                                         .details = "",
                                         .arguments = {},
                                         .options = {},
                                         .examples = "",
                                         .needs_settings = false,
                                         .run = run_version};

extern constinit const Verb kHelpVerb{.name = "help",
                                      .summary = "Explain the verbs.",
                                      .details = "",
                                      .arguments = kHelpArguments,
                                      .options = kHelpOptions,
                                      .examples = "neuroncache help prune",
                                      .needs_settings = false,
                                      .run = run_help};

extern constinit const Verb kCompletionVerb{
    .name = "completion",
    .summary = "Print the completion script of a shell.",
    .details = "The script is made from the table of verbs and needs no further files.",
    .arguments = kShellArgument,
    .options = {},
    .examples =
        "source <(neuroncache completion bash) # in ~/.bashrc\n"
        "neuroncache completion zsh > ~/.zfunc/_neuroncache # with ~/.zfunc in fpath\n"
        "neuroncache completion fish > ~/.config/fish/completions/neuroncache.fish # once",
    .needs_settings = false,
    .run = run_completion};

}  // namespace nc::cli
