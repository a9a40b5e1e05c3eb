#include "cache/tier/xml.hpp"

#include <charconv>

namespace nc::tier {
namespace {

constexpr std::size_t kMaxDepth = 16;
constexpr std::size_t kMaxNodes = 50'000;

Error broken(const char* what) {
  return {Code::kCorrupt, std::string("not XML: ") + what, ""};
}

void put_utf8(std::string& out, std::uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xc0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xe0 | (c >> 12));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else {
    out += static_cast<char>(0xf0 | (c >> 18));
    out += static_cast<char>(0x80 | ((c >> 12) & 0x3f));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  }
}

// `name` of &name; -> its character.
bool put_entity(std::string& out, std::string_view name) {
  constexpr std::pair<std::string_view, char> kNamed[] = {
      {"lt", '<'}, {"gt", '>'}, {"amp", '&'}, {"quot", '"'}, {"apos", '\''}};
  for (const auto& [known, c] : kNamed) {
    if (name == known) {
      out += c;
      return true;
    }
  }
  if (!name.starts_with('#')) return false;
  name.remove_prefix(1);
  const int base = name.starts_with('x') ? 16 : 10;
  if (base == 16) name.remove_prefix(1);
  std::uint32_t c = 0;
  const auto [at, error] = std::from_chars(name.data(), name.data() + name.size(), c, base);
  if (error != std::errc() || at != name.data() + name.size() || c == 0 || c > 0x10ffff ||
      (c >= 0xd800 && c < 0xe000)) {
    return false;
  }
  put_utf8(out, c);
  return true;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : rest_(text) {}

  Result<XmlNode> run() {
    if (rest_.starts_with("\xef\xbb\xbf")) rest_.remove_prefix(3);
    NC_TRY(between());
    XmlNode root;
    NC_TRY(element(root, 0));
    NC_TRY(between());
    if (!rest_.empty()) return broken("something follows the document");
    return root;
  }

 private:
  static constexpr std::string_view kBlanks = " \t\r\n";

  void skip_blanks() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(kBlanks), rest_.size()));
  }

  // Skips a comment or declaration at hand; false: there is none.
  Result<bool> skip_other() {
    const auto past = [&](std::string_view end) -> Result<bool> {
      const auto at = rest_.find(end);
      if (at == std::string_view::npos) return broken("a comment or declaration has no end");
      rest_.remove_prefix(at + end.size());
      return true;
    };
    if (rest_.starts_with("<!--")) return past("-->");
    if (rest_.starts_with("<?")) return past("?>");
    if (rest_.starts_with("<!")) return broken("a document type or CDATA");
    return false;
  }

  Status between() {
    while (true) {
      skip_blanks();
      NC_ASSIGN(const bool skipped, skip_other());
      if (!skipped) return {};
    }
  }

  Status element(XmlNode& node, std::size_t depth) {
    if (depth > kMaxDepth) return broken("nested too deeply");
    if (++nodes_ > kMaxNodes) return broken("too many elements");
    if (!rest_.starts_with('<')) return broken("an element is missing");
    rest_.remove_prefix(1);
    const auto end = rest_.find_first_of(" \t\r\n/>");
    if (end == std::string_view::npos || end == 0) return broken("an element without a name");
    const auto full = rest_.substr(0, end);
    node.name = full.substr(full.find(':') + 1);  // npos + 1 is 0
    rest_.remove_prefix(end);
    NC_ASSIGN(const bool closed, attributes());
    if (closed) return {};
    while (true) {
      const auto mark = rest_.find('<');
      if (mark == std::string_view::npos) return broken("an element is not closed");
      NC_TRY(append_text(node.text, rest_.substr(0, mark)));
      rest_.remove_prefix(mark);
      if (rest_.starts_with("</")) {
        rest_.remove_prefix(2);
        if (!rest_.starts_with(full)) return broken("an element is closed by another's name");
        rest_.remove_prefix(full.size());
        skip_blanks();
        if (!rest_.starts_with('>')) return broken("an end without '>'");
        rest_.remove_prefix(1);
        return {};
      }
      NC_ASSIGN(const bool skipped, skip_other());
      if (skipped) continue;
      NC_TRY(element(node.children.emplace_back(), depth + 1));
    }
  }

  // Up to the '>' of a start; true: "/>".
  Result<bool> attributes() {
    while (true) {
      const auto at = rest_.find_first_of("\"'>/");
      if (at == std::string_view::npos) return broken("a start without '>'");
      const char c = rest_[at];
      rest_.remove_prefix(at + 1);
      if (c == '>') return false;
      if (c == '/') {
        if (!rest_.starts_with('>')) return broken("'/' in a start");
        rest_.remove_prefix(1);
        return true;
      }
      const auto quote = rest_.find(c);
      if (quote == std::string_view::npos) return broken("a quote is not closed");
      rest_.remove_prefix(quote + 1);
    }
  }

  static Status append_text(std::string& out, std::string_view text) {
    while (!text.empty()) {
      const auto mark = std::min(text.find('&'), text.size());
      out.append(text.substr(0, mark));
      text.remove_prefix(mark);
      if (text.empty()) break;
      const auto end = text.find(';');
      if (end == std::string_view::npos || !put_entity(out, text.substr(1, end - 1))) {
        return broken("an unknown entity");
      }
      text.remove_prefix(end + 1);
    }
    return {};
  }

  std::string_view rest_;
  std::size_t nodes_ = 0;
};

}  // namespace

const XmlNode* XmlNode::child(std::string_view wanted) const {
  for (const auto& node : children) {
    if (node.name == wanted) return &node;
  }
  return nullptr;
}

std::string XmlNode::child_text(std::string_view wanted) const {
  const auto* node = child(wanted);
  return node == nullptr ? "" : node->text;
}

Result<XmlNode> parse_xml(std::string_view text) {
  return Parser(text).run();
}

}  // namespace nc::tier
