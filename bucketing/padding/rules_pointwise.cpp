// Pointwise operators: each element of the result depends on one element of each operand, so
// padding goes to padding, and what it may hold follows from what the operands' may
// (pointwise_states.cpp).
#include <algorithm>

#include <fmt/format.h>

#include "bucketing/padding/rule.hpp"

namespace nc::padding {
namespace {

std::string overload_of(const std::string& op) {
  return op.substr(op.rfind('.') + 1);
}

// The overload that takes a tensor where this one takes a number.
std::string with_tensor(const std::string& op) {
  const size_t dot = op.rfind('.');
  const std::string base = op.substr(0, dot);
  const std::string overload = op.substr(dot + 1);
  if (overload == "Tensor" || overload == "Tensor_Tensor" || overload == "self") return op;
  if (overload == "Tensor_mode" || overload == "Scalar_mode") return base + ".Tensor_mode";
  if (overload == "Scalar" || overload == "Tensor_Scalar" || overload == "Scalar_Tensor") {
    const bool power = base == "aten.pow" || base == "aten.float_power";
    return base + (power ? ".Tensor_Tensor" : ".Tensor");
  }
  if (overload == "default" &&
      (base == "aten.clamp" || base == "aten.clamp_min" || base == "aten.clamp_max")) {
    return base + ".Tensor";
  }
  refuse("a number that varies with the sizes has no place in this overload");
}

struct Operand {
  size_t at;
  std::optional<Value> tensor;
  State state = State::finite();  // of a number
};

// exp(x - amax(x)) is in [0, 1] wherever the maximum was taken over other factors.
void sharpen_exp(const Call& call, const Operand& x, Layout& dims, State& data) {
  if (call.name() != "exp" || !x.tensor || x.tensor->origin == nullptr ||
      x.tensor->origin->kind != Origin::Kind::kNonPositive) {
    return;
  }
  const auto& over = x.tensor->origin->places;
  for (size_t d = 0; d < dims.size(); ++d) {
    for (size_t k = 0; k < dims[d].size(); ++k) {
      const Place here{d, k};
      const bool reduced = std::find(over.begin(), over.end(), here) != over.end();
      if (dims[d][k].padded && !reduced && x.tensor->at(here).is_finite())
        dims[d][k].state = State::non_negative();
    }
  }
  if (x.tensor->data.is_finite()) data = State::non_negative();
}

std::shared_ptr<const Origin> origin_of(const Call& call, const std::vector<Operand>& operands) {
  if (operands.empty() || !operands[0].tensor) return nullptr;
  const Value& x = *operands[0].tensor;
  if (call.name() == "sub" && operands.size() == 2 && operands[1].tensor &&
      operands[1].tensor->origin && operands[1].tensor->origin->kind == Origin::Kind::kMaximum &&
      operands[1].tensor->origin->of == x.id) {
    return std::make_shared<Origin>(
        Origin{Origin::Kind::kNonPositive, x.id, operands[1].tensor->origin->places});
  }
  if (call.name() == "clone" || call.name() == "alias" || call.name() == "detach") return x.origin;
  return nullptr;
}

// Dividing integers by zero ends the process, and shifts have a range: such operands are made
// harmless.
Value harmless(const Call& call, size_t position, Value v) {
  if (position != 1 || call.type().dtype.is_inexact() || !v.padded()) return v;
  const auto& name = call.name();
  if (name == "floor_divide" || name == "remainder" || name == "fmod" || name == "div" ||
      name == "gcd") {
    std::vector<Place> unsafe;
    for (const Place& place : v.places()) {
      if (!v.at(place).is_positive()) unsafe.push_back(place);
    }
    return call.pass().masked(v, unsafe, int64_t{1}, false);
  }
  if (name.find("shift") != std::string::npos) return call.pass().need(v, int64_t{0});
  return v;
}

// One half of a dimension times the sigmoid of the other.
Results gated(const Call& call) {
  Pass& p = call.pass();
  const bool backward = call.name() == "glu_backward";
  const Value x = call.tensor(backward ? 1 : 0);
  const size_t d = wrap(call.integer(backward ? 2 : 1, -1), x.rank());
  if (x.padded(d)) refuse("halves of a padded dimension");
  Layout dims = x.dims;
  bool finite = x.any().is_finite();
  State data = finite_if(x.data.is_finite());
  ArgList args = call.args();
  args[backward ? 1 : 0] = Pass::ref(x);
  if (backward) {
    Value grad = call.tensor(0);
    for (size_t i = 0; i < x.rank(); ++i) {
      if (i != d) p.conform(grad, i, x.dims[i]);
    }
    finite = finite && grad.any().is_finite();
    data = finite_if(data.is_finite() && grad.data.is_finite());
    args[0] = Pass::ref(grad);
  } else {
    dims[d] = p.fresh(call.sizes()[d], State::finite());
  }
  dims = with_states(std::move(dims), [&](const State&) { return finite_if(finite); });
  return one(p.result(p.emit(call.op(), std::move(args), call.kwargs()), std::move(dims),
                      call.type(), data));
}

}  // namespace

Results pointwise(const Call& call) {
  Pass& p = call.pass();
  const TensorType& type = call.type();
  const size_t rank = type.sizes.size();
  std::vector<Operand> operands;
  ArgList args = call.args();
  std::string op = call.op();
  bool symbolic = false;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i].ref() != nullptr) {
      operands.push_back({i, harmless(call, i, call.tensor(args[i]))});
      args[i] = Pass::ref(*operands.back().tensor);
    } else if (const auto* e = std::get_if<Expr>(&args[i].v)) {
      const Expr size = p.unified(*e);
      const bool known = !p.pool().is_opaque(size);
      const bool plus = known && p.pool().positive(size);
      operands.push_back({i, std::nullopt, plus ? State::positive() : State::finite()});
      args[i] = Pass::ref(known ? p.truth(size) : p.float_truth(size));
      symbolic = true;
    } else if (const auto s = call.scalar(i)) {
      operands.push_back({i, std::nullopt, State::constant(*s)});
    }
  }
  for (const auto& [name, value] : call.kwargs()) {
    const bool number = std::holds_alternative<Expr>(value.v);
    if (value.ref() != nullptr || number)
      refuse(fmt::format("the argument {} varies with the sizes", name));
    // What a factor by name (alpha, value) does to constants is left open: it counts as an operand.
    if (const auto* i = std::get_if<int64_t>(&value.v)) {
      operands.push_back({args.size(), std::nullopt, State::constant(*i)});
    } else if (const auto* d = std::get_if<double>(&value.v)) {
      operands.push_back({args.size(), std::nullopt, State::constant(*d)});
    }
  }
  if (symbolic) op = with_tensor(op);
  if (symbolic && call.name() == "clamp") {  // both bounds are tensors or none
    for (size_t i = 1; i < args.size(); ++i) {
      if (const auto s = call.scalar(i)) args[i] = Pass::ref(p.constant(*s, type.dtype));
    }
  }

  std::vector<Value*> tensors;
  for (Operand& o : operands) {
    if (o.tensor) tensors.push_back(&*o.tensor);
  }
  Layout dims = p.align(tensors, rank);
  for (const Operand& o : operands) {
    if (o.tensor) args[o.at] = Pass::ref(*o.tensor);
  }
  const std::string overload = overload_of(call.op());
  const auto state = [&](auto of_tensor) {
    std::vector<State> states;
    for (const Operand& o : operands) states.push_back(o.tensor ? of_tensor(*o.tensor) : o.state);
    const auto s = pointwise_state(call.name(), overload, states, type.dtype);
    return s ? *s : State::anything();
  };
  State data =
      state([](const Value& v) { return v.uniform ? State::constant(*v.uniform) : v.data; });
  Layout out = dims;
  for (size_t d = 0; d < rank; ++d) {
    for (size_t k = 0; k < dims[d].size(); ++k) {
      if (!dims[d][k].padded) continue;
      out[d][k].state = state([&](const Value& v) { return p.state_at(v, rank, {d, k}, dims); });
    }
  }
  std::optional<Scalar> uniform;
  const bool all_uniform = std::all_of(tensors.begin(), tensors.end(),
                                       [](const Value* v) { return v->uniform.has_value(); });
  if (!tensors.empty() && all_uniform && !symbolic) uniform = data.in(type.dtype).value();
  if (!operands.empty()) sharpen_exp(call, operands[0], out, data);

  int64_t id = p.emit(op, args, call.kwargs());
  if (symbolic) id = p.cast(id, type.dtype);
  Value v = p.result(id, std::move(out), type, data, uniform);
  v.origin = origin_of(call, operands);
  return one(std::move(v));
}

