// Putting tensors together, and constants around them.
#include <algorithm>

#include <fmt/format.h>

#include "bucketing/padding/rule.hpp"

namespace nc::padding {
namespace {

State state_of(const Value& v, size_t d, size_t k) {
  return v.uniform ? State::constant(*v.uniform) : v.at({d, k});
}

// Layout of several values of equal sizes but along `skip`: factors of the first that has its own.
Layout common(Pass& p, std::vector<Value>& xs, size_t skip) {
  const auto own = std::find_if(xs.begin(), xs.end(), [](const Value& x) { return !x.uniform; });
  Layout dims = own == xs.end() ? xs[0].dims : own->dims;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (d == skip) continue;
    for (Value& x : xs) {
      if (!x.uniform) p.conform(x, d, dims[d]);
    }
    for (size_t k = 0; k < dims[d].size(); ++k) {
      if (!dims[d][k].padded) continue;
      State all = state_of(xs[0], d, k);
      if (xs[0].uniform) all = State::constant(*xs[0].uniform);
      for (const Value& x : xs) all = join(all, state_of(x, d, k));
      dims[d][k].state = all;
    }
  }
  return dims;
}

// Moves the true part of a merged dimension to its front.
Value packed(Pass& p, const Value& x, size_t d) {
  if (x.dims[d].size() < 2 || !x.padded(d) || x.uniform) return x;
  const Expr size = p.size(x, d);
  const int64_t last = p.truth(p.pool().sub(size, p.num(1)));
  const int64_t index =
      p.to_padded(p.binary("aten.minimum.default", p.iota(size), last), x.dims[d], true);
  Layout dims = x.dims;
  dims[d] = {Factor{size, true, x.any()}};
  return p.made(p.pick(x.id, d, index), std::move(dims), x.dtype, x.data);
}

// Several pieces of the same padded size: an outer factor counts them, and nothing has to move.
bool equal_pieces(Pass& p, const std::vector<Value>& xs, size_t d) {
  if (xs.size() < 2 || !xs[0].padded(d)) return false;
  return std::all_of(xs.begin(), xs.end(), [&](const Value& x) {
    return x.dims[d].size() == xs[0].dims[d].size() &&
           p.product(x.dims[d]) == p.product(xs[0].dims[d]) && p.same(x.dims[d], xs[0].dims[d]);
  });
}

Results repeated(const Call& call, const std::vector<Value>& xs, size_t d, Layout dims) {
  Pass& p = call.pass();
  ArgList refs;
  State data = xs[0].uniform ? State::constant(*xs[0].uniform) : xs[0].data;
  Dim dim = {Factor{p.num(static_cast<int64_t>(xs.size())), false, State::finite()}};
  dim.insert(dim.end(), xs[0].dims[d].begin(), xs[0].dims[d].end());
  for (size_t k = 1; k < dim.size(); ++k) {
    if (!dim[k].padded) continue;
    dim[k].state = state_of(xs[0], d, k - 1);
    for (const Value& x : xs) dim[k].state = join(dim[k].state, state_of(x, d, k - 1));
  }
  for (const Value& x : xs) {
    refs.push_back(Pass::ref(x));
    data = join(data, x.uniform ? State::constant(*x.uniform) : x.data);
  }
  p.remember_merge(dim);
  dims[d] = std::move(dim);
  const int64_t id =
      p.emit("aten.cat.default", {Arg{std::move(refs)}, Arg{static_cast<int64_t>(d)}});
  return one(p.result(id, std::move(dims), call.type(), data));
}

Results cat(const Call& call) {
  Pass& p = call.pass();
  ExprPool& pool = p.pool();
  const auto* list = call.arg(0).list();
  if (list == nullptr || list->empty()) refuse("nothing to join");
  const size_t rank = call.type().sizes.size();
  const size_t d = wrap(call.integer(1, 0, "dim"), rank);
  std::vector<Value> xs;
  for (const Arg& a : *list) {
    Value x = call.tensor(a);
    if (x.rank() == 1 && rank > 1) continue;  // the empty tensor of old programs
    if (x.rank() != rank) refuse("tensors of other ranks are joined");
    xs.push_back(std::move(x));
  }
  if (xs.empty()) refuse("nothing to join");
  if (!equal_pieces(p, xs, d)) {
    for (Value& x : xs) x = packed(p, x, d);
  }
  Layout dims = common(p, xs, d);
  ArgList refs;
  State data = State::zero();
  bool first = true;
  if (equal_pieces(p, xs, d)) return repeated(call, xs, d, std::move(dims));
  for (const Value& x : xs) {
    refs.push_back(Pass::ref(x));
    data = first ? x.any() : join(data, x.any());
    first = false;
  }
  int64_t id = p.emit("aten.cat.default", {Arg{std::move(refs)}, Arg{static_cast<int64_t>(d)}});
  const Expr total = call.sizes()[d];
  size_t padded_before_last = 0;
  for (size_t i = 0; i + 1 < xs.size(); ++i) padded_before_last += xs[i].padded(d) ? 1 : 0;
  if (padded_before_last == 0) {
    const Value& last = xs.back();
    const State tail = last.uniform     ? State::constant(*last.uniform)
                       : last.padded(d) ? last.at({d, 0})
                                        : State::finite();
    dims[d] = {Factor{total, p.is_padded(total), tail}};
    return one(p.result(id, std::move(dims), call.type(), data));
  }
  // Padding lies between the pieces: position j of the result is read from where its piece begins
  // at B.
  const int64_t at = p.iota(total);
  int64_t index = at;
  Expr offset = p.num(0);
  for (size_t i = 0; i + 1 < xs.size(); ++i) {
    offset = pool.add(offset, p.size(xs[i], d));
    const int64_t shift = p.binary("aten.sub.Tensor", p.bucket_size(offset), p.truth(offset));
    const int64_t later = p.binary("aten.ge.Tensor", at, p.truth(offset));
    index = p.where(later, p.binary("aten.add.Tensor", at, shift), index);
  }
  index = p.binary("aten.minimum.default", index, p.bucket_size(pool.sub(total, p.num(1))));
  dims[d] = {Factor{total, true, data}};
  return one(p.result(p.pick(id, d, index), std::move(dims), call.type(), data));
}

Results stack(const Call& call) {
  Pass& p = call.pass();
  const auto* list = call.arg(0).list();
  if (list == nullptr || list->empty()) refuse("nothing to join");
  const size_t rank = call.type().sizes.size();
  const size_t d = wrap(call.integer(1, 0, "dim"), rank);
  std::vector<Value> xs;
  ArgList refs;
  State data = State::zero();
  for (const Arg& a : *list) {
    Value x = call.tensor(a);
    if (x.rank() + 1 != rank) refuse("tensors of other ranks are joined");
    x.dims.insert(x.dims.begin() + static_cast<ptrdiff_t>(d), Dim{});
    x.id = p.emit("aten.unsqueeze.default", {Pass::ref(x), Arg{static_cast<int64_t>(d)}});
    const State own = x.uniform ? State::constant(*x.uniform) : x.data;
    data = xs.empty() ? own : join(data, own);
    xs.push_back(std::move(x));
  }
  Layout dims = common(p, xs, d);
  for (const Value& x : xs) refs.push_back(Pass::ref(x));
  dims[d] = p.fresh(call.sizes()[d], State::finite());
  const int64_t id =
      p.emit("aten.cat.default", {Arg{std::move(refs)}, Arg{static_cast<int64_t>(d)}});
  return one(p.result(id, std::move(dims), call.type(), data));
}

// ---- constant_pad_nd: one dimension and one side after the other ----

struct Padding {
  const Call& call;
  Scalar value;
  Value x;

