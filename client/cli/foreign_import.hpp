// `neuroncache import --from LAYOUT DIR`.
#pragma once

#include "base/result.hpp"
#include "client/cli/context.hpp"

namespace nc::cli {

// -> exit status.
Result<int> import_foreign(Context& context, const std::string& layout, const std::string& where);

}  // namespace nc::cli
