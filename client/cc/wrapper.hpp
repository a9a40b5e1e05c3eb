// The life of one `neuronx-cc` command: from its words to its exit status.
#pragma once

#include <string>
#include <vector>

namespace nc::cc {

// Does not return when the real compiler takes this process over, or when the command must end by
// a signal as its compiler did.
int run_wrapper(const std::vector<std::string>& argv);

}  // namespace nc::cc
