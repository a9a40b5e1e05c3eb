// Tokens of MLIR's textual form, as far as a digest needs them.
#pragma once

#include <cstdint>
#include <string_view>

namespace nc::cc {

struct MlirToken {
  enum class Kind : std::uint8_t {
    kEnd,
    kPunctuation,  // one character
    kWord,         // keywords, operations, numbers, dimensions: [A-Za-z0-9_$.]+
    kString,       // with its quotes
    kSymbol,       // @name, @"name"
    kValue,        // %name
    kHash,         // #name
    kType,         // !name
    kBlock,        // ^name
  };

  Kind kind = Kind::kEnd;
  bool after_space = false;
  bool at_line_start = false;
  std::string_view text;

  bool is(char c) const { return kind == Kind::kPunctuation && text[0] == c; }
  bool is_word(std::string_view word) const { return kind == Kind::kWord && text == word; }
};

class MlirLexer {
 public:
  explicit MlirLexer(std::string_view text) : text_(text) {}

  // False at the end (a token of kind kEnd) and at what MLIR would refuse or we do not know.
  bool next(MlirToken& token);
  bool bad() const { return bad_; }
  // What follows, not taken; kEnd also where it is not understood.
  MlirToken peek() const {
    MlirLexer ahead(*this);
    MlirToken token;
    ahead.next(token);
    return ahead.bad_ ? MlirToken{} : token;
  }

 private:
  bool skip_space(MlirToken& token);
  bool lex_string(
      std::size_t from);  // `from`: at the opening quote; moves at_ behind the closing one
  void lex_word(std::size_t from);
  bool fail() {
    bad_ = true;
    return false;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  bool bad_ = false;
};

}  // namespace nc::cc
