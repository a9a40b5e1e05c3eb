// Sliding windows, and distances between rows.
#include "bucketing/padding/rule.hpp"

namespace nc::padding {
namespace {

// (x, dim, size, step): window i holds x[i*step .. i*step + size), true elements when i is true.
Results unfold(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  const size_t d = wrap(call.integer(1, 0), x.rank());
  const auto sizes = call.sizes();
  if (x.padded(d) && x.dims[d].size() > 1) refuse("windows over a merged dimension");
  Layout dims = x.dims;
  dims[d] = p.prefix_dim(sizes[d], x.any());
  dims.push_back(p.fresh(sizes.back(), State::finite()));
  ArgList args = call.args();
  args[0] = Pass::ref(x);
  return one(p.result(p.emit(call.op(), std::move(args)), std::move(dims), call.type(), x.data,
                      x.uniform));
}

// (grad, sizes of x, dim, size, step)
Results unfold_backward(const Call& call) {
  Pass& p = call.pass();
  const Value grad = p.need(call.tensor(0), int64_t{0});
  const auto sizes = call.sizes();
  const size_t d = wrap(call.integer(2, 0), sizes.size());
  if (grad.rank() == 0) refuse("windows of a number");
  Layout dims(grad.dims.begin(), grad.dims.end() - 1);
  dims[d] = p.prefix_dim(sizes[d], State::finite());
  const State state = finite_if(grad.any().is_finite());
  dims = with_states(std::move(dims), [&](const State&) { return state; });
  ArgList args = call.args();
  args[0] = Pass::ref(grad);
  return one(p.result(p.emit(call.op(), std::move(args)), std::move(dims), call.type(), state));
}

void check_rows(const Value& a, const Value& b) {
  if (a.rank() < 2 || b.rank() != a.rank()) refuse("a distance of other ranks");
  if (a.padded(a.rank() - 1) || b.padded(b.rank() - 1))
    refuse("a distance along a padded dimension");
}

// (a, b, p, mode): element (i, j) depends on row i of a and row j of b.
Results distances(const Call& call) {
  Pass& p = call.pass();
  Value a = call.tensor(0);
  Value b = call.tensor(1);
  check_rows(a, b);
  const size_t rank = a.rank();
  const State state = finite_if(a.any().is_finite() && b.any().is_finite());
  Layout dims;
  for (size_t d = 0; d + 2 < rank; ++d) {
    p.conform(b, d, a.dims[d]);
    dims.push_back(a.dims[d]);
  }
  dims.push_back(a.dims[rank - 2]);
  dims.push_back(b.dims[rank - 2]);
  dims = with_states(std::move(dims), [&](const State&) { return state; });
  ArgList args = call.args();
  args[0] = Pass::ref(a);
  args[1] = Pass::ref(b);
  return one(p.result(p.emit(call.op(), std::move(args)), std::move(dims), call.type(),
                      finite_if(a.data.is_finite() && b.data.is_finite())));
}

// (grad, a, b, p, distances): sums over the rows of b, with gradients that are 0 for those that do
// not exist.
Results distances_backward(const Call& call) {
  Pass& p = call.pass();
  const Value grad = p.need(call.tensor(0), int64_t{0});
  const Value a = p.finite(call.tensor(1));
  const Value b = p.finite(call.tensor(2));
  const Value known = p.need(call.tensor(4), int64_t{0});
  check_rows(a, b);
  ArgList args = call.args();
  args[0] = Pass::ref(grad);
  args[1] = Pass::ref(a);
  args[2] = Pass::ref(b);
  args[4] = Pass::ref(known);
  const State state = finite_if(grad.data.is_finite() && a.data.is_finite() && b.data.is_finite());
  return one(p.result(p.emit(call.op(), std::move(args)),
                      with_states(a.dims, [&](const State&) { return state; }), call.type(),
                      state));
}

}  // namespace

void add_window_rules(RuleTable& table) {
  table.add({"unfold"}, unfold, "true windows hold true elements");
  table.add({"unfold_backward"}, unfold_backward, "gradients of windows that do not exist are 0");
  table.add({"_cdist_forward"}, distances, "rows in pairs, one by one");
  table.add({"_cdist_backward"}, distances_backward, "gradients of pairs that do not exist are 0");
}

}  // namespace nc::padding
