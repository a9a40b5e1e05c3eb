// The digest of an MLIR module as bytecode (StableHLO, or a portable artifact) without what cannot
// change the compiler's output.
//
// Left out: locations, the name of the one `builtin.module`, the attribute `torch.debug_dump_path`.
// Changed: a reference to an attribute or type becomes the digest of what that is, so the order of
// the tables, which depends on the locations too, leaves no trace. All else counts: the version,
// the producer, dialects with their versions, resources byte for byte.
//
//   body       ::= version producer { 1 dialect (0 | 1 version) } 0 resources block
//   block      ::= count-of-operations count-of-arguments { type } use-orders { operation }
//   operation  ::= name registered mask [ dictionary ] [ properties ] [ types ] [ operands ]
//                  [ successors ] use-orders [ regions ]
//
// Strings, dictionaries and blobs with their length in front, attributes and types as 32 bytes.
#pragma once

#include <optional>

#include "base/hash.hpp"

namespace nc::cc {

// nullopt: these bytes are no MLIR bytecode, or there is something in them that is not certain: an
// attribute, type or operation whose encoding mlir_tables.hpp does not know, a location used as a
// value.
std::optional<Digest> mlir_bytecode_digest(Bytes bytes);

}  // namespace nc::cc
