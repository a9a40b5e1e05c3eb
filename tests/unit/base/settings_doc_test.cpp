// docs/settings.md is the table of settings, word for word. After a change of the table:
//   NC_WRITE_DOCS=1 build/tests/base_test --gtest_filter=SettingsDoc.*
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "base/settings.hpp"

namespace nc {
namespace {

TEST(SettingsDoc, IsWhatTheTableSays) {
  const std::string path = std::string(NC_SOURCE_DIR) + "/docs/settings.md";
  const std::string expected = settings_markdown();
  if (std::getenv("NC_WRITE_DOCS") != nullptr) std::ofstream(path) << expected;
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), expected) << "docs/settings.md should be:\n" << expected;
}

}  // namespace
}  // namespace nc
