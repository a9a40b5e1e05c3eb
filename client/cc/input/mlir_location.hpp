// Reads a location of MLIR's textual form, exactly as its grammar has it.
#pragma once

#include <string_view>
#include <vector>

#include "client/cc/input/mlir_lexer.hpp"

namespace nc::cc {

// From the parenthesis that opens behind `loc` to the one that closes. The aliases named on the way
// are added to `aliases`. False: no location, or one with metadata or of a kind that is not known.
bool read_mlir_location(MlirLexer& lexer, std::vector<std::string_view>& aliases);

}  // namespace nc::cc
