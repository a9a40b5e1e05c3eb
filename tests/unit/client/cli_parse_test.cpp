#include <gtest/gtest.h>

#include "client/cli/parse.hpp"

namespace nc::cli {
namespace {

std::string trouble(const std::vector<std::string>& words) {
  const auto parsed = parse(words);
  if (parsed.ok()) return "";
  EXPECT_EQ(parsed.error().code, Code::kInvalid);
  EXPECT_FALSE(parsed.error().action.empty());
  return parsed.error().message;
}

TEST(Parse, VerbsAndOptions) {
  const auto parsed =
      parse({"prune", "--older-than", "7d", "--dry-run", "--format=json", "--namespace", "a"});
  ASSERT_TRUE(parsed.ok()) << parsed.error().text();
  EXPECT_EQ(parsed->verb, &kPruneVerb);
  EXPECT_EQ(parsed->values.at("older-than"), std::vector<std::string>{"7d"});
  EXPECT_TRUE(parsed->values.contains("dry-run"));
  EXPECT_FALSE(parsed->values.contains("all"));
  EXPECT_EQ(format_of(*parsed), Format::kJson);
}

TEST(Parse, GlobalOptionsMayComeFirst) {
  const auto parsed = parse({"--format", "tab", "daemon", "status", "--socket", "/s"});
  ASSERT_TRUE(parsed.ok()) << parsed.error().text();
  EXPECT_EQ(parsed->verb, &kDaemonStatusVerb);
  EXPECT_EQ(format_of(*parsed), Format::kTab);
  EXPECT_EQ(parsed->values.at("socket").back(), "/s");
}

TEST(Parse, ArgumentsBeforeAndAfterOptions) {
  const auto parsed = parse({"export", "f", "ab", "--model", "llama", "cd"});
  ASSERT_TRUE(parsed.ok()) << parsed.error().text();
  EXPECT_EQ(parsed->values.at("FILE").back(), "f");
  EXPECT_EQ(parsed->values.at("KEY"), (std::vector<std::string>{"ab", "cd"}));
  EXPECT_EQ(parsed->values.at("model").back(), "llama");
}

TEST(Parse, AnArgumentMayBeCalledLikeAVerb) {
  const auto help = parse({"help", "daemon", "start"});
  ASSERT_TRUE(help.ok()) << help.error().text();
  EXPECT_EQ(help->verb, &kHelpVerb);
  EXPECT_EQ(help->values.at("VERB"), (std::vector<std::string>{"daemon", "start"}));
  const auto file = parse({"export", "stats", "--format", "json"});
  ASSERT_TRUE(file.ok()) << file.error().text();
  EXPECT_EQ(file->verb, &kExportVerb);
  EXPECT_EQ(file->values.at("FILE").back(), "stats");
  EXPECT_TRUE(parse({"daemon", "start", "stop"}).is(Code::kInvalid));
}

TEST(Parse, NothingAndHelp) {
  EXPECT_EQ(parse({})->verb, &kHelpVerb);
  EXPECT_EQ(parse({"--help"})->verb, &kHelpVerb);
  EXPECT_EQ(parse({"--version"})->verb, &kVersionVerb);
  const auto group = parse({"daemon", "--help"});
  ASSERT_TRUE(group.ok());
  EXPECT_EQ(group->values.at("VERB").back(), "daemon");
  const auto verb = parse({"show", "--help"});  // although KEY is missing
  ASSERT_TRUE(verb.ok());
  EXPECT_TRUE(verb->help);
  EXPECT_TRUE(parse({"stats", "-h"})->help);
}

TEST(Parse, WhatIsWrongIsNamedWithTheNearestRightWord) {
  EXPECT_EQ(trouble({"stast"}), "there is no verb 'stast'; did you mean stats?");
  EXPECT_EQ(trouble({"daemon", "statsu"}),
            "there is no verb 'daemon statsu'; did you mean status?");
  EXPECT_EQ(trouble({"config"}), "config needs one of: show, set, explain");
  EXPECT_EQ(trouble({"prune", "--older-then", "7d"}),
            "there is no option --older-then for prune; did you mean --older-than?");
  EXPECT_EQ(trouble({"prune", "--older-then=7d"}),
            "there is no option --older-then for prune; did you mean --older-than?");
  EXPECT_EQ(trouble({"stats", "--format", "jsno"}),
            "--format 'jsno' is not one of text, json, tab; did you mean json?");
  EXPECT_EQ(trouble({"ls", "--limit"}), "--limit needs a value");
  EXPECT_EQ(trouble({"prune", "--dry-run=no"}), "--dry-run is a switch, it takes no value");
  EXPECT_EQ(trouble({"show"}), "show needs KEY");
  EXPECT_EQ(trouble({"show", "--foo"}), "there is no option --foo for show");
  EXPECT_EQ(trouble({"show", "a", "b"}), "show does not take 'b'");
  EXPECT_EQ(trouble({"completion", "zhs"}),
            "SHELL 'zhs' is not one of bash, zsh, fish; did you mean zsh?");
  EXPECT_EQ(trouble({"--foo"}), "there is no option --foo");
}

TEST(Parse, TheFormatOfAnErrorIsKnownEvenThen) {
  EXPECT_EQ(guess_format({"stast", "--format", "json"}), Format::kJson);
  EXPECT_EQ(guess_format({"--format=json", "stast"}), Format::kJson);
  EXPECT_EQ(guess_format({"stast"}), Format::kText);
}

TEST(Parse, EveryVerbParsesWithItsOwnExamples) {
  for (const Verb* verb : verb_table()) {
    EXPECT_FALSE(verb->summary.empty()) << verb->name;
    EXPECT_EQ(find_verb(verb->name), verb);
    for (const OptionSpec& option : verb->options) {
      EXPECT_FALSE(option.help.empty()) << verb->name << " --" << option.name;
      for (const OptionSpec& global : global_options())
        EXPECT_NE(option.name, global.name) << verb->name;
    }
  }
}

}  // namespace
}  // namespace nc::cli
