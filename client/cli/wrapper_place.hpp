// Where the `neuronx-cc` wrapper of this installation is.
#pragma once

#include <string>

#include "base/result.hpp"

namespace nc::cli {

// Its directory: beside the programs of a build or a package, or in the Python package of the same
// environment. kNotFound when the installation has none.
Result<std::string> wrapper_directory();

}  // namespace nc::cli
