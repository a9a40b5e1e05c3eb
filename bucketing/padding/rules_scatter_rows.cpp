// scatter and its relatives: each row of the index writes into the same row of the result.
//
// Padded updates are worth nothing, or go to a place that is cut off again. An index may be shorter
// than what it writes to: then its padding lies on true rows and is made harmless as well.
#include <algorithm>

#include "bucketing/padding/rule.hpp"

namespace nc::padding {
namespace {

// How updates are put together with what is there.
enum class Mode : uint8_t { kOverwrite, kAdd, kMaximum, kMinimum, kMultiply, kMean };

struct How {
  Mode mode = Mode::kOverwrite;
  bool with_self = true;
};

How how_of(const Call& call) {
  if (call.name() == "scatter_add") return {Mode::kAdd, true};
  if (call.name() == "scatter_reduce") {
    const auto* how = std::get_if<std::string>(&call.arg(4, "reduce").v);
    if (how == nullptr) refuse("a reduction that is not known");
    const bool with_self = call.boolean(99, true, "include_self");
    if (*how == "sum") return {Mode::kAdd, with_self};
    if (*how == "amax") return {Mode::kMaximum, with_self};
    if (*how == "amin") return {Mode::kMinimum, with_self};
    if (*how == "prod") return {Mode::kMultiply, with_self};
    if (*how == "mean") return {Mode::kMean, with_self};
    refuse("scatter_reduce with " + *how);
  }
  if (call.op().ends_with(".reduce") || call.op().ends_with(".value_reduce"))
    refuse("scatter with a reduction");
  return {};
}

Scalar neutral(Mode mode, const Dtype& type) {
  switch (mode) {
    case Mode::kMaximum:
      return lowest(type);
    case Mode::kMinimum:
      return highest(type);
    case Mode::kMultiply:
      return int64_t{1};
    default:
      return int64_t{0};
  }
}

// The first rows of v along d, as many as `model` has.
void shorten(Pass& p, Value& v, size_t d, const Dim& model) {
  const Expr size = p.product(model);
  if (p.size(v, d) == size || p.same(model, v.dims[d])) {
    p.conform(v, d, model);
    return;
  }
  if (v.dims[d].size() > 1 || model.size() > 1)
    refuse("an index is padded differently from what it writes");
  p.require(p.pool().sub(p.size(v, d), size));
  Layout dims = v.dims;
  dims[d] = model;
  for (Factor& f : dims[d]) f.state = v.any();
  const int64_t id = p.emit("aten.slice.Tensor", {Pass::ref(v), Arg{static_cast<int64_t>(d)},
                                                  Arg{int64_t{0}}, Arg{size}, Arg{int64_t{1}}});
  const auto uniform = v.uniform;
  v = p.made(id, std::move(dims), v.dtype, data_of(v));
  v.uniform = uniform;
}

struct Rows {
  Layout dims;                // of the result
  std::vector<Place> beyond;  // padding of the index that lies on true rows
};

// What the rows of a scatter's result hold: those of x, or something that was written.
Rows rows(Pass& p, const Value& x, const Value& index, const State& written, size_t along) {
  Rows out{x.dims, {}};
  for (size_t d = 0; d < out.dims.size(); ++d) {
    Dim& dim = out.dims[d];
    if (d == along) {
      if (x.uniform) {
        for (Factor& f : dim) f.state = State::constant(*x.uniform);
      }
      continue;
    }
    if (!x.padded(d) && !index.padded(d)) continue;
    if (x.uniform && p.product(index.dims[d]) == p.product(dim)) dim = index.dims[d];
    if (!p.same(dim, index.dims[d])) {
      if (dim.size() > 1 || index.dims[d].size() > 1 ||
          p.product(dim) == p.product(index.dims[d])) {
        refuse("an index is padded differently from what it writes");
      }
      p.require(p.pool().sub(p.product(dim), p.product(index.dims[d])));
      for (const Place& place : index.places(d)) out.beyond.push_back(place);
    }
    for (size_t k = 0; k < dim.size(); ++k) {
      if (dim[k].padded)
        dim[k].state = join(x.uniform ? State::constant(*x.uniform) : x.at({d, k}), written);
    }
  }
  return out;
}

// One scatter with its operands made ready: padded updates that would count are neutral.
struct Scatter {
  Pass& p;
  int64_t d;
  int64_t at;  // the index, in padded coordinates

