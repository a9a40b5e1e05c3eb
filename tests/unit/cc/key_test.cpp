// Properties of the key: what must not change it, and what must.
#include "client/cc/key.hpp"

#include <algorithm>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "client/cc/flag_table.hpp"
#include "tests/unit/cc/scratch.hpp"

namespace nc::cc {
namespace {

using Words = std::vector<std::string>;

const CompilerIdentity kCompiler{"NeuronX Compiler version 2.20.1.0+abc", "package sha256:12"};

Surroundings real() {
  return {[](const std::string&) { return std::nullopt; },
          [](const std::string& path) { return std::filesystem::exists(path); }};
}

std::string key_of(const Words& words, const Words& env = {},
                   const CompilerIdentity& compiler = kCompiler,
                   const std::string& machine = "trn2.48xlarge") {
  Command command = parse_command(words, real());
  EXPECT_EQ(command.kind, Command::Kind::kCompile);
  std::string flags;
  for (const std::string& entry : env) {
    if (entry.starts_with("NEURON_CC_FLAGS=")) flags = entry.substr(16);
  }
  const Command variable = parse_flags_variable(flags, real(), command);
  const auto action = make_action(command, variable, compiler, env, machine);
  EXPECT_TRUE(action.ok());
  return action.ok() ? action->key.hex() : "";
}

class Key : public testing::Test {
 protected:
  Words command(const std::string& input, const Words& flags) const {
    Words out{"compile", input};
    out.insert(out.end(), flags.begin(), flags.end());
    return out;
  }
  Scratch scratch_;
  std::string input_ = scratch_.write("a/model.hlo_module.pb", "an HLO module");
};

TEST_F(Key, ShuffledFlagsAreOneKey) {
  Words flags{"--framework=XLA",  "--target=trn2",  "--lnc=2",      "-O1",
              "--auto-cast=none", "--native-int64", "--verbose=35", "--output=/x/y.neff"};
  const std::string expected = key_of(command(input_, flags));
  std::mt19937 random(3);
  for (int i = 0; i < 50; ++i) {
    std::ranges::shuffle(flags, random);
    const auto split = static_cast<std::ptrdiff_t>(random() % flags.size());
    Words words(flags.begin(), flags.begin() + split);
    words.insert(words.end(), {"compile", input_});
    words.insert(words.end(), flags.begin() + split, flags.end());
    EXPECT_EQ(key_of(words), expected);
  }
}

TEST_F(Key, SpellingsAreOneKey) {
  const std::string expected = key_of(command(input_, {"-O1", "--lnc=2", "--target", "trn1"}));
  for (const Words& flags : {Words{"--optlevel=1", "--logical-nc-config=2", "--target=trn1"},
                             Words{"-O", "1", "--lnc", "2", "--target", "trn1"},
                             Words{"-O3", "--optlevel", "1", "--lnc", "1", "--logical-nc-config",
                                   "2", "--target=inf2", "--target=trn1"}})
    EXPECT_EQ(key_of(command(input_, flags)), expected);
}

TEST_F(Key, MovedFilesAreOneKey) {
  const std::string moved = scratch_.write("b/c/other-name.pb", "an HLO module");
  EXPECT_EQ(key_of(command(input_, {"--target=trn2"})), key_of(command(moved, {"--target=trn2"})));
  scratch_.write("d1/x/w", "1");
  scratch_.write("d1/y", "2");
  scratch_.write("d2/y", "2");
  scratch_.write("d2/x/w", "1");
  scratch_.write("d3/x/w", "1");
  scratch_.write("d3/z", "2");
  const std::string one = key_of(command(scratch_.path("d1"), {}));
  EXPECT_EQ(one, key_of(command(scratch_.path("d2"), {})));
  EXPECT_NE(one, key_of(command(scratch_.path("d3"), {})));
}

TEST_F(Key, EveryChangeIsAnotherKey) {
  const Words base{"--target=trn2", "--auto-cast=none", "--zeta=1", "--eta=1"};
  std::multiset<std::string> keys{key_of(command(input_, base))};
  const auto with = [&](const Words& more) {
    Words flags = base;
    flags.insert(flags.end(), more.begin(), more.end());
    return key_of(command(input_, flags));
  };
  std::set<std::string_view> done;
  for (const FlagSpec& f : flag_table()) {
    if (f.in_key == InKey::kNo || f.canonical == "mixed-precision-accumulation") continue;
    if (!done.insert(f.canonical).second) continue;
    const std::string spelling(f.spelling);
    if (f.takes == Takes::kNothing) {
      keys.insert(with({spelling}));
    } else {
      keys.insert(with({spelling, "value-1"}));
      keys.insert(with({spelling, "value-2"}));
    }
  }
  keys.insert(with({"--enable-mixed-precision-accumulation"}));
  keys.insert(with({"--disable-mixed-precision-accumulation"}));
  keys.insert(with({"--unknown"}));
  keys.insert(with({"--unknown=\xff"}));
  keys.insert(
      key_of(command(input_, {"--target=trn2", "--auto-cast=none", "--eta=1", "--zeta=1"})));
  keys.insert(key_of(command(scratch_.write("x.pb", "an HLO modulE"), base)));
  keys.insert(key_of(command(scratch_.write("x.mlir", "an HLO module"), base)));
  keys.insert(with({input_}));  // twice
  keys.insert(key_of(command(input_, base), {"NEURON_PLATFORM_TARGET_OVERRIDE=trn1"}));
  keys.insert(key_of(command(input_, base), {"NEURON_CC_FLAGS=--auto-cast=all"}));
  CompilerIdentity other = kCompiler;
  other.version_text += "d";
  keys.insert(key_of(command(input_, base), {}, other));
  other = kCompiler;
  other.package += "3";
  keys.insert(key_of(command(input_, base), {}, other));
  EXPECT_EQ(std::set<std::string>(keys.begin(), keys.end()).size(), keys.size());
}

TEST_F(Key, TheMachineCountsOnlyWithoutATarget) {
  const auto on = [&](const Words& flags, const std::string& machine) {
    return key_of(command(input_, flags), {}, kCompiler, machine);
  };
  EXPECT_EQ(on({"--target=trn2"}, "a"), on({"--target=trn2"}, "b"));
  EXPECT_NE(on({}, "a"), on({}, "b"));
}

TEST_F(Key, TheFlagsVariableCountsForWhatItAdds) {
  const Words words = command(input_, {"-O1", "--target=trn2"});
  const std::string plain = key_of(words);
  EXPECT_EQ(key_of(words, {"NEURON_CC_FLAGS=--optlevel 1 --verbose=35 --cache_dir=/x"}), plain);
  EXPECT_NE(key_of(words, {"NEURON_CC_FLAGS=-O2"}), plain);
  EXPECT_NE(key_of(words, {"NEURON_CC_FLAGS=--zeta"}), plain);
}

TEST_F(Key, FilesOfUnknownFlagsCountByTheirContent) {
  const std::string table = scratch_.write("table.json", "1");
  const Words words = command(input_, {"--target=trn2", "--table=" + table});
  const std::string before = key_of(words);
  scratch_.write("table.json", "2");
  EXPECT_NE(key_of(words), before);
}

TEST_F(Key, WhatCannotBeReadIsAnError) {
  for (const std::string& path : {scratch_.path("none"), std::string("/dev/null")}) {
    const Command c = parse_command(command(path, {}), real());
    EXPECT_FALSE(make_action(c, {}, kCompiler, {}, "").ok()) << path;
  }
}

}  // namespace
}  // namespace nc::cc
