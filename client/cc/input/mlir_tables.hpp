// What is known of the encodings inside of MLIR bytecode: for each attribute and type the list of
// what it holds, for each operation its properties. What is not in these tables is not understood.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace nc::cc {

// What an attribute or type holds, one letter each:
//   A attribute, T type; a, t: a list of them (its length first); p: a list of pairs of attributes
//   S string; s: strings up to the end      V number; v: a list of numbers
//   R handle of a resource                  r: the rest as it is, it refers to nothing
// nullopt: not known.
struct EntryForm {
  std::string_view holds;
  bool location = false;
};
std::optional<EntryForm> attribute_form(std::string_view dialect, std::uint64_t code);
std::optional<EntryForm> type_form(std::string_view dialect, std::uint64_t code);

inline constexpr std::uint64_t kDictionaryCode = 1;  // of the builtin dialect
inline constexpr std::uint64_t kStringCode = 2;

// The properties of an operation in the order of the file, two letters each: `r` always there or
// `o` optional; and the kind:
//   A array, D dictionary, E elements, F float, I integer, N dense array, S string, T type, U unit,
//   Y symbol; H any of the operation's dialect; * any
// More than one list where the versions of a dialect differ.
struct PropertyForms {
  std::string_view forms[3];
};
const PropertyForms* property_forms(std::string_view operation);

// Whether an attribute of `dialect` and `code` is of the kind.
bool is_of_kind(char kind, std::string_view dialect, std::uint64_t code,
                std::string_view operation);

}  // namespace nc::cc
