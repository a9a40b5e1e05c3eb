// The command line -> Parsed, driven by the table of verbs.
#pragma once

#include <string>
#include <vector>

#include "client/cli/context.hpp"

namespace nc::cli {

// kInvalid for whatever does not fit the table, with the nearest right word. No words: the verb
// `help`.
Result<Parsed> parse(const std::vector<std::string>& words);
Format format_of(const Parsed& parsed);
// As far as it can be told from a command line that does not parse.
Format guess_format(const std::vector<std::string>& words);

}  // namespace nc::cli
