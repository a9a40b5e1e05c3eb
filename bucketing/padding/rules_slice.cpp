// Parts of a dimension: slices, single positions, writing into them, reversing and rolling.
//
// A part with a fixed start is a fixed slice: the true part of the result is a prefix again. A
// start that moves with the true length is read through an index, in true coordinates.
#include <algorithm>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "bucketing/padding/rule.hpp"

namespace nc::padding {
namespace {

struct Part {
  Expr start;
  int64_t step = 1;
  Expr length;  // of the result
};

Arg dim_arg(size_t d) {
  return Arg{static_cast<int64_t>(d)};
}

int64_t slice(Pass& p, int64_t x, size_t d, Expr start, Expr end, int64_t step) {
  return p.emit("aten.slice.Tensor", {Pass::ref(x), dim_arg(d), Arg{start}, Arg{end}, Arg{step}});
}

// min(max(index, 0), last)
int64_t clamped(Pass& p, int64_t index, int64_t last) {
  const int64_t low =
      p.binary("aten.maximum.default", index, p.constant(int64_t{0}, Dtype("int64")));
  return p.binary("aten.minimum.default", low, last);
}

// true start + step * (0, 1, ...), kept inside of the dimension; at B.
int64_t positions(Pass& p, const Part& part, Expr size) {
  int64_t index = p.iota(part.length);
  if (part.step != 1) index = p.emit("aten.mul.Tensor", {Pass::ref(index), Arg{part.step}});
  index = p.binary("aten.add.Tensor", index, p.truth(part.start));
  return clamped(p, index, p.truth(p.pool().sub(size, p.num(1))));
}

// x[start : start + step*length : step] along d, as (id, dimension, state of its padding).
std::pair<int64_t, Dim> take(Pass& p, const Value& x, size_t d, const Part& part) {
  const Dim& dim = x.dims[d];
  const Expr size = p.product(dim);
  if (part.length == size && part.step == 1) return {x.id, dim};
  ExprPool& pool = p.pool();
  const bool fixed = pool.constant(part.start).has_value();
  const bool simple = dim.size() <= 1 || x.uniform;
  const auto result = [&](const State& state) { return p.prefix_dim(part.length, state); };
  if (fixed && simple) {
    const Expr last =
        pool.add(part.start, pool.mul(p.num(part.step), pool.sub(part.length, p.num(1))));
    // Beyond the true part of the result come only padded positions when it reaches the end.
    const Expr next = pool.add(last, p.num(part.step));
    const bool to_the_end = pool.nonnegative(pool.sub(next, size));
    const State inside = x.uniform ? State::constant(*x.uniform) : x.any();
    const State state = x.padded(d) && to_the_end ? x.at({d, 0}) : inside;
    const Expr end = pool.add(last, p.num(1));
    p.require(pool.sub(size, end));
    return {slice(p, x.id, d, part.start, end, part.step), result(state)};
  }
  const int64_t index = p.to_padded(positions(p, part, size), dim, true);
  return {p.pick(x.id, d, index), result(x.any())};
}

// A position counted from the front, as PyTorch normalizes it; empty where its sign is not known.
std::optional<Expr> from_front(Pass& p, Expr at, Expr size) {
  ExprPool& pool = p.pool();
  if (pool.nonnegative(at)) return at;
  if (pool.positive(pool.sub(p.num(0), at))) return pool.add(size, at);
  return std::nullopt;
}

Expr normalized(Pass& p, Expr at, Expr size) {
  const auto known = from_front(p, at, size);
  if (!known) refuse(fmt::format("a part begins at {}, which may be negative", p.pool().text(at)));
  return *known;
}

// What a slice of this length covers, its start, end and step being the arguments from `first` on.
// A negative start may reach beyond the dimension, and the sign of one may not be known: then the
// length tells, which is what the trace found it to be.
Part sliced(const Call& call, size_t first, Expr length, Expr size) {
  Pass& p = call.pass();
  ExprPool& pool = p.pool();
  const Expr at = call.expr(first, 0);
  const Expr end = call.expr(first + 1, std::numeric_limits<int64_t>::max());
  const int64_t step = call.integer(first + 2, 1);
  if (pool.nonnegative(at)) return {at, step, length};
  std::vector<Expr> starts = {pool.add(size, at), p.num(0)};
  if (!from_front(p, at, size)) starts.insert(starts.begin(), at);
  std::vector<Expr> ends = {size};
  if (const auto known = from_front(p, end, size)) ends.insert(ends.begin(), *known);
  for (const Expr from : starts) {
    for (const Expr last : ends) {
      const Expr reach = pool.add(pool.sub(last, from), p.num(step - 1));
      if (pool.floor_div(reach, p.num(step)) == length) return {from, step, length};
    }
  }
  refuse(fmt::format("a part begins at {}, which may lie before the first element", pool.text(at)));
}

Results slice_rule(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  const size_t d = wrap(call.integer(1, 0), x.rank());
  auto [id, dim] = take(p, x, d, sliced(call, 2, call.sizes()[d], p.size(x, d)));
  Layout dims = x.dims;
  dims[d] = std::move(dim);
  Value v = p.result(id, std::move(dims), call.type(), x.data, x.uniform);
  if (id == x.id) v.origin = x.origin;
  return one(std::move(v));
}

Results narrow(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  const size_t d = wrap(call.integer(1, 0), x.rank());
  auto [id, dim] =
      take(p, x, d, {normalized(p, call.expr(2, 0), p.size(x, d)), 1, call.sizes()[d]});
  Layout dims = x.dims;
  dims[d] = std::move(dim);
  return one(p.result(id, std::move(dims), call.type(), x.data, x.uniform));
}

Results split(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  const size_t d = wrap(call.integer(2, 0, "dim"), x.rank());
  Results out;
  Expr start = p.num(0);
  for (size_t i = 0; i < call.node().outs.size(); ++i) {
    const Expr length = call.sizes(i)[d];
    auto [id, dim] = take(p, x, d, {start, 1, length});
    Layout dims = x.dims;
    dims[d] = std::move(dim);
    out.emplace_back(p.result(id, std::move(dims), call.type(i), x.data, x.uniform));
    start = p.pool().add(start, length);
  }
  return out;
}

Results select(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  const size_t d = wrap(call.integer(1, 0), x.rank());
  const Expr size = p.size(x, d);
  const Expr at = normalized(p, call.expr(2, 0), size);
  Layout dims = x.dims;
  dims.erase(dims.begin() + static_cast<ptrdiff_t>(d));
  const auto fixed = p.pool().constant(at);
  int64_t id = 0;
  if (fixed && x.dims[d].size() <= 1) {
    id = p.emit("aten.select.int", {Pass::ref(x), dim_arg(d), Arg{*fixed}});
  } else {
    const int64_t index = p.to_padded(p.truth(at), x.dims[d], true);
    id = p.reshape(p.pick(x.id, d, p.reshape(index, {p.num(1)})), call.sizes());
  }
  return one(p.result(id, std::move(dims), call.type(), x.data, x.uniform));
}

// States of a value that comes from either of two, factor by factor, but for dimension `skip`.
Layout merged_states(Pass& p, const Value& a, const Value& b, size_t skip) {
  Layout dims = a.dims;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (d == skip) continue;
    if (a.uniform && !b.uniform) dims[d] = b.dims[d];
    if (!a.uniform && !b.uniform && !p.same(a.dims[d], b.dims[d]))
      refuse("what is written is padded differently from where it goes");
    for (size_t k = 0; k < dims[d].size(); ++k) {
      if (!dims[d][k].padded) continue;
      const State from_a = a.uniform ? State::constant(*a.uniform) : a.at({d, k});
      const State from_b = b.uniform ? State::constant(*b.uniform) : b.at({d, k});
      dims[d][k].state = join(from_a, from_b);
    }
  }
  return dims;
}

// x with `part` of dimension d replaced by src: where(position in the part, src at it, x).
Results write(const Call& call, const Value& x, const Value& src, size_t d, const Part& part) {
  Pass& p = call.pass();
  ExprPool& pool = p.pool();
  const Expr size = p.size(x, d);
  if (x.dims[d].size() > 1 || src.dims[d].size() > 1)
    refuse("writing into part of a merged dimension");
  Layout dims = merged_states(p, x, src, d);
  const State own = x.uniform           ? State::constant(*x.uniform)
                    : x.dims[d].empty() ? State::finite()
                                        : x.dims[d][0].state;
  const State data = join(x.uniform ? State::constant(*x.uniform) : x.data,
                          src.uniform ? State::constant(*src.uniform) : src.data);
  const auto start = pool.constant(part.start);
  const Expr end = pool.add(
      part.start, pool.add(pool.mul(p.num(part.step), pool.sub(part.length, p.num(1))), p.num(1)));
  const bool at_end = end == size;
  if (start && (!src.padded(d) || (at_end && part.step == 1))) {
    // The padding of src, if any, comes to lie on the padding of x.
    if (x.padded(d)) {
      const State tail = src.padded(d) ? src.at({d, 0}) : own;
      dims[d] = p.prefix_dim(size, src.padded(d) ? join(tail, own) : own);
      if (!src.padded(d)) p.require(pool.sub(size, end));
    } else {
      dims[d] = x.dims[d];
    }
    const int64_t id = p.emit(
        "aten.slice_scatter.default",
        {Pass::ref(x), Pass::ref(src), dim_arg(d), Arg{part.start}, Arg{end}, Arg{part.step}});
    return one(p.result(id, std::move(dims), call.type(), data));
  }
  const int64_t zero = p.constant(int64_t{0}, Dtype("int64"));
  int64_t at = p.binary("aten.sub.Tensor", p.iota(size), p.truth(part.start));
  int64_t inside = p.binary("aten.ge.Tensor", at, zero);
  inside = p.binary("aten.logical_and.default", inside,
                    p.binary("aten.lt.Tensor", at, p.truth(pool.sub(end, part.start))));
  if (part.step != 1) {
    const int64_t step = p.constant(part.step, Dtype("int64"));
    inside =
        p.binary("aten.logical_and.default", inside,
                 p.binary("aten.eq.Tensor", p.binary("aten.remainder.Tensor", at, step), zero));
    at = p.emit("aten.div.Tensor_mode", {Pass::ref(at), Pass::ref(step)},
                {{"rounding_mode", Arg{std::string("floor")}}});
  }
  int64_t from = src.id;
  if (!src.dims[d].empty())
    from = p.pick(src.id, d, clamped(p, at, p.truth(pool.sub(part.length, p.num(1)))));
  dims[d] = x.uniform ? p.prefix_dim(size, own) : x.dims[d];
  const int64_t id = p.where(p.along(inside, x.rank(), d, size), from, x.id);
  return one(p.result(id, std::move(dims), call.type(), data));
}

Results slice_scatter(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  const Value src = call.tensor(1);
  const size_t d = wrap(call.integer(2, 0), x.rank());
  return write(call, x, src, d, sliced(call, 3, p.size(src, d), p.size(x, d)));
}

Results select_scatter(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  Value src = call.tensor(1);
  const size_t d = wrap(call.integer(2, 0), x.rank());
  const Expr at = normalized(p, call.expr(3, 0), p.size(x, d));
  src.dims.insert(src.dims.begin() + static_cast<ptrdiff_t>(d), Dim{});
  src.id = p.emit("aten.unsqueeze.default", {Pass::ref(src), dim_arg(d)});
  return write(call, x, src, d, {at, 1, p.num(1)});
}

// x read at a computed position along each padded dimension in `ds`.
Results reread(const Call& call, const Checked<size_t>& ds,
               int64_t (*index)(const Call&, size_t, Expr)) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  int64_t id = x.id;
  Layout dims = x.dims;
  for (size_t i = 0; i < ds.size(); ++i) {
    const size_t d = ds[i];
    if (x.dims[d].empty()) continue;
    const Expr size = p.size(x, d);
    id = p.pick(id, d, p.to_padded(index(call, i, size), x.dims[d], true));
    if (x.padded(d)) dims[d] = {Factor{size, true, x.any()}};
  }
  return one(p.result(id, std::move(dims), call.type(), x.data, x.uniform));
}

