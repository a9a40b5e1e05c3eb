#include "client/cc/words.hpp"

#include <algorithm>

#include "base/bytes.hpp"

namespace nc::cc {
namespace {

constexpr std::string_view kBlanks = " \t\n\r\f\v";

bool plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("-_=./,:+@%").find(c) != std::string_view::npos;
}

}  // namespace

std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool open = false;  // a word has begun, though it may be empty
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote == '\'') {
      if (c == quote) {
        quote = 0;
      } else {
        word += c;
      }
    } else if (quote == '"') {
      const bool escapes = c == '\\' && i + 1 < text.size() &&
                           std::string_view("\"\\$`").find(text[i + 1]) != std::string_view::npos;
      if (c == quote) {
        quote = 0;
      } else {
        word += escapes ? text[++i] : c;
      }
    } else if (c == '\'' || c == '"') {
      quote = c;
      open = true;
    } else if (c == '\\' && i + 1 < text.size()) {
      word += text[++i];
      open = true;
    } else if (kBlanks.find(c) != std::string_view::npos) {
      if (open) words.push_back(std::move(word));
      word.clear();
      open = false;
    } else {
      word += c;
      open = true;
    }
  }
  if (open) words.push_back(std::move(word));
  return words;
}

std::string quote_words(std::span<const std::string> words) {
  std::string out;
  for (const std::string& word : words) {
    if (!out.empty()) out += ' ';
    if (!word.empty() && std::ranges::all_of(word, plain)) {
      out += word;
      continue;
    }
    out += '\'';
    for (const char c : word) {
      if (c == '\'') {
        out += "'\\''";
      } else {
        out += c;
      }
    }
    out += '\'';
  }
  return out;
}

std::string key_text(std::string_view bytes) {
  constexpr std::string_view kMark = "hex:";
  if (is_utf8(bytes) && !bytes.starts_with(kMark) && bytes.find('\0') == std::string_view::npos)
    return std::string(bytes);
  return std::string(kMark) + to_hex(as_bytes(bytes));
}

}  // namespace nc::cc
