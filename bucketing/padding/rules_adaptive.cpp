// Adaptive pooling: windows that depend on the size.
//
// Window i of o over n true elements is [floor(i n / o), ceil((i + 1) n / o)). Over a padded
// dimension the mean is written out as a product with the weights of the windows; dimensions are
// pooled one after the other, as a mean of means of equal windows is the mean of all.
#include "bucketing/padding/rule.hpp"

namespace nc::padding {
namespace {

bool padded_plane(const Value& x, size_t count) {
  for (size_t d = x.rank() - count; d < x.rank(); ++d) {
    if (x.padded(d)) return true;
  }
  return false;
}

// [windows, size]: what each element counts in each window.
int64_t weights(Pass& p, Expr windows, Expr size, const Dtype& dtype) {
  const Dtype whole("int64");
  const int64_t row = p.along(p.iota(windows), 2, 0, windows);
  const int64_t column = p.along(p.iota(size), 2, 1, size);
  const int64_t n = p.truth(size);
  const int64_t o = p.truth(windows);
  const int64_t one = p.constant(int64_t{1}, whole);
  const auto floor_div = [&](int64_t a, int64_t b) {
    return p.emit("aten.div.Tensor_mode", {Pass::ref(a), Pass::ref(b)},
                  {{"rounding_mode", Arg{std::string("floor")}}});
  };
  const int64_t start = floor_div(p.binary("aten.mul.Tensor", row, n), o);
  const int64_t next = p.binary("aten.mul.Tensor", p.binary("aten.add.Tensor", row, one), n);
  const int64_t end =
      floor_div(p.binary("aten.add.Tensor", next, p.binary("aten.sub.Tensor", o, one)), o);
  const int64_t inside =
      p.binary("aten.logical_and.default", p.binary("aten.ge.Tensor", column, start),
               p.binary("aten.lt.Tensor", column, end));
  return p.binary("aten.div.Tensor", p.cast(inside, dtype),
                  p.cast(p.binary("aten.sub.Tensor", end, start), dtype));
}

// x with dimension d multiplied by a matrix: [from, to].
int64_t times(Pass& p, int64_t x, std::vector<Expr>& sizes, size_t d, int64_t matrix, Expr to) {
  std::vector<int64_t> order;
  std::vector<Expr> last;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (i == d) continue;
    order.push_back(static_cast<int64_t>(i));
    last.push_back(sizes[i]);
  }
  const Expr rows = p.product(last);
  const Expr from = sizes[d];
  order.push_back(static_cast<int64_t>(d));
  int64_t id = p.emit("aten.permute.default", {Pass::ref(x), Pass::int_list(order)});
  id = p.binary("aten.mm.default", p.reshape(id, {rows, from}), matrix);
  last.push_back(to);
  id = p.reshape(id, last);
  std::vector<int64_t> back(order.size());
  for (size_t i = 0; i < order.size(); ++i)
    back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  sizes[d] = to;
  return p.emit("aten.permute.default", {Pass::ref(id), Pass::int_list(back)});
}

// Pools (or spreads gradients over) the last dimensions, in at least float32.
int64_t by_weights(Pass& p, const Value& v, size_t count, const std::vector<Expr>& to,
                   bool backward) {
  const bool half = v.dtype.name() == "bfloat16" || v.dtype.name() == "float16";
  const Dtype wide(half ? "float32" : v.dtype.name());
  int64_t id = half ? p.cast(v.id, wide) : v.id;
  std::vector<Expr> sizes;
  for (size_t d = 0; d < v.rank(); ++d) sizes.push_back(p.size(v, d));
  for (size_t d = v.rank() - count; d < v.rank(); ++d) {
    int64_t matrix =
        backward ? weights(p, sizes[d], to[d], wide) : weights(p, to[d], sizes[d], wide);
    if (!backward)
      matrix = p.emit("aten.permute.default", {Pass::ref(matrix), Pass::int_list({1, 0})});
    id = times(p, id, sizes, d, matrix, to[d]);
  }
  return half ? p.cast(id, v.dtype) : id;
}

// Merged dimensions have no order that windows could follow.
void check(Pass& p, const Value& v, size_t count, const std::vector<Expr>& windows) {
  if (!v.dtype.is_float()) refuse("adaptive pooling of other than floats");
  // Windows that do not see an element multiply it with 0.
  if (!v.data.is_finite() && !v.uniform) refuse("adaptive pooling of values that may be infinite");
  for (size_t d = v.rank() - count; d < v.rank(); ++d) {
    if (v.dims[d].size() > 1) refuse("adaptive pooling over a merged dimension");
    if (p.is_padded(windows[d])) refuse("adaptive pooling to a size that varies");
  }
}

// States of the dimensions in front of the plane, and fixed sizes behind.
Layout layout(Pass& p, const Value& v, size_t count, const std::vector<Expr>& sizes,
              const State& state) {
  Layout dims;
  for (size_t d = 0; d < v.rank(); ++d) {
    dims.push_back(d + count < v.rank()
                       ? with_states({v.dims[d]}, [&](const State&) { return state; })[0]
                       : p.prefix_dim(sizes[d], state));
  }
  return dims;
}

// (x, sizes)
Results adaptive(const Call& call) {
  Pass& p = call.pass();
  Value x = call.tensor(0);
  const size_t count = pooled_dims(call.name());
  const auto sizes = call.sizes();
  if (x.rank() <= count || sizes.size() != x.rank()) refuse("adaptive pooling of other ranks");
  const State data = finite_if(x.data.is_finite());
  if (!padded_plane(x, count)) {
    for (size_t d = x.rank() - count; d < x.rank(); ++d) {
      if (p.is_padded(sizes[d])) refuse("adaptive pooling to a size that varies");
    }
    ArgList args = call.args();
    args[0] = Pass::ref(x);
    const State state = finite_if(x.any().is_finite());
    return one(p.result(p.emit(call.op(), std::move(args), call.kwargs()),
                        layout(p, x, count, sizes, state), call.type(), data));
  }
  check(p, x, count, sizes);
  x = p.finite(x);
  const State state = finite_if(x.any().is_finite());
  return one(p.result(by_weights(p, x, count, sizes, false), layout(p, x, count, sizes, state),
                      call.type(), data));
}

// (grad, x)
Results adaptive_backward(const Call& call) {
  Pass& p = call.pass();
  Value grad = call.tensor(0);
  const Value x = call.tensor(1);
  const size_t count = pooled_dims(call.name());
  const auto sizes = call.sizes();
  if (grad.rank() <= count || sizes.size() != grad.rank())
    refuse("adaptive pooling of other ranks");
  std::vector<Expr> windows;
  for (size_t d = 0; d < grad.rank(); ++d) windows.push_back(p.size(grad, d));
  const State data = finite_if(grad.data.is_finite());
  if (!padded_plane(x, count)) {
    ArgList args = call.args();
    args[0] = Pass::ref(grad);
    args[1] = Pass::ref(x);
    const State state = finite_if(grad.any().is_finite());
    return one(p.result(p.emit(call.op(), std::move(args), call.kwargs()),
                        with_states(x.dims, [&](const State&) { return state; }), call.type(),
                        data));
  }
  for (size_t d = x.rank() - count; d < x.rank(); ++d) {
    if (x.dims[d].size() > 1) refuse("adaptive pooling over a merged dimension");
  }
  check(p, grad, count, windows);
  grad = p.finite(grad);
  const State state = finite_if(grad.any().is_finite());
  return one(p.result(by_weights(p, grad, count, sizes, true), layout(p, grad, count, sizes, state),
                      call.type(), data));
}

}  // namespace

void add_adaptive_rules(RuleTable& table) {
  table.add({"_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_avg_pool1d"}, adaptive,
            "windows of the true size, as weights; elements outside of them count 0");
  table.add({"_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward"}, adaptive_backward,
            "windows of the true size, as weights; elements outside of them get 0");
}

}  // namespace nc::padding