  Pass& pass() const { return call.pass(); }

  void set(int64_t id, size_t d, Dim dim) {
    Layout dims = x.dims;
    dims[d] = std::move(dim);
    State data = join(x.data, State::constant(value));
    x = pass().made(id, std::move(dims), x.dtype, data);
    // Padding in other dimensions may hold the new constant now.
    for (size_t other = 0; other < x.dims.size(); ++other) {
      if (other == d) continue;
      for (Factor& f : x.dims[other]) {
        if (f.padded) f.state = join(f.state, State::constant(value).in(x.dtype));
      }
    }
    x = pass().made(id, x.dims, x.dtype, data);
  }

  int64_t padded_to(size_t d, Expr left, Expr right) {
    ArgList amounts(2 * (x.rank() - d), Arg{int64_t{0}});
    amounts[amounts.size() - 2] = Arg{left};
    amounts[amounts.size() - 1] = Arg{right};
    const Arg fill = std::visit([](auto v) { return Arg{v}; }, value);
    return pass().emit("aten.constant_pad_nd.default",
                       {Pass::ref(x), Arg{std::move(amounts)}, fill});
  }

  // x[k:] or x[:k] of dimension d.
  void cut(size_t d, Expr from, Expr length, bool at_end) {
    Pass& p = pass();
    const State state = x.padded(d) && at_end ? x.at({d, 0}) : x.any();
    const int64_t id =
        p.emit("aten.slice.Tensor", {Pass::ref(x), Arg{static_cast<int64_t>(d)}, Arg{from},
                                     Arg{p.pool().add(from, length)}, Arg{int64_t{1}}});
    Layout dims = x.dims;
    dims[d] = p.prefix_dim(length, state);
    x = p.made(id, std::move(dims), x.dtype, x.data);
  }

