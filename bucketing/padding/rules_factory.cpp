// Tensors made of nothing but sizes and numbers.
#include <algorithm>

#include "bucketing/padding/rule.hpp"

namespace nc::padding {
namespace {

Kwargs type_of(const Call& call) {
  return {{"dtype", Arg{call.type().dtype}}, {"device", call.pass().device()}};
}

// The dimensions as they lie in memory, outermost first, when they are dense but in another order
// than usual: what is made like a transposed tensor. Else nothing.
std::vector<size_t> order_in_memory(const Call& call, const std::vector<Expr>& sizes) {
  Pass& p = call.pass();
  const auto& strides = call.type().strides;
  if (strides.size() != sizes.size()) return {};
  std::vector<size_t> order;
  std::vector<bool> used(sizes.size(), false);
  Expr expected = p.num(1);
  while (order.size() < sizes.size()) {
    size_t d = sizes.size();
    while (d-- > 0 && (used[d] || p.unified(strides[d]) != expected)) {
    }
    if (d >= sizes.size()) return {};
    used[d] = true;
    order.insert(order.begin(), d);
    expected = p.pool().mul(expected, sizes[d]);
  }
  return std::is_sorted(order.begin(), order.end()) ? std::vector<size_t>() : order;
}

// Full of one number, and laid out in memory as in the graph: some operators are particular about
// strides.
int64_t full_like(const Call& call, const std::vector<Expr>& sizes, const Arg& value) {
  Pass& p = call.pass();
  const std::vector<size_t> order = order_in_memory(call, sizes);
  if (order.empty())
    return p.emit("aten.full.default", {Pass::size_list(sizes), value}, type_of(call));
  std::vector<Expr> outer_first;
  std::vector<int64_t> back(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    outer_first.push_back(sizes[order[i]]);
    back[order[i]] = static_cast<int64_t>(i);
  }
  const int64_t id =
      p.emit("aten.full.default", {Pass::size_list(outer_first), value}, type_of(call));
  return p.emit("aten.permute.default", {Pass::ref(id), Pass::int_list(back)});
}

Results filled(const Call& call, const Arg& value) {
  Pass& p = call.pass();
  const auto sizes = call.sizes();
  if (const auto* e = std::get_if<Expr>(&value.v)) {
    const Expr size = p.unified(*e);
    const bool known = !p.pool().is_opaque(size);
    int64_t id = p.cast(known ? p.truth(size) : p.float_truth(size), call.type().dtype);
    if (!sizes.empty()) id = p.emit("aten.expand.default", {Pass::ref(id), Pass::size_list(sizes)});
    return one(p.result(id, p.fresh(sizes, State::finite()), call.type(), State::finite()));
  }
  if (value.ref() != nullptr) {
    const Value v = call.tensor(value);
    int64_t id = p.cast(v.id, call.type().dtype);
    if (!sizes.empty()) id = p.emit("aten.expand.default", {Pass::ref(id), Pass::size_list(sizes)});
    return one(p.result(id, p.fresh(sizes, v.any()), call.type(), v.any()));
  }
  Scalar scalar = int64_t{0};
  if (const auto* b = std::get_if<bool>(&value.v))
    scalar = *b;
  else if (const auto* i = std::get_if<int64_t>(&value.v))
    scalar = *i;
  else if (const auto* d = std::get_if<double>(&value.v))
    scalar = *d;
  else
    refuse("a fill value that is no number");
  const State state = State::constant(scalar).in(call.type().dtype);
  const int64_t id = full_like(call, sizes, value);
  std::optional<Scalar> uniform;
  if (state.value()) uniform = *state.value();
  return one(p.result(id, p.fresh(sizes, state), call.type(), state, uniform));
}

Results zeros(const Call& call) {
  return filled(call, Arg{int64_t{0}});
}
Results ones(const Call& call) {
  return filled(call, Arg{int64_t{1}});
}
Results full(const Call& call) {
  return filled(call, call.arg(1, "fill_value"));
}
Results new_full(const Call& call) {
  return filled(call, call.arg(2, "fill_value"));
}
Results scalar_tensor(const Call& call) {
  return filled(call, call.arg(0));
}

// start, start + step, ...: true coordinates. In a merged dimension they count the true elements.
Results counting(const Call& call, Expr start, Expr step) {
  Pass& p = call.pass();
  ExprPool& pool = p.pool();
  const Expr length = call.sizes()[0];
  const bool rising = pool.nonnegative(start) && pool.nonnegative(step);
  Dim dim = p.fresh(length, rising ? State::non_negative() : State::finite());
  int64_t id = 0;
  if (dim.size() > 1) {
    Expr stride = p.num(1);
    std::vector<Expr> full;
    for (const Factor& f : dim) full.push_back(f.size);
    bool first = true;
    for (size_t k = dim.size(); k-- > 0;) {
      int64_t part = p.along(p.iota(dim[k].size), dim.size(), k, dim[k].size);
      if (!pool.is_constant(stride, 1)) part = p.binary("aten.mul.Tensor", part, p.truth(stride));
      id = first ? part : p.binary("aten.add.Tensor", id, part);
      first = false;
      stride = pool.mul(stride, dim[k].size);
    }
    id = p.reshape(id, {length});
  } else {
    // A count of its own: masks are made of the shared one.
    id = p.emit("aten.arange.start_step", {Arg{int64_t{0}}, Arg{length}, Arg{int64_t{1}}},
                {{"dtype", Arg{Dtype("int64")}}, {"device", p.device()}});
  }
  if (!pool.is_constant(step, 1)) id = p.binary("aten.mul.Tensor", id, p.truth(step));
  if (!pool.is_constant(start, 0)) id = p.binary("aten.add.Tensor", id, p.truth(start));
  if (call.type().dtype.name() != "int64") id = p.cast(id, call.type().dtype);
  return one(p.result(id, {std::move(dim)}, call.type(),
                      rising ? State::non_negative() : State::finite()));
}

Results arange(const Call& call) {
  Pass& p = call.pass();
  for (size_t i = 0; i < call.count(); ++i) {
    if (std::holds_alternative<double>(call.arg(i).v)) refuse("counting in fractions");
  }
  if (call.count() == 1) return counting(call, p.num(0), p.num(1));
  return counting(call, call.expr(0, 0), call.expr(2, 1));
}

Results iota(const Call& call) {
  return counting(call, call.expr(9, 0, "start"), call.expr(9, 1, "step"));
}

// row == column, for true coordinates.
Results eye(const Call& call) {
  Pass& p = call.pass();
  const auto sizes = call.sizes();
  const int64_t row = p.along(p.iota(sizes[0]), 2, 0, sizes[0]);
  const int64_t column = p.along(p.iota(sizes[1]), 2, 1, sizes[1]);
  const int64_t id = p.cast(p.binary("aten.eq.Tensor", row, column), call.type().dtype);
  Layout dims = {p.prefix_dim(sizes[0], State::non_negative()),
                 p.prefix_dim(sizes[1], State::non_negative())};
  return one(p.result(id, std::move(dims), call.type(), State::non_negative()));
}

}  // namespace

void add_factory_rules(RuleTable& table) {
  static constexpr std::string_view kSame = "every element is the same, at every size";
  table.add({"zeros", "empty", "new_zeros", "new_empty", "zeros_like", "empty_like",
             "empty_strided", "new_empty_strided", "empty_permuted"},
            zeros, kSame);
  table.add({"ones", "new_ones", "ones_like"}, ones, kSame);
  table.add({"full", "full_like"}, full, kSame);
  table.add({"new_full"}, new_full, kSame);
  table.add({"scalar_tensor"}, scalar_tensor, kSame);
  table.add({"arange"}, arange, "a prefix of a longer count is the same count");
  table.add({"iota"}, iota, "a prefix of a longer count is the same count");
  table.add({"eye"}, eye, "true coordinates are the same at every size");
}

}  // namespace nc::padding
