// Writing one setting into a file that people keep by hand.
#include <gtest/gtest.h>

#include "base/fake_filesystem.hpp"
#include "base/settings.hpp"

namespace nc {
namespace {

class SaveTest : public ::testing::Test {
 protected:
  // The file's text after `name` was set to `value` in `before`; or the error.
  std::string saved(std::string_view before, std::string_view name, std::string_view value) {
    EXPECT_TRUE(fs_.write_atomically("/c.toml", as_bytes(before)).ok());
    const auto status = Settings::save_to_file(fs_, "/c.toml", name, value);
    if (!status.ok()) {
      EXPECT_EQ(*fs_.read_all("/c.toml", 1 << 20), before);
      return status.error().text();
    }
    return *fs_.read_all("/c.toml", 1 << 20);
  }
  FakeFileSystem fs_;
};

TEST_F(SaveTest, ReplacesTheValueAndNothingElse) {
  EXPECT_EQ(saved("# mine\nio_threads = 3   # why\ndir=\"/a\" # d\n", "io_threads", "12"),
            "# mine\nio_threads = 12   # why\ndir=\"/a\" # d\n");
  EXPECT_EQ(saved("io_threads = 3\ndir=\"/a\"#d\n", "dir", "/b c"),
            "io_threads = 3\ndir=\"/b c\"#d\n");
  EXPECT_EQ(saved("strict = false", "strict", "yes"), "strict = true");
  EXPECT_EQ(saved("dir = '''/a'''\nstrict = true\r\n", "dir", "/b"),
            "dir = \"/b\"\nstrict = true\r\n");
  EXPECT_EQ(
      saved("# \xc3\xa9\nnamespace = \"\xc3\xa9\xe2\x82\xac\" # \xc3\xa9\n", "namespace", "x"),
      "# \xc3\xa9\nnamespace = \"x\" # \xc3\xa9\n");
  EXPECT_EQ(saved("\"dir\" = \"/a\\u0041\"\n", "dir", "/\"q\"\\"),
            "\"dir\" = \"/\\\"q\\\"\\\\\"\n");
  EXPECT_EQ(saved("namespace_quota = { a = 1, b = \"2\" } # q\n", "namespace_quota", "c=3"),
            "namespace_quota = \"c=3\" # q\n");
  EXPECT_EQ(saved("max_bytes = 1_000 # one\n", "max_bytes", "2GiB"),
            "max_bytes = \"2GiB\" # one\n");
}

TEST_F(SaveTest, AddsALineInItsPlace) {
  EXPECT_EQ(saved("", "io_threads", "4"), "io_threads = 4\n");
  EXPECT_EQ(saved("# only a comment", "io_threads", "4"), "# only a comment\nio_threads = 4\n");
  EXPECT_EQ(saved("strict = true\n", "lease_ttl", "20s"), "strict = true\nlease_ttl = \"20s\"\n");
  EXPECT_EQ(saved("strict = true\n\n# per team\n[namespace_quota]\na = 1\n", "io_threads", "4"),
            "strict = true\n\nio_threads = 4\n# per team\n[namespace_quota]\na = 1\n");
  // A line that only looks like a section.
  EXPECT_EQ(saved("namespace = '''x\n[y]\n'''\n", "io_threads", "4"),
            "namespace = '''x\n[y]\n'''\nio_threads = 4\n");
}

TEST_F(SaveTest, KeepsByteOrderMarkPercentAndForeignLetters) {
  EXPECT_EQ(saved("\xef\xbb\xbf# 50 % \xc3\xa9\nstrict = false # %41%\n", "strict", "true"),
            "\xef\xbb\xbf# 50 % \xc3\xa9\nstrict = true # %41%\n");
  EXPECT_EQ(saved("\xef\xbb\xbf", "strict", "true"), "\xef\xbb\xbfstrict = true\n");
}

TEST_F(SaveTest, RefusesWhatItCannotDo) {
  EXPECT_NE(saved("io_threads = 3\n", "io_threads", "1000").find("from 1 to 64"),
            std::string::npos);
  EXPECT_NE(saved("io_threads = 3\n", "io_thread", "1").find("io_threads"), std::string::npos);
  EXPECT_NE(saved("io_threads = = 3\n", "io_threads", "1").find("line 1"), std::string::npos);
  EXPECT_NE(saved("[namespace_quota]\na = 1\n", "namespace_quota", "a=2")
                .find("section [namespace_quota]"),
            std::string::npos);
}

TEST_F(SaveTest, WhatWasSavedIsLoaded) {
  const std::pair<const char*, const char*> values[] = {{"dir", "/x y/\"z\"\\"},
                                                        {"io_threads", "7"},
                                                        {"strict", "true"},
                                                        {"namespace_quota", "a=1GiB,b=2GiB"},
                                                        {"namespace", "\xc3\xa9 100 % %C3%"},
                                                        {"log_file", ""}};
  for (const auto& [name, value] : values) {
    ASSERT_TRUE(Settings::save_to_file(fs_, "/deep/in/c.toml", name, value).ok()) << name;
  }
  const std::vector<std::string> env = {"NEURONCACHE_CONFIG=/deep/in/c.toml"};
  const auto settings = Settings::load(fs_, env, {});
  ASSERT_TRUE(settings.ok()) << settings.error().text();
  for (const auto& [name, value] : values) {
    EXPECT_EQ(settings->text(name), value);
    EXPECT_EQ(settings->origin(name), Origin::kFile);
  }
}

TEST_F(SaveTest, KeepsTheMode) {
  const auto file = fs_.open("/c.toml", FileSystem::Open::kCreateNew, 0644);
  ASSERT_TRUE(Settings::save_to_file(fs_, "/c.toml", "strict", "true").ok());
  EXPECT_EQ(fs_.stat("/c.toml")->mode, 0644U);
}

}  // namespace
}  // namespace nc
