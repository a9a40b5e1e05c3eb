// Documents that are made from the table of verbs are the ones in the tree.
#include <gtest/gtest.h>

#include "base/filesystem.hpp"
#include "client/cli/help.hpp"

namespace nc::cli {
namespace {

std::string file(const char* name) {
  const auto text = real_filesystem().read_all(std::string(NC_SOURCE_DIR) + "/" + name, 1 << 20);
  return text.ok() ? *text : text.error().text();
}

TEST(CliDocs, TheManPageIsUpToDate) {
  EXPECT_EQ(file("client/man/neuroncache.1"), man_page())
      << "run: neuroncache help --man > client/man/neuroncache.1";
}

TEST(CliDocs, TheReferenceIsUpToDate) {
  EXPECT_EQ(file("docs/cli.md"), markdown()) << "run: neuroncache help --markdown > docs/cli.md";
}

TEST(CliDocs, EveryVerbIsInEveryText) {
  for (const Verb* verb : verb_table()) {
    const std::string name(verb->name);
    EXPECT_NE(overview_help().find("  " + name + " "), std::string::npos) << name;
    EXPECT_NE(verb_help(*verb).find("Usage: neuroncache " + name), std::string::npos);
    EXPECT_NE(markdown().find("### " + name + "\n"), std::string::npos) << name;
    for (const char* shell : {"bash", "zsh", "fish"}) {
      const std::string last = name.substr(name.find(' ') + 1);
      EXPECT_NE(completion_script(shell).find(last), std::string::npos) << shell << " " << name;
      for (const OptionSpec& option : verb->options) {
        EXPECT_NE(completion_script(shell).find(option.name), std::string::npos)
            << shell << " --" << option.name;
      }
    }
  }
}

TEST(CliDocs, LinesOfHelpFitATerminal) {
  for (const Verb* verb : verb_table()) {
    const std::string help = verb_help(*verb);
    for (std::size_t start = 0; start < help.size();) {
      const std::size_t end = help.find('\n', start);
      EXPECT_LE(end - start, 110U) << help.substr(start, end - start);
      start = end + 1;
    }
  }
}

}  // namespace
}  // namespace nc::cli
