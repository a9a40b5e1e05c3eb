// Reductions: padding in a reduced dimension is made neutral first; counts are true counts.
#include <algorithm>
#include <functional>

#include "bucketing/padding/rule.hpp"

namespace nc::padding {
namespace {

struct Reduced {
  Checked<size_t> dims;
  bool keep = false;

  bool has(size_t d) const { return std::find(dims.begin(), dims.end(), d) != dims.end(); }
  Arg axes() const {
    std::vector<int64_t> all(dims.begin(), dims.end());
    return Pass::int_list(all);
  }
};

Reduced reduced(const Call& call, const Value& x, size_t dims_at, size_t keep_at) {
  Reduced r;
  const Arg& which = call.arg(dims_at, "dim");
  if (which.is_none() || (which.list() != nullptr && which.list()->empty())) {
    for (size_t d = 0; d < x.rank(); ++d) r.dims.push_back(d);
  } else if (x.rank() > 0) {
    r.dims = wrap(call.integers(dims_at, "dim"), x.rank());
  }
  r.keep = call.boolean(keep_at, false, "keepdim");
  return r;
}

std::vector<Place> reduced_places(const Value& x, const Reduced& r) {
  std::vector<Place> places;
  for (const Place& place : x.places()) {
    if (r.has(place.dim)) places.push_back(place);
  }
  return places;
}

template <class F>
Layout remaining(const Value& x, const Reduced& r, F state) {
  Layout dims;
  for (size_t d = 0; d < x.rank(); ++d) {
    if (!r.has(d)) {
      Dim dim = x.dims[d];
      for (size_t k = 0; k < dim.size(); ++k) {
        if (dim[k].padded) dim[k].state = state(x.at({d, k}));
      }
      dims.push_back(std::move(dim));
    } else if (r.keep) {
      dims.emplace_back();
    }
  }
  return dims;
}

// What a sum of such elements may be.
State summed(const State& s) {
  return s.is_zero() ? s : s.weakened();
}
State keep_state(const State& s) {
  return s;
}
State boolean_state(const State& s) {
  return s.value() ? State::constant(to_double(*s.value()) != 0) : State::non_negative();
}
State finite_state(const State& s) {
  return finite_if(s.is_finite());
}
State non_negative_state(const State& s) {
  return s.is_finite() ? State::non_negative() : State::anything();
}

// Reduces over `r` with `neutral` in the padding there.
template <class F, class Emit>
Results reduce(const Call& call, const Value& x, const Reduced& r, Scalar neutral, F state,
               Emit emit) {
  Pass& p = call.pass();
  const Value y = p.need(x, neutral, reduced_places(x, r));
  // Along a factor that stays, each result comes from at least one element that is not the neutral
  // one.
  Layout dims = remaining(x, r, state);
  return one(p.result(emit(y), std::move(dims), call.type(), state(data_of(x))));
}

Expr true_count(Pass& p, const Value& x, const Reduced& r) {
  Expr count = p.num(1);
  for (const size_t d : r.dims) count = p.pool().mul(count, p.size(x, d));
  return count;
}

Kwargs dtype_of(const Call& call, size_t at) {
  const Arg& dtype = call.arg(at, "dtype");
  if (dtype.is_none()) return {};
  return {{"dtype", dtype}};
}

Results sum(const Call& call) {
  const Value x = call.tensor(0);
  const bool whole = call.op() == "aten.sum.default";
  Reduced all;
  if (!whole) all = reduced(call, x, 1, 2);
  if (whole) {
    for (size_t d = 0; d < x.rank(); ++d) all.dims.push_back(d);
  }
  Kwargs kwargs = dtype_of(call, 99);
  return reduce(call, x, all, int64_t{0}, summed, [&](const Value& y) {
    return call.pass().emit("aten.sum.dim_IntList", {Pass::ref(y), all.axes(), Arg{all.keep}},
                            kwargs);
  });
}

int64_t divide_by_count(Pass& p, int64_t id, Expr count) {
  return p.binary("aten.div.Tensor", id, p.truth(count));
}

Results mean(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  Reduced r;
  if (call.op() == "aten.mean.default") {
    for (size_t d = 0; d < x.rank(); ++d) r.dims.push_back(d);
  } else {
    r = reduced(call, x, 1, 2);
  }
  Kwargs kwargs = dtype_of(call, 99);
  const bool counted = !reduced_places(x, r).empty();
  return reduce(call, x, r, int64_t{0}, summed, [&](const Value& y) {
    if (!counted) return p.emit("aten.mean.dim", {Pass::ref(y), r.axes(), Arg{r.keep}}, kwargs);
    // Half types add up in float32 inside of mean; a sum that is rounded first would differ.
    const bool half =
        call.type().dtype.name() == "bfloat16" || call.type().dtype.name() == "float16";
    Kwargs wide = kwargs;
    if (half) wide = {{"dtype", Arg{Dtype("float32")}}};
    const int64_t total =
        p.emit("aten.sum.dim_IntList", {Pass::ref(y), r.axes(), Arg{r.keep}}, wide);
    const int64_t id = divide_by_count(p, total, true_count(p, x, r));
    return half ? p.cast(id, call.type().dtype) : id;
  });
}

Results extreme(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  const bool is_max = call.name() == "amax";
  const Reduced r = reduced(call, x, 1, 2);
  const auto places = reduced_places(x, r);
  Results out = reduce(call, x, r, is_max ? lowest(x.dtype) : highest(x.dtype), keep_state,
                       [&](const Value& y) {
                         return p.emit(call.op(), {Pass::ref(y), r.axes(), Arg{r.keep}});
                       });
  if (is_max && r.keep)
    out[0]->origin = std::make_shared<Origin>(Origin{Origin::Kind::kMaximum, x.id, places});
  return out;
}

// max / min: of all elements, or along one dimension with positions.
Results extreme_with_index(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  const Scalar neutral = call.name() == "max" ? lowest(x.dtype) : highest(x.dtype);
  if (!call.node().several) {
    if (call.count() > 1) return pointwise(call);
    Reduced r;
    for (size_t d = 0; d < x.rank(); ++d) r.dims.push_back(d);
    const std::string op = call.name() == "max" ? "aten.amax.default" : "aten.amin.default";
    return reduce(call, x, r, neutral, keep_state, [&](const Value& y) {
      return p.emit(op, {Pass::ref(y), r.axes(), Arg{false}});
    });
  }
  const Reduced r = reduced(call, x, 1, 2);
  if (x.rank() > 0 && x.dims[r.dims[0]].size() > 1)
    refuse("the position of an extreme in a merged dimension");
  const Value y = p.need(x, neutral, reduced_places(x, r));
  const auto d = static_cast<int64_t>(r.dims.empty() ? 0 : r.dims[0]);
  const int64_t first = p.emit_several(call.op(), 2, {Pass::ref(y), Arg{d}, Arg{r.keep}});
  return {p.result(first, remaining(x, r, keep_state), call.type(0), data_of(x)),
          p.result(first + 1, remaining(x, r, [](const State&) { return State::non_negative(); }),
                   call.type(1), State::non_negative())};
}

Results arg_extreme(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  if (!call.has(1, "dim") && x.rank() > 1) refuse("the position of an extreme among all elements");
  Reduced r;
  r.dims = {wrap(call.integer(1, 0, "dim"), x.rank())};
  r.keep = call.boolean(2, false, "keepdim");
  if (x.rank() > 0 && x.dims[r.dims[0]].size() > 1)
    refuse("the position of an extreme in a merged dimension");
  return reduce(
      call, x, r, call.name() == "argmax" ? lowest(x.dtype) : highest(x.dtype),
      [](const State&) { return State::non_negative(); },
      [&](const Value& y) {
        return p.emit(call.op(), {Pass::ref(y), Arg{static_cast<int64_t>(r.dims[0])}, Arg{r.keep}});
      });
}

Results any_all(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  Reduced r;
  const bool whole = call.count() == 1;
  if (whole) {
    for (size_t d = 0; d < x.rank(); ++d) r.dims.push_back(d);
  } else {
    r = reduced(call, x, 1, 2);
  }
  const Scalar neutral = int64_t{call.name() == "all" ? 1 : 0};
  return reduce(call, x, r, neutral, boolean_state, [&](const Value& y) {
    if (whole) return p.emit(call.op(), {Pass::ref(y)});
    ArgList args = call.args();
    args[0] = Pass::ref(y);
    return p.emit(call.op(), std::move(args), call.kwargs());
  });
}

Results product(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  Reduced r;
  const bool whole = call.op() == "aten.prod.default";
  if (whole) {
    for (size_t d = 0; d < x.rank(); ++d) r.dims.push_back(d);
  } else {
    r.dims = {wrap(call.integer(1, 0), x.rank())};
    r.keep = call.boolean(2, false);
  }
  const Value y = p.need(x, int64_t{1}, reduced_places(x, r));
  // A row of padding may hold larger elements than any true row, and their product no ordinary
  // size.
  Layout dims = remaining(
      x, r, [](const State& s) { return within_one(s) ? State::finite() : State::anything(); });
  ArgList args = call.args();
  args[0] = Pass::ref(y);
  return one(p.result(p.emit(call.op(), std::move(args), call.kwargs()), std::move(dims),
                      call.type(), finite_state(data_of(x))));
}

// Two passes over true elements: mean, then the squares of what is left.
Results variance(const Call& call) {
  Pass& p = call.pass();
  if (!call.op().ends_with(".correction")) refuse("an overload without a correction");
  const Value x = call.tensor(0);
  Reduced r = reduced(call, x, 1, 99);
  r.keep = call.boolean(99, false, "keepdim");
  const bool both = call.node().several;
  const Arg& c = call.arg(99, "correction");
  double correction = 1;
  if (const auto s = call.scalar(99, "correction"))
    correction = to_double(*s);
  else if (!c.is_none())
    refuse("a correction that varies");
  const auto places = reduced_places(x, r);
  const bool root = call.name() == "std" || call.name() == "std_mean";
  if (places.empty()) {
    Kwargs kwargs = {{"correction", c.is_none() ? Arg{int64_t{1}} : c}, {"keepdim", Arg{r.keep}}};
    if (!both) {
      const int64_t id = p.emit(call.op(), {Pass::ref(x), r.axes()}, kwargs);
      return one(p.result(id, remaining(x, r, non_negative_state), call.type(),
                          non_negative_state(data_of(x))));
    }
    const int64_t first = p.emit_several(call.op(), 2, {Pass::ref(x), r.axes()}, kwargs);
    return {p.result(first, remaining(x, r, non_negative_state), call.type(0),
                     non_negative_state(data_of(x))),
            p.result(first + 1, remaining(x, r, summed), call.type(1), summed(data_of(x)))};
  }
  const Expr count = true_count(p, x, r);
  const Value y = p.need(x, int64_t{0}, places);
  const bool half = x.dtype.name() == "bfloat16" || x.dtype.name() == "float16";
  const Dtype wide(half ? "float32" : x.dtype.name());
  const int64_t source = half ? p.cast(y.id, wide) : y.id;
  const int64_t average = divide_by_count(
      p, p.emit("aten.sum.dim_IntList", {Pass::ref(source), r.axes(), Arg{true}}), count);
  Layout around = with_states(x.dims, finite_state);
  for (const Place& place : places) around[place.dim][place.factor].state = State::anything();
  Value centred = p.made(p.binary("aten.sub.Tensor", source, average), std::move(around), wide,
                         State::finite());
  // Between the sums its padding is y's 0 less a mean.
  centred = p.masked(centred, places, int64_t{0}, false);
  const int64_t square = p.binary("aten.mul.Tensor", centred.id, centred.id);
  int64_t id = p.emit("aten.sum.dim_IntList", {Pass::ref(square), r.axes(), Arg{r.keep}});
  // max(count - correction, 0), as PyTorch divides; 0 gives NaN or infinity there, too.
  int64_t freedom = p.truth(count);
  if (correction != 0) {
    freedom = p.emit(
        "aten.sub.Tensor",
        {Pass::ref(freedom), correction == static_cast<double>(static_cast<int64_t>(correction))
                                 ? Arg{static_cast<int64_t>(correction)}
                                 : Arg{correction}});
    freedom = p.emit("aten.clamp_min.default", {Pass::ref(freedom), Arg{int64_t{0}}});
  }
  id = p.binary("aten.div.Tensor", id, freedom);
  if (root) id = p.emit("aten.sqrt.default", {Pass::ref(id)});
  if (half) id = p.cast(id, x.dtype);
  Value spread = p.result(id, remaining(x, r, non_negative_state), call.type(0),
                          non_negative_state(data_of(x)));
  if (!both) return one(std::move(spread));
  int64_t centre = r.keep ? average : p.reshape(average, call.sizes(1));
  if (half) centre = p.cast(centre, x.dtype);
  return {std::move(spread),
          p.result(centre, remaining(x, r, finite_state), call.type(1), finite_state(data_of(x)))};
}

Results vector_norm(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  const double order = call.scalar(1).has_value() ? to_double(*call.scalar(1)) : 2;
  if (x.dtype.is_complex()) refuse("a norm of complex numbers");
  const Reduced r = reduced(call, x, 2, 3);
  if (order < 0) refuse("a norm of negative order");
  return reduce(call, x, r, int64_t{0}, non_negative_state, [&](const Value& y) {
    ArgList args = {Pass::ref(y), call.has(1) ? call.arg(1) : Arg{int64_t{2}}, r.axes(),
                    Arg{r.keep}};
    return p.emit(call.op(), std::move(args), call.kwargs());
  });
}

Results logsumexp(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  const Reduced r = reduced(call, x, 1, 2);
  return reduce(call, x, r, lowest(Dtype("float32")), finite_state, [&](const Value& y) {
    return p.emit(call.op(), {Pass::ref(y), r.axes(), Arg{r.keep}});
  });
}

}  // namespace

void add_reduction_rules(RuleTable& table) {
  table.add({"sum"}, sum, "0 is neutral");
  table.add({"mean"}, mean, "sum with 0 as neutral, divided by the true count");
  table.add({"amax", "amin"}, extreme, "the lowest (highest) value is neutral");
  table.add({"max", "min"}, extreme_with_index,
            "the lowest (highest) value is neutral, and loses ties: it lies behind");
  table.add({"argmax", "argmin"}, arg_extreme,
            "the lowest (highest) value is neutral, and loses ties: it lies behind");
  table.add({"any", "all"}, any_all, "false (true) is neutral");
  table.add({"prod"}, product, "1 is neutral");
  table.add({"var", "var_mean", "std", "std_mean"}, variance,
            "squares of true elements around the true mean, over the true count");
  table.add({"linalg_vector_norm"}, vector_norm, "0 adds nothing to a norm of order >= 0");
  table.add({"logsumexp"}, logsumexp, "exp(-inf) adds nothing");
}

}  // namespace nc::padding
