#include "client/cc/words.hpp"

#include <random>
#include <set>

#include <gtest/gtest.h>

namespace nc::cc {
namespace {

using Words = std::vector<std::string>;

TEST(Words, SplitLikeAShell) {
  EXPECT_EQ(split_words(""), Words{});
  EXPECT_EQ(split_words("  -O2\t--lnc=2\n"), (Words{"-O2", "--lnc=2"}));
  EXPECT_EQ(split_words(R"(a'b c'd "e \" \n" f\ g '')"), (Words{"ab cd", "e \" \\n", "f g", ""}));
  EXPECT_EQ(split_words("'open until the end"), Words{"open until the end"});
}

TEST(Words, QuotingIsUndoneBySplitting) {
  std::mt19937 random(7);
  const std::string alphabet("ab '\"\\\n\t=-$`\xff", 13);
  for (int i = 0; i < 2000; ++i) {
    Words words(random() % 4);
    for (std::string& word : words) {
      for (auto n = random() % 6; n > 0; --n) word += alphabet[random() % alphabet.size()];
    }
    EXPECT_EQ(split_words(quote_words(words)), words) << quote_words(words);
  }
}

TEST(Words, KeyTextsOfDifferentBytesDiffer) {
  EXPECT_EQ(key_text("a \xe2\x82\xac"), "a \xe2\x82\xac");
  EXPECT_EQ(key_text("\xff"), "hex:ff");
  const std::set<std::string> texts{key_text("\xff"), key_text("hex:ff"), key_text("ff"),
                                    key_text(std::string("a\0b", 3)), key_text("ab")};
  EXPECT_EQ(texts.size(), 5U);
}

}  // namespace
}  // namespace nc::cc
