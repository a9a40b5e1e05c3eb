// Scaled dot product attention, kept whole.
//
// Padded keys get weight 0 by the mask; their values are finite, so they add nothing. Padded
// queries and batches make rows that nobody reads, but such a row must not be masked as a whole: it
// would be NaN.
#include <algorithm>
#include <limits>

#include "bucketing/padding/rule.hpp"

namespace nc::padding {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Attention {
  Value q;
  Value k;
  Value v;
  std::optional<Value> mask;
  bool causal = false;
};

// Rows (batch and query) that are true: broadcasts against [batch, heads, query, key].
std::optional<int64_t> true_rows(Pass& p, const Value& q) {
  std::vector<Place> places;
  for (const Place& place : q.places()) {
    if (place.dim == 0 || place.dim == 2) places.push_back(place);
  }
  if (places.empty()) return std::nullopt;
  return p.mask({q.dims[0], {}, q.dims[2], {}}, places);
}

// Padding comes behind everything, so what is true has the same coordinates as without it.
bool behind(const Dim& dim) {
  return std::none_of(dim.begin() + (dim.empty() ? 0 : 1), dim.end(),
                      [](const Factor& f) { return f.padded; });
}

// The mask argument that makes `a` right, and whether the operator still has to be causal.
std::pair<Arg, bool> mask_argument(Pass& p, const Attention& a) {
  const Dim& keys = a.k.dims[2];
  const Dim& queries = a.q.dims[2];
  const Expr key_size = p.product(keys);
  const Expr query_size = p.product(queries);
  const Dtype dtype = a.q.dtype;
  const bool padded_keys = a.k.padded(2);
  if (a.causal && (!behind(queries) || !behind(keys)))
    refuse("causal attention over a merged dimension that is padded inside");
  const bool rows_hide_keys = a.causal && !a.mask && p.same(keys, queries);
  if (a.mask) {
    const Layout all = {a.q.dims[0], a.q.dims[1], queries, keys};
    for (size_t i = 0; i < a.mask->rank(); ++i) {
      const Dim& dim = a.mask->dims[a.mask->rank() - 1 - i];
      if (!dim.empty() && !a.mask->uniform && !p.same(dim, all[3 - i]))
        refuse("the attention mask is padded differently from what it masks");
    }
  }
  const auto rows = true_rows(p, a.q);
  if (!padded_keys || rows_hide_keys) {
    if (!a.mask) return {Arg{}, a.causal};
    if (!rows || a.mask->any().is_finite()) return {Pass::ref(*a.mask), a.causal};
    const int64_t free =
        a.mask->dtype.is_bool() ? p.constant(true, a.mask->dtype) : p.constant(0.0, a.mask->dtype);
    return {Pass::ref(p.where(*rows, a.mask->id, free)), a.causal};
  }
  if (keys.size() > 1) refuse("attention over a merged dimension of keys");
  const int64_t zero = p.constant(0.0, dtype);
  const int64_t never = p.constant(-kInf, dtype);
  const int64_t true_keys = p.along(p.prefix(key_size), 4, 3, key_size);
  const int64_t clean = p.where(true_keys, zero, never);
  int64_t seen = clean;
  if (a.causal) {
    const int64_t row = p.along(p.iota(query_size), 4, 2, query_size);
    const int64_t column = p.along(p.iota(key_size), 4, 3, key_size);
    seen = p.where(p.binary("aten.le.Tensor", column, row), clean, never);
  }
  if (a.mask) {
    if (a.mask->dtype.is_bool()) {
      seen = p.where(a.mask->id, seen, never);
    } else {
      seen = p.where(true_keys,
                     a.causal ? p.binary("aten.add.Tensor", a.mask->id, seen) : a.mask->id, never);
    }
    if (rows) seen = p.where(*rows, seen, clean);
  }
  // The operator wants queries and keys in full.
  if (!a.mask && !a.causal) {
    seen = p.emit("aten.expand.default",
                  {Pass::ref(seen), Pass::size_list({p.num(1), p.num(1), query_size, key_size})});
  }
  return {Pass::ref(seen), false};
}

Attention operands(const Call& call, size_t first) {
  Pass& p = call.pass();
  Attention a{p.finite(call.tensor(first)), p.finite(call.tensor(first + 1)),
              p.finite(call.tensor(first + 2)), call.maybe_tensor(99, "attn_mask"), false};
  if (a.q.rank() != 4 || a.k.rank() != 4 || a.v.rank() != 4)
    refuse("attention on other than four dimensions");
  for (const Value* v : {&a.k, &a.v}) {
    if (!v->uniform && !p.same(v->dims[0], a.q.dims[0]))
      refuse("batches of queries and keys are padded differently");
  }
  if (!p.same(a.k.dims[2], a.v.dims[2])) refuse("keys and values are padded differently");
  if (a.q.padded(3) || a.v.padded(3) || a.q.padded(1) || a.k.padded(1))
    refuse("attention heads of a size that varies");
  return a;
}

void no_dropout(const Call& call, size_t at) {
  const auto s = call.scalar(at, "dropout_p");
  if (s && to_double(*s) != 0)
    refuse("dropout inside of attention draws random numbers for each shape");
}

Kwargs scale_of(const Call& call) {
  Kwargs kwargs;
  const Arg& scale = call.arg(99, "scale");
  if (std::holds_alternative<Expr>(scale.v)) refuse("a scale that varies with the sizes");
  if (!scale.is_none()) kwargs.emplace("scale", scale);
  return kwargs;
}

// [batch, heads, query] in the order the graph says.
Layout row_layout(const Call& call, const Value& q, size_t result) {
  Pass& p = call.pass();
  const auto sizes = call.sizes(result);
  Layout dims = {q.dims[0], q.dims[1], q.dims[2]};
  if (sizes.size() == 3 && sizes[1] == p.product(q.dims[2]) && sizes[1] != p.product(q.dims[1]))
    std::swap(dims[1], dims[2]);
  return dims;
}

Results forward(const Call& call) {
  Pass& p = call.pass();
  no_dropout(call, 3);
  Attention a = operands(call, 0);
  a.causal = call.boolean(4, false, "is_causal");
  const bool finite = a.q.data.is_finite() && a.k.data.is_finite() && a.v.data.is_finite();
  auto [mask, causal] = mask_argument(p, a);
  Kwargs kwargs = scale_of(call);
  if (!mask.is_none()) kwargs.emplace("attn_mask", std::move(mask));
  const int64_t first = p.emit_several(
      call.op(), 2, {Pass::ref(a.q), Pass::ref(a.k), Pass::ref(a.v), Arg{0.0}, Arg{causal}},
      std::move(kwargs));
  const auto state = [&](const State&) { return finite_if(finite); };
  Layout dims = with_states(a.q.dims, state);
  dims[3] = with_states({a.v.dims[3]}, state)[0];
  Results out;
  out.emplace_back(p.result(first, std::move(dims), call.type(0), finite_if(finite)));
  out.emplace_back(p.result(first + 1, with_states(row_layout(call, a.q, 1), state), call.type(1),
                            finite_if(finite)));
  return out;
}

Results backward(const Call& call) {
  Pass& p = call.pass();
  no_dropout(call, 6);
  Attention a = operands(call, 1);
  a.causal = call.boolean(7, false, "is_causal");
  // Gradients of rows that do not exist are 0, and everything that meets them is finite.
  const Value grad = p.need(call.tensor(0), int64_t{0});
  const Value out = p.need(call.tensor(4), int64_t{0});
  const Value lse = p.need(call.tensor(5), int64_t{0});
  a.q = p.need(a.q, int64_t{0});
  a.k = p.need(a.k, int64_t{0});
  a.v = p.need(a.v, int64_t{0});
  auto [mask, causal] = mask_argument(p, a);
  Kwargs kwargs = scale_of(call);
  if (!mask.is_none()) kwargs.emplace("attn_mask", std::move(mask));
  const int64_t first =
      p.emit_several(call.op(), 3,
                     {Pass::ref(grad), Pass::ref(a.q), Pass::ref(a.k), Pass::ref(a.v),
                      Pass::ref(out), Pass::ref(lse), Arg{0.0}, Arg{causal}},
                     std::move(kwargs));
  Results results;
  const Value* sources[] = {&a.q, &a.k, &a.v};
  for (size_t i = 0; i < 3; ++i) {
    Layout dims = with_states(sources[i]->dims, [](const State&) { return State::finite(); });
    results.emplace_back(
        p.result(first + static_cast<int64_t>(i), std::move(dims), call.type(i), State::finite()));
  }
  return results;
}

}  // namespace

void add_attention_rules(RuleTable& table) {
  table.add({"_scaled_dot_product_flash_attention_for_cpu"}, forward,
            "padded keys have weight 0 and finite values");
  table.add({"_scaled_dot_product_flash_attention_for_cpu_backward"}, backward,
            "rows that do not exist have gradient 0; the mask is that of the forward call");
}

}  // namespace nc::padding
