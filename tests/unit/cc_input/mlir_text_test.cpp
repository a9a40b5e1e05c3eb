#include "client/cc/input/mlir_text.hpp"

#include <gtest/gtest.h>

#include "tests/unit/cc_input/inputs.hpp"

namespace nc::cc {
namespace {

std::optional<Digest> digest(std::string_view text) {
  return mlir_text_digest(as_bytes(text));
}

constexpr std::string_view kModule =
    R"(module @net attributes {torch.debug_dump_path = "/tmp/a", x.y = 1 : i32} {
  func.func @main(%arg0: tensor<2x3xf32> loc("x")) -> tensor<2x3xf32> {
    %0 = stablehlo.constant dense<"0x0000803F"> : tensor<2x3xf32> loc(#loc1)
    %1 = stablehlo.add %arg0, %0 : tensor<2x3xf32> loc(#loc2)
    return %1 : tensor<2x3xf32> loc(#loc)
  } loc(#loc)
} loc(#loc)
#loc = loc(unknown)
#loc1 = loc("/home/ann/model.py":3:4)
#loc2 = loc(callsite("add"(#loc1) at fused[#loc1, "b":1:2 to :9, "c":1:2 to 3:4]))
)";

TEST(MlirText, WhatCannotChangeTheOutputLeavesNoTrace) {
  const auto plain = digest(kModule);
  ASSERT_TRUE(plain);
  const std::string text(kModule);
  EXPECT_EQ(digest(replaced(text, "@net", "@other")), plain);
  EXPECT_EQ(digest(replaced(text, " @net", "")), plain);
  EXPECT_EQ(digest(replaced(text, "/tmp/a", "/tmp/rank7")), plain);
  EXPECT_EQ(digest(replaced(text, "torch.debug_dump_path = \"/tmp/a\", ", "")), plain);
  EXPECT_EQ(digest(replaced(text, "torch.debug_dump_path = \"/tmp/a\", x.y = 1 : i32",
                            "x.y = 1 : i32, torch.debug_dump_path = \"/\"")),
            plain);
  EXPECT_EQ(digest(replaced(text, "/home/ann/model.py\":3:4", "/srv/m.py\":777:1")), plain);
  EXPECT_EQ(digest(replaced(text, " loc(\"x\")", "")), plain);
  EXPECT_EQ(digest(replaced(text, "module", "// a remark \" loc(\n\n  module")), plain);
  EXPECT_EQ(digest(replaced(replaced(replaced(text, "%1", "%sum"), "return %1", "return %sum"),
                            "%0 =", "%0\n=")),
            plain);
}

TEST(MlirText, WhatCanChangeItCounts) {
  const auto plain = digest(kModule);
  const std::string text(kModule);
  for (const auto& [from, to] :
       std::initializer_list<std::pair<std::string_view, std::string_view>>{
           {"803F", "803f"},
           {"803F", "813F"},
           {"stablehlo.add", "stablehlo.subtract"},
           {"2x3xf32", "3x2xf32"},
           {"x.y = 1", "x.y = 2"},
           {"x.y = 1", "x.z = 1"},
           {"%arg0, %0", "%0, %arg0"},
           {"@main", "@entry"},
           {"return %1", "return %0"}}) {
    const auto changed = digest(replaced(text, from, to));
    ASSERT_TRUE(changed) << from;
    EXPECT_NE(changed, plain) << from;
  }
}

TEST(MlirText, TheOnlyAttributeTakesItsDictionaryWithIt) {
  const auto plain = digest("module {\n}");
  ASSERT_TRUE(plain);
  EXPECT_EQ(digest("module attributes {torch.debug_dump_path = \"x\"} {\n}"), plain);
  EXPECT_EQ(digest("module @a attributes {torch.debug_dump_path = \"x\"} {\n} loc(unknown)"),
            plain);
  EXPECT_TRUE(digest("\"builtin.module\"() <{torch.debug_dump_path = \"x\"}> ({}) : () -> ()"));
}

TEST(MlirText, WhatIsNotCertainIsRefused) {
  const std::string text(kModule);
  ASSERT_TRUE(digest(text));
  for (const auto& [from, to] :
       std::initializer_list<std::pair<std::string_view, std::string_view>>{
           {"x.y = 1 : i32", "x.y = loc(\"a\")"},          // a location as a value
           {"x.y = 1 : i32", "x.y = #loc1"},               // by its alias
           {"x.y = 1 : i32", "x.y = #foo<x loc(\"a\")>"},  // inside of who knows what
           {"loc(\"x\")", "loc(\"x\") loc(\"x\")"},        // two
           {"loc(\"x\")", "loc(fused<\"meta\">[\"x\"])"},  // metadata
           {"loc(\"x\")", "loc(\"x\" \"y\")"},
           {"loc(\"x\")", "loc(\"x\":1)"},
           {"loc(\"x\")", "loc(#nowhere)"},
           {"loc(\"x\")", "loc(callsite(\"x\" at ))"},
           {"#loc1 = loc(", "#loc2 = loc("},  // defined twice
           {"torch.debug_dump_path = \"/tmp/a\"", "torch.debug_dump_path = 1"},
           {"x.y = 1", "torch.debug_dump_path = \"b\", x.y = 1"},
           {"\"0x0000803F\"", "\"0x0000803F"},  // an open string
           {"\"0x0000803F\"", "\"\\q\""},
           {"return", "r\xC3\xA9turn"},
           {"  } loc(#loc)", "  loc(#loc)"},
           {"%arg0:", "% arg0:"}}) {
    EXPECT_FALSE(digest(replaced(text, from, to))) << to;
  }
  EXPECT_FALSE(digest(""));
  EXPECT_FALSE(digest("HloModule jit_f\n\nENTRY main { }\n"));
  EXPECT_FALSE(digest("{\"key\": 1}"));
  EXPECT_FALSE(digest("module @a {} module @b {}"));
  EXPECT_FALSE(digest(std::string_view("module {\0}", 10)));
}

TEST(MlirText, EveryCutIsRefusedOrAnotherModule) {
  const std::string_view text = kModule.substr(0, kModule.find("#loc = "));
  const auto plain = digest(kModule);
  for (std::size_t size = 0; size < text.size(); ++size)
    EXPECT_NE(digest(text.substr(0, size)), plain) << size;
}

TEST(MlirText, DeepNestingTakesNoStack) {
  std::string location;
  for (int i = 0; i < 200'000; ++i) location += "\"n\"(";
  location += "unknown" + std::string(200'000, ')');
  EXPECT_EQ(digest("module {\n} loc(" + location + ")"), digest("module {\n}"));
  const std::string brackets(500'000, '[');
  EXPECT_FALSE(digest("module {" + brackets + "}"));
}

TEST(MlirText, RealModules) {
  const auto here = digest(sample("here.mlir"));
  ASSERT_TRUE(here);
  EXPECT_EQ(digest(sample("there.mlir")), here);
  EXPECT_NE(digest(sample("weight.mlir")), here);
}

}  // namespace
}  // namespace nc::cc
