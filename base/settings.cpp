#include "base/settings.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include <fmt/format.h>

#include "base/settings_file.hpp"
#include "base/settings_internal.hpp"

namespace nc {
namespace {

constexpr std::string_view kEnvPrefix = "NEURONCACHE_";
constexpr std::string_view kConfigVariable = "NEURONCACHE_CONFIG";
constexpr std::string_view kSwitchVariable = "NEURONCACHE";

std::string to_lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string env_form(std::string_view name) {
  std::string out(kEnvPrefix);
  for (const char c : name) {
    out.push_back(c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c);
  }
  return out;
}

std::string flag_form(std::string_view name) {
  std::string out = "--" + std::string(name);
  std::ranges::replace(out, '_', '-');
  return out;
}

std::string name_of_flag(std::string_view flag) {
  std::string out(flag);
  std::ranges::replace(out, '-', '_');
  return out;
}

struct Assignment {
  std::string name;
  std::string value;
  std::string variable;
};

// The settings of the environment, in its order. NEURONCACHE and NEURONCACHE_CONFIG are no
// settings.
std::vector<Assignment> from_environment(std::span<const std::string> env) {
  std::vector<Assignment> out;
  for (const std::string& entry : env) {
    const auto equals = entry.find('=');
    if (equals == std::string::npos || !entry.starts_with(kEnvPrefix)) continue;
    const auto variable = std::string_view(entry).substr(0, equals);
    if (variable == kConfigVariable) continue;
    const auto value = std::string_view(entry).substr(equals + 1);
    std::string name = to_lower(variable.substr(kEnvPrefix.size()));
    if (value.empty() && find_setting(name) != nullptr) continue;
    // Only the upper-case form is a setting: NEURONCACHE_dir is a slip like any other.
    if (env_form(name) != variable) name = variable;
    out.push_back({std::move(name), std::string(value), std::string(variable)});
  }
  return out;
}

// Who writes the settings decides which programs run, and who is believed.
Status check_writers(FileSystem& fs, const std::string& path) {
  NC_ASSIGN(const FileInfo info, fs.stat(path));
  if (info.uid != ::geteuid() && info.uid != 0) {
    return Error{Code::kDenied,
                 fmt::format("the settings file {} belongs to uid {}", path, info.uid),
                 "settings must belong to you or to root"};
  }
  if ((info.mode & 002) != 0) {
    return Error{Code::kDenied,
                 fmt::format("the settings file {} can be written by everybody (mode {:04o})", path,
                             info.mode),
                 fmt::format("chmod o-w {}", path)};
  }
  return {};
}

}  // namespace

const SettingSpec* find_setting(std::string_view name) {
  const auto table = setting_table();
  const auto it = std::ranges::find(table, name, &SettingSpec::name);
  return it == table.end() ? nullptr : &*it;
}

std::string_view origin_name(Origin origin) {
  switch (origin) {
    case Origin::kDefault:
      return "default";
    case Origin::kFile:
      return "file";
    case Origin::kEnvironment:
      return "environment";
    case Origin::kFlag:
      return "flag";
    case Origin::kLive:
      return "live";
  }
  return "default";
}

Error unknown_setting(std::string_view like) {
  std::vector<std::string> names;
  const bool env = like.starts_with(kEnvPrefix);
  const bool flag = like.starts_with("--");
  for (const SettingSpec& spec : setting_table()) {
    names.push_back(env    ? env_form(spec.name)
                    : flag ? flag_form(spec.name)
                           : std::string(spec.name));
  }
  if (env) names.emplace_back(kConfigVariable);
  // Compared without the common prefix, or a long one would make everything near.
  const std::size_t prefix = env ? kEnvPrefix.size() : flag ? 2 : 0;
  std::vector<std::string> bare;
  for (const std::string& name : names) bare.push_back(to_lower(name.substr(prefix)));
  Error error{Code::kInvalid, fmt::format("there is no setting {}", like),
              "see `neuroncache config show` for all settings"};
  if (const auto near = nearest_name(to_lower(like.substr(prefix)), bare)) {
    const auto index = static_cast<std::size_t>(std::ranges::find(bare, *near) - bare.begin());
    error.action = fmt::format("did you mean {}?", names[index]);
  }
  return error;
}

Result<bool> switched_on(std::span<const std::string> env) {
  const auto value = env_value(env, kSwitchVariable);
  if (value.empty()) return true;
  if (const auto on = parse_bool(value)) return *on;
  return Error{Code::kInvalid,
               fmt::format("environment NEURONCACHE = \"{}\" is not allowed", value),
               "it takes 0 (off) or 1 (on)"};
}

Result<Settings> Settings::load(FileSystem& fs, std::span<const std::string> env,
                                const std::map<std::string, std::string>& flags) {
  Settings settings;
  for (const SettingSpec& spec : setting_table()) {
    settings.values_[std::string(spec.name)] = {std::string(spec.default_value), Origin::kDefault,
                                                "default"};
  }
  NC_TRY(switched_on(env));

  const auto config_flag = flags.find("config");
  std::string_view named = env_value(env, kConfigVariable);
  if (config_flag != flags.end()) named = config_flag->second;
  settings.config_path_ = named.empty() ? default_config_path(env) : std::string(named);
  if (!named.empty() && !named.starts_with('/')) {
    return Error{Code::kInvalid,
                 fmt::format("the settings file \"{}\" is not an absolute path", named),
                 "write the whole path"};
  }
  if (!settings.config_path_.empty()) {
    const std::string& path = settings.config_path_;
    auto text = fs.read_all(path, kMaxSettingsFile);
    if (text.ok()) {
      if (!text->empty()) NC_TRY(check_writers(fs, path));
      NC_ASSIGN(const auto entries, parse_settings_file(*text, path));
      for (const FileSetting& entry : entries) {
        const std::string where = fmt::format("file {} line {}", path, entry.line);
        if (auto set = settings.set(entry.name, entry.value, Origin::kFile, where); !set.ok()) {
          return std::move(set).error().context(where);
        }
      }
    } else if (!named.empty() || !text.is(Code::kNotFound)) {
      return std::move(text).error().context("reading the settings file");
    }
  }

  for (const Assignment& a : from_environment(env)) {
    if (find_setting(a.name) == nullptr) {
      return unknown_setting(a.variable).context("environment");
    }
    const std::string where = "environment " + a.variable;
    if (auto set = settings.set(a.name, a.value, Origin::kEnvironment, where); !set.ok()) {
      return std::move(set).error().context(where);
    }
  }

  for (const auto& [flag, value] : flags) {
    if (flag == "config") continue;
    const std::string name = name_of_flag(flag);
    if (find_setting(name) == nullptr) return unknown_setting(flag_form(name));
    const std::string where = "flag " + flag_form(name);
    if (auto set = settings.set(name, value, Origin::kFlag, where); !set.ok()) {
      return std::move(set).error().context(where);
    }
  }
  return settings;
}

const Settings::Value& Settings::value(std::string_view name) const {
  const auto it = values_.find(name);
  if (it == values_.end()) std::abort();  // a misspelt name in our own code
  return it->second;
}

const std::string& Settings::text(std::string_view name) const {
  return value(name).text;
}

bool Settings::boolean(std::string_view name) const {
  return text(name) == "true";
}

std::int64_t Settings::integer(std::string_view name) const {
  const std::string& digits = text(name);
  std::int64_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

std::uint64_t Settings::size(std::string_view name) const {
  const auto bytes = parse_size(text(name));
  return bytes.ok() ? *bytes : 0;
}

double Settings::seconds(std::string_view name) const {
  const auto seconds = parse_duration_s(text(name));
  return seconds.ok() ? *seconds : 0;
}

std::vector<std::string> Settings::addresses(std::string_view name) const {
  return parse_addresses(text(name));
}

std::map<std::string, std::uint64_t> Settings::quotas(std::string_view name) const {
  auto quotas = parse_quotas(text(name));
  return quotas.ok() ? std::move(quotas).value() : std::map<std::string, std::uint64_t>();
}

Origin Settings::origin(std::string_view name) const {
  return value(name).origin;
}

std::string Settings::origin_detail(std::string_view name) const {
  return value(name).detail;
}

Status Settings::set(std::string_view name, std::string_view value, Origin origin,
                     std::string detail) {
  const SettingSpec* spec = find_setting(name);
  if (spec == nullptr) return unknown_setting(name);
  NC_ASSIGN(std::string checked, check_setting(*spec, value));
  if (detail.empty()) detail = origin_name(origin);
  values_[std::string(name)] = {std::move(checked), origin, std::move(detail)};
  return {};
}

Status Settings::save_to_file(FileSystem& fs, const std::string& path, std::string_view name,
                              std::string_view value) {
  const SettingSpec* spec = find_setting(name);
  if (spec == nullptr) return unknown_setting(name);
  NC_ASSIGN(const std::string checked, check_setting(*spec, value));
  const bool bare = spec->type == SettingType::kBool || spec->type == SettingType::kInt;
  std::uint32_t mode = 0600;
  auto text = fs.read_all(path, kMaxSettingsFile);
  if (text.ok()) {
    NC_ASSIGN(const FileInfo info, fs.stat(path));
    mode = info.mode;
  } else if (text.is(Code::kNotFound)) {
    NC_TRY(fs.make_dirs(parent_dir(path)));
    text = std::string();
  } else {
    return std::move(text).error();
  }
  NC_ASSIGN(const std::string edited, edit_settings_file(*text, path, std::string(name),
                                                         bare ? checked : toml_string(checked)));
  return fs.write_atomically(path, as_bytes(edited), mode);
}

}  // namespace nc
