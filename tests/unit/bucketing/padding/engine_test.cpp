#include "bucketing/padding/engine.hpp"

#include <string>

#include <boost/json.hpp>
#include <gtest/gtest.h>

namespace nc::padding {
namespace {

namespace js = boost::json;

// {"t":"float32","d":[...],"s":[...]} from sizes alone.
std::string tensor(const std::string& sizes, const std::string& dtype = "float32") {
  return R"({"t":")" + dtype + R"(","d":[)" + sizes + R"(],"s":[]})";
}

struct Sketch {
  std::string inputs;  // "kind|type" joined by the caller
  std::string nodes;
  std::string outputs;
};

std::string graph(const Sketch& s, const std::string& role = "inference") {
  return R"({"ir":1,"role":")" + role +
         R"(","symbols":[{"id":"s0","range":[2,"inf"]},{"id":"s1","range":[2,"inf"]}],"inputs":[)" +
         s.inputs + R"(],"nodes":[)" + s.nodes + R"(],"outputs":[)" + s.outputs + "]}";
}

std::string input(const std::string& type, const std::string& kind = "data") {
  return R"({"kind":")" + kind + R"(","type":)" + type + "}";
}
std::string node(const std::string& op, const std::string& args, const std::string& out) {
  return R"({"op":")" + op + R"(","a":[)" + args + R"(],"out":)" + out + "}";
}

js::value ask(const std::string& forward, const std::string& more = "") {
  auto answer = plan(js::parse(R"({"request":1,"forward":)" + forward + more + "}"));
  EXPECT_TRUE(answer.ok()) << (answer.ok() ? "" : answer.error().text());
  return answer.ok() ? *answer : js::value();
}

std::string text(const js::value& v) {
  return js::serialize(v);
}
bool has(const js::value& v, const std::string& what) {
  return text(v).find(what) != std::string::npos;
}

const std::string kX = input(tensor(R"("s0","s1",8)"));

TEST(PaddingEngine, AMeanOverPaddingIsASumOverTheTrueCount) {
  const js::value a =
      ask(graph({kX, node("aten.mean.dim", R"({"v":0},[1])", tensor(R"("s0",8)")), R"({"v":1})"}));
  ASSERT_TRUE(a.as_object().contains("forward")) << text(a);
  EXPECT_TRUE(has(a, "aten.sum.dim_IntList")) << text(a);
  EXPECT_TRUE(has(a.at("forward").at("truths"), R"("s1")"));
  // Inputs are padded with zeros, so the sum needs no mask.
  EXPECT_EQ(a.at("masks"), 0);
}

TEST(PaddingEngine, AMaskIsPutWhereAConsumerNeedsOne) {
  const std::string nodes = node("aten.cos.default", R"({"v":0})", tensor(R"("s0","s1",8)")) + "," +
                            node("aten.sum.dim_IntList", R"({"v":1},[1])", tensor(R"("s0",8)")) +
                            "," +
                            node("aten.sum.dim_IntList", R"({"v":1},[0])", tensor(R"("s1",8)"));
  const js::value a = ask(graph({kX, nodes, R"({"v":2},{"v":3})"}));
  ASSERT_TRUE(a.as_object().contains("forward")) << text(a);
  EXPECT_EQ(a.at("masks"), 2) << text(a);
}

TEST(PaddingEngine, NothingIsMaskedTwice) {
  const std::string nodes = node("aten.cos.default", R"({"v":0})", tensor(R"("s0","s1",8)")) + "," +
                            node("aten.sum.dim_IntList", R"({"v":1},[1])", tensor(R"("s0",8)")) +
                            "," +
                            node("aten.sum.dim_IntList", R"({"v":1},[1,2])", tensor(R"("s0")"));
  EXPECT_EQ(ask(graph({kX, nodes, R"({"v":2},{"v":3})"})).at("masks"), 1);
}

TEST(PaddingEngine, AnUnknownOperatorIsRefusedWithItsPlace) {
  const std::string nodes = node("aten.cos.default", R"({"v":0})", tensor(R"("s0","s1",8)")) + "," +
                            node("mylib.mystery.default", R"({"v":1})", tensor(R"("s0","s1",8)"));
  const js::value a = ask(graph({kX, nodes, R"({"v":2})"}));
  ASSERT_TRUE(a.as_object().contains("refusal"));
  EXPECT_EQ(a.at("refusal").at("node"), 1);
  EXPECT_EQ(a.at("refusal").at("op"), "mylib.mystery.default");
  EXPECT_EQ(a.at("refusal").at("graph"), "forward");
}

TEST(PaddingEngine, AnUnknownOperatorThatTouchesNoPaddingPasses) {
  const std::string inputs = kX + "," + input(tensor("4,4"), "primal");
  const std::string nodes = node("mylib.mystery.default", R"({"v":1})", tensor("4,4"));
  EXPECT_TRUE(ask(graph({inputs, nodes, R"({"v":2})"})).as_object().contains("forward"));
}

TEST(PaddingEngine, RandomNumbersNeedLeave) {
  const std::string g = graph(
      {kX, node("aten.rand_like.default", R"({"v":0})", tensor(R"("s0","s1",8)")), R"({"v":1})"});
  EXPECT_TRUE(ask(g).as_object().contains("refusal"));
  EXPECT_TRUE(ask(g, R"(,"random":"statistical")").as_object().contains("forward"));
}

TEST(PaddingEngine, SymbolsAreTakenForEqualOnlyWithLeave) {
  const std::string inputs = input(tensor(R"("s0")")) + "," + input(tensor(R"("s1")"));
  const std::string g = graph(
      {inputs, node("aten.add.Tensor", R"({"v":0},{"v":1})", tensor(R"("s0")")), R"({"v":2})"});
  EXPECT_TRUE(ask(g).as_object().contains("refusal"));
  const js::value a = ask(g, R"(,"equal":[["s0","s1"]])");
  ASSERT_TRUE(a.as_object().contains("forward")) << text(a);
  EXPECT_EQ(text(a.at("unify")), R"([["s0","s1"]])");
}

TEST(PaddingEngine, AResultThatTheGraphSaysIsOfAnotherSizeIsRefused) {
  const js::value a = ask(graph(
      {kX, node("aten.sum.dim_IntList", R"({"v":0},[1])", tensor(R"("s1",8)")), R"({"v":1})"}));
  EXPECT_TRUE(a.as_object().contains("refusal")) << text(a);
}

TEST(PaddingEngine, RefusesForwardAndBackwardTogether) {
  const std::string forward = graph(
      {kX, node("aten.cos.default", R"({"v":0})", tensor(R"("s0","s1",8)")), R"({"v":1},{"v":0})"},
      "forward");
  const std::string backward = graph(
      {input(tensor(R"("s0","s1",8)"), "saved") + "," + input(tensor(R"("s0","s1",8)"), "tangent"),
       node("mylib.mystery.default", R"({"v":0},{"v":1})", tensor(R"("s0","s1",8)")), R"({"v":2})"},
      "backward");
  const std::string link = R"(,"link":{"symbols":[0,1],"saved":[[0,1]],"tangents":[[1,0]]})";
  const js::value a = ask(forward, R"(,"backward":)" + backward + link);
  ASSERT_TRUE(a.as_object().contains("refusal")) << text(a);
  EXPECT_EQ(a.at("refusal").at("graph"), "backward");
  EXPECT_FALSE(a.as_object().contains("forward"));
}

TEST(PaddingEngine, BadRequestsAreErrors) {
  for (const char* request :
       {"1", "{}", R"({"request":1})", R"({"request":1,"forward":{}})",
        R"({"request":1,"forward":{"ir":1,"inputs":[],"nodes":[{}],"outputs":[]}})",
        R"({"request":1,"forward":{"ir":1,"inputs":[],"nodes":[],"outputs":[{"v":3}]}})"}) {
    auto answer = plan(js::parse(request));
    const bool refused =
        answer.ok() && answer->is_object() && answer->as_object().contains("refusal");
    EXPECT_TRUE(refused || answer.is(Code::kInvalid)) << request;
  }
  EXPECT_TRUE(plan(js::parse(R"({"request":2,"forward":{}})")).is(Code::kUnsupported) ||
              plan(js::parse(R"({"request":2,"forward":{}})")).ok());
}

TEST(PaddingEngine, MoreResultsThanAnOperatorHasAreRefused) {
  const std::string row = tensor("8");
  const std::string x = tensor(R"("s0",8,4)");
  const std::string inputs = input(x) + "," + input(x) + "," + input(row) + "," + input(row) + "," +
                             input(row) + "," + input(row) + "," + input(row);
  const auto asked = [&](const std::string& outs) {
    return ask(graph({inputs,
                      R"({"op":"aten.native_batch_norm_backward.default","a":[{"v":0},{"v":1},)"
                      R"({"v":2},{"v":3},{"v":4},{"v":5},{"v":6},true,)"
                      R"({"f":"0x1.4f8b588e368f1p-17"},[true,true,true]],"outs":[)" +
                          outs + "]}",
                      R"({"v":7})"}));
  };
  const js::value three = asked(x + "," + row + "," + row);
  EXPECT_TRUE(three.as_object().contains("forward")) << text(three);
  const js::value four = asked(x + "," + row + "," + row + "," + row);
  EXPECT_TRUE(four.as_object().contains("refusal")) << text(four);
}

// x[:, at:] of a length s1 in symbols.
js::value tail(const std::string& at, const std::string& length) {
  return ask(graph({kX,
                    node("aten.slice.Tensor", R"({"v":0},1,{"e":)" + at + "},9223372036854775807",
                         tensor(R"("s0",)" + length + ",8")),
                    R"({"v":1})"}));
}

TEST(PaddingEngine, ANegativeStartCountsFromTheTrueEnd) {
  const std::string half = R"(["//","s1",2])";
  const js::value a = tail(R"(["*",-1,)" + half + "]", half);
  ASSERT_TRUE(a.as_object().contains("forward")) << text(a);
  // The first position is s1 - s1 // 2, at the true size.
  EXPECT_TRUE(has(a.at("forward").at("truths"), R"(["+","s1",["*",-1,["//","s1",2]]])") ||
              has(a.at("forward").at("truths"), R"(["+",["*",-1,["//","s1",2]],"s1"])"))
      << text(a.at("forward").at("truths"));
}

TEST(PaddingEngine, AStartOfAnySignIsReadFromTheLength) {
  const std::string at = R"(["+","s1",-4])";
  EXPECT_TRUE(tail(at, "4").as_object().contains("forward"));                         // s1 >= 4
  EXPECT_TRUE(tail(at, R"(["+",["*",-1,"s1"],4])").as_object().contains("forward"));  // s1 < 4
  EXPECT_TRUE(tail(at, R"("s1")").as_object().contains("forward"));                   // cut off
  EXPECT_TRUE(has(tail(at, "3"), "may lie before the first element"));
}

TEST(PaddingEngine, SizesThatAreKnownAreNumbers) {
  // As many chunks of eight as there are, said to be one: the graph may say 1 for it.
  const std::string chunks = R"(["*",-1,["//",["*",-1,"s1"],8]])";
  const std::string g =
      graph({input(tensor(R"("s0",8,)" + chunks)),
             node("aten.add.Tensor", R"({"v":0},{"v":0})", tensor(R"("s0",8,1)")), R"({"v":1})"});
  EXPECT_TRUE(ask(g).as_object().contains("refusal"));
  EXPECT_TRUE(ask(g, R"(,"known":[[)" + chunks + ",1]]").as_object().contains("forward"));
  for (const char* known : {"1", "[1]", R"([["s0"]])", R"([["s0","1"]])", R"([[{},1]])"}) {
    auto answer = plan(js::parse(R"({"request":1,"forward":)" + g + R"(,"known":)" + known + "}"));
    EXPECT_TRUE(answer.is(Code::kInvalid)) << known;
  }
}

TEST(PaddingEngine, WhatIsKnownHoldsForForwardSymbolsWhateverTheBackwardGraphCallsThem) {
  // s0 // 2 is 1 in the forward graph; the backward graph calls that size s1, and the other one s0.
  const std::string forward =
      graph({input(tensor(R"("s0","s1",8)")),
             node("aten.mul.Tensor", R"({"v":0},2)", tensor(R"("s0","s1",8)")), R"({"v":1})"},
            "forward");
  const std::string half = R"(["//","s0",2])";  // of the second dimension of the input
  const std::string backward =
      graph({input(tensor(R"("s1","s0",8)"), "tangent"),
             node("aten.slice.Tensor", R"({"v":0},1,0,{"e":)" + half + "},1",
                  tensor(R"("s1",)" + half + ",8")),
             R"({"v":1})"},
            "backward");
  const js::value a = ask(
      forward, R"(,"backward":)" + backward +
                   R"(,"link":{"symbols":[1,0],"tangents":[[0,0]]},"known":[[)" + half + ",1]]");
  ASSERT_TRUE(a.as_object().contains("backward")) << text(a);
  EXPECT_TRUE(has(a.at("backward"), R"(["//","s1",2])")) << text(a.at("backward"));
}

TEST(PaddingEngine, AFactorGivenByNameIsNoOne) {
  const std::string type = tensor(R"("s0","s1",8)");
  const std::string ones = node("aten.full.default", R"([{"v":1},{"v":2},8],1)", type);
  const std::string sizes = R"(,{"kind":"symbol","type":{"int":"s0"}})"
                            R"(,{"kind":"symbol","type":{"int":"s1"}})";
  const auto sum = [&](const std::string& factor) {
    const std::string add =
        R"({"op":"aten.add.Tensor","a":[{"v":3},{"v":3}])" + factor + R"(,"out":)" + type + "}";
    const js::value a =
        ask(graph({kX + sizes, ones + "," + add, R"({"v":4})"}), R"(,"claims":true)");
    return text(a.at("forward").at("claims").as_array().back());
  };
  EXPECT_NE(sum("").find(R"("c")"), std::string::npos) << sum("");
  const std::string scaled = sum(R"(,"k":{"alpha":{"f":"0x1p-1"}})");
  EXPECT_EQ(scaled.find(R"("c")"), std::string::npos) << scaled;
  EXPECT_NE(scaled.find("finite"), std::string::npos) << scaled;
}

// x and the symbols s0 and s1: values 0 to 2.
const std::string kSized = kX + R"(,{"kind":"symbol","type":{"int":"s0"}})"
                                R"(,{"kind":"symbol","type":{"int":"s1"}})";

TEST(PaddingEngine, ASizeThatFallsIsToldToTheCaller) {
  const std::string rest = R"(["+",80,["*",-1,"s1"]])";
  const std::string nodes = node("aten.full.default", R"([{"e":)" + rest + "}],2", tensor(rest)) +
                            "," + node("aten.sum.default", R"({"v":3})", tensor(""));
  const js::value a = ask(graph({kSized, nodes, R"({"v":4})"}));
  ASSERT_TRUE(a.as_object().contains("forward")) << text(a);
  EXPECT_EQ(a.at("forward").at("grow"), js::parse("[" + rest + "]")) << text(a);
  const js::value plain = ask(
      graph({kX, node("aten.exp.default", R"({"v":0})", tensor(R"("s0","s1",8)")), R"({"v":1})"}));
  EXPECT_FALSE(plain.at("forward").as_object().contains("grow")) << text(plain);
}

TEST(PaddingEngine, ASizeThatMayBeZeroIsToldToTheCaller) {
  const std::string quarter = R"(["//","s1",4])";
  const std::string nodes =
      node("aten.full.default", R"([{"e":)" + quarter + "}],2", tensor(quarter));
  const js::value a = ask(graph({kSized, nodes, R"({"v":3})"}));
  ASSERT_TRUE(a.as_object().contains("forward")) << text(a);
  EXPECT_EQ(a.at("forward").at("grow"), js::parse("[" + quarter + "]")) << text(a);
}

TEST(PaddingEngine, WhatIsCutOffByANegativeAmountIsNoPadding) {
  // 64 places to s1: as many are cut off as the amount is negative.
  const std::string nodes = node("aten.constant_pad_nd.default",
                                 R"({"v":1},[0,{"e":["+","s1",-64]}],0)", tensor(R"("s0","s1")"));
  const js::value a = ask(graph({kX + "," + input(tensor(R"("s0",64)")), nodes, R"({"v":2})"}));
  ASSERT_TRUE(a.as_object().contains("forward")) << text(a);
  EXPECT_EQ(a.at("masks"), 0);
  EXPECT_TRUE(has(a.at("forward").at("nodes"), "aten.where.self")) << text(a);
  EXPECT_TRUE(has(a.at("forward").at("truths"), R"(["Min",)")) << text(a);
}

TEST(PaddingEngine, ANumberAsFirstOperandIsATensorOfAnOverloadThatExists) {
  const std::string x = tensor(R"("s0","s1",8)", "int64");
  const auto with = [&](const std::string& op) {
    return ask(graph({input(x) + R"(,{"kind":"symbol","type":{"int":"s1"}})",
                      node(op, R"({"v":1},{"v":0})", x), R"({"v":2})"}));
  };
  EXPECT_TRUE(has(with("aten.remainder.Scalar_Tensor"), R"("aten.remainder.Tensor")"));
  EXPECT_TRUE(has(with("aten.pow.Scalar"), R"("aten.pow.Tensor_Tensor")"));
}

TEST(PaddingEngine, WhatMemoryHeldIsNotTakenForFinite) {
  const std::string nodes =
      node("aten.new_empty_strided.default", R"({"v":1},[4,4],[4,1])", tensor("4,4"));
  const js::value a = ask(graph({kX + "," + input(tensor("4,4"), "primal"), nodes, R"({"v":2})"}),
                          R"(,"claims":true)");
  ASSERT_TRUE(a.as_object().contains("forward")) << text(a);
  EXPECT_NE(text(a.at("forward").at("claims").as_array().back()).find(R"("data":"any")"),
            std::string::npos)
      << text(a);
}

TEST(PaddingEngine, WhatIsFullOfANumberLiesInMemoryAsItDid) {
  const auto full = [](const std::string& strides) {
    const std::string type = R"({"t":"float32","d":["s0","s1",8],"s":[)" + strides + "]}";
    const std::string nodes = node("aten.full_like.default", R"({"v":0},1)", type);
    return ask(graph({kX, nodes, R"({"v":1})"}));
  };
  EXPECT_FALSE(has(full(R"(["*","s1",8],8,1)"), "aten.permute"));
  const js::value turned = full(R"(1,["*","s0",8],"s0")");
  EXPECT_TRUE(has(turned, R"("aten.full.default","a":[[{"e":"s1"},8,{"e":"s0"}],1])"))
      << text(turned);
  EXPECT_TRUE(has(turned, R"("aten.permute.default","a":[{"v":)")) << text(turned);
  EXPECT_TRUE(has(turned, "[2,0,1]")) << text(turned);
}

TEST(PaddingEngine, CausalAttentionWantsPaddingBehindEverything) {
  const auto attention = [](const std::string& length, const std::string& view) {
    const std::string size = R"("s0",2,)" + length + ",8";
    const std::string nodes =
        node("aten.view.default", R"({"v":0},[)" + view + "]", tensor(size)) +
        R"(,{"op":"aten._scaled_dot_product_flash_attention_for_cpu.default","a":[{"v":3},{"v":3},{"v":3},{"f":"0x0p+0"},true],"outs":[)" +
        tensor(size) + "," + tensor(R"("s0",2,)" + length) + "]}";
    const std::string x = input(tensor(R"("s0",2,2,"s1",8)"));
    const std::string sizes = R"(,{"kind":"symbol","type":{"int":"s0"}})"
                              R"(,{"kind":"symbol","type":{"int":"s1"}})";
    return ask(graph({(length == R"("s1")" ? input(tensor(R"("s0",2,"s1",8)")) : x) + sizes, nodes,
                      R"({"v":4})"}));
  };
  const js::value plain = attention(R"("s1")", R"({"v":1},2,{"v":2},8)");
  EXPECT_TRUE(plain.as_object().contains("forward")) << text(plain);
  const js::value merged = attention(R"(["*",2,"s1"])", R"({"v":1},2,-1,8)");
  ASSERT_TRUE(merged.as_object().contains("refusal")) << text(merged);
  EXPECT_TRUE(has(merged, "padded inside")) << text(merged);
}

TEST(PaddingEngine, TheSameRequestHasTheSameAnswer) {
  const std::string g =
      graph({kX, node("aten._softmax.default", R"({"v":0},1,false)", tensor(R"("s0","s1",8)")),
             R"({"v":1})"});
  EXPECT_EQ(text(ask(g)), text(ask(g)));
}

}  // namespace
}  // namespace nc::padding
