// Private to base: the settings file. toml++ is known to settings_file.cpp only.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace nc {

struct FileSetting {
  std::string name;
  std::string value;  // as text, whatever its TOML type
  unsigned line = 0;
};

inline constexpr std::uint64_t kMaxSettingsFile = 1 << 20;

// kInvalid with path and line: not TOML, or a value of a kind that no setting has.
Result<std::vector<FileSetting>> parse_settings_file(std::string_view text,
                                                     const std::string& path);

// `original` with `name = value` set (`value` as TOML writes it): replaced where it stands, else
// added. Nothing else changes.
Result<std::string> edit_settings_file(const std::string& original, const std::string& path,
                                       const std::string& name, const std::string& value);

// A value as a TOML string.
std::string toml_string(std::string_view value);

}  // namespace nc
