#include "client/cc/input/mlir_location.hpp"

namespace nc::cc {
namespace {

using Kind = MlirToken::Kind;

// What has to follow when a nested location is complete. Locations nest as deep as the file is
// long, so this is a list and not a recursion.
enum class After : std::uint8_t { kClose, kAt, kFused };

class LocationReader {
 public:
  LocationReader(MlirLexer& lexer, std::vector<std::string_view>& aliases)
      : lexer_(lexer), aliases_(aliases) {}

  bool read() {
    if (!punctuation('(')) return false;
    after_.push_back(After::kClose);
    bool complete = false;
    while (!after_.empty()) {
      if (complete) {
        if (!finish(complete)) return false;
      } else if (!begin(complete)) {
        return false;
      }
    }
    return true;
  }

 private:
  bool begin(bool& complete) {
    MlirToken token;
    if (!lexer_.next(token)) return false;
    if (token.kind == Kind::kString) return named(complete);
    if (token.kind == Kind::kHash) {
      aliases_.push_back(token.text);
      return complete = true;
    }
    if (token.is_word("unknown")) return complete = true;
    if (token.is_word("callsite")) {
      after_.push_back(After::kAt);
      return punctuation('(');
    }
    if (token.is_word("fused")) {
      after_.push_back(After::kFused);
      return punctuation('[');
    }
    return false;
  }

  // Behind a string: a file with line and column, a name with a location, or the bare name.
  bool named(bool& complete) {
    const MlirToken next = lexer_.peek();
    if (next.is('(')) {
      after_.push_back(After::kClose);
      return punctuation('(');
    }
    complete = true;
    if (!next.is(':')) return true;
    if (!punctuation(':') || !number() || !punctuation(':') || !number()) return false;
    if (!lexer_.peek().is_word("to")) return true;
    MlirToken token;
    lexer_.next(token);
    if (!lexer_.peek().is(':') && !number()) return false;
    return punctuation(':') && number();
  }

  bool finish(bool& complete) {
    const After after = after_.back();
    after_.pop_back();
    MlirToken token;
    if (!lexer_.next(token)) return false;
    if (after == After::kClose) return token.is(')');
    if (after == After::kAt) {
      after_.push_back(After::kClose);
      complete = false;
      return token.is_word("at");
    }
    if (token.is(']')) return true;
    after_.push_back(After::kFused);
    complete = false;
    return token.is(',');
  }

  bool punctuation(char c) {
    MlirToken token;
    return lexer_.next(token) && token.is(c);
  }
  bool number() {
    MlirToken token;
    return lexer_.next(token) && token.kind == Kind::kWord && token.text.size() <= 9 &&
           token.text.find_first_not_of("0123456789") == std::string_view::npos;
  }

  MlirLexer& lexer_;
  std::vector<std::string_view>& aliases_;
  std::vector<After> after_;
};

}  // namespace

bool read_mlir_location(MlirLexer& lexer, std::vector<std::string_view>& aliases) {
  return LocationReader(lexer, aliases).read();
}

}  // namespace nc::cc
