// One table for every setting of the daemon, the CLI and the shim. Documentation, help, `config
// show` and the checks on names are made from it. Sources, later wins: default, settings file
// (TOML, $NEURONCACHE_CONFIG, else $XDG_CONFIG_HOME/neuroncache/config.toml), environment
// NEURONCACHE_<NAME>, flag --<name>. A name nobody knows is refused with the nearest right one. An
// empty environment variable counts as not set.
//
// Two environment names are no settings: NEURONCACHE (0 switches everything off, see switched_on)
// and NEURONCACHE_CONFIG.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/filesystem.hpp"
#include "base/result.hpp"

namespace nc {

enum class SettingType {
  kString,
  kPath,
  kBool,
  kInt,
  kSize,
  kDuration,
  kChoice,
  kQuotas,
  kAddresses
};  // kQuotas: "team=10GiB,other=5GiB"; kAddresses: URLs with spaces between, a list in the file

struct SettingSpec {
  std::string_view name;  // "max_bytes"; environment NEURONCACHE_MAX_BYTES; flag --max-bytes
  SettingType type;
  std::string_view default_value;  // "" may mean "worked out at start", said in help
  std::string_view range;          // "1..1024", "auto|on|off", or ""
  bool live;                       // may change while the daemon runs
  std::string_view reader;         // who reads it: "daemon", "shim", "client", "all"
  std::string_view help;           // one sentence
};

std::span<const SettingSpec> setting_table();
const SettingSpec* find_setting(std::string_view name);

enum class Origin { kDefault, kFile, kEnvironment, kFlag, kLive };
std::string_view origin_name(Origin origin);

class Settings {
 public:
  // Reads file and environment. `env` are "NAME=value" strings; `flags` name -> value ("max_bytes"
  // or "max-bytes"), and "config" names the settings file. Errors: kInvalid with source, name,
  // value and what is allowed. A missing default file is fine, a missing named one is an error
  // (kNotFound).
  static Result<Settings> load(FileSystem& fs, std::span<const std::string> env,
                               const std::map<std::string, std::string>& flags);

  const std::string& text(
      std::string_view name) const;  // aborts on a name that is not in the table (programmer error)
  // The typed forms of a checked value. An empty value (a setting that is "worked out at start")
  // reads as 0 or {}.
  bool boolean(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;
  std::uint64_t size(std::string_view name) const;
  double seconds(std::string_view name) const;
  std::map<std::string, std::uint64_t> quotas(std::string_view name) const;
  std::vector<std::string> addresses(std::string_view name) const;

  Origin origin(std::string_view name) const;
  std::string origin_detail(
      std::string_view name) const;  // "environment NEURONCACHE_DIR", "file /x/config.toml line 3"
  const std::string& config_path() const {
    return config_path_;
  }  // also when there is no such file; "" without a home

  Status set(std::string_view name, std::string_view value, Origin origin,
             std::string detail);  // checked
  // Writes one setting to the settings file, keeping everything else in it, comments too. Creates
  // file and directory.
  static Status save_to_file(FileSystem& fs, const std::string& path, std::string_view name,
                             std::string_view value);

 private:
  struct Value {
    std::string text;
    Origin origin = Origin::kDefault;
    std::string detail;
  };
  const Value& value(std::string_view name) const;

  std::map<std::string, Value, std::less<>> values_;
  std::string config_path_;
};

// Every value as it would be checked by set(): the canonical text, or kInvalid with what is
// allowed.
Result<std::string> check_setting(const SettingSpec& spec, std::string_view value);
// For people: without the user names and passwords that addresses may hold.
std::string shown_value(const SettingSpec& spec, std::string_view value);
// kInvalid with the nearest name in the form of `like`: "NEURONCACHE_DIRR", "--dirr" or "dirr".
Error unknown_setting(std::string_view like);

// False when NEURONCACHE is 0 (or false, no, off): do without the cache. kInvalid for a value that
// is neither yes nor no.
Result<bool> switched_on(std::span<const std::string> env);

// The current process's environment as "NAME=value" strings.
std::vector<std::string> process_environment();

// docs/settings.md, made from the table.
std::string settings_markdown();

// Where things are when nothing is set: $XDG_CACHE_HOME/neuroncache,
// $XDG_RUNTIME_DIR/neuroncache/daemon.sock or /tmp/neuroncache-<uid>/daemon.sock.
std::string default_store_dir(std::span<const std::string> env);
std::string default_socket_path(std::span<const std::string> env);

}  // namespace nc
