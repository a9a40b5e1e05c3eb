#include "base/log.hpp"

#include <regex>

#include <gtest/gtest.h>

#include "temp_dir.hpp"

namespace nc {
namespace {

class LogTest : public ::testing::Test {
 protected:
  ~LogTest() override { EXPECT_TRUE(log::configure("info", "").ok()); }
  std::string text() { return *real_filesystem().read_all(path_, 1 << 20); }

  TempDir dir_;
  std::string path_ = join(dir_.path(), "test.log");
};

TEST_F(LogTest, OneLinePerEvent) {
  ASSERT_TRUE(log::configure("info", path_).ok());
  log::info("store", "opened {} in {} ms", "/x", 12);
  log::error("daemon", "two\nlines \x1b[31m\tred");
  log::debug("store", "unseen");
  const std::string stamp = R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d )";
  EXPECT_TRUE(
      std::regex_match(text(), std::regex(stamp + "info store: opened /x in 12 ms\n" + stamp +
                                          R"(error daemon: two\\nlines \\x1b\[31m red)" + "\n")))
      << text();
}

TEST_F(LogTest, LevelsMayChange) {
  ASSERT_TRUE(log::configure("error", path_).ok());
  EXPECT_FALSE(log::enabled(log::Level::kWarn));
  log::warn("a", "first");
  log::set_level(log::Level::kDebug);
  log::debug("a", "second");
  log::set_level(log::Level::kOff);
  log::error("a", "third");
  EXPECT_EQ(text().find("first"), std::string::npos);
  EXPECT_NE(text().find("debug a: second"), std::string::npos);
  EXPECT_EQ(text().find("third"), std::string::npos);
}

TEST_F(LogTest, AppendsAcrossReopening) {
  ASSERT_TRUE(log::configure("info", path_).ok());
  log::info("a", "one");
  ASSERT_TRUE(log::configure("info", path_).ok());
  log::info("a", "two");
  EXPECT_NE(text().find("one"), std::string::npos);
  EXPECT_NE(text().find("two"), std::string::npos);
}

TEST_F(LogTest, BadLevelAndBadFileAreTold) {
  EXPECT_TRUE(log::configure("loud", path_).is(Code::kInvalid));
  const auto in_a_file = log::configure("info", "/dev/null/x/y.log");
  ASSERT_TRUE(in_a_file.is(Code::kIo));
  EXPECT_NE(in_a_file.error().text().find("/dev/null/x/y.log"), std::string::npos);
  for (const char* name : {"trace", "debug", "info", "warn", "error", "off"})
    EXPECT_TRUE(log::parse_level(name).ok());
}

TEST_F(LogTest, Rotates) {
  ASSERT_TRUE(log::configure("info", path_).ok());
  const std::string long_text(1 << 20, 'x');
  for (int i = 0; i < 12; ++i) log::info("a", "{}", long_text);
  EXPECT_TRUE(real_filesystem().stat(join(dir_.path(), "test.1.log")).ok());
  EXPECT_LE(real_filesystem().stat(path_)->size, 10U << 20);
}

}  // namespace
}  // namespace nc
