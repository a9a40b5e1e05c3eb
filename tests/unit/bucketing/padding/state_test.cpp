#include "bucketing/padding/state.hpp"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "bucketing/padding/rule.hpp"

namespace nc::padding {
namespace {

const Dtype kFloat("float32");
const Dtype kHalf("bfloat16");
const Dtype kInt("int32");
const Dtype kBool("bool");
constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(State, JoinForgetsNoPossibility) {
  EXPECT_EQ(join(State::zero(), State::zero()), State::zero());
  EXPECT_EQ(join(State::zero(), State::positive()), State::non_negative());
  EXPECT_EQ(join(State::constant(-1.0), State::positive()), State::finite());
  EXPECT_EQ(join(State::constant(-kInf), State::finite()), State::anything());
  EXPECT_EQ(join({}), State::zero());
}

TEST(State, AConstantIsAsItsTypeStoresIt) {
  EXPECT_TRUE(State::constant(0.5).in(kFloat).is(0.5));
  EXPECT_FALSE(State::constant(0.1).in(kFloat).value().has_value());
  EXPECT_TRUE(State::constant(0.1).in(kFloat).is_positive());
  EXPECT_FALSE(State::constant(257.0).in(kHalf).value().has_value());
  EXPECT_TRUE(State::constant(int64_t{1} << 40).in(kInt).is_finite());
  EXPECT_FALSE(State::constant(int64_t{1} << 40).in(kInt).value().has_value());
  EXPECT_TRUE(State::constant(3.0).in(kBool).is(true));
  EXPECT_EQ(State::anything().in(kInt), State::finite());
  EXPECT_FALSE(State::constant(std::nan("")).in(kFloat).is_number());
  EXPECT_FALSE(State::constant(std::nan("")).in(kFloat).is_finite());
  EXPECT_FALSE(State::constant(1e39).in(kFloat).is_finite());
  EXPECT_FALSE(State::constant(1e-46).in(kFloat).is_positive());
}

State unary(std::string_view name, const State& x) {
  return *pointwise_state(name, "default", {x}, kFloat);
}
State binary(std::string_view name, const State& x, const State& y, const Dtype& out = kFloat) {
  return *pointwise_state(name, "Tensor", {x, y}, out);
}

TEST(PointwiseState, ZeroTimesInfinityIsNotZero) {
  EXPECT_EQ(binary("mul", State::zero(), State::finite()), State::zero());
  EXPECT_EQ(binary("mul", State::zero(), State::anything()), State::anything());
}

TEST(PointwiseState, DivisionNeedsADivisorThatIsNotZero) {
  EXPECT_EQ(binary("div", State::finite(), State::non_negative()), State::anything());
  EXPECT_EQ(binary("div", State::finite(), State::finite()), State::anything());
  EXPECT_EQ(binary("div", State::zero(), State::zero()), State::anything());
  EXPECT_EQ(binary("div", State::zero(), State::positive()), State::zero());
  EXPECT_TRUE(binary("div", State::finite(), State::constant(2.0)).is_finite());
}

TEST(PointwiseState, ExponentialsMayOverflow) {
  EXPECT_EQ(unary("exp", State::finite()), State::anything());
  EXPECT_TRUE(unary("exp", State::zero()).is(1.0));
  EXPECT_TRUE(unary("exp", State::constant(-kInf)).is(0.0));
  EXPECT_EQ(unary("log", State::non_negative()), State::anything());
  EXPECT_EQ(unary("rsqrt", State::non_negative()), State::anything());
  EXPECT_EQ(unary("rsqrt", State::positive()), State::positive());
}

TEST(PointwiseState, AScaledSumIsNotFoldedAsAPlainOne) {
  const auto s = pointwise_state(
      "add", "Tensor", {State::constant(1.0), State::constant(1.0), State::constant(3.0)}, kFloat);
  EXPECT_FALSE(s->value().has_value());
}

TEST(PointwiseState, SoftplusHasTheSignOfItsFactor) {
  const auto of = [](double factor) {
    return *pointwise_state("softplus", "default", {State::finite(), State::constant(factor)},
                            kFloat);
  };
  EXPECT_TRUE(of(2.0).is_non_negative());
  EXPECT_FALSE(of(-2.0).is_non_negative());
  EXPECT_TRUE(of(-2.0).is_finite());
  EXPECT_FALSE(of(0.0).is_finite());
}

TEST(PointwiseState, WhereTakesOneSideOrEither) {
  const auto s = [](const State& c) {
    return *pointwise_state("where", "self", {c, State::zero(), State::anything()}, kFloat);
  };
  EXPECT_EQ(s(State::constant(true)), State::zero());
  EXPECT_EQ(s(State::constant(false)), State::anything());
  EXPECT_EQ(s(State::non_negative()), State::anything());
}

TEST(PointwiseState, UnknownOperatorsPromiseNothing) {
  EXPECT_EQ(*pointwise_state("digamma", "default", {State::positive()}, kFloat), State::anything());
  EXPECT_TRUE(binary("lt", State::anything(), State::anything(), kBool).is_finite());
}

}  // namespace
}  // namespace nc::padding