Results flip(const Call& call) {
  const auto ds = wrap(call.integers(1), call.tensor(0).rank());
  return reread(call, ds, [](const Call& c, size_t, Expr size) {
    Pass& p = c.pass();
    const int64_t last = p.truth(p.pool().sub(size, p.num(1)));
    return clamped(p, p.binary("aten.sub.Tensor", last, p.iota(size)), last);
  });
}

Results roll(const Call& call) {
  const Value x = call.tensor(0);
  auto ds = wrap(call.integers(2), x.rank());
  if (ds.empty()) refuse("rolling over all dimensions at once");
  return reread(call, ds, [](const Call& c, size_t i, Expr size) {
    Pass& p = c.pass();
    const Expr by = c.exprs(1)[i];
    const int64_t at = p.binary("aten.sub.Tensor", p.iota(size), p.truth(by));
    return p.binary("aten.remainder.Tensor", at, p.truth(size));
  });
}

// Rows and columns keep their coordinates, so the triangle is the same; elements become 0 or stay.
Results triangle(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  const size_t rank = x.rank();
  if (rank < 2 || x.dims[rank - 1].size() > 1 || x.dims[rank - 2].size() > 1)
    refuse("a triangle of merged dimensions");
  const int64_t row = p.along(p.iota(p.size(x, rank - 2)), 2, 0, p.size(x, rank - 2));
  const int64_t column = p.along(p.iota(p.size(x, rank - 1)), 2, 1, p.size(x, rank - 1));
  const int64_t edge = p.binary("aten.add.Tensor", row, p.truth(call.expr(1, 0)));
  const int64_t keep =
      p.binary(call.name() == "tril" ? "aten.le.Tensor" : "aten.ge.Tensor", column, edge);
  const int64_t id = p.where(
      keep, x.id, p.constant(State::zero().in(x.dtype).value().value_or(int64_t{0}), x.dtype));
  Layout dims = with_states(x.dims, [&](const State& s) {
    return join(x.uniform ? State::constant(*x.uniform) : s, State::zero().in(x.dtype));
  });
  return one(p.result(id, std::move(dims), call.type(), join(x.data, State::zero())));
}

