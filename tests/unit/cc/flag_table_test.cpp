// The tables, and docs/command.md, which repeats them. After a change of a table:
//   NC_WRITE_DOCS=1 build/tests/cc_test --gtest_filter=CommandDoc.*
#include "client/cc/flag_table.hpp"

#include <cstdlib>
#include <fstream>
#include <set>

#include <gtest/gtest.h>

#include "tests/unit/cc/scratch.hpp"

namespace nc::cc {
namespace {

TEST(FlagTable, EveryRowIsWhole) {
  std::set<std::string_view> seen;
  for (const FlagSpec& f : flag_table()) {
    EXPECT_TRUE(seen.insert(f.spelling).second) << f.spelling;
    EXPECT_FALSE(f.why.empty()) << f.spelling;
    EXPECT_FALSE(f.canonical.empty()) << f.spelling;
    EXPECT_EQ(f.takes == Takes::kNothing, !f.implied.empty()) << f.spelling;
    EXPECT_EQ(find_flag(f.spelling), &f);
    for (const FlagSpec& other : flag_table()) {
      if (other.canonical == f.canonical) {
        EXPECT_EQ(other.in_key, f.in_key) << f.spelling;
      }
    }
  }
}

TEST(FlagTable, OnlyWhatIsReviewedIsLeftOut) {
  std::set<std::string_view> out;
  for (const FlagSpec& f : flag_table()) {
    if (f.in_key == InKey::kNo) out.insert(f.spelling);
  }
  EXPECT_EQ(out, (std::set<std::string_view>{"--output", "--logfile", "--verbose", "--workdir",
                                             "--cache_dir", "--no_cache",
                                             "--retry_failed_compilation", "--log_level"}));
}

TEST(VariableTable, TheLongestRowDecides) {
  EXPECT_EQ(keyed_variable("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1"), "trn1");
  EXPECT_EQ(keyed_variable("NEURON_SOMETHING_NEW", "1"), "1");
  EXPECT_EQ(keyed_variable("NEURON_RT_VISIBLE_CORES", "1"), std::nullopt);
  EXPECT_EQ(keyed_variable("NEURON_CC_FLAGS", "-O1"), std::nullopt);
  EXPECT_EQ(keyed_variable("NEURON_PLATFORM_TARGET_OVERRIDE", ""), std::nullopt);
  EXPECT_EQ(keyed_variable("PATH", "/bin"), std::nullopt);
  EXPECT_EQ(keyed_variable("XLA_FLAGS", "--xla_dump_to=/x --xla_a=1"), "--xla_a=1");
  EXPECT_EQ(keyed_variable("XLA_FLAGS", "--xla_dump_to=/x"), std::nullopt);
}

// The text between <!-- name --> and <!-- end -->.
void expect_block(const std::string& name, const std::string& expected) {
  const std::string path = std::string(NC_SOURCE_DIR) + "/docs/command.md";
  std::string text = Scratch::read(path);
  const std::string begin_mark = "<!-- " + name + " -->\n";
  const std::size_t begin = text.find(begin_mark);
  const std::size_t end = text.find("<!-- end -->", begin);
  ASSERT_NE(begin, std::string::npos) << name;
  ASSERT_NE(end, std::string::npos) << name;
  const std::size_t from = begin + begin_mark.size();
  if (std::getenv("NC_WRITE_DOCS") != nullptr) {
    text.replace(from, end - from, expected);
    std::ofstream(path) << text;
    return;
  }
  EXPECT_EQ(text.substr(from, end - from), expected);
}

TEST(CommandDoc, HasTheFlags) {
  expect_block("flags", flag_table_markdown());
}
TEST(CommandDoc, HasTheVariables) {
  expect_block("variables", variable_table_markdown());
}

}  // namespace
}  // namespace nc::cc
