#include "client/cc/real_compiler.hpp"

#include <filesystem>

#include <gtest/gtest.h>

#include "tests/unit/cc/scratch.hpp"

namespace nc::cc {
namespace {

class Finding : public testing::Test {
 protected:
  std::string dirs(std::initializer_list<std::string> names) const {
    std::string out;
    for (const std::string& name : names) out += (out.empty() ? "" : ":") + scratch_.path(name);
    return out;
  }
  Scratch scratch_;
  std::string self_ = scratch_.program("us/neuronx-cc", "the wrapper");
  std::string real_ = scratch_.program("sdk/neuronx-cc", "the compiler");
};

TEST_F(Finding, TheNextOnPath) {
  const auto found = find_real_compiler("", dirs({"us", "none", "sdk"}), self_, {});
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->path, real_);
  EXPECT_EQ(find_real_compiler("", dirs({"sdk", "us"}), self_, {})->path, real_);
}

TEST_F(Finding, NeverItself) {
  std::filesystem::create_directories(scratch_.path("link"));
  std::filesystem::create_symlink(self_, scratch_.path("link/neuronx-cc"));
  scratch_.program("copy/neuronx-cc", "the wrapper");
  std::filesystem::create_directories(scratch_.path("directory/neuronx-cc"));
  scratch_.write("plain/neuronx-cc", "no program");
  const std::string before = dirs({"us", "link", "copy", "directory", "plain"});
  EXPECT_TRUE(find_real_compiler("", before, self_, {}).is(Code::kNotFound));
  EXPECT_EQ(find_real_compiler("", before + ":" + dirs({"sdk"}), self_, {})->path, real_);
}

TEST_F(Finding, TheSettingGoesFirst) {
  EXPECT_EQ(find_real_compiler(real_, "", self_, {})->path, real_);
  EXPECT_TRUE(find_real_compiler(scratch_.path("none"), "", self_, {}).is(Code::kInvalid));
  EXPECT_TRUE(find_real_compiler(self_, dirs({"sdk"}), self_, {}).is(Code::kInvalid));
}

TEST_F(Finding, WhatWasTriedComesLast) {
  const std::string script = scratch_.program("script/neuronx-cc", "runs the wrapper");
  const std::string path = dirs({"us", "script", "sdk"});
  Chain chain;
  const auto first = find_real_compiler("", path, self_, chain);
  EXPECT_EQ(first->path, script);
  chain = extend(chain, self_, *first);
  const auto second = find_real_compiler("", path, self_, chain);
  EXPECT_EQ(second->path, real_);
  // Of a compiler that runs its own name, the compiler again.
  chain = extend(chain, self_, *second);
  EXPECT_EQ(find_real_compiler("", path, self_, chain)->path, real_);
}

TEST_F(Finding, ALoopEnds) {
  scratch_.program("script/neuronx-cc", "runs the wrapper");
  Chain chain;
  int starts = 0;
  for (; starts < 100; ++starts) {
    const auto found = find_real_compiler("", dirs({"us", "script"}), self_, chain);
    if (!found.ok()) {
      EXPECT_EQ(found.error().code, Code::kConflict);
      break;
    }
    chain = Chain::parse(extend(chain, self_, *found).format());
  }
  EXPECT_EQ(starts, kMaxChain);
}

TEST(Chain, SurvivesTheEnvironment) {
  const Chain chain{3, {{1, 2}, {30, 40}}};
  const Chain read = Chain::parse(chain.format());
  EXPECT_EQ(read.depth, 3);
  EXPECT_EQ(read.tried, chain.tried);
  EXPECT_EQ(Chain::parse("").depth, 0);
  EXPECT_EQ(Chain::parse("-5,x").depth, 0);
  EXPECT_EQ(Chain::parse("999999,1.").depth, kMaxChain);
}

}  // namespace
}  // namespace nc::cc