// Element i of a diagonal is x[i, i + offset], at every size: the true ones are in front, and what
// follows lies in the padding of one of the two dimensions.
Results diagonal(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  const int64_t offset = call.integer(1, 0, "offset");
  const size_t a = wrap(call.integer(2, 0, "dim1"), x.rank());
  const size_t b = wrap(call.integer(3, 1, "dim2"), x.rank());
  if (x.dims[a].size() > 1 || x.dims[b].size() > 1) refuse("a diagonal of a merged dimension");
  const Expr length = call.sizes().back();
  if (p.pool().is_opaque(length)) refuse("a diagonal of a length that the analysis does not know");
  Layout dims;
  for (size_t d = 0; d < x.rank(); ++d) {
    if (d != a && d != b) dims.push_back(x.dims[d]);
  }
  State state = State::zero();
  bool first = true;
  for (const size_t d : {a, b}) {
    if (!x.padded(d)) continue;
    state = first ? x.at({d, 0}) : join(state, x.at({d, 0}));
    first = false;
  }
  dims.push_back(p.prefix_dim(length, state));
  const int64_t id =
      p.emit("aten.diagonal.default", {Pass::ref(x), Arg{offset}, dim_arg(a), dim_arg(b)});
  return one(p.result(id, std::move(dims), call.type(), x.data, x.uniform));
}

