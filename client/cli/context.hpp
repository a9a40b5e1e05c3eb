// What a verb gets to work with: its parsed arguments, the settings, and how to print.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/settings.hpp"
#include "client/cli/verb.hpp"
#include "client/types.hpp"

namespace nc::cli {

enum class Format { kText, kJson, kTab };

struct Parsed {
  const Verb* verb = nullptr;
  bool help = false;
  // Options and arguments by name; a switch that was given has one empty value.
  std::map<std::string, std::vector<std::string>, std::less<>> values;
};

class Context {
 public:
  Context(Parsed parsed, Format format, Settings settings);

  const Verb& verb() const { return *parsed_.verb; }
  Format format() const { return format_; }
  const Settings& settings() const { return settings_; }
  Settings& settings() { return settings_; }

  // The settings socket and dir, or where these are when unset.
  const std::string& socket_path() const { return socket_path_; }
  const std::string& store_dir() const { return store_dir_; }

  bool flag(std::string_view name) const { return parsed_.values.contains(name); }
  std::optional<std::string> option(std::string_view name) const;  // the last one given
  std::vector<std::string> all(std::string_view name) const;

  // Typed options; kInvalid names the option and the form. Unset: nullopt.
  Result<std::optional<std::uint64_t>> size_option(std::string_view name) const;
  Result<std::optional<std::uint64_t>> count_option(std::string_view name) const;
  Result<std::optional<double>> duration_option(std::string_view name) const;

  // --namespace --compiler --model --kind --older-than --unused-since --failed, those that the verb
  // has.
  Result<client::EntryFilter> filter() const;

  // Flags for a daemon that must see the same files as this call: what came from our own flags.
  std::vector<std::string> daemon_arguments() const;

 private:
  Parsed parsed_;
  Format format_;
  Settings settings_;
  std::string socket_path_, store_dir_;
};

// An entry is named by its key or the beginning of it: kInvalid for anything else.
Status check_key(std::string_view key_or_prefix);

// The file that `path` leads to through links, to be written there: such files are often kept
// elsewhere. The path itself where there is none.
std::string led_to(const std::string& path);

}  // namespace nc::cli
