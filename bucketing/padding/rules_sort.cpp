// Sorting, and picking elements by their rank.
#include <algorithm>
#include <cmath>

#include "bucketing/padding/rule.hpp"

namespace nc::padding {
namespace {

// Values and positions; elements that are equal keep their order.
int64_t sorted(Pass& p, const Value& x, size_t d, bool descending) {
  return p.emit_several("aten.sort.stable", 2, {Pass::ref(x)},
                        {{"stable", Arg{true}},
                         {"dim", Arg{static_cast<int64_t>(d)}},
                         {"descending", Arg{descending}}});
}

// The first `count` of the two results at `first`, again side by side.
int64_t front(Pass& p, int64_t first, size_t d, Expr count) {
  const auto part = [&](int64_t id) {
    return p.emit("aten.slice.Tensor", {Pass::ref(id), Arg{static_cast<int64_t>(d)},
                                        Arg{int64_t{0}}, Arg{count}, Arg{int64_t{1}}});
  };
  const int64_t values = part(first);
  part(first + 1);
  return values;
}

// Padding is made the last of all. It follows true elements that are as great, because it lies
// behind them and the order of equals is kept; in a merged dimension the true part is packed in
// front.
Results sort(const Call& call) {
  Pass& p = call.pass();
  Value x = call.tensor(0);
  if (x.rank() == 0) return unchanged(call);
  const bool is_topk = call.name() == "topk";
  const size_t d =
      wrap(is_topk ? call.integer(2, -1, "dim") : call.integer(1, -1, "dim"), x.rank());
  const bool descending =
      is_topk ? call.boolean(3, true, "largest") : call.boolean(2, false, "descending");
  const Dim old = x.dims[d];
  const Expr length = call.sizes()[d];
  ArgList args = call.args();
  int64_t first = 0;
  if (x.padded(d)) {
    if (x.dtype.is_bool()) refuse("sorting booleans");
    // NaN counts as the greatest of all; where the true part may hold it, so must the padding.
    if (descending || data_of(x).is_finite()) {
      x = p.need(x, descending ? lowest(x.dtype) : highest(x.dtype), x.places(d));
    } else {
      x = p.masked(x, x.places(d), std::nan(""), false);
    }
    first = sorted(p, x, d, descending);
    if (is_topk) first = front(p, first, d, length);
  } else {
    args[0] = Pass::ref(x);
    first = p.emit_several(call.op(), 2, std::move(args), call.kwargs());
  }
  Layout values = x.dims;
  Layout indices = with_states(x.dims, [](const State&) { return State::non_negative(); });
  const bool whole = p.is_padded(length);
  if (is_topk && whole) refuse("a number of elements that varies");
  values[d] = whole ? Dim{Factor{length, true, State::anything()}}
                    : p.prefix_dim(length, State::anything());
  indices[d] = whole ? Dim{Factor{length, true, State::non_negative()}}
                     : p.prefix_dim(length, State::finite());
  for (const Place& place : x.places()) {
    if (place.dim != d)
      values[place.dim][place.factor].state =
          x.any().is_finite() ? State::finite() : State::anything();
  }
  int64_t where = first + 1;
  if (old.size() > 1) {
    where = to_true(p, where, old);
  }
  return {p.result(first, std::move(values), call.type(0), data_of(x)),
          p.result(where, std::move(indices), call.type(1), State::non_negative())};
}

// The element of rank k (from 0, a true length) along d, and where it is.
Results ranked(const Call& call, Value x, size_t d, Expr rank, bool keep) {
  Pass& p = call.pass();
  if (x.dtype.is_bool() || x.dtype.is_complex()) refuse("the rank of other than numbers");
  // NaN comes first in a median and last in an order.
  if (!data_of(x).is_finite()) refuse("the rank of values that may be NaN");
  const Dim old = x.dims[d];
  x = p.need(x, highest(x.dtype), x.places(d));
  const int64_t first = sorted(p, x, d, false);
  const int64_t at = p.reshape(p.truth(rank), {p.num(1)});
  Layout dims;
  for (size_t i = 0; i < x.rank(); ++i) {
    if (i != d) {
      dims.push_back(x.dims[i]);
    } else if (keep) {
      dims.emplace_back();
    }
  }
  const bool finite = x.outside(d).is_finite();
  Layout values = with_states(dims, [&](const State&) { return finite_if(finite); });
  Layout indices = with_states(dims, [](const State&) { return State::non_negative(); });
  Results out;
  out.emplace_back(p.result(p.reshape(p.pick(first, d, at), call.sizes(0)), std::move(values),
                            call.type(0), data_of(x)));
  if (call.node().several) {
    const int64_t where = p.reshape(p.pick(first + 1, d, at), call.sizes(1));
    out.emplace_back(p.result(old.size() > 1 ? to_true(p, where, old) : where, std::move(indices),
                              call.type(1), State::non_negative()));
  }
  return out;
}

// Without padding along the dimension: rows one by one.
Results row_by_row(const Call& call, const Value& x, size_t d, bool keep) {
  Pass& p = call.pass();
  ArgList args = call.args();
  args[0] = Pass::ref(x);
  const int64_t first = p.emit_several(call.op(), 2, std::move(args), call.kwargs());
  Layout dims;
  for (size_t i = 0; i < x.rank(); ++i) {
    if (i != d) {
      dims.push_back(x.dims[i]);
    } else if (keep) {
      dims.emplace_back();
    }
  }
  const bool finite = x.any().is_finite();
  return {p.result(first, with_states(dims, [&](const State&) { return finite_if(finite); }),
                   call.type(0), finite_if(data_of(x).is_finite())),
          p.result(first + 1, with_states(dims, [](const State&) { return State::non_negative(); }),
                   call.type(1), State::non_negative())};
}

// (x), or (x, dim, keep): the lower of two in the middle.
Results median(const Call& call) {
  Pass& p = call.pass();
  Value x = call.tensor(0);
  size_t d = 0;
  bool keep = false;
  if (call.node().several) {
    if (x.rank() == 0) return unchanged(call);
    d = wrap(call.integer(1, -1, "dim"), x.rank());
    keep = call.boolean(2, false, "keepdim");
    if (!x.padded(d)) return row_by_row(call, x, d, keep);
  } else {
    Expr total = p.num(1);
    for (size_t i = 0; i < x.rank(); ++i) total = p.pool().mul(total, p.size(x, i));
    const Layout flat = regroup(p, x.dims, {total});
    x = p.made(p.reshape(x.id, {total}), flat, x.dtype, x.data);
  }
  const Expr last = p.pool().sub(p.size(x, d), p.num(1));
  return ranked(call, x, d, p.pool().floor_div(last, p.num(2)), keep);
}

// (x, k, dim, keep): k counts from 1.
Results kth(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  if (x.rank() == 0) return unchanged(call);
  const size_t d = wrap(call.integer(2, -1, "dim"), x.rank());
  const bool keep = call.boolean(3, false, "keepdim");
  const Expr k = call.expr(1, 1, "k");
  if (!x.padded(d)) {
    if (p.is_padded(k)) refuse("a rank that varies");
    return row_by_row(call, x, d, keep);
  }
  return ranked(call, x, d, p.pool().sub(k, p.num(1)), keep);
}

}  // namespace

void add_sort_rules(RuleTable& table) {
  table.add({"sort", "topk"}, sort,
            "padding is the last of all, behind true elements that are equal");
  table.add({"median"}, median, "padding is the last of all; the rank is that of the true length");
  table.add({"kthvalue"}, kth, "padding is the last of all");
}

}  // namespace nc::padding
