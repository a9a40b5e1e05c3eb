#include "daemon/options.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "base/settings.hpp"

namespace nc::daemon {
namespace {

Result<Options> parse(std::vector<const char*> arguments) {
  return parse_options(arguments);
}

TEST(Options, EverySettingIsAFlag) {
  for (const SettingSpec& spec : setting_table()) {
    std::string flag = "--" + std::string(spec.name) + "=1";
    std::replace(flag.begin(), flag.end(), '_', '-');
    auto options = parse({flag.c_str()});
    ASSERT_TRUE(options.ok()) << flag;
    EXPECT_EQ(options->settings.at(std::string(spec.name)), "1");
  }
}

TEST(Options, BothFormsOfAValue) {
  auto options =
      parse({"--dir", "/a", "--socket=/b=c", "--read-only", "--detach", "--config", "/f"});
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->settings.at("dir"), "/a");
  EXPECT_EQ(options->settings.at("socket"), "/b=c");
  EXPECT_EQ(options->settings.at("read_only"), "true");
  EXPECT_EQ(options->config, "/f");
  EXPECT_TRUE(options->detach);
  EXPECT_FALSE(options->exit_with_parent);
}

TEST(Options, WhatIsWrongIsNamed) {
  for (const auto& [arguments, part] :
       std::vector<std::pair<std::vector<const char*>, std::string>>{
           {{"--max-byte", "1"}, "--max-bytes"},
           {{"serve"}, "serve"},
           {{"--dir"}, "--dir"},
           {{"--detach=yes"}, "--detach"},
       }) {
    auto options = parse(arguments);
    ASSERT_TRUE(options.is(Code::kInvalid));
    EXPECT_NE(options.error().text().find(part), std::string::npos) << options.error().text();
  }
}

TEST(Options, HelpNamesEverySettingOfTheDaemon) {
  const std::string help = help_text();
  for (const SettingSpec& spec : setting_table()) {
    std::string flag = "--" + std::string(spec.name);
    std::replace(flag.begin(), flag.end(), '_', '-');
    const bool ours = spec.reader == "daemon" || spec.reader == "all";
    EXPECT_EQ(help.find(flag + "\n") != std::string::npos, ours) << flag;
  }
}

TEST(Options, ABucketIsCopiedIntoADirectory) {
  const auto both =
      parse_options(std::vector<const char*>{"--copy-bucket", "s3://b/c", "--into=/x"});
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(both->copy_bucket, "s3://b/c");
  EXPECT_EQ(both->into, "/x");
  EXPECT_TRUE(parse_options(std::vector<const char*>{"--into", "/x"}).is(Code::kInvalid));
}

}  // namespace
}  // namespace nc::daemon
