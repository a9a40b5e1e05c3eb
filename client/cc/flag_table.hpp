// What the wrapper knows about the flags of neuronx-cc and about the environment: one table, which
// docs/command.md repeats. Everything that is not listed as left out goes into the key.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace nc::cc {

enum class Takes { kNothing, kValue, kWords };  // kWords: all words up to the next flag
enum class InKey { kYes, kNo };
enum class Role { kPlain, kOutput, kLogfile, kRetry, kNoCache };

struct FlagSpec {
  std::string_view spelling;   // as on the command line: "--lnc", "-O"
  std::string_view canonical;  // spellings of one option share it; the right-most of them wins
  Takes takes;
  InKey in_key;
  std::string_view implied;  // the value that a switch stands for
  Role role;
  bool wrapper_only;  // of libneuronxla's wrapper: the compiler does not know it and never sees it
  std::string_view why;
};

std::span<const FlagSpec> flag_table();
const FlagSpec* find_flag(std::string_view spelling);
// An unknown long flag that argparse might take for a known one, as `--out` for `--output`.
bool may_abbreviate(std::string_view spelling);

// Environment variables: `name` may end in '*'.
struct VariableSpec {
  std::string_view name;
  InKey in_key;
  std::string_view why;
};
std::span<const VariableSpec> variable_table();
// The value that goes into the key, or nullopt when the variable is left out. The longest matching
// row decides; what no row matches is left out.
std::optional<std::string> keyed_variable(std::string_view name, std::string_view value);

// The two tables as docs/command.md has them.
std::string flag_table_markdown();
std::string variable_table_markdown();

}  // namespace nc::cc
