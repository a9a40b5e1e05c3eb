// A TOML file as a tree of plain values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace nc {

struct TomlItem;

struct TomlNode {
  enum class Kind { kText, kBool, kInteger, kNumber, kList, kTable, kOther };  // kOther: dates
  Kind kind = Kind::kOther;
  std::string text;  // of a scalar
  std::vector<TomlNode> list;
  std::vector<TomlItem> table;  // by name
  unsigned line = 0;
};

struct TomlItem {
  std::string name;
  TomlNode node;
};

// The file's table. kInvalid with the line; `path` is for messages.
Result<TomlNode> read_toml(std::string_view text, const std::string& path);
// The error that a wrong value gives.
Error wrong_toml(const std::string& path, unsigned line, std::string_view what);

}  // namespace nc
