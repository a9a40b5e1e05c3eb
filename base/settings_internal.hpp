// Private to base: parsing that the settings' sources share.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace nc {

std::optional<bool> parse_bool(
    std::string_view text);  // true/false, 1/0, yes/no, on/off in any case
Result<std::map<std::string, std::uint64_t>> parse_quotas(std::string_view text);

std::vector<std::string> parse_addresses(std::string_view text);

// The last value of NAME in "NAME=value" strings; "" when it is not there.
std::string_view env_value(std::span<const std::string> env, std::string_view name);
// Where settings are when NEURONCACHE_CONFIG is not set; "" without a home directory.
std::string default_config_path(std::span<const std::string> env);

}  // namespace nc
