// Words of a command line as one text, and back.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nc::cc {

// By the rules of a POSIX shell for blanks, quotes and backslashes; nothing is expanded. An open
// quote ends with the text.
std::vector<std::string> split_words(std::string_view text);
// The inverse: split_words(quote_words(w)) == w for every w.
std::string quote_words(std::span<const std::string> words);
// Text for a part of the key: the bytes themselves when they are UTF-8, else "hex:" and their
// digits. No two byte strings give one text.
std::string key_text(std::string_view bytes);

}  // namespace nc::cc
