// Recorded actions under other compilers and targets: the key must be the one that the wrapper
// would have made.
#include "client/cc/rebuild.hpp"

#include <gtest/gtest.h>

#include "client/cc/recording.hpp"
#include "client/cc/words.hpp"
#include "tests/unit/cc/scratch.hpp"

namespace nc::cc {
namespace {

const CompilerIdentity kOld{"NeuronX Compiler version 2.20.1.0+abc", "package sha256:12"};
const CompilerIdentity kNew{"NeuronX Compiler version 2.21.0.0+def", "package sha256:34"};

class Rebuild : public testing::Test {
 protected:
  // What the wrapper would record of this command.
  client::RecordedAction record_of(const std::string& words, const CompilerIdentity& compiler,
                                   const std::vector<std::string>& env = {}) const {
    std::vector<std::string> argv = split_words(words);
    for (std::string& word : argv) {
      if (word == "INPUT") word = input_;
    }
    Command command = parse_command(argv, real_surroundings());
    std::string flags;
    for (const std::string& entry : env) {
      if (entry.starts_with("NEURON_CC_FLAGS=")) flags = entry.substr(16);
    }
    const Command variable = parse_flags_variable(flags, real_surroundings(), command);
    const auto action = make_action(command, variable, compiler, env,
                                    command.flags.contains("target") ? "" : "trn2.48xlarge");
    const auto made = make_template(command);
    EXPECT_TRUE(action.ok() && made.ok());
    client::RecordedAction record;
    record.key = action->key;
    record.parts = action->parts;
    record.label = action->label;
    record.compiler = "neuronx-cc " + compiler.version();
    record.argv = made->argv;
    record.env = recorded_environment(env);
    return record;
  }

  Scratch scratch_;
  std::string input_ = scratch_.write("model.pb", "an HLO module");
};

constexpr const char* kCommands[] = {
    "compile INPUT --target trn2 --output x.neff",
    "compile --target=trn2 --framework XLA INPUT --lnc 2 -O1 --verbose 35 --output=y",
    "compile INPUT --brand-new 3 --target trn2 --auto-cast none",
};

TEST_F(Rebuild, TheKeyIsTheOneThatTheWrapperMakes) {
  for (const char* words : kCommands) {
    for (const std::vector<std::string>& env :
         {std::vector<std::string>{}, {"NEURON_CC_FLAGS=-O2 --lnc=2", "NEURON_FOO=1", "HOME=/x"}}) {
      const auto record = record_of(words, kOld, env);
      const auto same = aim_at(record, {});
      ASSERT_TRUE(same.ok()) << words << ": " << same.error().text();
      EXPECT_EQ(same->key, record.key);
      Aim aim{&kNew, ""};
      const auto next = aim_at(record, aim);
      ASSERT_TRUE(next.ok()) << words;
      const auto expected = record_of(words, kNew, env);
      EXPECT_EQ(next->key, expected.key) << words;
      EXPECT_EQ(next->compiler, expected.compiler);
      std::string other = words;
      other.replace(other.find("trn2"), 4, "trn1");
      aim.target = "trn1";
      EXPECT_EQ(aim_at(record, aim)->key, record_of(other, kNew, env).key) << words;
    }
  }
}

TEST_F(Rebuild, ATargetComesWhereThereWasNone) {
  const auto record = record_of("compile INPUT -O1", kOld);
  const auto aimed = aim_at(record, {nullptr, "trn1"});
  ASSERT_TRUE(aimed.ok());
  EXPECT_EQ(aimed->key, record_of("compile INPUT -O1 --target trn1", kOld).key);
  // Without one it is for the machine that it was recorded on.
  EXPECT_EQ(aim_at(record, {&kNew, ""})->key, record_of("compile INPUT -O1", kNew).key);
}

TEST_F(Rebuild, WhatIsNotWhatItSaysIsRefused) {
  auto record = record_of(kCommands[0], kOld);
  record.argv.push_back("-O3");
  EXPECT_EQ(aim_at(record, {}).error().code, Code::kUnsupported);
  record = record_of(kCommands[0], kOld);
  record.argv = {"--version"};
  EXPECT_FALSE(aim_at(record, {}).ok());
  record = record_of(kCommands[0], kOld, {"NEURON_CC_FLAGS=--target=trn1"});
  EXPECT_TRUE(aim_at(record, {}).ok());
  EXPECT_FALSE(aim_at(record, {nullptr, "trn3"}).ok()) << "the variable says another";
}

TEST_F(Rebuild, ACompilerIsKnownByVersionAndPackage) {
  const auto record = record_of(kCommands[0], kOld);
  EXPECT_TRUE(recorded_with(record, kOld));
  EXPECT_FALSE(recorded_with(record, kNew));
  EXPECT_FALSE(recorded_with(record, {kOld.version_text, "package sha256:99"}));
}

TEST_F(Rebuild, CompilersAreFoundByTheBeginningOfTheirVersion) {
  const auto program = [&](const std::string& directory, const std::string& version) {
    const std::string path = scratch_.write(
        directory + "/neuronx-cc", "#!/bin/sh\necho NeuronX Compiler version " + version + "\n");
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  };
  const std::string first = program("one", "2.20.1.0+abc");
  const std::string second = program("two", "2.21.0.0+def");
  CompilerSearch search;
  search.env = {"PATH=" + parent_dir(first) + ":" + parent_dir(second) + ":/bin"};
  search.cache_dir = scratch_.path("compilers");
  const auto path_of = [&](const std::string& wanted) {
    const auto found = choose_compiler(search, wanted);
    return found.ok() ? found->compiler.path : std::string(code_name(found.error().code));
  };
  EXPECT_EQ(path_of(""), first);
  EXPECT_EQ(path_of("2"), first);
  EXPECT_EQ(path_of("2.21"), second);
  EXPECT_EQ(path_of("2.21.0.0+def"), second);
  EXPECT_EQ(path_of(second), second);
  EXPECT_EQ(path_of("2.2"), "not_found") << "2.20 is no 2.2";
  EXPECT_NE(choose_compiler(search, "3").error().text().find("2.20.1.0+abc, 2.21.0.0+def"),
            std::string::npos);
  search.self = first;
  EXPECT_EQ(path_of(""), second) << "the wrapper is none";
  EXPECT_EQ(path_of(first), "invalid");
  search.setting = second;
  EXPECT_EQ(path_of(""), second);
}

}  // namespace
}  // namespace nc::cc
