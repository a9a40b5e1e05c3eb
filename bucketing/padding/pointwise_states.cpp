// What a pointwise operator makes of what its operands may hold.
//
// Operators are classed by what they do to signs and to finite values; a constant is folded only
// where every floating type computes it exactly. An operator of no class gives "anything".
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "bucketing/padding/rule.hpp"

namespace nc::padding {
namespace {

using Names = std::set<std::string_view>;
using States = std::vector<State>;

// Finite operands give finite results; nothing is known of the sign.
const Names& keep_finite() {
  static const Names kNames = {"neg",
                               "tanh",
                               "erf",
                               "sin",
                               "cos",
                               "silu",
                               "gelu",
                               "elu",
                               "celu",
                               "selu",
                               "leaky_relu",
                               "hardtanh",
                               "hardswish",
                               "mish",
                               "sub",
                               "rsub",
                               "clamp",
                               "clamp_min",
                               "clamp_max",
                               "minimum",
                               "maximum",
                               "fmax",
                               "fmin",
                               "floor",
                               "ceil",
                               "round",
                               "trunc",
                               "frac",
                               "sign",
                               "sgn",
                               "atan",
                               "asinh",
                               "fma",
                               "lerp",
                               "addcmul",
                               "log_sigmoid",
                               "gelu_backward",
                               "silu_backward",
                               "tanh_backward",
                               "sigmoid_backward",
                               "threshold_backward",
                               "threshold",
                               "hardswish_backward",
                               "hardsigmoid_backward",
                               "hardtanh_backward",
                               "elu_backward",
                               "leaky_relu_backward",
                               "mish_backward",
                               "softplus_backward",
                               "log_sigmoid_backward",
                               "nan_to_num",
                               "copysign",
                               "atan2",
                               "real",
                               "imag",
                               "conj_physical",
                               "_conj",
                               "angle",
                               "complex",
                               "polar",
                               "heaviside",
                               "hardshrink",
                               "softshrink",
                               "hardshrink_backward",
                               "softshrink_backward",
                               "_prelu_kernel",
                               "special_i0e",
                               "special_i1e",
                               "bessel_j0",
                               "bessel_j1",
                               "special_bessel_j0",
                               "special_bessel_j1",
                               "deg2rad",
                               "rad2deg",
                               "sinc"};
  return kNames;
}

// Finite operands give finite results >= 0.
const Names& non_negative() {
  static const Names kNames = {"abs",         "square",   "relu", "relu6",       "sigmoid",
                               "hardsigmoid", "softplus", "erfc", "special_ndtr"};
  return kNames;
}

const Names& boolean() {
  static const Names kNames = {"eq",          "ne",          "lt",          "le",
                               "gt",          "ge",          "logical_and", "logical_or",
                               "logical_not", "logical_xor", "isnan",       "isinf",
                               "isfinite",    "isposinf",    "isneginf",    "signbit"};
  return kNames;
}

const Names& same_as_operand() {
  static const Names kNames = {"clone",           "alias",      "detach",
                               "lift_fresh_copy", "contiguous", "positive"};
  return kNames;
}

bool all_finite(const States& s) {
  return std::all_of(s.begin(), s.end(), [](const State& x) { return x.is_finite(); });
}

State multiplied(const State& a, const State& b) {
  if (!a.is_finite() || !b.is_finite()) return State::anything();
  if (a.is_zero() || b.is_zero()) return State::zero();
  if (a.is_positive() && b.is_positive()) return State::positive();
  if (a.is_non_negative() && b.is_non_negative()) return State::non_negative();
  return State::finite();
}

State added(const State& a, const State& b) {
  if (!a.is_finite() || !b.is_finite()) return State::anything();
  if (a.is_zero()) return b.weakened();
  if (b.is_zero()) return a.weakened();
  if (a.is_non_negative() && b.is_non_negative()) {
    return a.is_positive() || b.is_positive() ? State::positive() : State::non_negative();
  }
  return State::finite();
}

State divided(const State& a, const State& b) {
  const auto divisor = b.value();
  const bool safe = b.is_positive() || (divisor && b.is_finite() && to_double(*divisor) != 0);
  if (!a.is_finite() || !safe) return State::anything();
  if (a.is_zero()) return State::zero();
  if (b.is_positive() && a.is_non_negative()) return State::non_negative();
  return State::finite();
}

State raised(const State& a, const State& b) {
  if (!a.is_finite()) return State::anything();
  if (const auto v = b.value(); v && b.is_finite()) {
    const double e = to_double(*v);
    const bool whole = std::floor(e) == e;
    if (e == 0) return State::constant(1.0);
    if (a.is_zero() && e > 0) return State::zero();
    if (a.is_positive()) return State::positive();
    if (whole && e > 0) {
      if (std::fmod(e, 2) == 0 || a.is_non_negative()) return State::non_negative();
      return State::finite();
    }
    if (e > 0 && a.is_non_negative()) return State::non_negative();
  }
  return State::anything();
}

// One operand known exactly: values at which the function is exact in every type.
std::optional<double> fold_unary(std::string_view name, double x) {
  const double inf = std::numeric_limits<double>::infinity();
  if (name == "neg") return -x;
  if (name == "abs") return std::fabs(x);
  if (name == "relu") return x < 0 ? 0 : x;  // not a number stays so
  if (name == "square") return x * x;
  if (name == "floor" || name == "ceil" || name == "round" || name == "trunc") {
    if (std::isinf(x) || std::floor(x) == x) return x;
    return std::nullopt;
  }
  if (name == "sign" || name == "sgn") return x > 0 ? 1 : x < 0 ? -1 : 0;
  if (x == 0) {
    static const Names kZeroAtZero = {"tanh",       "erf",       "sin",   "tan",   "asin",  "atan",
                                      "sinh",       "asinh",     "atanh", "silu",  "gelu",  "elu",
                                      "leaky_relu", "hardswish", "mish",  "expm1", "log1p", "sqrt",
                                      "selu",       "celu",      "relu6"};
    if (kZeroAtZero.contains(name)) return 0;
    if (name == "exp" || name == "exp2" || name == "cos" || name == "cosh") return 1;
    if (name == "log") return -inf;
  }
  if (x == 1 && (name == "sqrt" || name == "rsqrt" || name == "reciprocal")) return 1;
  if (x == 1 && name == "log") return 0;
  if (x == -inf && (name == "exp" || name == "exp2" || name == "sigmoid")) return 0;
  return std::nullopt;
}

std::optional<bool> fold_comparison(std::string_view name, double a, double b) {
  if (name == "eq") return a == b;
  if (name == "ne") return a != b;
  if (name == "lt") return a < b;
  if (name == "le") return a <= b;
  if (name == "gt") return a > b;
  if (name == "ge") return a >= b;
  return std::nullopt;
}

std::optional<State> folded(std::string_view name, const States& s) {
  std::vector<double> v;
  for (const State& x : s) {
    if (!x.is_number() || !x.value()) return std::nullopt;
    v.push_back(to_double(*x.value()));
  }
  if (v.size() == 1) {
    if (const auto r = fold_unary(name, v[0])) return computed(*r);
    if (name == "logical_not") return State::constant(v[0] == 0);
    return std::nullopt;
  }
  if (v.size() != 2) return std::nullopt;
  if (const auto r = fold_comparison(name, v[0], v[1])) return State::constant(*r);
  std::optional<double> r;
  if (name == "add") r = v[0] + v[1];
  if (name == "sub") r = v[0] - v[1];
  if (name == "rsub") r = v[1] - v[0];
  if (name == "mul") r = v[0] * v[1];
  if (name == "maximum" || name == "clamp_min") r = std::max(v[0], v[1]);
  if (name == "minimum" || name == "clamp_max") r = std::min(v[0], v[1]);
  if (!r) return std::nullopt;
  if (std::isnan(*r)) return State::anything();
  return computed(*r);
}

std::optional<State> logical(std::string_view name, const States& s, const Dtype& out) {
  if (s.size() != 2) return std::nullopt;
  const bool is_and = name == "logical_and" || name == "bitwise_and" || name == "__and__";
  const bool is_or = name == "logical_or" || name == "bitwise_or" || name == "__or__";
  if (is_and && (s[0].is_zero() || s[1].is_zero())) return State::zero();
  const auto truthy = [](const State& x) { return x.value() && to_double(*x.value()) != 0; };
  if (is_or && out.is_bool() && (truthy(s[0]) || truthy(s[1]))) return State::constant(true);
  const auto as_bool = [](const State& x) -> std::optional<bool> {
    if (!x.value()) return std::nullopt;
    return to_double(*x.value()) != 0;
  };
  if (out.is_bool()) {
    const auto a = as_bool(s[0]);
    const auto b = as_bool(s[1]);
    if (a && b && is_and) return State::constant(*a && *b);
    if (a && b && is_or) return State::constant(*a || *b);
  }
  return std::nullopt;
}

bool is_bitwise(std::string_view name) {
  return name.starts_with("bitwise_") || name.starts_with("__");
}

// A narrower float overflows only beyond what states promise, but what is positive may become 0 in
// it and in an integer; a short integer wraps.
State converted(const State& s, const Dtype& out) {
  if (s.value()) return s.in(out);
  const auto& name = out.name();
  if (name == "int8" || name == "int16" || name.starts_with("uint")) return State::finite();
  const bool wide = name == "float32" || name == "float64" || name == "bfloat16";
  if (s.is_positive() && !wide) return State::non_negative().in(out);
  return s.in(out);
}

}  // namespace

std::optional<State> pointwise_state(std::string_view name, std::string_view overload,
                                     const States& s, const Dtype& out) {
  if (s.empty()) return State::anything().in(out);
  if (same_as_operand().contains(name)) return s[0].in(out);
  if (name == "_to_copy" || name == "to" || name == "convert_element_type") {
    return converted(s[0], out);
  }
  if (name == "where" && s.size() == 3) {
    if (s[0].value()) return (to_double(*s[0].value()) != 0 ? s[1] : s[2]).in(out);
    return join(s[1], s[2]).in(out);
  }
  if (name == "masked_fill" && s.size() == 3) {
    if (s[1].value()) return (to_double(*s[1].value()) != 0 ? s[2] : s[0]).in(out);
    return join(s[0], s[2]).in(out);
  }
  if ((name == "copy" || name == "fill") && s.size() == 2) return s[1].in(out);
  // A third number is a factor of the second operand (alpha, by place or by name); what is claimed
  // below must not depend on it.
  const bool scaled = (name == "add" || name == "sub" || name == "rsub") && s.size() == 3;
  if (!scaled && !(name == "div" && overload.find("mode") != std::string_view::npos)) {
    if (auto r = folded(name, s)) return r->in(out);
  }
  if (auto r = logical(name, s, out)) return r->in(out);
  if (boolean().contains(name)) return State::non_negative();
  if (is_bitwise(name)) return State::finite().in(out);
  if (out.is_complex()) {
    const bool plain =
        name == "add" || name == "sub" || name == "mul" || keep_finite().contains(name);
    if (name == "mul" && s.size() == 2 && (s[0].is_zero() || s[1].is_zero()) && all_finite(s))
      return State::zero();
    return plain && all_finite(s) ? State::finite() : State::anything();
  }
  if (name == "mul" && s.size() == 2) return multiplied(s[0], s[1]).in(out);
  if (name == "add" && s.size() == 2) return added(s[0], s[1]).in(out);
  if (name == "add" && s.size() == 3) return finite_if(all_finite(s)).in(out);
  if ((name == "div" || name == "true_divide") && s.size() == 2 &&
      overload.find("mode") == std::string_view::npos) {
    return divided(s[0], s[1]).in(out);
  }
  if ((name == "pow" || name == "float_power") && s.size() == 2) return raised(s[0], s[1]).in(out);
  if (name == "maximum" && s.size() == 2 && all_finite(s)) {
    if (s[0].is_positive() || s[1].is_positive()) return State::positive();
    if (s[0].is_non_negative() || s[1].is_non_negative()) return State::non_negative();
  }
  if (name == "clamp_min" && s.size() == 2 && all_finite(s)) {
    return s[1].is_positive()       ? State::positive()
           : s[1].is_non_negative() ? State::non_negative()
                                    : State::finite();
  }
  if (name == "softplus" && s.size() > 1 && !s[1].is_positive())  // its factor has that sign
    return finite_if(all_finite(s) && s[1].value() && !s[1].is_zero()).in(out);
  if (non_negative().contains(name))
    return (all_finite(s) ? State::non_negative() : State::anything()).in(out);
  if (name == "rsqrt" || name == "reciprocal")
    return s[0].is_positive() ? State::positive() : State::anything().in(out);
  if (name == "sqrt") {
    if (s[0].is_positive()) return State::positive();
    return s[0].is_non_negative() ? State::non_negative() : State::anything().in(out);
  }
  if (name == "log" || name == "log2" || name == "log10")
    return finite_if(s[0].is_positive()).in(out);
  if (name == "log1p")
    return s[0].is_non_negative() ? State::non_negative() : State::anything().in(out);
  if (name == "logaddexp" || name == "logaddexp2") return finite_if(all_finite(s)).in(out);
  if (name == "remainder" || name == "fmod" || name == "floor_divide" || name == "div") {
    const bool safe = s.size() >= 2 && s[1].is_finite() &&
                      ((s[1].value() && to_double(*s[1].value()) != 0) || s[1].is_positive());
    return finite_if(safe && s[0].is_finite()).in(out);
  }
  if (keep_finite().contains(name)) return finite_if(all_finite(s)).in(out);
  return State::anything().in(out);
}

std::vector<std::string_view> classed_by_state() {
  std::vector<std::string_view> names;
  for (const Names* one : {&keep_finite(), &non_negative(), &boolean(), &same_as_operand()})
    names.insert(names.end(), one->begin(), one->end());
  return names;
}

}  // namespace nc::padding
