// Layer and RMS norm: rows are normalized one by one. Over a padded dimension a layer norm is
// written out with the true count.
#include "bucketing/padding/rule.hpp"

namespace nc::padding {
namespace {

bool tail_is_padded(const Value& x, size_t from) {
  for (size_t d = from; d < x.rank(); ++d) {
    if (x.padded(d)) return true;
  }
  return false;
}

size_t split_of(const Call& call, const Value& x, size_t shape_at) {
  const size_t tail = call.exprs(shape_at).size();
  if (tail > x.rank()) refuse("a norm over more dimensions than there are");
  return x.rank() - tail;
}

Layout head_layout(const Value& x, size_t split, bool keep_tail) {
  Layout dims;
  for (size_t d = 0; d < x.rank(); ++d) dims.push_back(d < split || keep_tail ? x.dims[d] : Dim{});
  return with_states(std::move(dims), [](const State& s) { return finite_if(s.is_finite()); });
}

// A parameter of the tail, laid out like it, as a tensor of type `wide`.
Value parameter(Pass& p, Value v, const Value& x, size_t split, const Dtype& wide) {
  if (v.rank() + split != x.rank()) refuse("a parameter of another rank than what is normalized");
  for (size_t d = 0; d < v.rank(); ++d) p.conform(v, d, x.dims[d + split]);
  if (v.dtype == wide) return v;
  return p.made(p.cast(v.id, wide), v.dims, wide, v.data);
}

// (x, shape, weight, bias, eps) with a padded tail.
Results written_out(const Call& call, const Value& x, size_t split) {
  Pass& p = call.pass();
  const bool half = x.dtype.name() == "bfloat16" || x.dtype.name() == "float16";
  const Dtype wide(half ? "float32" : x.dtype.name());
  std::vector<Place> tail;
  std::vector<int64_t> over;
  Expr count = p.num(1);
  for (size_t d = split; d < x.rank(); ++d) {
    over.push_back(static_cast<int64_t>(d));
    count = p.pool().mul(count, p.size(x, d));
    for (const Place& place : x.places(d)) tail.push_back(place);
  }
  const auto sum = [&](int64_t id) {
    return p.emit("aten.sum.dim_IntList", {Pass::ref(id), Pass::int_list(over), Arg{true}});
  };
  const Value y = p.need(x, int64_t{0}, tail);
  const int64_t source = half ? p.cast(y.id, wide) : y.id;
  const int64_t mean = p.binary("aten.div.Tensor", sum(source), p.truth(count));
  // Rows of padding stay finite where they were; in the tail there is now 0 less a mean.
  Layout around = head_layout(x, split, true);
  for (const Place& place : tail) around[place.dim][place.factor].state = State::anything();
  Value centred = p.made(p.binary("aten.sub.Tensor", source, mean), std::move(around), wide,
                         finite_if(data_of(x).is_finite()));
  centred = p.masked(centred, tail, int64_t{0}, false);
  const int64_t square = p.binary("aten.mul.Tensor", centred.id, centred.id);
  const int64_t variance = p.binary("aten.div.Tensor", sum(square), p.truth(count));
  const auto eps = call.scalar(4);
  if (!eps || to_double(*eps) <= 0) refuse("a norm without an epsilon");
  const int64_t sure = p.emit("aten.add.Tensor", {Pass::ref(variance), Arg{to_double(*eps)}});
  const int64_t factor = p.emit("aten.rsqrt.default", {Pass::ref(sure)});
  int64_t id = p.binary("aten.mul.Tensor", centred.id, factor);
  bool finite = true;
  for (const size_t k : {2, 3}) {
    const auto given = call.maybe_tensor(k);
    if (!given) continue;
    const Value v = parameter(p, *given, x, split, wide);
    finite = finite && v.any().is_finite();
    id = p.binary(k == 2 ? "aten.mul.Tensor" : "aten.add.Tensor", id, v.id);
  }
  const State data = finite_if(data_of(x).is_finite() && finite);
  const auto of = [&](size_t k, int64_t value) {
    return call.type(k).dtype == wide ? value : p.cast(value, call.type(k).dtype);
  };
  Layout dims = x.dims;
  for (const Place& place : x.places()) {
    const bool in_head = place.dim < split;
    dims[place.dim][place.factor].state =
        finite_if(in_head && finite && x.at(place).is_finite() && data_of(x).is_finite());
  }
  Layout small = head_layout(x, split, false);
  return {p.result(of(0, id), std::move(dims), call.type(0), data),
          p.result(of(1, mean), small, call.type(1), finite_if(data_of(x).is_finite())),
          p.result(of(2, factor), small, call.type(2), finite_if(data_of(x).is_finite()))};
}

Results layer_norm(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  const size_t split = split_of(call, x, 1);
  if (tail_is_padded(x, split)) {
    if (call.name() != "native_layer_norm") refuse("an RMS norm over a padded dimension");
    return written_out(call, x, split);
  }
  ArgList args = call.args();
  args[0] = Pass::ref(x);
  const auto count = static_cast<int64_t>(call.node().outs.size());
  const int64_t first = p.emit_several(call.op(), count, std::move(args), call.kwargs());
  const size_t eps_at = call.name() == "native_layer_norm" ? 4 : 3;
  // Nothing is known of an inverse root without an epsilon.
  const auto eps = call.scalar(eps_at);
  const bool root = call.arg(eps_at).is_none() || (eps && to_double(*eps) > 0);
  bool finite = root;
  for (size_t k = 2; k < eps_at; ++k) {
    if (const auto v = call.maybe_tensor(k)) finite = finite && v->any().is_finite();
  }
  Results out;
  for (int64_t i = 0; i < count; ++i) {
    const bool weighted = i == 0;
    Layout dims = head_layout(x, split, weighted);
    if (!root || (weighted && !finite))
      dims = with_states(std::move(dims), [](const State&) { return State::anything(); });
    const bool usual = data_of(x).is_finite() && root && (finite || !weighted);
    out.emplace_back(
        p.result(first + i, std::move(dims), call.type(static_cast<size_t>(i)), finite_if(usual)));
  }
  return out;
}

// (grad, x, shape, statistics..., weight, [bias], mask): gradients of weight and bias sum over
// rows.
Results layer_norm_backward(const Call& call) {
  Pass& p = call.pass();
  const bool rms = call.name() == "_fused_rms_norm_backward";
  const size_t statistics = rms ? 1 : 2;
  const Value grad = p.need(call.tensor(0), int64_t{0});
  const Value x = p.finite(call.tensor(1));
  const size_t split = split_of(call, x, 2);
  if (tail_is_padded(x, split)) refuse("the gradient of a layer norm over a padded dimension");
  ArgList args = call.args();
  args[0] = Pass::ref(grad);
  args[1] = Pass::ref(x);
  for (size_t i = 0; i < statistics; ++i) args[3 + i] = Pass::ref(p.finite(call.tensor(3 + i)));
  const auto weight = call.maybe_tensor(3 + statistics);
  const bool usual = !weight || weight->any().is_finite();
  const auto count = static_cast<int64_t>(call.node().outs.size());
  const int64_t first = p.emit_several(call.op(), count, std::move(args), call.kwargs());
  Results out;
  for (int64_t i = 0; i < count; ++i) {
    const auto k = static_cast<size_t>(i);
    if (!call.is_tensor_result(k)) {
      out.emplace_back();
      continue;
    }
    // 0 times the weight.
    Layout dims =
        i == 0
            ? with_states(x.dims,
                          [&](const State&) { return usual ? State::zero() : State::anything(); })
            : p.fresh(call.sizes(k), State::finite());
    const bool finite = grad.data.is_finite() && x.data.is_finite() && (usual || i > 0);
    out.emplace_back(p.result(first + i, std::move(dims), call.type(k), finite_if(finite)));
  }
  return out;
}

}  // namespace

void add_layer_norm_rules(RuleTable& table) {
  table.add({"native_layer_norm", "_fused_rms_norm"}, layer_norm,
            "rows are normalized one by one; over padding with 0 and the true count");
  table.add({"native_layer_norm_backward", "_fused_rms_norm_backward"}, layer_norm_backward,
            "padded rows have gradient 0 and finite values");
}

}  // namespace nc::padding
