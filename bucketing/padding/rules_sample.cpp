// Reading a plane at positions between its elements, and the gradients of repeated edges.
#include "bucketing/padding/rule.hpp"

namespace nc::padding {
namespace {

struct Sampled {
  Value x;     // [batch, channels, plane...]
  Value grid;  // [batch, positions..., coordinates]
};

Sampled sampled(const Call& call, size_t first) {
  Pass& p = call.pass();
  Sampled s{call.tensor(first), p.finite(call.tensor(first + 1))};
  if (s.x.rank() < 3 || s.grid.rank() != s.x.rank()) refuse("sampling of other ranks");
  for (size_t d = 2; d < s.x.rank(); ++d) {
    if (s.x.padded(d)) refuse("sampling of a padded plane: positions count by its true size");
  }
  if (s.grid.padded(s.grid.rank() - 1)) refuse("sampling with coordinates of a number that varies");
  p.conform(s.grid, 0, s.x.dims[0]);
  return s;
}

// [batch, channels, positions...]
Layout sampled_layout(const Sampled& s, const State& state) {
  Layout dims = {s.x.dims[0], s.x.dims[1]};
  for (size_t d = 1; d + 1 < s.grid.rank(); ++d) dims.push_back(s.grid.dims[d]);
  return with_states(std::move(dims), [&](const State&) { return state; });
}

Results sample(const Call& call) {
  Pass& p = call.pass();
  const Sampled s = sampled(call, 0);
  ArgList args = call.args();
  args[0] = Pass::ref(s.x);
  args[1] = Pass::ref(s.grid);
  const State state = finite_if(s.x.any().is_finite() && s.grid.any().is_finite());
  return one(p.result(p.emit(call.op(), std::move(args), call.kwargs()), sampled_layout(s, state),
                      call.type(), finite_if(s.x.data.is_finite() && s.grid.data.is_finite())));
}

// (grad, x, grid, ...) -> gradients of both
Results sample_backward(const Call& call) {
  Pass& p = call.pass();
  Sampled s = sampled(call, 1);
  s.x = p.finite(s.x);
  Value grad = call.tensor(0);
  const Layout model = sampled_layout(s, State::anything());
  if (grad.rank() != model.size()) refuse("a gradient of another rank");
  for (size_t d = 0; d < model.size(); ++d) p.conform(grad, d, model[d]);
  grad = p.need(grad, int64_t{0});
  ArgList args = call.args();
  args[0] = Pass::ref(grad);
  args[1] = Pass::ref(s.x);
  args[2] = Pass::ref(s.grid);
  const int64_t first = p.emit_several(call.op(), 2, std::move(args), call.kwargs());
  const State data =
      finite_if(grad.data.is_finite() && s.x.data.is_finite() && s.grid.data.is_finite());
  const auto finite = [&](const State&) { return data; };
  Results out;
  for (size_t k = 0; k < 2; ++k) {
    if (!call.is_tensor_result(k)) {
      out.emplace_back();
      continue;
    }
    out.emplace_back(p.result(first + static_cast<int64_t>(k),
                              with_states(k == 0 ? s.x.dims : s.grid.dims, finite), call.type(k),
                              data));
  }
  return out;
}

// (grad, x, amounts): each element gets the sum over the positions that repeat it, one dimension
// after the other. Position j repeats element clamp(j - left, 0, true size - 1).
Results replication_backward(const Call& call) {
  Pass& p = call.pass();
  Value grad = call.tensor(0);
  const Value x = call.tensor(1);
  const auto amounts = call.exprs(2);
  const size_t count = amounts.size() / 2;
  if (grad.rank() != x.rank() || count > x.rank()) refuse("padding of other ranks");
  const size_t split = x.rank() - count;
  for (size_t d = 0; d < x.rank(); ++d) {
    if (d < split) {
      p.conform(grad, d, x.dims[d]);
    } else if (grad.dims[d].size() > 1 || x.dims[d].size() > 1) {
      refuse("repeated edges of a merged dimension");
    }
  }
  std::vector<Place> places;
  for (const Place& place : grad.places()) {
    if (place.dim >= split) places.push_back(place);
  }
  grad = p.need(grad, int64_t{0}, places);
  std::vector<Expr> sizes;
  for (size_t d = 0; d < grad.rank(); ++d) sizes.push_back(p.size(grad, d));
  const int64_t zero = p.constant(int64_t{0}, Dtype("int64"));
  int64_t id = grad.id;
  for (size_t i = 0; i < count; ++i) {
    const size_t d = x.rank() - 1 - i;
    const Expr left = amounts[2 * i];
    const Expr size = p.size(x, d);
    int64_t index = p.binary("aten.sub.Tensor", p.iota(sizes[d]), p.truth(left));
    index = p.binary("aten.maximum.default", index, zero);
    index = p.binary("aten.minimum.default", index, p.truth(p.pool().sub(size, p.num(1))));
    sizes[d] = size;
    const int64_t empty = p.emit("aten.full.default", {Pass::size_list(sizes), Arg{0.0}},
                                 {{"dtype", Arg{grad.dtype}}, {"device", p.device()}});
    ArgList list(d);
    list.push_back(Pass::ref(index));
    id = p.emit("aten.index_put.default",
                {Pass::ref(empty), Arg{std::move(list)}, Pass::ref(id), Arg{true}});
  }
  const State state = finite_if(grad.any().is_finite());
  return one(p.result(id, with_states(x.dims, [&](const State&) { return state; }), call.type(),
                      finite_if(grad.data.is_finite())));
}

}  // namespace

void add_sample_rules(RuleTable& table) {
  table.add({"grid_sampler_2d", "grid_sampler_3d", "cudnn_grid_sampler"}, sample,
            "each position reads its own sample of a plane without padding");
  table.add({"grid_sampler_2d_backward", "grid_sampler_3d_backward"}, sample_backward,
            "gradients of positions and channels that do not exist are 0");
  table.add(
      {"replication_pad1d_backward", "replication_pad2d_backward", "replication_pad3d_backward"},
      replication_backward, "edges are those of the true size; padded gradients are 0");
}

}  // namespace nc::padding
