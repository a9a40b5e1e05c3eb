#include "client/cc/arguments.hpp"

#include <map>

#include <gtest/gtest.h>

#include "client/cc/words.hpp"

namespace nc::cc {
namespace {

using Words = std::vector<std::string>;
using Flags = std::map<std::string, std::string>;
using Kind = Command::Kind;

// A world in which the named files exist.
Surroundings world(std::map<std::string, std::string> files = {}) {
  auto shared = std::make_shared<std::map<std::string, std::string>>(std::move(files));
  Surroundings w;
  w.exists = [shared](const std::string& path) { return shared->contains(path); };
  w.read_file = [shared](const std::string& path) -> std::optional<std::string> {
    const auto it = shared->find(path);
    if (it == shared->end()) return std::nullopt;
    return it->second;
  };
  return w;
}

Command parse(const std::string& line, const Surroundings& w = world()) {
  return parse_command(split_words(line), w);
}

TEST(Arguments, FormsOfTheCallers) {
  struct Form {
    const char* line;
    Words inputs;
    std::string output;
    Flags flags;
  };
  const Form forms[] = {
      {"--target=trn1 compile --framework XLA w/m.hlo.pb --output w/m.neff --verbose=35",
       {"w/m.hlo.pb"},
       "w/m.neff",
       {{"framework", "XLA"}, {"target", "trn1"}}},
      {"compile --target=trn1 --framework=XLA w/m.pb --output w/m.neff --model-type=transformer",
       {"w/m.pb"},
       "w/m.neff",
       {{"framework", "XLA"}, {"target", "trn1"}, {"model-type", "transformer"}}},
      {"compile --framework=XLA in.pb --output out.neff --target=trn1 --pipeline compile SaveTemps",
       {"in.pb"},
       "out.neff",
       {{"framework", "XLA"}, {"target", "trn1"}, {"pipeline", "compile SaveTemps"}}},
      {"compile t/module.mlir --framework XLA --target trn2 --lnc 2 -O2 --model-type transformer "
       "--auto-cast=none --output t/module.neff",
       {"t/module.mlir"},
       "t/module.neff",
       {{"framework", "XLA"},
        {"target", "trn2"},
        {"logical-nc-config", "2"},
        {"optlevel", "2"},
        {"model-type", "transformer"},
        {"auto-cast", "none"}}},
      {"compile --framework XLA m.pb --pipeline compile SaveTemps --target trn2 --output=n.neff",
       {"m.pb"},
       "n.neff",
       {{"framework", "XLA"}, {"target", "trn2"}, {"pipeline", "compile SaveTemps"}}},
  };
  for (const Form& form : forms) {
    const Command c = parse(form.line);
    EXPECT_EQ(c.kind, Kind::kCompile) << form.line;
    EXPECT_EQ(c.inputs, form.inputs) << form.line;
    EXPECT_EQ(c.output, form.output) << form.line;
    EXPECT_EQ(c.flags, form.flags) << form.line;
    EXPECT_TRUE(c.unknown.empty()) << form.line;
    EXPECT_EQ(c.compiler_arguments, split_words(form.line));
  }
}

TEST(Arguments, WhatIsNoCompileIsPassedThrough) {
  const std::map<std::string, std::string> reasons{
      {"", "no_command"},
      {"--target=trn1", "no_command"},
      {"--version", "version"},
      {"compile in.pb --help", "help"},
      {"-h", "help"},
      {"list-operators --framework XLA", "other_command"},
      {"compile --framework XLA", "no_input"}};
  for (const auto& [line, reason] : reasons) {
    const Command c = parse(line);
    EXPECT_EQ(c.kind, Kind::kPassThrough) << line;
    EXPECT_EQ(c.reason, reason) << line;
    EXPECT_EQ(c.compiler_arguments, split_words(line));
  }
}

TEST(Arguments, TheRightMostWinsInEverySpelling) {
  const Command c = parse(
      "compile in --optlevel=1 -O 2 -O3 --lnc=1 --logical-nc-config 2 --output a --output=b "
      "--enable-mixed-precision-accumulation --disable-mixed-precision-accumulation");
  EXPECT_EQ(c.output, "b");
  EXPECT_EQ(c.flags, (Flags{{"optlevel", "3"},
                            {"logical-nc-config", "2"},
                            {"mixed-precision-accumulation", "off"}}));
}

TEST(Arguments, PlacesAndNoiseAreLeftOut) {
  const Command c =
      parse("compile in --logfile=/x/l.txt --verbose 35 --workdir /tmp/w --log_level=INFO");
  EXPECT_TRUE(c.flags.empty());
  EXPECT_EQ(c.logfile, "/x/l.txt");
  EXPECT_EQ(c.inputs, Words{"in"});
}

TEST(Arguments, FlagsOfTheOtherWrapperAreNotPassedOn) {
  const Command c =
      parse("compile in --cache_dir=/c --cache_dir /d --retry_failed_compilation --output out");
  EXPECT_EQ(c.kind, Kind::kCompile);
  EXPECT_TRUE(c.retry_failed);
  EXPECT_EQ(c.compiler_arguments, (Words{"compile", "in", "--output", "out"}));
  const Command none = parse("compile in --no_cache");
  EXPECT_EQ(none.kind, Kind::kBypass);
  EXPECT_EQ(none.reason, "no_cache");
  EXPECT_EQ(none.compiler_arguments, (Words{"compile", "in"}));
}

TEST(Arguments, UnknownFlagsKeepTheirOrder) {
  const Command c = parse("compile in --zeta --alpha=1 --zeta=2 --output out");
  EXPECT_EQ(c.unknown, (Words{"--zeta", "--alpha=1", "--zeta=2"}));
  EXPECT_EQ(c.inputs, Words{"in"});
}

TEST(Arguments, AWordAfterAnUnknownFlag) {
  // Its value, where there is an input elsewhere; as a file it counts by its content, too.
  const Command value = parse("compile --zeta table.json in", world({{"table.json", ""}}));
  EXPECT_EQ(value.inputs, Words{"in"});
  EXPECT_EQ(value.unknown, (Words{"--zeta", "table.json"}));
  EXPECT_EQ(value.unknown_files, Words{"table.json"});
  // The input, where there is no other.
  const Command input = parse("compile --zeta in.pb --output out", world({{"in.pb", ""}}));
  EXPECT_EQ(input.inputs, Words{"in.pb"});
  EXPECT_EQ(input.unknown, Words{"--zeta"});
  const Command command = parse("--zeta compile in");
  EXPECT_EQ(command.kind, Kind::kCompile);
  const Command other = parse("--zeta word compile in");
  EXPECT_EQ(other.kind, Kind::kCompile);
  EXPECT_EQ(other.unknown, (Words{"--zeta", "word"}));
}

TEST(Arguments, FilesOfUnknownFlags) {
  const Command c = parse("compile in --zeta=/etc/x --eta=none", world({{"/etc/x", ""}}));
  EXPECT_EQ(c.unknown_files, Words{"/etc/x"});
}

TEST(Arguments, AbbreviatedFlagsAreNotGuessedAt) {
  const Command c = parse("compile in --outp x");
  EXPECT_EQ(c.kind, Kind::kBypass);
  EXPECT_EQ(c.reason, "abbreviated_flag");
  EXPECT_EQ(parse("compile in --output-extra=1").kind, Kind::kCompile);
}

TEST(Arguments, ResponseFiles) {
  const Surroundings w = world({{"a", "compile\nin.pb\n@b\n"}, {"b", "--optlevel 1\n'--x=a b'"}});
  const Command c = parse("@a --output=out", w);
  EXPECT_EQ(c.kind, Kind::kCompile);
  EXPECT_EQ(c.inputs, Words{"in.pb"});
  EXPECT_EQ(c.flags, (Flags{{"optlevel", "1"}}));
  EXPECT_EQ(c.unknown, Words{"--x=a b"});
  EXPECT_EQ(c.compiler_arguments, (Words{"@a", "--output=out"}));
  // What cannot be read stays a word; what names itself ends.
  EXPECT_EQ(parse("compile @none").inputs, Words{"@none"});
  EXPECT_EQ(parse("compile @loop", world({{"loop", "@loop"}})).inputs, Words{"@loop"});
  EXPECT_EQ(parse("compile @bomb", world({{"bomb", "@bomb @bomb @bomb @bomb @bomb @bomb"}})).reason,
            "too_many_words");
}

TEST(Arguments, SeveralInputsAndADoubleDash) {
  EXPECT_EQ(parse("compile a b --framework XLA c").inputs, (Words{"a", "b", "c"}));
  EXPECT_EQ(parse("compile -- --output").inputs, Words{"--output"});
}

TEST(FlagsVariable, IsReadByTheSameRules) {
  Command c = parse("compile in --auto-cast=none --x=1 -O2");
  const Command v = parse_flags_variable(
      "--auto-cast none -O1 --verbose=10 --x=1 --cache_dir=s3://x --retry_failed_compilation",
      world(), c);
  EXPECT_EQ(v.flags, (Flags{{"optlevel", "1"}}));
  EXPECT_TRUE(v.unknown.empty());
  EXPECT_TRUE(c.retry_failed);
  EXPECT_EQ(c.kind, Kind::kCompile);
  parse_flags_variable("--no_cache", world(), c);
  EXPECT_EQ(c.kind, Kind::kBypass);
}

}  // namespace
}  // namespace nc::cc