void add_pointwise_rules(RuleTable& table) {
  static constexpr std::string_view kWhy =
      "an element depends on one element of each operand: padding goes to padding";
  for (const std::string_view name : classed_by_state()) table.add({name}, pointwise, kWhy);
  // Those whose padding takes a closer look, or of which nothing is known.
  table.add({"_to_copy",
             "to",
             "copy",
             "convert_element_type",
             "add",
             "mul",
             "div",
             "true_divide",
             "floor_divide",
             "remainder",
             "fmod",
             "pow",
             "sqrt",
             "rsqrt",
             "reciprocal",
             "exp",
             "exp2",
             "expm1",
             "log",
             "log2",
             "log10",
             "log1p",
             "tan",
             "asin",
             "acos",
             "sinh",
             "cosh",
             "acosh",
             "atanh",
             "erfinv",
             "lgamma",
             "digamma",
             "hypot",
             "nextafter",
             "logaddexp",
             "logaddexp2",
             "xlogy",
             "logit",
             "where",
             "addcdiv",
             "bitwise_and",
             "bitwise_or",
             "bitwise_not",
             "bitwise_xor",
             "bitwise_left_shift",
             "bitwise_right_shift",
             "__and__",
             "__or__",
             "__xor__",
             "__lshift__",
             "__rshift__",
             "logit_backward",
             "ldexp",
             "gcd",
             "lcm",
             "special_i0",
             "i0",
             "special_i1",
             "special_ndtri",
             "special_log_ndtr",
             "special_erfcx",
             "special_entr",
             "special_zeta",
             "special_xlog1py",
             "polygamma",
             "igamma",
             "igammac",
             "masked_fill",
             "float_power",
             "fill"},
            pointwise, kWhy);
  table.add({"glu", "glu_backward"}, gated, "halves of a dimension without padding, elementwise");
}

}  // namespace nc::padding
