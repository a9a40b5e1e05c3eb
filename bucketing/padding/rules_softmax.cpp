// Softmax and its relatives along one dimension.
#include "bucketing/padding/rule.hpp"

namespace nc::padding {
namespace {

// exp(-inf) = 0: padded positions get no weight. A row that is padding as a whole stays what it
// makes of its own elements.
Results softmax(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  const size_t d = wrap(call.integer(1, 0), x.rank());
  const bool is_log = call.name() == "_log_softmax" || call.name() == "log_softmax";
  const Value y = p.need(x, lowest(x.dtype), x.padded(d) ? x.places(d) : std::vector<Place>{});
  ArgList args = call.args();
  args[0] = Pass::ref(y);
  const int64_t id = p.emit(call.op(), std::move(args), call.kwargs());
  const bool finite = x.any().is_finite();
  const auto state = [&](const State& s) {
    if (!s.is_finite()) return State::anything();
    return is_log ? State::finite() : State::non_negative();
  };
  Layout dims = x.dims;
  for (const Place& place : x.places()) {
    State& s = dims[place.dim][place.factor].state;
    if (place.dim != d) {
      // In the corner where both are padding a logarithm is -inf.
      s = is_log && x.padded(d) ? State::anything() : state(x.at(place));
    } else {
      s = !is_log && finite ? State::zero() : State::anything();
    }
  }
  return one(p.result(id, std::move(dims), call.type(),
                      state(x.uniform ? State::constant(*x.uniform) : x.data)));
}

// grad - exp(out) * sum(grad), or out * (grad - sum(grad * out)): sums along the dimension.
Results softmax_backward(const Call& call) {
  Pass& p = call.pass();
  Value grad = call.tensor(0);
  Value out = call.tensor(1);
  const size_t d = wrap(call.integer(2, 0), out.rank());
  const bool is_log = call.name() == "_log_softmax_backward_data";
  const Layout dims = p.align({&out, &grad}, out.rank());
  if (grad.uniform)
    grad = p.made(grad.id,
                  with_states(dims, [&](const State&) { return State::constant(*grad.uniform); }),
                  grad.dtype, State::constant(*grad.uniform));
  std::vector<Place> along;
  for (const Place& place : out.places()) {
    if (place.dim == d) along.push_back(place);
  }
  grad = p.need(grad, int64_t{0}, along);
  out = p.need(out, int64_t{0}, along);
  ArgList args = call.args();
  args[0] = Pass::ref(grad);
  args[1] = Pass::ref(out);
  const int64_t id = p.emit(call.op(), std::move(args), call.kwargs());
  Layout result = dims;
  const bool all_finite = grad.any().is_finite() && out.any().is_finite();
  for (size_t dd = 0; dd < dims.size(); ++dd) {
    for (size_t k = 0; k < dims[dd].size(); ++k) {
      if (!dims[dd][k].padded) continue;
      const State g = grad.at({dd, k});
      const State o = out.at({dd, k});
      const bool finite = g.is_finite() && o.is_finite();
      State s = State::anything();
      if (is_log) {
        if (dd != d && g.is_zero() && o.is_zero()) s = State::zero();
      } else if (dd == d) {
        if (all_finite && o.is_zero()) s = State::zero();
      } else if (finite) {
        s = g.is_zero() ? State::zero() : State::finite();
      }
      result[dd][k].state = s;
    }
  }
  return one(p.result(
      id, std::move(result), call.type(),
      is_log ? State::anything() : finite_if(grad.data.is_finite() && out.data.is_finite())));
}

}  // namespace

void add_softmax_rules(RuleTable& table) {
  table.add({"_softmax", "_log_softmax", "_safe_softmax", "softmax", "log_softmax"}, softmax,
            "padded positions are -inf, whose exponential adds nothing");
  table.add({"_softmax_backward_data", "_log_softmax_backward_data"}, softmax_backward,
            "gradients and results are 0 in the padding, so the sum along the dimension is of true "
            "elements");
}

}  // namespace nc::padding
