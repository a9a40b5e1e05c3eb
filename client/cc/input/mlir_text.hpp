// The digest of an MLIR module as text (StableHLO) without what cannot change the compiler's
// output.
//
// Left out: comments; trailing `loc(...)` and the aliases they refer to (`#loc3 = loc(...)`); the
// name of the outermost `module @name`; the attribute `torch.debug_dump_path`. Changed: the name of
// an SSA value becomes the number of names seen before it; spaces and line ends between tokens
// become one mark. All else counts as it stands, strings (and with them all resource data) byte for
// byte.
//
//   body   ::= { token }
//   token  ::= [ 1 ] 2 byte                       one character of punctuation; 1: after space
//            | [ 1 ] 3 bytes                      a word, number, string, @symbol, #alias, !alias
//            or ^block | [ 1 ] 4 varint                     an SSA value
#pragma once

#include <optional>

#include "base/hash.hpp"

namespace nc::cc {

// nullopt: these bytes are no MLIR module as text, or there is something in it that is not certain:
// a location used as a value, fused with metadata or of an unknown kind; a bracket that is not
// closed; a character outside of ASCII that is not in a string.
std::optional<Digest> mlir_text_digest(Bytes bytes);

}  // namespace nc::cc
