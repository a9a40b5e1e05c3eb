#include "bucketing/padding/expr.hpp"

#include <limits>
#include <random>

#include <boost/json.hpp>
#include <gtest/gtest.h>

namespace nc::padding {
namespace {

class ExprTest : public ::testing::Test {
 protected:
  Expr read(const char* text) {
    const auto e = pool.parse(boost::json::parse(text));
    EXPECT_TRUE(e.has_value()) << text;
    return e.value_or(Expr{});
  }
  ExprPool pool;
};

TEST_F(ExprTest, EqualPolynomialsHaveEqualHandles) {
  EXPECT_EQ(read(R"(["*","s0",["+","s1",2]])"), read(R"(["+",["*",2,"s0"],["*","s1","s0"]])"));
  EXPECT_EQ(read(R"(["**",["+","s0",1],2])"), read(R"(["+",1,["*",2,"s0"],["*","s0","s0"]])"));
  EXPECT_NE(read(R"(["*","s0","s1"])"), read(R"(["*","s0","s0"])"));
  EXPECT_EQ(pool.sub(read(R"("s0")"), read(R"("s0")")), pool.integer(0));
}

TEST_F(ExprTest, WhatIsNoExpressionIsRefused) {
  for (const char* text : {"null", "1.5", "{}", "[]", "[1]", "\"\"", R"(["+",{}])", "true"}) {
    EXPECT_FALSE(pool.parse(boost::json::parse(text)).has_value()) << text;
  }
  // Deeper than any size: refused, without a stack overflow.
  std::string deep = "1";
  for (int i = 0; i < 200; ++i) deep = R"(["Max",)" + deep + ",2]";
  boost::json::parse_options options;
  options.max_depth = 1000;
  EXPECT_FALSE(pool.parse(boost::json::parse(deep, {}, options)).has_value());
}

TEST_F(ExprTest, DividesExactlyOrNotAtAll) {
  const Expr b = read(R"("s0")");
  const Expr s = read(R"("s1")");
  const Expr product = pool.mul(pool.mul(b, s), pool.integer(8));
  EXPECT_EQ(pool.divide(product, pool.mul(s, pool.integer(4))), pool.mul(b, pool.integer(2)));
  EXPECT_EQ(pool.divide(pool.mul(pool.add(s, pool.integer(1)), b), pool.add(s, pool.integer(1))),
            b);
  EXPECT_FALSE(pool.divide(pool.add(b, pool.integer(1)), b).has_value());
  EXPECT_FALSE(pool.divide(product, pool.integer(3)).has_value());
  EXPECT_FALSE(pool.divide(product, pool.integer(0)).has_value());
}

TEST_F(ExprTest, ALengthMadeAMultipleDividesByIt) {
  // s + (64 - s % 64) % 64, as models write it.
  const Expr padded = read(R"(["+","s0",["%",["+",64,["*",-1,["%","s0",64]]],64]])");
  EXPECT_TRUE(pool.divide(padded, pool.integer(64)).has_value());
  for (const int64_t n : {1, 63, 64, 65, 200}) {
    EXPECT_EQ(pool.evaluate(padded, {{"s0", n}}), (n + 63) / 64 * 64) << n;
  }
}

TEST_F(ExprTest, KnowsWhatIsNotNegative) {
  pool.set_lower("s0", 2);
  const Expr s = read(R"("s0")");
  EXPECT_TRUE(pool.positive(pool.sub(s, pool.integer(1))));
  EXPECT_TRUE(pool.nonnegative(pool.sub(s, pool.integer(2))));
  EXPECT_FALSE(pool.nonnegative(pool.sub(s, pool.integer(3))));
  EXPECT_FALSE(pool.nonnegative(pool.sub(pool.integer(100), s)));
  EXPECT_TRUE(pool.nonnegative(read(R"(["%","s0",7])")));
  EXPECT_TRUE(pool.positive(read(R"(["Max",1,["+","s0",-50]])")));
  EXPECT_EQ(read(R"(["Max",1,"s0"])"), s);
  EXPECT_EQ(read(R"(["Min",1,"s0"])"), pool.integer(1));
}

TEST_F(ExprTest, KnowsWhatDoesNotFallAsASizeGrows) {
  pool.set_lower("s0", 2);
  EXPECT_TRUE(pool.rising(pool.integer(7)));
  EXPECT_TRUE(pool.rising(read(R"(["+",["*","s0","s0"],["//",["+","s0",2],3],-5])")));
  EXPECT_TRUE(pool.rising(read(R"(["*","s0",["Max",1,["+","s0",-50]]])")));
  EXPECT_FALSE(pool.rising(read(R"(["+",80,["*",-1,"s0"]])")));
  EXPECT_FALSE(pool.rising(read(R"(["+","s0",["*",-2,["//",["+","s0",2],3]]])")));
  EXPECT_FALSE(pool.rising(read(R"(["+",1,["%","s0",4]])")));
  EXPECT_FALSE(pool.rising(read(R"(["//",64,"s0"])")));
  EXPECT_FALSE(pool.rising(read(R"(["*","s0",["+","s0",-50,["//","s0",2],["*",-1,"s1"]]])")));
}

TEST_F(ExprTest, WhatIsAssumedIsANumberFromThenOn) {
  pool.set_lower("s0", 2);
  // One chunk of eight: (s + 7) // 8, as tracing writes it.
  const char* chunks = R"(["*",-1,["//",["*",-1,"s0"],8]])";
  const Expr before = read(chunks);
  EXPECT_FALSE(pool.constant(before).has_value());
  pool.assume(before, 1);
  EXPECT_TRUE(pool.is_constant(read(chunks), 1));
  EXPECT_TRUE(
      pool.is_constant(pool.substitute(before, {{"s0", pool.symbol("s0")}, {"s9", before}}), 1));
  // So the size is at most 8, and at least what it was.
  EXPECT_TRUE(pool.nonnegative(pool.sub(pool.integer(8), read(R"("s0")"))));
  EXPECT_FALSE(pool.nonnegative(pool.sub(pool.integer(7), read(R"("s0")"))));
  EXPECT_FALSE(pool.nonnegative(pool.sub(read(R"("s0")"), pool.integer(3))));
  // Another size is as unknown as before.
  EXPECT_FALSE(pool.constant(read(R"(["//",["*",-1,"s1"],8])")).has_value());
}

TEST_F(ExprTest, AQuotientBoundsItsSymbolOnBothSides) {
  for (const int64_t c : {1, 3, -1, -3}) {
    for (const int64_t k : {-5, 0, 4}) {
      for (const int64_t d : {1, 4, 7}) {
        for (const int64_t n : {2, 9, 30}) {
          const int64_t x = c * n + k;
          const int64_t value = x >= 0 ? x / d : -((-x + d - 1) / d);
          ExprPool own;
          const Expr s = own.symbol("s0");
          const Expr sum = own.add(own.mul(own.integer(c), s), own.integer(k));
          own.assume(own.floor_div(sum, own.integer(d)), value);
          // Bounds that are told must hold at n; nothing is said of other places.
          EXPECT_FALSE(own.positive(own.sub(s, own.integer(n)))) << c << k << d << n;
          EXPECT_FALSE(own.positive(own.sub(own.integer(n), s))) << c << k << d << n;
        }
      }
    }
  }
}

TEST_F(ExprTest, WhatCannotBeAssumedIsLeftAlone) {
  pool.assume(read(R"("s0")"), 3);                               // a size is no expression of one
  pool.assume(read(R"(["+",["//","s0",4],["//","s0",8]])"), 3);  // nobody knows which is what
  pool.assume(read(R"(["*",2,["//","s0",4]])"), 3);              // a contradiction
  EXPECT_FALSE(pool.constant(read(R"("s0")")).has_value());
  EXPECT_FALSE(pool.constant(read(R"(["//","s0",4])")).has_value());
  EXPECT_FALSE(pool.constant(read(R"(["//","s0",8])")).has_value());
}

TEST_F(ExprTest, AGreatestSizeHoldsInNegativeTerms) {
  pool.set_lower("s0", 2);
  pool.set_upper("s0", 64);
  pool.set_upper("s0", 100);  // the least of the greatest counts
  const Expr s = read(R"("s0")");
  EXPECT_TRUE(pool.nonnegative(pool.sub(pool.integer(64), s)));
  EXPECT_TRUE(pool.nonnegative(pool.sub(pool.integer(64 * 64), pool.mul(s, s))));
  EXPECT_FALSE(pool.nonnegative(pool.sub(pool.integer(63), s)));
}

TEST_F(ExprTest, OverflowIsNeverANumber) {
  const Expr big = pool.integer(std::numeric_limits<int64_t>::max());
  const Expr more = pool.add(big, pool.integer(1));
  EXPECT_TRUE(pool.is_opaque(more));
  EXPECT_FALSE(pool.constant(more).has_value());
  const Expr square = pool.mul(read(R"("s0")"), read(R"("s0")"));
  EXPECT_FALSE(pool.evaluate(square, {{"s0", int64_t{1} << 40}}).has_value());
}

// Random expressions: parsed, written, parsed again, put in by substitution and by evaluation.
TEST_F(ExprTest, WritingSubstitutingAndEvaluatingAgree) {
  std::mt19937 random(7);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const std::function<boost::json::value(int)> make = [&](int depth) -> boost::json::value {
    if (depth == 0 || pick(4) == 0) {
      if (pick(2) == 0) return pick(9) - 2;
      return pick(2) == 0 ? "s0" : "s1";
    }
    static const char* const kOperators[] = {"+", "*", "//", "%", "Max", "Min"};
    const char* op = kOperators[pick(6)];
    return boost::json::array{
        op, make(depth - 1),
        op[0] == '/' || op[0] == '%' ? boost::json::value(pick(5) + 1) : make(depth - 1)};
  };
  const std::function<int64_t(const boost::json::value&, int64_t, int64_t)> value =
      [&](const boost::json::value& v, int64_t a, int64_t b) -> int64_t {
    if (v.is_int64()) return v.get_int64();
    if (v.is_string()) return v.get_string() == "s0" ? a : b;
    const auto& list = v.get_array();
    const std::string op(list[0].get_string());
    const int64_t x = value(list[1], a, b);
    const int64_t y = value(list[2], a, b);
    if (op == "+") return x + y;
    if (op == "*") return x * y;
    if (op == "Max") return std::max(x, y);
    if (op == "Min") return std::min(x, y);
    const int64_t q = x / y - (x % y != 0 && (x < 0) != (y < 0) ? 1 : 0);
    return op == "//" ? q : x - q * y;
  };
  for (int round = 0; round < 2000; ++round) {
    const boost::json::value json = make(4);
    const auto e = pool.parse(json);
    ASSERT_TRUE(e.has_value());
    EXPECT_EQ(pool.parse(pool.to_json(*e)), e) << boost::json::serialize(json);
    const int64_t a = pick(20);
    const int64_t b = pick(20);
    const int64_t want = value(json, a, b);
    EXPECT_EQ(pool.evaluate(*e, {{"s0", a}, {"s1", b}}), want)
        << boost::json::serialize(json) << " " << a << " " << b;
    const Expr put = pool.substitute(*e, {{"s0", pool.integer(a)}, {"s1", pool.integer(b)}});
    EXPECT_EQ(pool.constant(put), want) << boost::json::serialize(json);
    if (pool.nonnegative(*e)) {
      EXPECT_GE(want, 0) << boost::json::serialize(json);
    }
  }
}

}  // namespace
}  // namespace nc::padding