// (x, src, offset, dim1, dim2): what is written beyond the true diagonal lies in the padding.
Results diagonal_scatter(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  Value src = call.tensor(1);
  const int64_t offset = call.integer(2, 0, "offset");
  const size_t a = wrap(call.integer(3, 0, "dim1"), x.rank());
  const size_t b = wrap(call.integer(4, 1, "dim2"), x.rank());
  if (x.dims[a].size() > 1 || x.dims[b].size() > 1) refuse("a diagonal of a merged dimension");
  if (src.rank() + 1 != x.rank() || src.dims.back().size() > 1)
    refuse("a diagonal of another rank");
  Layout dims = x.dims;
  size_t from = 0;
  for (size_t d = 0; d < x.rank(); ++d) {
    if (d == a || d == b) {
      for (Factor& f : dims[d]) {
        if (f.padded) f.state = join(x.at({d, 0}), src.any());
      }
      continue;
    }
    if (x.uniform && !src.uniform) dims[d] = src.dims[from];
    p.conform(src, from, dims[d]);
    for (size_t k = 0; k < dims[d].size(); ++k) {
      const State own = x.uniform ? State::constant(*x.uniform) : x.at({d, k});
      if (dims[d][k].padded) dims[d][k].state = join(own, src.at({from, k}));
    }
    ++from;
  }
  const State data = join(x.uniform ? State::constant(*x.uniform) : x.data,
                          src.uniform ? State::constant(*src.uniform) : src.data);
  const int64_t id = p.emit("aten.diagonal_scatter.default",
                            {Pass::ref(x), Pass::ref(src), Arg{offset}, dim_arg(a), dim_arg(b)});
  return one(p.result(id, std::move(dims), call.type(), data));
}

}  // namespace

void add_slice_rules(RuleTable& table) {
  table.add({"slice"}, slice_rule,
            "a fixed start leaves a prefix; a moving one is read in true coordinates");
  table.add({"narrow", "narrow_copy"}, narrow, "a slice");
  table.add({"split", "split_with_sizes", "split_with_sizes_copy"}, split,
            "slices one after the other");
  table.add({"select"}, select, "one true position");
  table.add({"slice_scatter"}, slice_scatter,
            "true positions of the part are written, padding never lands on true elements");
  table.add({"select_scatter"}, select_scatter, "a slice of length 1");
  table.add({"flip", "rev"}, flip, "read backwards from the true end");
  table.add({"roll"}, roll, "read at (position - shift) modulo the true length");
  table.add({"tril", "triu"}, triangle, "true positions keep their coordinates");
  table.add({"diagonal_scatter"}, diagonal_scatter,
            "elements of the true diagonal have the same coordinates at every size");
  table.add({"diagonal", "diagonal_copy"}, diagonal, "the diagonal of two prefixes is a prefix");
}

}  // namespace nc::padding
