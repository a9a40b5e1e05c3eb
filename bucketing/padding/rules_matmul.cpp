// Contractions: padding that is summed over is 0 on one side and finite on the other.
#include <fmt/format.h>

#include "bucketing/padding/rule.hpp"

namespace nc::padding {
namespace {

State product(const State& a, const State& b) {
  if (!a.is_finite() || !b.is_finite()) return State::anything();
  return a.is_zero() || b.is_zero() ? State::zero() : State::finite();
}

// A uniform value in the layout of another's dimension.
void adopt(Pass& p, Value& v, size_t d, const Dim& model) {
  if (!v.uniform || p.product(model) != p.size(v, d)) return;
  Dim dim = model;
  for (Factor& f : dim) f.state = State::constant(*v.uniform);
  v.dims[d] = std::move(dim);
}

// Makes the dimension that is summed over harmless.
void contract(Pass& p, Value& a, size_t da, Value& b, size_t db) {
  if (a.uniform && !b.uniform) adopt(p, a, da, b.dims[db]);
  if (b.uniform && !a.uniform) adopt(p, b, db, a.dims[da]);
  p.conform(b, db, a.dims[da]);
  std::vector<Place> clear_a;
  std::vector<Place> clear_b;
  for (size_t k = 0; k < a.dims[da].size(); ++k) {
    if (!a.dims[da][k].padded) continue;
    const State sa = a.at({da, k});
    const State sb = b.at({db, k});
    if ((sa.is_zero() && sb.is_finite()) || (sb.is_zero() && sa.is_finite())) continue;
    if (!sa.is_zero() && (!sb.is_zero() || !sa.is_finite())) clear_a.push_back({da, k});
    if (!sb.is_finite()) clear_b.push_back({db, k});
  }
  a = p.masked(a, clear_a, int64_t{0});
  b = p.masked(b, clear_b, int64_t{0});
}

Dim outer(const Dim& dim, const State& other) {
  Dim out = dim;
  for (Factor& f : out) {
    if (f.padded) f.state = product(f.state, other);
  }
  return out;
}

struct Product {
  Value a;
  Value b;
  Layout dims;
  State data;
};

// Kernels for 16-bit types read whole tiles: the tail of a row is multiplied with zeros together
// with the beginning of the next one, and NaN times 0 is NaN. So no row may hold anything but
// finite values.
void tame(Pass& p, Value& v) {
  if (v.dtype.name() == "bfloat16" || v.dtype.name() == "float16") v = p.finite(v);
}

Product multiply(Pass& p, Value a, Value b) {
  const size_t rank = a.rank();
  if (rank < 2 || b.rank() != rank) refuse("a product of other ranks");
  contract(p, a, rank - 1, b, rank - 2);
  tame(p, a);
  tame(p, b);
  Layout dims;
  for (size_t d = 0; d + 2 < rank; ++d) {
    if (a.uniform && !b.uniform) adopt(p, a, d, b.dims[d]);
    if (b.uniform && !a.uniform) adopt(p, b, d, a.dims[d]);
    p.conform(b, d, a.dims[d]);
    Dim dim = a.dims[d];
    for (size_t k = 0; k < dim.size(); ++k) {
      if (dim[k].padded) dim[k].state = product(a.at({d, k}), b.at({d, k}));
    }
    dims.push_back(std::move(dim));
  }
  const auto stated = [](const Value& v, size_t d) {
    Dim dim = v.dims[d];
    for (size_t k = 0; k < dim.size(); ++k)
      dim[k].state = dim[k].padded ? v.at({d, k}) : dim[k].state;
    return dim;
  };
  dims.push_back(outer(stated(a, rank - 2), b.any()));
  dims.push_back(outer(stated(b, rank - 1), a.any()));
  const bool finite = data_of(a).is_finite() && data_of(b).is_finite();
  return {std::move(a), std::move(b), std::move(dims), finite_if(finite)};
}

Results matmul(const Call& call) {
  Pass& p = call.pass();
  Product m = multiply(p, call.tensor(0), call.tensor(1));
  ArgList args = call.args();
  args[0] = Pass::ref(m.a);
  args[1] = Pass::ref(m.b);
  return one(p.result(p.emit(call.op(), std::move(args), call.kwargs()), std::move(m.dims),
                      call.type(), m.data));
}

void no_varying_factors(const Call& call) {
  for (const char* name : {"beta", "alpha"}) {
    if (std::holds_alternative<Expr>(call.arg(99, name).v))
      refuse("a factor that varies with the sizes");
  }
}

// c plus a product of layout `dims`: what the sum's padding holds.
void add_states(Pass& p, const Value& c, Layout& dims) {
  if (c.rank() > dims.size()) refuse("a sum of other ranks");
  for (size_t d = 0; d < dims.size(); ++d) {
    for (size_t k = 0; k < dims[d].size(); ++k) {
      if (!dims[d][k].padded) continue;
      const State bias = p.state_at(c, dims.size(), {d, k}, dims);
      dims[d][k].state = finite_if(bias.is_finite() && dims[d][k].state.is_finite());
    }
  }
  const size_t skip = dims.size() - c.rank();
  for (size_t d = 0; d < c.rank(); ++d) {
    if (!c.uniform && !c.dims[d].empty() && !p.same(c.dims[d], dims[d + skip]))
      refuse("what is added is padded differently");
  }
}

Results add_matmul(const Call& call) {
  Pass& p = call.pass();
  const Value c = call.tensor(0);
  Product m = multiply(p, call.tensor(1), call.tensor(2));
  no_varying_factors(call);
  add_states(p, c, m.dims);
  const ArgList args = {Pass::ref(c), Pass::ref(m.a), Pass::ref(m.b)};
  return one(p.result(p.emit(call.op(), args, call.kwargs()), std::move(m.dims), call.type(),
                      finite_if(m.data.is_finite() && data_of(c).is_finite())));
}

// c + sum of a[i] @ b[i]: the batch is summed up, too.
Results add_batches(const Call& call) {
  Pass& p = call.pass();
  const Value c = call.tensor(0);
  Value a = call.tensor(1);
  Value b = call.tensor(2);
  if (a.rank() != 3 || b.rank() != 3) refuse("a product of other ranks");
  no_varying_factors(call);
  contract(p, a, 2, b, 1);
  contract(p, a, 0, b, 0);
  tame(p, a);
  tame(p, b);
  Layout dims = {outer(a.dims[1], b.any()), outer(b.dims[2], a.any())};
  add_states(p, c, dims);
  const bool finite = data_of(a).is_finite() && data_of(b).is_finite() && data_of(c).is_finite();
  return one(p.result(p.emit(call.op(), {Pass::ref(c), Pass::ref(a), Pass::ref(b)}, call.kwargs()),
                      std::move(dims), call.type(), finite_if(finite)));
}

// c + a @ v.
Results add_mv(const Call& call) {
  Pass& p = call.pass();
  const Value c = call.tensor(0);
  Value a = call.tensor(1);
  Value v = call.tensor(2);
  if (a.rank() != 2 || v.rank() != 1) refuse("a product of other ranks");
  no_varying_factors(call);
  contract(p, a, 1, v, 0);
  tame(p, a);
  Layout dims = {outer(a.dims[0], v.any())};
  add_states(p, c, dims);
  const bool finite = data_of(a).is_finite() && data_of(v).is_finite() && data_of(c).is_finite();
  return one(p.result(p.emit(call.op(), {Pass::ref(c), Pass::ref(a), Pass::ref(v)}, call.kwargs()),
                      std::move(dims), call.type(), finite_if(finite)));
}

Results dot(const Call& call) {
  Pass& p = call.pass();
  Value a = call.tensor(0);
  Value b = call.tensor(1);
  contract(p, a, 0, b, 0);
  return one(p.result(p.emit(call.op(), {Pass::ref(a), Pass::ref(b)}), {}, call.type(),
                      finite_if(data_of(a).is_finite() && data_of(b).is_finite())));
}

// Matrix times vector.
Results mv(const Call& call) {
  Pass& p = call.pass();
  Value a = call.tensor(0);
  Value b = call.tensor(1);
  contract(p, a, 1, b, 0);
  tame(p, a);
  Layout dims = {outer(a.dims[0], b.any())};
  return one(p.result(p.emit(call.op(), {Pass::ref(a), Pass::ref(b)}), std::move(dims), call.type(),
                      finite_if(data_of(a).is_finite() && data_of(b).is_finite())));
}

// x @ weight^T + bias, with any number of leading dimensions.
Results linear(const Call& call) {
  Pass& p = call.pass();
  Value x = call.tensor(0);
  Value w = call.tensor(1);
  const auto bias = call.maybe_tensor(2);
  if (x.rank() == 0 || w.rank() == 0) refuse("a product of numbers");
  contract(p, x, x.rank() - 1, w, w.rank() - 1);
  tame(p, x);
  tame(p, w);
  Layout dims;
  for (size_t d = 0; d + 1 < x.rank(); ++d) {
    Dim dim = outer(x.dims[d], w.any());
    for (Factor& f : dim)
      f.state = bias ? finite_if(f.state.is_finite() && bias->any().is_finite()) : f.state;
    dims.push_back(std::move(dim));
  }
  if (w.rank() == 2) dims.push_back(outer(w.dims[0], x.any()));
  ArgList args = {Pass::ref(x), Pass::ref(w)};
  if (bias) args.push_back(Pass::ref(*bias));
  return one(p.result(p.emit(call.op(), std::move(args)), std::move(dims), call.type(),
                      finite_if(data_of(x).is_finite() && data_of(w).is_finite())));
}

// Rows of a in groups, each times its own matrix; or, with the rows summed over, one matrix per
// group. Groups end at the true number of rows, so rows behind it are in no group.
Results grouped(const Call& call) {
  Pass& p = call.pass();
  Value a = call.tensor(0);
  Value b = call.tensor(1);
  if (!call.is_tensor(2, "offs")) refuse("groups of a size that varies");
  const Value ends = call.tensor(2, "offs");
  if (ends.padded()) refuse("a number of groups that varies");
  // Rows stay outermost in memory: the kernels want columns that are aligned.
  const auto turned = [&](const Value& v) {
    const int64_t id = p.emit("aten.permute.default", {Pass::ref(v), Pass::int_list({1, 0})});
    return p.made(id, {v.dims[1], v.dims[0]}, v.dtype, v.data);
  };
  const auto packed = [&](Value& v, size_t d) {
    if (!v.padded(d) || v.dims[d].size() < 2) return;
    if (d == 1) v = turned(v);
    p.conform(v, 0, {Factor{p.size(v, 0), true, State::anything()}});
    if (d == 1) v = turned(v);
  };
  Layout dims;
  const bool rows_stay = a.rank() == 2 && b.rank() == 3;
  if (rows_stay) {
    if (b.padded() || a.padded(1)) refuse("matrices of groups of a size that varies");
    packed(a, 0);
    dims = {with_states({a.dims[0]}, [](const State&) { return State::anything(); })[0], b.dims[2]};
  } else if (a.rank() == 2 && b.rank() == 2) {
    if (a.padded(0) || b.padded(1)) refuse("matrices of groups of a size that varies");
    packed(a, 1);
    packed(b, 0);
    dims = p.fresh(call.sizes(), State::finite());
  } else {
    refuse("groups along another dimension");
  }
  ArgList args = call.args();
  args[0] = Pass::ref(a);
  args[1] = Pass::ref(b);
  return one(p.result(p.emit(call.op(), std::move(args), call.kwargs()), std::move(dims),
                      call.type(), finite_if(data_of(a).is_finite() && data_of(b).is_finite())));
}

// (rows, matrices, ends, gradient of the product's rows) -> the gradients of rows and matrices.
Results grouped_backward(const Call& call) {
  Pass& p = call.pass();
  Value a = call.tensor(0);
  const Value b = call.tensor(1);
  const Value ends = call.tensor(2);
  Value c = call.tensor(3);
  if (call.node().outs.size() != 2) refuse("other than two results");
  if (a.rank() != 2 || b.rank() != 3 || c.rank() != 2 || b.padded() || ends.padded() ||
      a.padded(1) || c.padded(1))
    refuse("matrices of groups of a size that varies");
  const Dim rows = {Factor{p.size(a, 0), a.padded(0), State::anything()}};
  for (Value* v : {&a, &c}) {
    if (v->padded(0)) p.conform(*v, 0, rows);
  }
  const int64_t first = p.emit_several(
      call.op(), 2, {Pass::ref(a), Pass::ref(b), Pass::ref(ends), Pass::ref(c)}, call.kwargs());
  const bool finite = data_of(a).is_finite() && data_of(b).is_finite() && data_of(c).is_finite();
  return {p.result(first, {rows, a.dims[1]}, call.type(0), finite_if(finite)),
          p.result(first + 1, b.dims, call.type(1), finite_if(finite))};
}

// Triangular systems, one for each index of the outer dimensions and each column (or row) of b.
Results solve_triangular(const Call& call) {
  Pass& p = call.pass();
  const Value a = call.tensor(0);
  Value b = call.tensor(1);
  const size_t rank = a.rank();
  if (rank < 2 || b.rank() != rank) refuse("triangular systems of other ranks");
  const bool left = call.boolean(3, true, "left");
  const size_t free = left ? rank - 1 : rank - 2;
  if (a.padded(rank - 1) || a.padded(rank - 2) || b.padded(left ? rank - 2 : rank - 1))
    refuse("a triangular system of a size that varies");
  const bool by_one = call.boolean(4, false, "unitriangular");
  const State padding = finite_if(by_one && a.any().is_finite() && b.any().is_finite());
  Layout dims = b.dims;
  for (size_t d = 0; d + 2 < rank; ++d) {
    if (b.dims[d].empty()) {
      dims[d] = a.dims[d];
    } else if (!a.dims[d].empty()) {
      p.conform(b, d, a.dims[d]);
      dims[d] = b.dims[d];
    }
  }
  dims[free] = b.dims[free];
  dims = with_states(std::move(dims), [&](const State&) { return padding; });
  const bool finite = by_one && data_of(a).is_finite() && data_of(b).is_finite();
  return one(p.result(p.emit(call.op(), {Pass::ref(a), Pass::ref(b)}, call.kwargs()),
                      std::move(dims), call.type(), finite_if(finite)));
}

}  // namespace

void add_matmul_rules(RuleTable& table) {
  static constexpr std::string_view kWhy = "padded terms of the sum are 0 times something finite";
  table.add({"mm", "bmm", "_int_mm"}, matmul, kWhy);
  table.add({"addmm", "baddbmm"}, add_matmul, kWhy);
  table.add({"addbmm"}, add_batches, kWhy);
  table.add({"addmv"}, add_mv, kWhy);
  table.add({"dot", "vdot"}, dot, kWhy);
  table.add({"mv"}, mv, kWhy);
  table.add({"linear"}, linear, kWhy);
  static constexpr std::string_view kGroups = "groups end at the true number of rows";
  // What the library "transformers" calls where torch has no kernel for the element type.
  table.add({"_grouped_mm", "transformers.grouped_mm_fallback"}, grouped, kGroups);
  table.add({"transformers.grouped_mm_fallback_backward"}, grouped_backward, kGroups);
  table.add({"linalg_solve_triangular"}, solve_triangular,
            "each system is solved by itself, those in the padding too");
}

}  // namespace nc::padding
