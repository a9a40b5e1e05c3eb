#include "bucketing/padding/declared.hpp"

#include <string>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "bucketing/padding/engine.hpp"

namespace nc::padding {
namespace {

namespace js = boost::json;

std::string tensor(const std::string& sizes) {
  return R"({"t":"float32","d":[)" + sizes + R"(],"s":[]})";
}
std::string input(const std::string& sizes) {
  return R"({"kind":"data","type":)" + tensor(sizes) + "}";
}
std::string node(const std::string& op, const std::string& args, const std::string& sizes) {
  return R"({"op":")" + op + R"(","a":[)" + args + R"(],"out":)" + tensor(sizes) + "}";
}

// One node that takes all inputs; what it returns is summed over all dimensions, as a consumer that
// needs zeros.
std::string request(const std::string& inputs, const std::string& nodes, const std::string& outputs,
                    const std::string& rules) {
  return R"({"request":1,"inputs":"any","claims":true,"forward":{"ir":1,"role":"inference",)"
         R"("symbols":[{"id":"s0","range":[2,"inf"]},{"id":"s1","range":[2,"inf"]}],"inputs":[)" +
         inputs + R"(],"nodes":[)" + nodes + R"(],"outputs":[)" + outputs + R"(]},"rules":)" +
         rules + "}";
}

js::value ask(const std::string& text) {
  auto answer = plan(js::parse(text));
  EXPECT_TRUE(answer.ok()) << (answer.ok() ? "" : answer.error().text());
  return answer.ok() ? *answer : js::value();
}
bool planned(const js::value& a) {
  return a.as_object().contains("forward");
}
std::string reason(const js::value& a) {
  const auto* refusal = a.as_object().if_contains("refusal");
  return refusal == nullptr ? "" : std::string(refusal->at("reason").as_string());
}
// What the padding of the value that node `from` of the graph makes holds, factor by factor.
std::string claimed(const js::value& a, int64_t from) {
  const auto& sub = a.at("forward");
  int64_t value =
      static_cast<int64_t>(sub.at("inputs").as_array().size() + sub.at("truths").as_array().size());
  std::string states;
  for (const auto& n : sub.at("nodes").as_array()) {
    const auto* origin = n.as_object().if_contains("from");
    if (origin != nullptr && origin->as_int64() == from &&
        n.at("op").as_string().starts_with("mylib.")) {
      for (const auto& claim : sub.at("claims").as_array()) {
        if (claim.at("v").as_int64() != value) continue;
        for (const auto& dim : claim.at("d").as_array()) {
          for (const auto& factor : dim.as_array()) {
            if (const auto* s = factor.as_object().if_contains("s")) states += js::serialize(*s);
          }
        }
      }
    }
    const auto* count = n.as_object().if_contains("n");
    value += count == nullptr ? 1 : count->as_int64();
  }
  return states;
}

const char* const kSwish = R"({"mylib.swish.default":{"kind":"pointwise","gives":"nonnegative"}})";

TEST(DeclaredRules, PointwiseFollowsTheOperandsAndIsListedAsUnproven) {
  const std::string nodes = node("aten.cos.default", R"({"v":0})", R"("s0",4)") + "," +
                            node("mylib.swish.default", R"({"v":1},2)", R"("s0",4)");
  // cos of anything is anything, so nothing is known of what follows.
  const js::value a = ask(request(input(R"("s0",4)"), nodes, R"({"v":2})", kSwish));
  ASSERT_TRUE(planned(a)) << reason(a);
  EXPECT_EQ(claimed(a, 1), R"("any")");
  EXPECT_EQ(js::serialize(a.at("unproven")), R"(["mylib.swish.default"])");
}

TEST(DeclaredRules, PointwiseOfFiniteOperandsGivesWhatIsDeclared) {
  const std::string nodes = node("mylib.swish.default", R"({"v":1})", "\"s0\"") + "," +
                            node("mylib.swish.default", R"({"v":2})", "\"s0\"");
  const std::string inputs = input("4,4") + "," + input("\"s0\"");
  const std::string of_mask = node("aten.isnan.default", R"({"v":1})", "\"s0\"") + "," +
                              node("mylib.swish.default", R"({"v":2})", "\"s0\"");
  const js::value a = ask(request(inputs, of_mask, R"({"v":3})", kSwish));
  ASSERT_TRUE(planned(a)) << reason(a);
  EXPECT_EQ(claimed(a, 1), R"("nonnegative")");
  const js::value b = ask(request(inputs, nodes, R"({"v":3})",
                                  R"({"mylib.swish.default":{"kind":"pointwise","gives":"any"}})"));
  EXPECT_EQ(claimed(b, 1), R"("any")");
}

const char* const kProject = R"({"mylib.project.default":{"kind":"along","sums":[[0,-1],[1,0]],
  "needs":{"0":"zero","1":"zero"},"outputs":[{"follows":[[[0,0]],[[1,1]]],"gives":"zero"}]}})";