  void left(size_t d, Expr amount) {
    Pass& p = pass();
    const auto fixed = p.pool().constant(amount);
    if (!fixed) refuse("padding on the left by an amount that varies");
    if (*fixed == 0) return;
    const Expr size = p.size(x, d);
    const Expr length = p.pool().add(size, amount);
    if (*fixed < 0) return cut(d, p.num(-*fixed), length, true);
    const State tail = x.padded(d) ? x.at({d, 0}) : State::finite();
    set(padded_to(d, amount, p.num(0)), d, p.prefix_dim(length, tail));
  }

  void right(size_t d, Expr amount) {
    Pass& p = pass();
    if (p.pool().is_constant(amount, 0)) return;
    const Expr size = p.size(x, d);
    const Expr length = p.pool().add(size, amount);
    const auto fixed = p.pool().constant(amount);
    const bool shrinks = fixed ? *fixed < 0 : p.pool().nonnegative(p.pool().sub(p.num(0), amount));
    if (shrinks) return cut(d, p.num(0), length, false);
    if (!fixed) p.require(amount);
    int64_t id = padded_to(d, p.num(0), amount);
    const State fill = State::constant(value).in(x.dtype);
    // An amount that is not negative at the buckets may be so at the true sizes: then the end of
    // the true part is cut off, and lies where the constant belongs.
    const bool grows = p.pool().nonnegative(amount);
    if (!grows || (x.padded(d) && !(x.at({d, 0}) == fill))) {
      // The old padding lies where the constant belongs.
      const Expr end = grows ? size : p.pool().min(size, length);
      const int64_t valid = p.binary("aten.lt.Tensor", p.iota(length), p.truth(end));
      id = p.where(p.along(valid, x.rank(), d, length), id,
                   p.constant(fill.value().value_or(value), x.dtype));
    }
    set(id, d, p.prefix_dim(length, fill));
  }
};

Results constant_pad(const Call& call) {
  Pass& p = call.pass();
  Value x = call.tensor(0);
  const auto amounts = call.exprs(1);
  const Scalar value = call.scalar(2).value_or(Scalar{int64_t{0}});
  if (call.arg(2).ref() != nullptr || std::holds_alternative<Expr>(call.arg(2).v))
    refuse("a fill value that varies");
  if (x.uniform) {
    x = p.made(x.id,
               p.fresh(
                   [&] {
                     std::vector<Expr> sizes;
                     for (size_t d = 0; d < x.rank(); ++d) sizes.push_back(p.size(x, d));
                     return sizes;
                   }(),
                   State::constant(*x.uniform)),
               x.dtype, State::constant(*x.uniform));
  }
  Padding padding{call, value, x};
  if (amounts.size() > 2 * x.rank()) refuse("more padding than dimensions");
  for (size_t i = 0; i + 1 < amounts.size(); i += 2) {
    const size_t d = x.rank() - 1 - i / 2;
    const bool nothing =
        p.pool().is_constant(amounts[i], 0) && p.pool().is_constant(amounts[i + 1], 0);
    if (!nothing && x.dims[d].size() > 1) padding.x = packed(p, padding.x, d);
    padding.left(d, amounts[i]);
    padding.right(d, amounts[i + 1]);
  }
  return one(p.result(padding.x.id, padding.x.dims, call.type(), padding.x.data));
}

}  // namespace

void add_join_rules(RuleTable& table) {
  table.add({"cat"}, cat, "true parts follow each other; padding between them is read over");
  table.add({"stack"}, stack, "a new dimension without padding");
  table.add({"constant_pad_nd", "pad"}, constant_pad,
            "in front it moves the prefix; behind, it takes the place of the padding");
}

}  // namespace nc::padding
