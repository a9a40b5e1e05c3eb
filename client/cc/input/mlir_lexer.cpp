#include "client/cc/input/mlir_lexer.hpp"

namespace nc::cc {
namespace {

bool is_word_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '$' || c == '.';
}
bool is_hex_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

}  // namespace

bool MlirLexer::next(MlirToken& token) {
  token = {};
  if (bad_ || !skip_space(token)) return false;
  if (at_ == text_.size()) return false;
  const std::size_t start = at_;
  const char c = text_[at_];
  using Kind = MlirToken::Kind;
  if (is_word_char(c)) {
    token.kind = Kind::kWord;
    lex_word(start);
  } else if (c == '"') {
    token.kind = Kind::kString;
    if (!lex_string(start)) return false;
  } else if (c == '@') {
    token.kind = Kind::kSymbol;
    if (start + 1 < text_.size() && text_[start + 1] == '"') {
      if (!lex_string(start + 1)) return false;
    } else {
      lex_word(start + 1);
      if (at_ == start + 1) return fail();
    }
  } else if (c == '%' || c == '#' || c == '!' || c == '^') {
    lex_word(start + 1);
    token.kind = c == '%'   ? Kind::kValue
                 : c == '#' ? Kind::kHash
                 : c == '!' ? Kind::kType
                            : Kind::kBlock;
    if (at_ == start + 1) {
      // `#-}` ends the part with resources. Names of values may hold '-', which no printer writes.
      if (c != '#') return fail();
      token.kind = Kind::kPunctuation;
    } else if (c == '%' && at_ < text_.size() && text_[at_] == '-') {
      return fail();
    }
  } else if (c > ' ' && c < 0x7F && c != '\\' && c != '`') {
    token.kind = Kind::kPunctuation;
    ++at_;
  } else {
    return fail();
  }
  token.text = text_.substr(start, at_ - start);
  return true;
}

bool MlirLexer::skip_space(MlirToken& token) {
  token.at_line_start = at_ == 0;
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      token.after_space = true;
      token.at_line_start = token.at_line_start || c == '\n' || c == '\r';
      ++at_;
    } else if (c == '/' && at_ + 1 < text_.size() && text_[at_ + 1] == '/') {
      token.after_space = true;
      while (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '\r') {
        if (text_[at_] == '\0') return fail();
        ++at_;
      }
    } else {
      break;
    }
  }
  return true;
}

bool MlirLexer::lex_string(std::size_t from) {
  at_ = from + 1;
  while (at_ < text_.size()) {
    const char c = text_[at_++];
    if (c == '"') return true;
    if (c == '\n' || c == '\v' || c == '\f' || c == '\0') return fail();
    if (c != '\\') continue;
    if (at_ == text_.size()) return fail();
    const char escaped = text_[at_++];
    if (escaped == '"' || escaped == '\\' || escaped == 'n' || escaped == 't') continue;
    if (!is_hex_digit(escaped) || at_ == text_.size() || !is_hex_digit(text_[at_])) return fail();
    ++at_;
  }
  return fail();
}

void MlirLexer::lex_word(std::size_t from) {
  at_ = from;
  while (at_ < text_.size() && is_word_char(text_[at_])) ++at_;
}

}  // namespace nc::cc
