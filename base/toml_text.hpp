// toml++ as we use it: for the few files that read TOML, no other header includes it.
//
// toml++ 3.3 runs into undefined behaviour on some characters outside strings ("\u00e9 = 1"), so it
// is given ASCII only: '%' and every other byte become %XX%, and what comes back is decoded.
// Control characters, which fail its assertions, are refused before.
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"

// It has assertions that a wrong file can fail ("[="), and leaves them out, or takes them for
// granted, in release builds. Here each is an error in every build.
namespace nc::detail {
struct TomlAssertion {};
[[noreturn]] inline void fail_toml_assertion() {
  throw TomlAssertion();
}
}  // namespace nc::detail
#define TOML_ASSERT(expr) ((expr) ? static_cast<void>(0) : ::nc::detail::fail_toml_assertion())
#pragma push_macro("NDEBUG")
#undef NDEBUG
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

namespace nc {

std::string to_ascii(std::string_view text);
std::string from_ascii(std::string_view text);

// `advice`: what to do about it.
Error bad_toml(const std::string& path, unsigned line, std::string_view what,
               std::string_view advice);
Status check_toml_characters(std::string_view text, const std::string& path,
                             std::string_view advice);
// `text` is from to_ascii(). kInvalid with the line.
Result<toml::table> parse_toml(std::string_view text, const std::string& path,
                               std::string_view advice);

}  // namespace nc