  int64_t add(int64_t into, int64_t src) {
    return p.emit("aten.scatter_add.default",
                  {Pass::ref(into), Arg{d}, Pass::ref(at), Pass::ref(src)});
  }
  int64_t reduce(int64_t into, int64_t src, const char* how) {
    return p.emit("aten.scatter_reduce.two",
                  {Pass::ref(into), Arg{d}, Pass::ref(at), Pass::ref(src), Arg{std::string(how)}},
                  {{"include_self", Arg{true}}});
  }
};

const char* name_of(Mode mode) {
  return mode == Mode::kMaximum    ? "amax"
         : mode == Mode::kMinimum  ? "amin"
         : mode == Mode::kMultiply ? "prod"
                                   : "sum";
}

// Without what was there, or as a mean: how many updates each position gets is counted.
int64_t counted(Scatter& s, const Value& x, const Value& index, const Value& src, const How& how,
                const std::vector<Place>& clear) {
  Pass& p = s.p;
  const Dtype count_type = x.dtype.is_float() ? Dtype("float32") : Dtype("int64");
  const auto filled = [&](const Value& like, double value) {
    std::vector<Expr> sizes;
    for (size_t d = 0; d < like.rank(); ++d) sizes.push_back(p.size(like, d));
    return p.emit("aten.expand.default",
                  {Pass::ref(p.constant(
                       State::constant(value).in(count_type).value().value_or(value), count_type)),
                   Pass::size_list(sizes)});
  };
  int64_t ones = filled(index, 1);
  if (!clear.empty())
    ones =
        p.where(p.mask(index.dims, clear), ones,
                p.constant(State::zero().in(count_type).value().value_or(int64_t{0}), count_type));
  const int64_t count = s.add(filled(x, 0), ones);
  int64_t into = x.id;
  if (!how.with_self) {
    const int64_t untouched = p.emit("aten.eq.Scalar", {Pass::ref(count), Arg{int64_t{0}}});
    const Scalar start = State::constant(neutral(how.mode, x.dtype))
                             .in(x.dtype)
                             .value()
                             .value_or(neutral(how.mode, x.dtype));
    into = p.where(untouched, into, p.constant(start, x.dtype));
  }
  if (how.mode != Mode::kMean) return s.reduce(into, src.id, name_of(how.mode));
  const int64_t total = s.add(into, src.id);
  const int64_t of = how.with_self
                         ? p.emit("aten.add.Tensor", {Pass::ref(count), Arg{int64_t{1}}})
                         : p.emit("aten.clamp_min.default", {Pass::ref(count), Arg{int64_t{1}}});
  if (x.dtype.is_float()) return p.binary("aten.div.Tensor", total, p.cast(of, x.dtype));
  return p.emit("aten.div.Tensor_mode", {Pass::ref(total), Pass::ref(p.cast(of, x.dtype))},
                {{"rounding_mode", Arg{std::string("floor")}}});
}

// Updates behind the end: x gets one more position, the one that is cut off again.
int64_t aside(const Call& call, const Value& x, size_t d, int64_t target,
              const std::optional<Value>& src) {
  Pass& p = call.pass();
  ArgList args = call.args();
  ArgList amounts(2 * (x.rank() - d), Arg{int64_t{0}});
  amounts.back() = Arg{int64_t{1}};
  args[0] = Pass::ref(p.emit("aten.constant_pad_nd.default",
                             {Pass::ref(x), Arg{std::move(amounts)}, Arg{int64_t{0}}}));
  args[2] = Pass::ref(target);
  if (src) args[3] = Pass::ref(*src);
  const int64_t id = p.emit(call.op(), std::move(args), call.kwargs());
  return p.emit("aten.slice.Tensor", {Pass::ref(id), Arg{static_cast<int64_t>(d)}, Arg{int64_t{0}},
                                      Arg{p.size(x, d)}, Arg{int64_t{1}}});
}

Results scatter(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  const Value raw = call.tensor(2);
  const size_t rank = x.rank();
  const size_t d = wrap(call.integer(1, 0), rank);
  if (raw.rank() != rank) refuse("an index of another rank");
  const How how = how_of(call);
  std::optional<Value> src = call.maybe_tensor(3);
  if (!src && std::holds_alternative<Expr>(call.arg(3).v))
    refuse("a value that varies with the sizes");
  if (!src && how.mode != Mode::kOverwrite) refuse("a reduction with a number");
  const State value =
      src ? State::anything() : State::constant(call.scalar(3).value_or(Scalar{0.0})).in(x.dtype);
  if (raw.uniform && raw.padded(d)) refuse("an index that is the same everywhere");
  if (src) {
    if (src->rank() != rank) refuse("updates of another rank than their index");
    for (size_t i = 0; i < rank; ++i) {
      const bool padded = src->padded(i) || raw.padded(i);
      if (padded) shorten(p, *src, i, raw.dims[i]);
    }
    if (src->uniform) {
      const State same = State::constant(*src->uniform);
      src = p.made(src->id, with_states(src->dims, [&](const State&) { return same; }), x.dtype,
                   same);
    }
  }
  const Value index = safe_index(p, raw, fixed_size(p, x, d));
  const int64_t at = p.to_padded(index.id, x.dims[d], index.any().is_non_negative());
  State written = src ? src->any() : value;
  Rows to = rows(p, x, index, written, d);
  std::vector<Place> clear = to.beyond;
  for (const Place& place : raw.places(d)) clear.push_back(place);
  std::sort(clear.begin(), clear.end());
  if (how.mode == Mode::kOverwrite) {
    const State data = join(data_of(x), written);
    int64_t id = 0;
    if (clear.empty()) {
      ArgList args = call.args();
      args[0] = Pass::ref(x);
      args[2] = Pass::ref(at);
      if (src) args[3] = Pass::ref(*src);
      id = p.emit(call.op(), std::move(args), call.kwargs());
    } else {
      const int64_t target = p.where(p.mask(raw.dims, clear), at, p.bucket_size(p.size(x, d)));
      id = aside(call, x, d, target, src);
    }
    return one(p.result(id, std::move(to.dims), call.type(), data));
  }
  // Other rows of padding may take anything.
  src = p.need(*src, neutral(how.mode, x.dtype), clear);
  written = src->any();
  Scatter s{p, static_cast<int64_t>(d), at};
  const bool plain = how.with_self && how.mode != Mode::kMean;
  ArgList args = call.args();
  args[0] = Pass::ref(x);
  args[2] = Pass::ref(at);
  args[3] = Pass::ref(*src);
  const int64_t id = plain ? p.emit(call.op(), std::move(args), call.kwargs())
                           : counted(s, x, index, *src, how, clear);
  const bool finite = plain && written.is_finite() && data_of(x).is_finite();
  Layout dims = with_states(std::move(to.dims), [&](const State& state) {
    if (how.mode == Mode::kMultiply) return State::anything();  // of any number of factors
    return plain && state.is_zero() && written.is_zero() ? state
                                                         : finite_if(state.is_finite() && finite);
  });
  return one(p.result(id, std::move(dims), call.type(), finite_if(finite)));
}

}  // namespace

void add_scatter_row_rules(RuleTable& table) {
  table.add({"scatter", "scatter_add", "scatter_reduce"}, scatter,
            "padded updates are neutral, or written behind the end and cut off");
}

}  // namespace nc::padding
