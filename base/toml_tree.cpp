#include "base/toml_tree.hpp"

#include <fmt/format.h>

#include "base/toml_text.hpp"

namespace nc {
namespace {

constexpr std::string_view kAdvice = "correct the file";

TomlNode tree_of(const toml::node& node) {
  TomlNode out;
  out.line = node.source().begin.line;
  if (const auto* s = node.as_string()) {
    out.kind = TomlNode::Kind::kText;
    out.text = from_ascii(s->get());
  } else if (const auto* b = node.as_boolean()) {
    out.kind = TomlNode::Kind::kBool;
    out.text = b->get() ? "true" : "false";
  } else if (const auto* i = node.as_integer()) {
    out.kind = TomlNode::Kind::kInteger;
    out.text = std::to_string(i->get());
  } else if (const auto* f = node.as_floating_point()) {
    out.kind = TomlNode::Kind::kNumber;
    out.text = fmt::format("{}", f->get());
  } else if (const auto* list = node.as_array()) {
    out.kind = TomlNode::Kind::kList;
    for (const toml::node& item : *list) out.list.push_back(tree_of(item));
  } else if (const auto* table = node.as_table()) {
    out.kind = TomlNode::Kind::kTable;
    for (const auto& [key, item] : *table)
      out.table.push_back({from_ascii(key.str()), tree_of(item)});
  }
  return out;
}

}  // namespace

Result<TomlNode> read_toml(std::string_view text, const std::string& path) {
  NC_TRY(check_toml_characters(text, path, kAdvice));
  NC_ASSIGN(const toml::table root, parse_toml(to_ascii(text), path, kAdvice));
  return tree_of(root);
}

Error wrong_toml(const std::string& path, unsigned line, std::string_view what) {
  return bad_toml(path, line, what, kAdvice);
}

}  // namespace nc
