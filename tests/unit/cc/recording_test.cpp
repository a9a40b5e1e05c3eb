#include "client/cc/recording.hpp"

#include <gtest/gtest.h>

#include "client/cc/words.hpp"

namespace nc::cc {
namespace {

Command parse(const std::string& line) {
  Surroundings world;
  world.read_file = [](const std::string&) { return std::nullopt; };
  world.exists = [](const std::string&) { return false; };
  return parse_command(split_words(line), world);
}

TEST(Recording, PlaceholdersStandForFiles) {
  struct Case {
    const char* line;
    const char* made;
  };
  const Case cases[] = {
      {"compile a/m.pb --target trn2 --output x.neff --logfile l.txt",
       "compile {in/m.pb} --target trn2 --output {out/neff}"},
      {"compile m.pb --output=x.neff", "compile {in/m.pb} --output {out/neff}"},
      {"compile --framework XLA d/m.pb --lnc=2",
       "compile --framework XLA {in/m.pb} --lnc=2 --output {out/neff}"},
      {"compile a/m.pb b/m.pb", "compile {in/m.pb} {in/1-m.pb} --output {out/neff}"},
      {"compile m.pb --brand-new 3 -O2", "compile {in/m.pb} --brand-new 3 -O2 --output {out/neff}"},
  };
  for (const Case& c : cases) {
    const auto made = make_template(parse(c.line));
    ASSERT_TRUE(made.ok()) << c.line << ": " << made.error().text();
    EXPECT_EQ(made->argv, split_words(c.made)) << c.line;
  }
}

TEST(Recording, WhatCannotBeSaidIsNotRecorded) {
  EXPECT_FALSE(make_template(parse("compile m.pb --note {in/x}")).ok());
  EXPECT_FALSE(make_template(parse("compile 'm\xff.pb'")).ok());
  Surroundings world;
  world.read_file = [](const std::string& path) -> std::optional<std::string> {
    if (path == "args") return "m.pb --target trn2";
    return std::nullopt;
  };
  world.exists = [](const std::string& path) { return path == "weights.bin"; };
  EXPECT_FALSE(make_template(parse_command(split_words("compile @args"), world)).ok());
  EXPECT_FALSE(
      make_template(parse_command(split_words("compile m.pb --weights=weights.bin"), world)).ok());
}

TEST(Recording, TheEnvironmentThatCounts) {
  const auto env =
      recorded_environment({"NEURON_CC_FLAGS=-O2", "HOME=/root", "PATH=/bin", "A=\xff"});
  EXPECT_EQ(env, (std::map<std::string, std::string>{{"NEURON_CC_FLAGS", "-O2"}}));
}

}  // namespace
}  // namespace nc::cc
