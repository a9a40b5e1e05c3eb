// Writing through indices: padded updates are worth nothing, or go to a place that is cut off
// again.
#include <algorithm>

#include <fmt/format.h>

#include "bucketing/padding/rule.hpp"

namespace nc::padding {
namespace {

// x[i0, i1, ...] += values, or = values.
Results put(const Call& call, const Value& x, const ArgList& list, Value values, bool accumulate) {
  Pass& p = call.pass();
  Checked<size_t> at;
  std::vector<Value> indices;
  ArgList args;
  for (size_t d = 0; d < list.size(); ++d) {
    if (list[d].is_none()) {
      args.emplace_back();
      continue;
    }
    Value v = call.tensor(list[d]);
    if (v.dtype.is_bool()) refuse("a boolean index");
    at.push_back(d);
    indices.push_back(std::move(v));
    args.emplace_back();
  }
  if (at.empty() || at.back() - at.front() + 1 != at.size())
    refuse("indices that are not side by side");
  size_t rank = 0;
  std::vector<Value*> all;
  for (Value& v : indices) {
    rank = std::max(rank, v.rank());
    all.push_back(&v);
  }
  const Layout indexed = p.align(all, rank);
  Layout full;
  for (size_t d = 0; d < at.front(); ++d) full.push_back(x.dims[d]);
  full.insert(full.end(), indexed.begin(), indexed.end());
  for (size_t d = at.back() + 1; d < x.rank(); ++d) full.push_back(x.dims[d]);
  const bool any_padded = std::any_of(indexed.begin(), indexed.end(), [](const Dim& dim) {
    return std::any_of(dim.begin(), dim.end(), [](const Factor& f) { return f.padded; });
  });
  // Padded assignments go to one more position behind the end.
  const bool aside = !accumulate && any_padded;
  if (aside && at.size() != 1) refuse("an assignment through several padded indices");
  // Values in the layout of what they go to.
  if (values.rank() < full.size() || values.uniform) {
    std::vector<Expr> sizes;
    for (const Dim& dim : full) sizes.push_back(p.product(dim));
    Layout dims = full;
    for (size_t d = 0; d < full.size(); ++d) {
      for (size_t k = 0; k < full[d].size(); ++k) {
        if (full[d][k].padded) dims[d][k].state = p.state_at(values, full.size(), {d, k}, full);
      }
    }
    const int64_t id = p.emit("aten.expand.default", {Pass::ref(values), Pass::size_list(sizes)});
    values = p.made(id, std::move(dims), values.dtype, data_of(values));
  }
  for (size_t d = 0; d < full.size(); ++d) {
    const bool inside = d >= at.front() && d < at.front() + rank;
    const bool free = !inside && x.uniform.has_value();
    if (!free && !values.dims[d].empty()) p.conform(values, d, full[d]);
  }
  std::vector<Place> clear;
  for (const Place& place : values.places()) {
    if (place.dim >= at.front() && place.dim < at.front() + rank) clear.push_back(place);
  }
  if (accumulate) values = p.need(values, int64_t{0}, clear);
  for (size_t i = 0; i < at.size(); ++i) {
    const Value v = safe_index(p, indices[i], fixed_size(p, x, at[i]));
    args[at[i]] = Pass::ref(p.to_padded(v.id, x.dims[at[i]], v.any().is_non_negative()));
  }
  Layout dims = x.dims;
  const State written = values.any();
  for (size_t d = 0; d < x.rank(); ++d) {
    const bool inside = std::find(at.begin(), at.end(), d) != at.end();
    const size_t vd = d < at.front() ? d : d - at.size() + rank;
    if (!inside && x.uniform && !values.dims[vd].empty()) dims[d] = values.dims[vd];
    for (size_t k = 0; k < dims[d].size(); ++k) {
      Factor& f = dims[d][k];
      if (!f.padded) continue;
      const State own = x.uniform ? State::constant(*x.uniform) : x.at({d, k});
      if (inside) {
        f.state = own;  // true coordinates never lie in the padding
      } else {
        const State other = values.dims[vd].empty() ? values.any() : values.at({vd, k});
        f.state = own.is_zero() && other.is_zero() ? own
                  : accumulate                     ? finite_if(own.is_finite() && other.is_finite())
                                                   : join(own, other);
      }
    }
  }
  const State data = accumulate ? finite_if(data_of(x).is_finite() && written.is_finite())
                                : join(data_of(x), written);
  int64_t into = x.id;
  const Expr size = p.size(x, at.front());
  if (aside) {
    const std::vector<Place> padded = [&] {
      std::vector<Place> places;
      for (size_t d = 0; d < indexed.size(); ++d) {
        for (size_t k = 0; k < indexed[d].size(); ++k) {
          if (indexed[d][k].padded) places.push_back({d, k});
        }
      }
      return places;
    }();
    const int64_t target = args[at.front()].ref()->id;
    args[at.front()] = Pass::ref(p.where(p.mask(indexed, padded), target, p.bucket_size(size)));
    ArgList amounts(2 * (x.rank() - at.front()), Arg{int64_t{0}});
    amounts.back() = Arg{int64_t{1}};
    into = p.emit("aten.constant_pad_nd.default",
                  {Pass::ref(x), Arg{std::move(amounts)}, Arg{int64_t{0}}});
  }
  int64_t id = p.emit("aten.index_put.default",
                      {Pass::ref(into), Arg{std::move(args)}, Pass::ref(values), Arg{accumulate}});
  if (aside) {
    id = p.emit("aten.slice.Tensor", {Pass::ref(id), Arg{static_cast<int64_t>(at.front())},
                                      Arg{int64_t{0}}, Arg{size}, Arg{int64_t{1}}});
  }
  return one(p.result(id, std::move(dims), call.type(), data));
}

Results index_put(const Call& call) {
  const auto* list = call.arg(1).list();
  if (list == nullptr) refuse("indices that are no list");
  return put(call, call.tensor(0), *list, call.tensor(2), call.boolean(3, false, "accumulate"));
}

// Inductor's embedding backward: values count only where the mask is true.
Results masked_index_put(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  const Value mask = call.tensor(1);
  const auto* list = call.arg(2).list();
  Value values = call.tensor(3);
  if (list == nullptr || mask.rank() > values.rank()) refuse("indices that are no list");
  Value wide = mask;
  if (mask.rank() < values.rank()) {
    std::vector<Expr> sizes;
    for (size_t d = 0; d < values.rank(); ++d)
      sizes.push_back(d < mask.rank() ? p.size(mask, d) : p.num(1));
    wide.dims.resize(values.rank());
    wide.id = p.reshape(mask.id, sizes);
  }
  Layout dims = p.align({&wide, &values}, values.rank());
  const State zero = State::zero().in(values.dtype);
  for (size_t d = 0; d < dims.size(); ++d) {
    for (size_t k = 0; k < dims[d].size(); ++k) {
      if (!dims[d][k].padded) continue;
      const State m = p.state_at(wide, dims.size(), {d, k}, dims);
      const State v = p.state_at(values, dims.size(), {d, k}, dims);
      dims[d][k].state = m.is_zero() ? zero : join(zero, v);
    }
  }
  const int64_t id =
      p.where(wide.id, values.id, p.constant(zero.value().value_or(int64_t{0}), values.dtype));
  const Value kept = p.made(id, std::move(dims), values.dtype, join(values.data, zero));
  return put(call, x, *list, kept, true);
}

// All elements in one dimension.
Value flat(Pass& p, const Value& v) {
  Expr total = p.num(1);
  for (size_t d = 0; d < v.rank(); ++d) total = p.pool().mul(total, p.size(v, d));
  Layout dims = regroup(p, v.dims, {total});
  for (size_t k = 0; k < dims[0].size(); ++k) {
    if (v.uniform) dims[0][k].state = State::constant(*v.uniform);
  }
  return p.made(p.reshape(v.id, {total}), std::move(dims), v.dtype, data_of(v));
}

// v with all dimensions of the aligned layout `dims`.
Value spread(Pass& p, const Value& v, const Layout& dims, const Checked<Expr>& sizes) {
  Layout own = dims;
  for (size_t d = 0; d < own.size(); ++d) {
    for (size_t k = 0; k < own[d].size(); ++k) {
      if (own[d][k].padded) own[d][k].state = p.state_at(v, own.size(), {d, k}, dims);
    }
  }
  const int64_t id = p.emit("aten.expand.default", {Pass::ref(v), Pass::size_list(sizes)});
  return p.made(id, std::move(own), v.dtype, data_of(v));
}

// (x, mask, source): the true positions of the mask take the elements of the source in order.
Results masked_scatter(const Call& call) {
  Pass& p = call.pass();
  Value x = call.tensor(0);
  Value mask = call.tensor(1);
  Value source = call.tensor(2);
  const auto sizes = call.sizes();
  Layout dims = p.align({&x, &mask}, sizes.size());
  x = spread(p, x, dims, sizes);
  mask = p.need(spread(p, mask, dims, sizes), false);
  if (source.padded() && !source.uniform) {
    source = flat(p, source);
    if (source.dims[0].size() > 1)
      p.conform(source, 0, {Factor{p.size(source, 0), true, State::anything()}});
  }
  const State data = join(data_of(x), data_of(source));
  return one(p.result(p.emit(call.op(), {Pass::ref(x), Pass::ref(mask), Pass::ref(source)}), x.dims,
                      call.type(), data));
}

// (grad, mask, sizes): the gradients where the mask is true, in order, then zeros.
Results masked_scatter_backward(const Call& call) {
  Pass& p = call.pass();
  Value grad = call.tensor(0);
  Value mask = call.tensor(1);
  const auto sizes = call.sizes();
  if (mask.rank() > grad.rank()) refuse("a mask of another rank");
  const Layout all = p.align({&grad, &mask}, grad.rank());
  Checked<Expr> full;
  for (const Dim& dim : all) full.push_back(p.product(dim));
  mask = flat(p, p.need(spread(p, mask, all, full), false));
  grad = flat(p, spread(p, grad, all, full));
  const Expr total = p.product(sizes);
  const int64_t behind = p.bucket_size(total);
  const int64_t count = p.emit("aten.cumsum.default", {Pass::ref(mask), Arg{int64_t{0}}},
                               {{"dtype", Arg{Dtype("int64")}}});
  const int64_t place = p.binary("aten.sub.Tensor", count, p.constant(int64_t{1}, Dtype("int64")));
  const int64_t target = p.where(mask.id, place, behind);
  const int64_t empty =
      p.emit("aten.full.default", {Pass::size_list({p.pool().add(total, p.num(1))}), Arg{0.0}},
             {{"dtype", Arg{grad.dtype}}, {"device", p.device()}});
  int64_t id = p.emit("aten.scatter.src",
                      {Pass::ref(empty), Arg{int64_t{0}}, Pass::ref(target), Pass::ref(grad)});
  id = p.emit("aten.slice.Tensor",
              {Pass::ref(id), Arg{int64_t{0}}, Arg{int64_t{0}}, Arg{total}, Arg{int64_t{1}}});
  Layout dims = p.fresh(sizes, State::zero());
  Dim line;
  for (const Dim& dim : dims) line.insert(line.end(), dim.begin(), dim.end());
  line = p.canonical(std::move(line));
  const State data = join(data_of(grad), State::zero());
  Value packed =
      p.made(id, {Dim{Factor{total, p.is_padded(total), State::zero()}}}, grad.dtype, data);
  p.conform(packed, 0, line);
  dims = with_states(std::move(dims), [&](const State&) { return join(data, State::zero()); });
  return one(p.result(p.reshape(packed.id, sizes), std::move(dims), call.type(), data));
}

}  // namespace

void add_scatter_rules(RuleTable& table) {
  table.add({"masked_scatter_backward"}, masked_scatter_backward,
            "the mask is false in the padding; true gradients are packed in their order");
  table.add({"index_put", "_unsafe_index_put"}, index_put,
            "padded updates add 0 at position 0, or are written behind the end and cut off");
  table.add(
      {"masked_scatter"}, masked_scatter,
      "the mask is false in the padding, and the source is packed: elements keep their order");
  table.add({"_unsafe_masked_index_put_accumulate"}, masked_index_put,
            "updates outside of the mask are 0, padded ones too");
}

}  // namespace nc::padding
