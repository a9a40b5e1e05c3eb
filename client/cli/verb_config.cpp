// config show | set | explain. Works without the daemon; with one, tells and changes what is in
// force there too.
#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/trust/keyring.hpp"
#include "base/trust/tokens.hpp"
#include "client/autostart.hpp"
#include "client/cli/output.hpp"
#include "client/client.hpp"

namespace nc::cli {
namespace {

using client::Client;
using client::ClientOptions;
using client::ConfigValue;

// The daemon's settings; none when it does not run.
Result<std::vector<ConfigValue>> daemon_values(const Context& context) {
  ClientOptions options = ClientOptions::from(context.settings());
  options.autostart = false;
  NC_ASSIGN(const bool up, client::listening(options.socket_path, options.connect_timeout_ms));
  if (!up) return std::vector<ConfigValue>{};
  return Client(options).config();
}

const ConfigValue* find(const std::vector<ConfigValue>& values, std::string_view name) {
  for (const ConfigValue& value : values) {
    if (value.name == name) return &value;
  }
  return nullptr;
}

// "lease-ttl" and NEURONCACHE_LEASE_TTL mean lease_ttl, too.
std::string plain_name(std::string name) {
  constexpr std::string_view kPrefix = "NEURONCACHE_";
  if (name.starts_with(kPrefix)) name = name.substr(kPrefix.size());
  for (char& c : name)
    c = c == '-' ? '_' : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return name;
}

std::string environment_name(std::string_view setting) {
  std::string out = "NEURONCACHE_";
  for (const char c : setting) out += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return out;
}

// What an empty value stands for.
std::string shown(const Context& context, std::string_view name) {
  const std::string& value = context.settings().text(name);
  if (!value.empty()) return shown_value(*find_setting(name), value);
  if (name == "dir") return context.store_dir();
  if (name == "socket") return context.socket_path();
  const std::string& file = context.settings().config_path();
  if (name == "trust_keys") return trust::default_keyring_path(file);
  if (name == "listen_tokens") return trust::default_tokens_path(file);
  if (name == "sign_key") return trust::default_sign_key_path(file);
  return value;
}

bj::object setting_json(const Context& context, const SettingSpec& spec,
                        const ConfigValue* in_daemon) {
  const Settings& settings = context.settings();
  const bool from_daemon =
      in_daemon != nullptr && (spec.reader == "daemon" || spec.reader == "all");
  return {{"name", std::string(spec.name)},
          {"value", shown(context, spec.name)},
          {"origin", std::string(origin_name(settings.origin(spec.name)))},
          {"origin_detail", settings.origin_detail(spec.name)},
          {"default", std::string(spec.default_value)},
          {"range", std::string(spec.range)},
          {"live", spec.live},
          {"reader", std::string(spec.reader)},
          {"environment", environment_name(spec.name)},
          {"help", std::string(spec.help)},
          {"daemon_value", from_daemon ? bj::value(in_daemon->value) : bj::value(nullptr)}};
}

// Only where the daemon's own value is another one, which is worth a look.
std::string daemon_differs(const Context& context, const SettingSpec& spec,
                           const std::vector<ConfigValue>& values) {
  const ConfigValue* v = find(values, spec.name);
  if (v == nullptr || (spec.reader != "daemon" && spec.reader != "all")) return "";
  const std::string& here = context.settings().text(spec.name);
  if (v->value == here || v->value == shown(context, spec.name)) return "";
  // What is unset here the daemon may have worked out for itself.
  if (here.empty() && v->origin == "flag") return "";
  return v->value.empty() ? "(unset)" : v->value;
}

Result<int> show(Context& context) {
  std::vector<const SettingSpec*> wanted;
  for (const std::string& name : context.all("NAME")) {
    const SettingSpec* spec = find_setting(plain_name(name));
    if (spec == nullptr) return unknown_setting(plain_name(name));
    wanted.push_back(spec);
  }
  if (wanted.empty()) {
    for (const SettingSpec& spec : setting_table()) {
      if (!context.flag("changed") || context.settings().origin(spec.name) != Origin::kDefault)
        wanted.push_back(&spec);
    }
  }
  std::vector<ConfigValue> in_daemon;
  if (auto values = daemon_values(context); values.ok()) {
    in_daemon = std::move(*values);
  } else {
    note("the daemon does not tell its settings: " + values.error().message);
  }
  if (context.format() == Format::kJson) {
    bj::array out;
    for (const SettingSpec* spec : wanted)
      out.push_back(setting_json(context, *spec, find(in_daemon, spec->name)));
    print_json(
        bj::object{{"file", context.settings().config_path()}, {"settings", std::move(out)}});
    return kOk;
  }
  Table table({{"SETTING", "name"},
               {"VALUE", "value"},
               {"FROM", "origin"},
               {"IN THE DAEMON", "daemon_value"}});
  bool any_differs = false;
  for (const SettingSpec* spec : wanted) {
    const std::string value = shown(context, spec->name);
    const std::string differs = daemon_differs(context, *spec, in_daemon);
    any_differs |= !differs.empty();
    const std::string detail = context.settings().origin_detail(spec->name);
    table.add(
        {std::string(spec->name), Cell(value.empty() ? "(unset)" : printable(value), value),
         detail.empty() ? std::string(origin_name(context.settings().origin(spec->name))) : detail,
         differs});
  }
  if (context.format() == Format::kTab) {
    print(table.tab());
    return kOk;
  }
  print(table.text(0));
  print(fmt::format("\nSettings file: {}\n", context.settings().config_path()));
  if (any_differs)
    print(
        "The running daemon has other values where the last column says so; `neuroncache daemon "
        "restart` gives it these.\n");
  return kOk;
}

Result<int> explain(Context& context) {
  const std::string name = plain_name(context.option("NAME").value_or(""));
  const SettingSpec* spec = find_setting(name);
  if (spec == nullptr) return unknown_setting(name);
  std::vector<ConfigValue> in_daemon;
  if (auto values = daemon_values(context); values.ok()) in_daemon = std::move(*values);
  const bj::object json = setting_json(context, *spec, find(in_daemon, name));
  if (context.format() == Format::kJson) {
    print_json(json);
    return kOk;
  }
  if (context.format() == Format::kTab) {
    Table table({{"", "name"}, {"", "value"}});
    for (const auto& item : json) {
      table.add({std::string(item.key()), plain_text(item.value())});
    }
    print(table.tab());
    return kOk;
  }
  const std::string value = shown(context, name);
  const std::string detail = context.settings().origin_detail(name);
  print(fmt::format("{}: {}\n\n", spec->name, spec->help));
  print(fmt::format("Value        {} (from: {})\n", value.empty() ? "(unset)" : value,
                    detail.empty() ? origin_name(context.settings().origin(name)) : detail));
  if (const std::string differs = daemon_differs(context, *spec, in_daemon); !differs.empty()) {
    print(fmt::format("In force     {} in the running daemon\n", differs));
  }
  print(fmt::format("Default      {}\n",
                    spec->default_value.empty() ? "(unset)" : spec->default_value));
  if (!spec->range.empty()) print(fmt::format("Allowed      {}\n", spec->range));
  print(fmt::format("Environment  {}\nFile         {} = ... in {}\n", environment_name(name), name,
                    context.settings().config_path()));
  print(fmt::format("Read by      {}\n", spec->reader));
  print(fmt::format("Change       {}\n",
                    spec->live ? "while the daemon runs, with `neuroncache config set`"
                    : spec->reader == "daemon" || spec->reader == "all"
                        ? "takes effect when the daemon is restarted"
                        : "takes effect in programs that are started afterwards"));
  return kOk;
}

struct SetOutcome {
  bool saved = false;
  bool applied = false;  // in the running daemon
  std::string remark;
};

Result<SetOutcome> set_value(const Context& context, const SettingSpec& spec,
                             const std::string& value) {
  SetOutcome outcome;
  const bool live_only = context.flag("live");
  if (live_only && !spec.live) {
    return Error{Code::kInvalid, fmt::format("{} cannot change while the daemon runs", spec.name),
                 "leave out --live and restart the daemon"};
  }
  ClientOptions options = ClientOptions::from(context.settings());
  options.autostart = false;
  NC_ASSIGN(const bool up, client::listening(options.socket_path, options.connect_timeout_ms));
  if (live_only && !up) {
    return Error{Code::kUnavailable, fmt::format("no daemon is running at {}", options.socket_path),
                 "leave out --live"};
  }
  if (!live_only) {
    const std::string& path = context.settings().config_path();
    if (path.empty())
      return Error{Code::kInvalid, "there is no place for a settings file: no home directory",
                   "set NEURONCACHE_CONFIG"};
    NC_TRY(Settings::save_to_file(real_filesystem(), led_to(path), spec.name, value));
    outcome.saved = true;
  }
  const bool daemons = spec.reader == "daemon" || spec.reader == "all";
  if (up && spec.live && daemons) {
    NC_TRY(Client(options).set_config(spec.name, value));
    outcome.applied = true;
  } else if (up && daemons) {
    outcome.remark = "the running daemon takes it after `neuroncache daemon restart`";
  }
  const Origin origin = context.settings().origin(spec.name);
  if (origin == Origin::kEnvironment) {
    outcome.remark = fmt::format("{} is set in this environment and overrides the file",
                                 environment_name(spec.name));
  }
  return outcome;
}

Result<int> set(Context& context) {
  const std::string name = plain_name(context.option("NAME").value_or(""));
  const SettingSpec* spec = find_setting(name);
  if (spec == nullptr) return unknown_setting(name);
  NC_ASSIGN(const std::string value, check_setting(*spec, context.option("VALUE").value_or("")));
  NC_ASSIGN(const SetOutcome outcome, set_value(context, *spec, value));
  const std::string& path = context.settings().config_path();
  switch (context.format()) {
    case Format::kText:
      if (outcome.saved)
        print(fmt::format("Saved {} = {} in {}.\n", name, shown_value(*spec, value), path));
      if (outcome.applied) print("The running daemon uses it from now on.\n");
      if (!outcome.remark.empty()) print(fmt::format("Note: {}.\n", outcome.remark));
      break;
    case Format::kJson:
      print_json(bj::object{{"name", name},
                            {"value", shown_value(*spec, value)},
                            {"saved", outcome.saved},
                            {"file", path},
                            {"applied", outcome.applied},
                            {"remark", outcome.remark}});
      break;
    case Format::kTab:
      print(fmt::format("name\tvalue\tsaved\tapplied\n{}\t{}\t{}\t{}\n", name,
                        printable(shown_value(*spec, value)), outcome.saved ? 1 : 0,
                        outcome.applied ? 1 : 0));
      break;
  }
  return kOk;
}

constexpr ArgumentSpec kShowArguments[] = {
    {"NAME", "The settings to show; none: all.", false, true, ""}};
constexpr OptionSpec kShowOptions[] = {
    {"changed", "", "Only those that are not at their default.", ""}};
constexpr ArgumentSpec kSetArguments[] = {{"NAME", "The setting.", true, false, ""},
                                          {"VALUE", "Its new value.", true, false, ""}};
constexpr OptionSpec kSetOptions[] = {
    {"live", "", "Change the running daemon only; do not save.", ""}};
constexpr ArgumentSpec kNameArgument[] = {{"NAME", "The setting.", true, false, ""}};

}  // namespace

extern constinit const Verb kConfigShowVerb{
    .name = "config show",
    .summary = "Show settings and where each value comes from.",
    .details = "Later sources win: default, settings file, environment, flag.",
    .arguments = kShowArguments,
    .options = kShowOptions,
    .examples = "neuroncache config show --changed",
    .run = show};

extern constinit const Verb kConfigSetVerb{
    .name = "config set",
    .summary = "Save a setting; the running daemon takes it at once where it can.",
    .details = "",
    .arguments = kSetArguments,
    .options = kSetOptions,
    .examples = "neuroncache config set max_bytes 100GiB",
    .run = set};

extern constinit const Verb kConfigExplainVerb{
    .name = "config explain",
    .summary = "Explain one setting: meaning, value, origin, default, allowed values.",
    .details = "",
    .arguments = kNameArgument,
    .options = {},
    .examples = "neuroncache config explain lease_ttl",
    .run = explain};

}  // namespace nc::cli
