// The digest of a serialised xla.HloModuleProto without what cannot change the compiler's output.
//
// Left out: the module's name and id, the entry computation's name (it must be that of the
// computation with the entry's id), the table of stack frames, and of each OpMetadata the op's type
// and name, file, lines, columns, stack frame, deduplicated and scheduling name. Changed: the ids
// of computations and, within a computation, of instructions become their rank among these (XLA
// orders by id, so order counts and distance does not); a number at the end of an instruction's,
// computation's or parameter's name
// (".12") is left out; the entries of maps are sorted. All else counts as it stands, literals byte
// for byte, fields in the order of the file. A field that is not known at the level of the module,
// of a computation or of an instruction might name ids: then ids and names count as they stand too.
//
//   message  ::= { field } varint 0
//   field    ::= tag value                        as in protobuf's wire format
//              | number << 3 | 3, message         of a message that was looked into
#pragma once

#include <optional>

#include "base/hash.hpp"

namespace nc::cc {

// nullopt: these bytes are no HloModuleProto, or there is something in it that is not certain.
std::optional<Digest> hlo_proto_digest(Bytes bytes);

}  // namespace nc::cc