TEST(DeclaredRules, WhatIsSummedUpIsMaskedFirst) {
  const std::string nodes = node("mylib.project.default", R"({"v":0},{"v":1})", R"("s0",4)");
  const std::string inputs = input(R"("s0","s1")") + "," + input(R"("s1",4)");
  const js::value a = ask(request(inputs, nodes, R"({"v":2})", kProject));
  ASSERT_TRUE(planned(a)) << reason(a);
  EXPECT_EQ(a.at("masks"), 2);
  // Rows of zeros times something that is not 0: the declaration promises no more.
  EXPECT_EQ(claimed(a, 0), R"("finite")");
}

TEST(DeclaredRules, APaddedDimensionThatNothingFollowsIsRefused) {
  const std::string rules = R"({"mylib.row.default":{"kind":"along",
    "outputs":[{"follows":[[[0,0]],null],"gives":"finite"}]}})";
  const std::string nodes = node("mylib.row.default", R"({"v":0})", R"("s0",4)");
  EXPECT_TRUE(planned(ask(request(input(R"("s0",4)"), nodes, R"({"v":1})", rules))));
  const js::value a = ask(request(input(R"("s0","s1")"), nodes, R"({"v":1})", rules));
  EXPECT_NE(reason(a).find("does not follow it"), std::string::npos) << reason(a);
  const std::string grown = node("mylib.row.default", R"({"v":0})", R"("s0","s1")");
  const js::value b = ask(request(input(R"("s0",4)"), grown, R"({"v":1})", rules));
  EXPECT_NE(reason(b).find("follows nothing"), std::string::npos) << reason(b);
}

TEST(DeclaredRules, AnArgumentThatIsNotNamedMustNotBePadded) {
  const std::string rules = R"({"mylib.row.default":{"kind":"along",
    "outputs":[{"follows":[[[0,0]],null],"gives":"finite"}]}})";
  const std::string nodes = node("mylib.row.default", R"({"v":0},{"v":1})", R"("s0",4)");
  const std::string plain = input(R"("s0",4)") + "," + input("7,7");
  EXPECT_TRUE(planned(ask(request(plain, nodes, R"({"v":2})", rules))));
  const std::string padded = input(R"("s0",4)") + "," + input("\"s1\"");
  EXPECT_FALSE(planned(ask(request(padded, nodes, R"({"v":2})", rules))));
}

TEST(DeclaredRules, SizesAndListsOfTensorsAreRefused) {
  for (const char* more : {R"({"e":"s0"})", R"([{"v":0}])"}) {
    const std::string nodes =
        node("mylib.swish.default", std::string(R"({"v":0},)") + more, R"("s0",4)");
    const js::value a = ask(request(input(R"("s0",4)"), nodes, R"({"v":1})", kSwish));
    EXPECT_FALSE(planned(a)) << more;
  }
}

TEST(DeclaredRules, AForeignOperatorIsNeverTakenForOneOfTorch) {
  const std::string nodes = node("mylib.add.Tensor", R"({"v":0},{"v":0})", R"("s0",4)");
  const js::value a = ask(request(input(R"("s0",4)"), nodes, R"({"v":1})", "{}"));
  EXPECT_EQ(reason(a), "there is no rule for it");
}

TEST(DeclaredRules, WhatIsWrittenWronglyIsAnError) {
  for (const char* rules :
       {R"(3)", R"({"mylib.a.b":3})", R"({"mylib.a.b":{"kind":"else"}})",
        R"({"mylib.a.b":{"kind":"pointwise"}})",
        R"({"mylib.a.b":{"kind":"pointwise","gives":"much"}})",
        R"({"aten.add.Tensor":{"kind":"pointwise","gives":"any"}})",
        R"({"mylib.a.b":{"kind":"along"}})",
        R"({"mylib.a.b":{"kind":"along","outputs":[{"gives":"any"}]}})",
        R"({"mylib.a.b":{"kind":"along","outputs":[{"follows":[[[0]]],"gives":"any"}]}})",
        R"({"mylib.a.b":{"kind":"along","outputs":[{"follows":[[[-1,0]]],"gives":"any"}]}})",
        R"({"mylib.a.b":{"kind":"along","outputs":[],"needs":{"x":"zero"}}})",
        R"({"mylib.a.b":{"kind":"along","outputs":[],"sums":[[0,1]]}})"}) {
    EXPECT_TRUE(read_declared(js::parse(rules)).is(Code::kInvalid)) << rules;
    const std::string text = request(
        input("\"s0\""), node("aten.cos.default", R"({"v":0})", "\"s0\""), R"({"v":1})", rules);
    EXPECT_TRUE(plan(js::parse(text)).is(Code::kInvalid)) << rules;
  }
  EXPECT_TRUE(read_declared(js::parse(kProject)).ok());
}

}  // namespace
}  // namespace nc::padding
