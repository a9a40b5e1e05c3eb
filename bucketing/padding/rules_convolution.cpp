// Convolutions in any number of dimensions, transposed ones too.
//
// Behind the true end a convolution sees zeros: in its own padding, or in ours. Positions of the
// result beyond its true length are padding of the result.
#include "bucketing/padding/rule.hpp"

namespace nc::padding {
namespace {

void check(const Value& x, const Value& w) {
  if (w.padded()) refuse("a convolution kernel of a size that varies");
  if (x.padded(1)) refuse("a convolution over a padded channel dimension");
  for (size_t d = 2; d < x.rank(); ++d) {
    if (x.dims[d].size() > 1 && x.padded(d)) refuse("a convolution over a merged dimension");
  }
}

std::vector<Place> spatial(const Value& x) {
  std::vector<Place> places;
  for (const Place& place : x.places()) {
    if (place.dim >= 2) places.push_back(place);
  }
  return places;
}

Results convolution(const Call& call) {
  Pass& p = call.pass();
  Value x = call.tensor(0);
  const Value w = call.tensor(1);
  const auto bias = call.maybe_tensor(2);
  check(x, w);
  x = p.need(x, int64_t{0}, spatial(x));
  // Kernels for 16-bit types may read into the next row (rules_matmul.cpp).
  if (x.dtype.name() == "bfloat16" || x.dtype.name() == "float16") x = p.finite(x);
  const State state =
      finite_if(x.any().is_finite() && w.any().is_finite() && (!bias || bias->any().is_finite()));
  Layout dims = {with_states({x.dims[0]}, [&](const State&) { return state; })[0]};
  const auto sizes = call.sizes();
  for (size_t d = 1; d < sizes.size(); ++d) {
    dims.push_back(p.prefix_dim(sizes[d], state));
  }
  ArgList args = call.args();
  args[0] = Pass::ref(x);
  const State data =
      finite_if(x.data.is_finite() && w.data.is_finite() && (!bias || bias->data.is_finite()));
  return one(p.result(p.emit(call.op(), std::move(args), call.kwargs()), std::move(dims),
                      call.type(), data));
}

Results convolution_backward(const Call& call) {
  Pass& p = call.pass();
  Value grad = call.tensor(0);
  Value x = call.tensor(1);
  const Value w = call.tensor(2);
  check(x, w);
  check(grad, w);
  grad = p.need(grad, int64_t{0});
  x = p.need(x, int64_t{0}, spatial(x));
  x = p.finite(x);
  ArgList args = call.args();
  args[0] = Pass::ref(grad);
  args[1] = Pass::ref(x);
  const auto count = static_cast<int64_t>(call.node().outs.size());
  const int64_t first = p.emit_several(call.op(), count, std::move(args), call.kwargs());
  Results out;
  for (int64_t i = 0; i < count; ++i) {
    const auto k = static_cast<size_t>(i);
    if (!call.is_tensor_result(k)) {
      out.emplace_back();
      continue;
    }
    Layout dims = i == 0 ? x.dims : p.fresh(call.sizes(k), State::finite());
    for (size_t d = 0; d < dims.size(); ++d) {
      for (Factor& f : dims[d]) {
        if (f.padded) f.state = d == 0 ? State::zero() : State::finite();
      }
    }
    out.emplace_back(p.result(first + i, std::move(dims), call.type(k),
                              finite_if(grad.data.is_finite() && x.data.is_finite())));
  }
  return out;
}

}  // namespace

void add_convolution_rules(RuleTable& table) {
  table.add({"convolution", "_convolution"}, convolution,
            "behind the true end there are zeros, as behind the padded one");
  table.add({"convolution_backward"}, convolution_backward,
            "gradients of positions that do not exist are 0");
}

}  // namespace nc::padding
