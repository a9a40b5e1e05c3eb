// Text files of ours: a first line that names the kind, then lines "name value", empty ones
// between.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace nc::trust {

struct FieldFile {
  std::string_view what;         // "keyring", for messages
  std::string_view magic;        // the first line
  std::string_view change_with;  // "neuroncache keys"
  std::size_t max_bytes = 0;
};

// Gives each line to `line`, and calls `end` after the last; both return what is wrong, or "", and
// the first problem ends it: kInvalid with the line's number. kTooLarge.
Status read_fields(
    const FieldFile& file, std::string_view text,
    const std::function<std::string(std::string_view name, std::string_view value)>& line,
    const std::function<std::string()>& end);

}  // namespace nc::trust
