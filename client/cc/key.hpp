// The action key of a compile command, as named parts.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/hash.hpp"
#include "base/result.hpp"
#include "client/cc/arguments.hpp"
#include "client/cc/identity.hpp"
#include "client/cc/input.hpp"

namespace nc::cc {

inline constexpr std::string_view kKeyVersion = "1";  // counts up when equal commands get new parts

struct Action {
  KeyParts parts;
  ActionKey key;
  std::uint64_t input_bytes = 0;
  std::vector<InputFile> files;  // what the key was made from
  std::string label;             // the first input's name
};

// The parts of a key that say which compiler it is, and those that say what the command is but for
// the contents of files.
KeyParts compiler_parts(const CompilerIdentity& compiler);
KeyParts command_parts(const Command& command, const Command& flags_variable,
                       std::span<const std::string> env, const std::string& machine);

// `flags_variable`: what parse_flags_variable made of NEURON_CC_FLAGS. `machine`: what the
// compiler would take as the target when the command names none. Errors are those of read_input.
Result<Action> make_action(const Command& command, const Command& flags_variable,
                           const CompilerIdentity& compiler, std::span<const std::string> env,
                           const std::string& machine);

inline constexpr std::string_view kInputPart = "input.";  // of the names of the inputs' parts

// The model name of this machine, as cloud instances have it.
std::string machine_name();

}  // namespace nc::cc
