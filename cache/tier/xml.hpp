// The little of XML that S3 and its relatives answer with: elements and text. Attributes, comments
// and declarations are skipped; document types are refused. Depth and count are bounded.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace nc::tier {

struct XmlNode {
  std::string name;  // without a namespace's prefix
  std::string text;  // all text directly in it, decoded
  std::vector<XmlNode> children;

  const XmlNode* child(std::string_view wanted) const;  // the first; null: none
  std::string child_text(std::string_view wanted) const;
};

// The root element. kCorrupt says what is wrong.
Result<XmlNode> parse_xml(std::string_view text);

}  // namespace nc::tier
