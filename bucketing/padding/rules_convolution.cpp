// Convolutions in any number of dimensions, transposed ones too.
//
// Behind the true end a convolution sees zeros: in its own padding, or in ours. Positions of the
// result beyond its true length are padding of the result. Channels of the result are independent
// of each other; those of the input are summed up like any other contraction.
#include "bucketing/padding/rule.hpp"

namespace nc::padding {
namespace {

// Which dimension of the kernel meets the channels of the input and of the result.
struct Kernel {
  size_t in = 1;
  size_t out = 0;
  int64_t groups = 1;
};

Kernel kernel(const Call& call, size_t transposed_at, size_t groups_at) {
  const bool transposed = call.boolean(transposed_at, false);
  return {transposed ? size_t{0} : size_t{1}, transposed ? size_t{1} : size_t{0},
          call.integer(groups_at, 1)};
}

void check(const Value& x, const Value& w, const Kernel& k) {
  if (w.rank() < 2 || x.rank() != w.rank()) refuse("a convolution without a batch");
  for (size_t d = 0; d < x.rank(); ++d) {
    if (d >= 2 && w.padded(d)) refuse("a convolution kernel of a size that varies");
    if (d >= 1 && x.dims[d].size() > 1 && x.padded(d))
      refuse("a convolution over a merged dimension");
  }
  if (k.groups != 1 && (w.padded() || x.padded(1)))
    refuse("a convolution in groups over a padded channel dimension");
}

std::vector<Place> not_batch(const Value& x) {
  std::vector<Place> places;
  for (const Place& place : x.places()) {
    if (place.dim >= 1) places.push_back(place);
  }
  return places;
}

// Kernels for 16-bit types may read into the next row (rules_matmul.cpp).
Value tame(Pass& p, const Value& v) {
  const bool half = v.dtype.name() == "bfloat16" || v.dtype.name() == "float16";
  return half ? p.finite(v) : v;
}

Results convolution(const Call& call) {
  Pass& p = call.pass();
  Value x = call.tensor(0);
  Value w = call.tensor(1);
  const auto bias = call.maybe_tensor(2);
  const Kernel k = kernel(call, 6, 8);
  check(x, w, k);
  if (k.groups == 1) p.conform(w, k.in, x.dims[1]);
  x = tame(p, p.need(x, int64_t{0}, not_batch(x)));
  w = tame(p, p.finite(w, w.places(k.in)));
  const State state =
      finite_if(x.any().is_finite() && w.any().is_finite() && (!bias || bias->any().is_finite()));
  Layout dims = {with_states({x.dims[0]}, [&](const State&) { return state; })[0]};
  const auto sizes = call.sizes();
  for (size_t d = 1; d < sizes.size(); ++d) {
    dims.push_back(p.prefix_dim(sizes[d], state));
  }
  ArgList args = call.args();
  args[0] = Pass::ref(x);
  args[1] = Pass::ref(w);
  const State data =
      finite_if(x.data.is_finite() && w.data.is_finite() && (!bias || bias->data.is_finite()));
  return one(p.result(p.emit(call.op(), std::move(args), call.kwargs()), std::move(dims),
                      call.type(), data));
}

// (grad, x, w, sizes of the bias, stride, padding, dilation, transposed, output padding, groups,
// mask)
Results convolution_backward(const Call& call) {
  Pass& p = call.pass();
  Value grad = call.tensor(0);
  Value x = call.tensor(1);
  Value w = call.tensor(2);
  const Kernel k = kernel(call, 7, 9);
  check(x, w, k);
  check(grad, w, k);
  if (k.groups == 1) p.conform(w, k.in, x.dims[1]);
  grad = p.need(grad, int64_t{0});
  x = p.finite(p.need(x, int64_t{0}, not_batch(x)));
  w = p.finite(w);
  ArgList args = call.args();
  args[0] = Pass::ref(grad);
  args[1] = Pass::ref(x);
  args[2] = Pass::ref(w);
  const auto count = static_cast<int64_t>(call.node().outs.size());
  const int64_t first = p.emit_several(call.op(), count, std::move(args), call.kwargs());
  const State data = finite_if(grad.data.is_finite() && x.data.is_finite() && w.data.is_finite());
  Results out;
  for (int64_t i = 0; i < count; ++i) {
    const auto n = static_cast<size_t>(i);
    if (!call.is_tensor_result(n)) {
      out.emplace_back();
      continue;
    }
    Layout dims;
    if (i == 0) {
      dims = with_states(x.dims, [](const State&) { return State::finite(); });
    } else {
      for (const Expr size : call.sizes(n)) dims.push_back(p.prefix_dim(size, State::finite()));
    }
    // Each padded sample has no gradient at all.
    for (Factor& f : dims[0]) {
      if (i == 0 && f.padded) f.state = State::zero();
    }
    out.emplace_back(p.result(first + i, std::move(dims), call.type(n), data));
  }
  return out;
}

}  // namespace

void add_convolution_rules(RuleTable& table) {
  table.add({"convolution", "_convolution"}, convolution,
            "behind the true end there are zeros, as behind the padded one; padded channels are 0");
  table.add({"convolution_backward"}, convolution_backward,
            "gradients of positions and channels that do not exist are 0");
}

}  // namespace nc::padding
