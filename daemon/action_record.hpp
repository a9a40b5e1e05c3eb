// All that is needed to build an action again, elsewhere or later: the compiler's arguments, its
// inputs, its environment, and the parts of its key.
//
//   record = one JSON object, UTF-8, at most 512 KiB, nested at most 16 deep. Unknown fields are
//            ignored and not kept; stored in one canonical form: all fields, in this order.
//     "v"          1
//     "key"        64 lower-case hex digits: what "parts" hash to (docs/protocol.md)
//     "namespace", "kind", "label", "program", "model", "compiler"    as in a manifest
//     "parts"      [[name, value], ...]     as in a manifest
//     "argv"       [text, ...]              1 to 4096 arguments of the compiler, its own name not
//                                           among them; {in/<name>} in one stands for the path of
//                                           that input, {out/<name>} for that of an output
//     "env"        {name: text, ...}        what the compiler reads of the environment, 256 at most
//     "inputs"     [{"name", "digest", "size", "mode"}, ...]   256 at most, as outputs in a
//     manifest
//
// In the store a record is an entry of kind "action": its outputs are the inputs, so that nothing
// sweeps them away, and its meta member "record" is the text. Its key is that of the one part
// ["recorded action", <key of the action>].
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "cache/manifest.hpp"

namespace nc::daemon {

struct ActionRecord {
  static constexpr std::uint64_t kMaxBytes = 512 << 10;
  static constexpr std::size_t kMaxArguments = 4096;
  static constexpr std::string_view kEntryKind = "action";

  ActionKey key;
  std::string name_space = "default";
  std::string kind, label, program, model, compiler;
  KeyParts parts;
  std::vector<std::string> argv;
  std::map<std::string, std::string> env;
  std::vector<Output> inputs;

  // Checks every limit and that the parts hash to the key (kKeyMismatch). kUnsupported: newer.
  static Result<ActionRecord> parse(std::string_view text);
  std::string to_json() const;
  std::uint64_t bytes() const;  // of the inputs

  Manifest to_entry(Millis now_ms) const;
  static Result<ActionRecord> from_entry(const Manifest& entry);
  static ActionKey entry_key(const ActionKey& action);
};

// Whether all of `wanted` are among `parts`.
bool has_parts(const KeyParts& parts, const KeyParts& wanted);

}  // namespace nc::daemon
