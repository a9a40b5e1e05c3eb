// Running sums and the like, and sorting.
#include <algorithm>
#include <cmath>

#include "bucketing/padding/rule.hpp"

namespace nc::padding {
namespace {

State data_of(const Value& v) {
  return v.uniform ? State::constant(*v.uniform) : v.data;
}

// Padding lies behind the true part, so what runs forward has not seen it yet. In a merged
// dimension it lies between true parts and must be neutral.
Results cumulative(const Call& call) {
  Pass& p = call.pass();
  Value x = call.tensor(0);
  if (x.rank() == 0) return unchanged(call);
  const size_t d = wrap(call.integer(1, 0, "dim"), x.rank());
  const bool is_sum = call.name() == "cumsum";
  const bool pair = call.node().several;
  if (x.dims[d].size() > 1 && x.padded(d)) {
    if (pair || call.name() == "logcumsumexp") refuse("running along a merged dimension");
    x = p.need(x, int64_t{is_sum ? 0 : 1}, x.places(d));
  }
  ArgList args = call.args();
  args[0] = Pass::ref(x);
  Layout dims = x.dims;
  for (const Place& place : x.places()) {
    State& s = dims[place.dim][place.factor].state;
    s = place.dim == d          ? finite_if(x.any().is_finite())
        : s.is_zero() && is_sum ? State::zero()
                                : finite_if(x.at(place).is_finite());
  }
  const State data = finite_if(data_of(x).is_finite());
  if (!pair)
    return one(p.result(p.emit(call.op(), std::move(args), call.kwargs()), std::move(dims),
                        call.type(), data));
  const int64_t first = p.emit_several(call.op(), 2, std::move(args), call.kwargs());
  Layout where = with_states(x.dims, [](const State&) { return State::non_negative(); });
  return {p.result(first, std::move(dims), call.type(0), data),
          p.result(first + 1, std::move(where), call.type(1), State::non_negative())};
}

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

// Elements outside of the range are not counted.
Results histogram(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  const auto low = call.scalar(2);
  const auto high = call.scalar(3);
  if (!low || !high || to_double(*low) >= to_double(*high))
    refuse("a histogram over a range that depends on the data");
  const Value y =
      p.need(x, x.dtype.is_inexact() ? Scalar{to_double(*high) + 1}
                                     : Scalar{static_cast<int64_t>(to_double(*high)) + 1});
  ArgList args = call.args();
  args[0] = Pass::ref(y);
  return one(p.result(p.emit(call.op(), std::move(args), call.kwargs()),
                      p.fresh(call.sizes(), State::finite()), call.type(), State::non_negative()));
}

}  // namespace

void add_scan_rules(RuleTable& table) {
  static constexpr std::string_view kWhy = "padding lies behind, or is neutral";
  table.add({"cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"}, cumulative, kWhy);
  table.add({"sort", "topk"}, sort,
            "padding is the last of all, behind true elements that are equal");
  table.add({"histc"}, histogram, "padding is put outside of the range");
}

}  // namespace nc::padding
