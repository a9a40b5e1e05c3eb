#include "daemon/options.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "base/credentials.hpp"
#include "base/settings.hpp"

namespace nc::daemon {
namespace {

std::string flag_of(std::string_view name) {
  std::string flag = "--" + std::string(name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

bool ours(const SettingSpec& spec) {
  return spec.reader == "daemon" || spec.reader == "all";
}

bool* own_flag(Options& options, std::string_view flag) {
  if (flag == "--detach") return &options.detach;
  if (flag == "--check") return &options.check;
  if (flag == "--exit-with-parent") return &options.exit_with_parent;
  if (flag == "--help" || flag == "-h") return &options.help;
  if (flag == "--version" || flag == "-V") return &options.version;
  return nullptr;
}

std::string* own_value(Options& options, std::string_view flag) {
  if (flag == "--config") return &options.config;
  if (flag == "--copy-bucket") return &options.copy_bucket;
  if (flag == "--into") return &options.into;
  return nullptr;
}

const SettingSpec* setting_of(std::string_view flag) {
  for (const SettingSpec& spec : setting_table()) {
    if (flag_of(spec.name) == flag) return &spec;
  }
  return nullptr;
}

}  // namespace

Result<Options> parse_options(std::span<const char* const> arguments) {
  Options options;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    const auto equals = argument.find('=');
    const std::string_view flag = argument.substr(0, equals);
    const bool has_value = equals != std::string_view::npos;
    if (bool* own = own_flag(options, flag); own != nullptr && !has_value) {
      *own = true;
      continue;
    }
    const SettingSpec* spec = setting_of(flag);
    std::string* const own = own_value(options, flag);
    if (spec == nullptr && own == nullptr) {
      if (!argument.starts_with("-")) {
        // It may be the rest of an address that was not quoted.
        return Error{Code::kInvalid,
                     fmt::format("unexpected argument '{}'", shown_address(argument)),
                     "see neuroncached --help"};
      }
      return unknown_setting(flag);
    }
    std::string value;
    if (has_value) {
      value = argument.substr(equals + 1);
    } else if (spec != nullptr && spec->type == SettingType::kBool) {
      value = "true";
    } else if (i + 1 < arguments.size()) {
      value = arguments[++i];
    } else {
      return Error{Code::kInvalid, fmt::format("{} needs a value", flag),
                   "see neuroncached --help"};
    }
    if (spec == nullptr) {
      *own = value;
    } else {
      options.settings[std::string(spec->name)] = value;
    }
  }
  if (options.copy_bucket.empty() != options.into.empty()) {
    return Error{Code::kInvalid, "--copy-bucket and --into go together", "see neuroncached --help"};
  }
  return options;
}

std::string help_text() {
  std::string text =
      "neuroncached: keeps what compilers made, and lets each thing be made once.\n"
      "\n"
      "usage: neuroncached [--detach] [--SETTING VALUE]...\n"
      "\n"
      "  --detach            run in the background; returns when it is ready, or another one is\n"
      "  --exit-with-parent  end when the process that started this one ends\n"
      "  --check             look at keys, certificates and shared tiers, print what is found as "
      "JSON "
      "(`neuroncache doctor` shows it) and end\n"
      "  --config FILE       the settings file (TOML)\n"
      "  --copy-bucket s3://BUCKET/PREFIX --into DIR\n"
      "                      copy the objects into this directory, and end; `neuroncache import` "
      "uses it\n"
      "  --version, --help\n"
      "\n"
      "Settings (also NEURONCACHE_<NAME> in the environment, and the settings file):\n"
      "\n";
  for (const SettingSpec& spec : setting_table()) {
    if (!ours(spec)) continue;
    text += fmt::format("  {}\n      {}", flag_of(spec.name), spec.help);
    if (!spec.default_value.empty()) text += fmt::format(" Default: {}.", spec.default_value);
    if (!spec.range.empty()) text += fmt::format(" Range: {}.", spec.range);
    text += '\n';
  }
  return text;
}

}  // namespace nc::daemon
