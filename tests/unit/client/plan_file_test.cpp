#include "client/cli/plan_file.hpp"

#include <gtest/gtest.h>

namespace nc::cli {
namespace {

TEST(PlanFile, SaysWhatToRunAndToBuild) {
  const auto plan = parse_plan(R"(
version = 1
[[run]]
recording = "llama"
command = ["train.py", "--shape", "{batch}x{length}", "{batch}"]
buckets = [{batch = 1, length = 128}, {batch = 8, length = 16}]
[[run]]
recording = "mlp"
command = ["serve", "{}"]
[[build]]
recording = "nightly"
labels = ["*.pb", "größe"]
keys = ["ab"]
compilers = ["recorded", "2.21"]
targets = ["trn1"]
)",
                               "plan.toml");
  ASSERT_TRUE(plan.ok()) << plan.error().text();
  using Commands = std::vector<std::vector<std::string>>;
  EXPECT_EQ(plan->runs.at(0).commands(), (Commands{{"train.py", "--shape", "1x128", "1"},
                                                   {"train.py", "--shape", "8x16", "8"}}));
  EXPECT_EQ(plan->runs.at(1).commands(), (Commands{{"serve", "{}"}}));
  const Selection& build = plan->builds.at(0);
  EXPECT_EQ(build.recording, "nightly");
  EXPECT_EQ(build.labels, (std::vector<std::string>{"*.pb", "größe"}));
  EXPECT_EQ(build.compilers, (std::vector<std::string>{"recorded", "2.21"}));
  EXPECT_EQ(build.targets, (std::vector<std::string>{"trn1"}));
}

TEST(PlanFile, ErrorsNameTheLine) {
  struct Case {
    const char* text;
    const char* said;
  };
  const Case cases[] = {
      {"", "version = 1 is missing"},
      {"version = 2", "line 1"},
      {"version = 1", "neither"},
      {"version = 1\nbuild = 3", "line 2: write [[build]]"},
      {"version = 1\nbuild = [3]", "line 2: write [[build]]"},
      {"version = 1\n[[build]]\n", "needs a recording"},
      {"version = 1\n[[build]]\nrecording = 'a/b'", "line 3"},
      {"version = 1\n[[build]]\nrecording = 'a'\ncompiler = ['2']", "did you mean compilers?"},
      {"version = 1\n[[build]]\nrecording = 'a'\ntargets = 'trn1'", "line 4: targets is a list"},
      {"version = 1\n[[build]]\nrecording = 'a'\ntargets = []", "targets is a list"},
      {"version = 1\n[[run]]\nrecording = 'a'", "a command"},
      {"version = 1\n[[run]]\nrecording = 'a'\ncommand = ['x']\nbuckets = [{n = 1}]",
       "no word of the command has {n} in it"},
      {"version = 1\n[[run]]\nrecording = 'a'\ncommand = ['{n}']\nbuckets = [{n = 'x'}]",
       "a whole number"},
      {"version = 1\n[[runs]]\n", "did you mean run?"},
      {"[=", "plan.toml"},
      {"\xff", "UTF-8"},
      {"version = 1979-05-27", "line 1"},
  };
  for (const Case& c : cases) {
    const auto plan = parse_plan(c.text, "plan.toml");
    ASSERT_FALSE(plan.ok()) << c.text;
    EXPECT_EQ(plan.error().code, Code::kInvalid);
    EXPECT_NE(plan.error().text().find(c.said), std::string::npos) << plan.error().text();
  }
}

TEST(PlanFile, WhatIsWrittenIsRead) {
  client::RecordedAction action;
  action.label = "a \"quoted\" \\ label";
  action.compiler = "neuronx-cc 2.20.1";
  action.parts = {{"flag.target", "trn2"}};
  const std::string text = plan_text("nightly", {action});
  auto plan = parse_plan(text, "plan.toml");
  ASSERT_TRUE(plan.ok()) << plan.error().text();
  EXPECT_EQ(plan->builds.at(0).recording, "nightly");
  EXPECT_EQ(plan->builds.at(0).compilers, (std::vector<std::string>{"recorded"}));
  // With its comments taken in and the general lines out.
  std::string narrow;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.find("[\"recorded\"]") != std::string::npos) continue;
    if (line.starts_with("# ") && line.find(" = [") != std::string::npos) line = line.substr(2);
    narrow += line + "\n";
  }
  plan = parse_plan(narrow, "plan.toml");
  ASSERT_TRUE(plan.ok()) << plan.error().text();
  EXPECT_EQ(plan->builds.at(0).labels, (std::vector<std::string>{action.label}));
  EXPECT_EQ(plan->builds.at(0).compilers, (std::vector<std::string>{"2.20.1"}));
  EXPECT_EQ(plan->builds.at(0).targets, (std::vector<std::string>{"trn2"}));
}

}  // namespace
}  // namespace nc::cli
