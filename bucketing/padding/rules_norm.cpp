// Batch and group norm. Over dimensions without padding they run as they are; over padded ones they
// are written out with true counts.
#include <fmt/format.h>

#include "bucketing/padding/rule.hpp"

namespace nc::padding {
namespace {

bool tail_is_padded(const Value& x, size_t from) {
  for (size_t d = from; d < x.rank(); ++d) {
    if (x.padded(d)) return true;
  }
  return false;
}

struct Writer {
  Pass& p;

  int64_t op(const char* name, int64_t a, int64_t b) { return p.binary(name, a, b); }
  int64_t add(int64_t a, int64_t b) { return op("aten.add.Tensor", a, b); }
  int64_t sub(int64_t a, int64_t b) { return op("aten.sub.Tensor", a, b); }
  int64_t mul(int64_t a, int64_t b) { return op("aten.mul.Tensor", a, b); }
  int64_t div(int64_t a, int64_t b) { return op("aten.div.Tensor", a, b); }
  int64_t scaled(int64_t a, double by) {
    return p.emit("aten.mul.Tensor", {Pass::ref(a), Arg{by}});
  }
  int64_t sum(int64_t a, const std::vector<int64_t>& over, bool keep) {
    return p.emit("aten.sum.dim_IntList", {Pass::ref(a), Pass::int_list(over), Arg{keep}});
  }
};

std::vector<int64_t> all_but_channel(const Value& x) {
  std::vector<int64_t> dims;
  for (size_t d = 0; d < x.rank(); ++d) {
    if (d != 1) dims.push_back(static_cast<int64_t>(d));
  }
  return dims;
}

Expr count_but_channel(Pass& p, const Value& x) {
  Expr count = p.num(1);
  for (size_t d = 0; d < x.rank(); ++d) {
    if (d != 1) count = p.pool().mul(count, p.size(x, d));
  }
  return count;
}

// [channels] as a tensor that broadcasts against x.
int64_t per_channel(Pass& p, int64_t id, const Value& x) {
  return p.along(id, x.rank(), 1, p.size(x, 1));
}

double number(const Call& call, size_t at, double otherwise) {
  const auto s = call.scalar(at);
  return s ? to_double(*s) : otherwise;
}

bool is_input(Pass& p, const Value& v) {
  return v.id >= 0 && v.id < static_cast<int64_t>(p.graph().inputs.size());
}

void check_batch_norm(const Value& x) {
  if (x.rank() < 2) refuse("a batch norm of vectors");
  if (x.dtype.name() == "bfloat16" || x.dtype.name() == "float16")
    refuse("a batch norm in half precision with a batch that varies");
}

// x normalized by statistics per channel, and weighted.
int64_t normalized(Writer& w, const Value& x, int64_t mean, int64_t factor,
                   const std::optional<Value>& weight, const std::optional<Value>& bias) {
  int64_t y = w.mul(w.sub(x.id, per_channel(w.p, mean, x)), per_channel(w.p, factor, x));
  if (weight) y = w.mul(y, per_channel(w.p, weight->id, x));
  if (bias) y = w.add(y, per_channel(w.p, bias->id, x));
  return y;
}

int64_t inverse_root(Writer& w, int64_t variance, double eps) {
  return w.p.emit("aten.rsqrt.default",
                  {Pass::ref(w.p.emit("aten.add.Tensor", {Pass::ref(variance), Arg{eps}}))});
}

// Batch norm. Positions: (x, weight, bias, running mean, running variance, [training], momentum,
// eps).
Results batch_norm(const Call& call) {
  Pass& p = call.pass();
  Writer w{p};
  const Value x = call.tensor(0);
  check_batch_norm(x);
  const bool fixed = call.name() == "_native_batch_norm_legit_no_training";
  const bool no_stats = call.op() == "aten._native_batch_norm_legit.no_stats";
  const bool functional = call.name() == "_native_batch_norm_legit_functional";
  const size_t after = fixed ? 5 : no_stats ? 3 : 5;
  const bool training = !fixed && call.boolean(after, false);
  const double momentum = number(call, after + (fixed ? 0 : 1), 0.1);
  const double eps = number(call, after + (fixed ? 1 : 2), 1e-5);
  if (training && !functional && !no_stats)
    refuse("a batch norm that changes its statistics in place");
  // Per channel: what is in the padding of a parameter or statistic gets into the result's.
  const auto channels = [&](size_t k) {
    auto v = call.maybe_tensor(k);
    if (v) p.conform(*v, 0, x.dims[1]);
    return v;
  };
  const auto weight = channels(1);
  const auto bias = channels(2);
  bool finite = x.any().is_finite() && eps > 0;
  bool usual = data_of(x).is_finite() && eps > 0;
  for (size_t k = 1; k <= (no_stats ? 2 : 4); ++k) {
    const auto v = call.maybe_tensor(k);
    const bool statistic = k >= 3;
    if (!v || (training && statistic)) continue;
    finite &= v->any().is_finite() && !(statistic && v->padded());
    // A variance that is computed may be less than zero.
    usual &= data_of(*v).is_finite() && !(k == 4 && !is_input(p, *v));
  }
  const Layout dims = with_states(x.dims, [&](const State&) { return finite_if(finite && usual); });
  const auto stat = [&](size_t k, int64_t id, bool padding, bool data) {
    Layout one_dim =
        with_states({x.dims[1]}, [&](const State&) { return finite_if(padding && data); });
    return p.result(id, std::move(one_dim), call.type(k), finite_if(data));
  };
  Results out;
  if (!training) {
    const auto mean = channels(3);
    const auto variance = channels(4);
    if (!mean || !variance) refuse("a batch norm without statistics");
    const int64_t factor = inverse_root(w, variance->id, eps);
    out.emplace_back(p.result(normalized(w, x, mean->id, factor, weight, bias), dims, call.type(0),
                              finite_if(usual)));
    // In evaluation the saved statistics are empty; nothing reads them.
    for (size_t k = 1; k < call.node().outs.size(); ++k) {
      if (k >= 3) {
        out.emplace_back(call.tensor(k == 3 ? 3 : 4));
      } else {
        const int64_t id = p.emit("aten.full.default", {Pass::size_list(call.sizes(k)), Arg{0.0}},
                                  {{"dtype", Arg{call.type(k).dtype}}, {"device", p.device()}});
        out.emplace_back(
            p.result(id, p.fresh(call.sizes(k), State::zero()), call.type(k), State::zero()));
      }
    }
    return out;
  }
  const auto over = all_but_channel(x);
  const Expr count = count_but_channel(p, x);
  const std::vector<Place> places = x.places();
  const Value y = p.need(x, int64_t{0});
  const int64_t mean = w.div(w.sum(y.id, over, false), p.truth(count));
  Value centred = p.made(w.sub(y.id, per_channel(p, mean, x)),
                         with_states(x.dims, [](const State&) { return State::anything(); }),
                         x.dtype, finite_if(data_of(x).is_finite()));
  centred = p.masked(centred, places, int64_t{0}, false);
  const int64_t variance = w.div(w.sum(w.mul(centred.id, centred.id), over, false), p.truth(count));
  const int64_t factor = inverse_root(w, variance, eps);
  const bool plain = data_of(x).is_finite();
  out.emplace_back(
      p.result(normalized(w, x, mean, factor, weight, bias), dims, call.type(0), finite_if(usual)));
  out.emplace_back(stat(1, mean, true, plain));
  out.emplace_back(stat(2, factor, eps > 0, plain && eps > 0));
  if (functional) {
    const int64_t unbiased =
        w.mul(variance, w.div(p.truth(count), p.truth(p.pool().sub(count, p.num(1)))));
    const auto moved = [&](size_t k, int64_t now) {
      auto was = call.tensor(k);
      p.conform(was, 0, x.dims[1]);
      const int64_t id = w.add(w.scaled(was.id, 1 - momentum), w.scaled(now, momentum));
      out.emplace_back(stat(k, id, was.any().is_finite(), plain && data_of(was).is_finite()));
    };
    moved(3, mean);
    moved(4, unbiased);
  }
  return out;
}

// (grad, x, weight, running mean, running variance, saved mean, saved factor, training, eps, mask)
Results batch_norm_backward(const Call& call) {
  Pass& p = call.pass();
  Writer w{p};
  const Value grad = p.need(call.tensor(0), int64_t{0});
  const Value x = p.finite(call.tensor(1));
  check_batch_norm(x);
  auto weight = call.maybe_tensor(2);
  if (weight) weight = p.finite(*weight);
  const bool training = call.boolean(7, false);
  const double eps = number(call, 8, 1e-5);
  const auto over = all_but_channel(x);
  Value centre = p.finite(call.tensor(training ? 5 : 3));
  Value spread = training ? p.finite(call.tensor(6)) : p.need(call.tensor(4), int64_t{1});
  p.conform(centre, 0, x.dims[1]);
  p.conform(spread, 0, x.dims[1]);
  if (weight) p.conform(*weight, 0, x.dims[1]);
  const int64_t mean = centre.id;
  const int64_t factor = training ? spread.id : inverse_root(w, spread.id, eps);
  const bool usual = data_of(grad).is_finite() && data_of(x).is_finite() &&
                     data_of(centre).is_finite() && data_of(spread).is_finite() &&
                     (!weight || data_of(*weight).is_finite()) &&
                     (training || (eps > 0 && is_input(p, spread)));
  const int64_t xhat = w.mul(w.sub(x.id, per_channel(p, mean, x)), per_channel(p, factor, x));
  const int64_t grad_bias = w.sum(grad.id, over, false);
  const int64_t grad_weight = w.sum(w.mul(grad.id, xhat), over, false);
  int64_t grad_x = grad.id;
  if (training) {
    const int64_t count = p.truth(count_but_channel(p, x));
    const int64_t part = w.add(per_channel(p, w.div(grad_bias, count), x),
                               w.mul(xhat, per_channel(p, w.div(grad_weight, count), x)));
    grad_x = w.sub(grad_x, part);
  }
  grad_x = w.mul(grad_x, per_channel(p, factor, x));
  if (weight) grad_x = w.mul(grad_x, per_channel(p, weight->id, x));
  Results out;
  const Checked<int64_t> ids = {grad_x, grad_weight, grad_bias};
  for (size_t k = 0; k < call.node().outs.size(); ++k) {
    if (!call.is_tensor_result(k)) {
      out.emplace_back();
      continue;
    }
    Layout dims = k == 0 ? x.dims : Layout{x.dims[1]};
    dims = with_states(std::move(dims), [&](const State&) { return finite_if(usual); });
    out.emplace_back(p.result(ids[k], std::move(dims), call.type(k), finite_if(usual)));
  }
  return out;
}

// Group norm: (x, weight, bias, N, C, HxW, groups, eps). Statistics over the channels of a group
// and all positions.
Results group_norm(const Call& call) {
  Pass& p = call.pass();
  ExprPool& pool = p.pool();
  Writer w{p};
  const Value x = call.tensor(0);
  if (x.padded(1)) refuse("a group norm over a padded channel dimension");
  const int64_t groups = call.integer(6, 1);
  if (!tail_is_padded(x, 2)) {
    ArgList args = call.args();
    args[0] = Pass::ref(x);
    const int64_t first = p.emit_several(call.op(), 3, std::move(args), call.kwargs());
    Results out;
    const bool root = number(call, 7, 1e-5) > 0;
    bool finite = root;
    const State data = finite_if(data_of(x).is_finite() && finite);
    for (const size_t k : {1, 2}) {
      if (const auto v = call.maybe_tensor(k)) finite = finite && v->any().is_finite();
    }
    Layout weighted =
        with_states(x.dims, [&](const State& s) { return finite_if(s.is_finite() && finite); });
    out.emplace_back(p.result(first, std::move(weighted), call.type(0),
                              finite_if(data_of(x).is_finite() && finite)));
    for (size_t k = 1; k < 3; ++k) {
      Layout dims = {
          with_states({x.dims[0]},
                      [&](const State& s) { return finite_if(s.is_finite() && root); })[0],
          p.fresh(p.num(groups), State::finite())};
      out.emplace_back(
          p.result(first + static_cast<int64_t>(k), std::move(dims), call.type(k), data));
    }
    return out;
  }
  if (x.dtype.name() == "bfloat16" || x.dtype.name() == "float16")
    refuse("a group norm in half precision over a padded dimension");
  const Expr channels = p.size(x, 1);
  const auto per_group = pool.divide(channels, p.num(groups));
  if (!per_group) refuse("channels that do not fill their groups");
  // [N, groups, C / groups, ...]
  std::vector<Expr> split = {p.size(x, 0), p.num(groups), *per_group};
  Layout dims = {x.dims[0], p.fresh(p.num(groups), State::finite()),
                 p.fresh(*per_group, State::finite())};
  Expr count = *per_group;
  std::vector<int64_t> over = {2};
  std::vector<Place> places;
  for (size_t d = 2; d < x.rank(); ++d) {
    split.push_back(p.size(x, d));
    dims.push_back(x.dims[d]);
    count = pool.mul(count, p.size(x, d));
    over.push_back(static_cast<int64_t>(d) + 1);
    if (x.padded(d)) {
      for (const Place& place : x.places(d)) places.push_back({d + 1, place.factor});
    }
  }
  Value y = p.made(p.reshape(x.id, split), dims, x.dtype, x.data);
  y = p.need(y, int64_t{0}, places);
  const int64_t mean = w.div(w.sum(y.id, over, true), p.truth(count));
  Value centred =
      p.made(w.sub(y.id, mean), with_states(y.dims, [](const State&) { return State::anything(); }),
             x.dtype, finite_if(data_of(x).is_finite()));
  centred = p.masked(centred, places, int64_t{0}, false);
  const int64_t variance = w.div(w.sum(w.mul(centred.id, centred.id), over, true), p.truth(count));
  const int64_t factor = inverse_root(w, variance, number(call, 7, 1e-5));
  std::vector<Expr> whole;
  for (size_t d = 0; d < x.rank(); ++d) whole.push_back(p.size(x, d));
  int64_t id = p.reshape(w.mul(centred.id, factor), whole);
  bool usual = data_of(x).is_finite() && number(call, 7, 1e-5) > 0;
  const State data = finite_if(usual);
  for (const size_t k : {1, 2}) {
    const auto v = call.maybe_tensor(k);
    if (!v) continue;
    id = k == 1 ? w.mul(id, per_channel(p, v->id, x)) : w.add(id, per_channel(p, v->id, x));
    usual = usual && data_of(*v).is_finite();
  }
  Results out;
  out.emplace_back(p.result(id, with_states(x.dims, [](const State&) { return State::anything(); }),
                            call.type(0), finite_if(usual)));
  const int64_t statistics[] = {mean, factor};
  for (size_t k = 0; k < 2; ++k) {
    Layout small = {with_states({x.dims[0]}, [](const State&) { return State::anything(); })[0],
                    p.fresh(p.num(groups), State::finite())};
    out.emplace_back(p.result(p.reshape(statistics[k], call.sizes(k + 1)), std::move(small),
                              call.type(k + 1), data));
  }
  return out;
}

}  // namespace

void add_norm_rules(RuleTable& table) {
  table.add({"_native_batch_norm_legit_functional", "_native_batch_norm_legit",
             "_native_batch_norm_legit_no_training", "native_batch_norm"},
            batch_norm, "statistics of true elements over true counts");
  table.add({"native_batch_norm_backward"}, batch_norm_backward,
            "padded gradients are 0, counts are true counts");
  table.add({"native_group_norm"}, group_norm, "statistics of true elements over true counts");
}

}  // namespace nc::padding
