// The life of one `neuronx-cc` command: from its words to its exit status.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nc::cc {

// In the environment: a file that gets a line "input TAB why" for each command that is compiled
// without the cache.
inline constexpr std::string_view kUncachedVariable = "_NEURONCACHE_UNCACHED";

// Does not return when the real compiler takes this process over, or when the command must end by
// a signal as its compiler did.
int run_wrapper(const std::vector<std::string>& argv);

}  // namespace nc::cc
