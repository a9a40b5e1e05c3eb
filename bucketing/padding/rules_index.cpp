// Reading through indices. Values of index tensors are always true coordinates; they are brought to
// padded coordinates right where they are used, and padded indices read position 0.
#include <algorithm>

#include <fmt/format.h>

#include "bucketing/padding/rule.hpp"

namespace nc::padding {
namespace {

// Rows of a table; one that is padded has true rows in front.
Results embedding(const Call& call) {
  Pass& p = call.pass();
  const Value weight = call.tensor(0);
  if (weight.rank() != 2) refuse("an embedding table of another rank");
  const Value index = safe_index(p, call.tensor(1), fixed_size(p, weight, 0));
  const int64_t at = p.to_padded(index.id, weight.dims[0], true);
  Layout dims = with_states(index.dims, [&](const State&) { return weight.outside(0); });
  dims.push_back(weight.dims[1]);
  if (weight.uniform) {
    for (Factor& f : dims.back()) f.state = State::constant(*weight.uniform);
  }
  const int64_t id = p.emit("aten.embedding.default", {Pass::ref(weight), Pass::ref(at)});
  return one(p.result(id, std::move(dims), call.type(), data_of(weight)));
}

// (grad, index, rows, the row without a gradient, by frequency)
Results embedding_backward(const Call& call) {
  Pass& p = call.pass();
  Value grad = call.tensor(0);
  const Expr rows = call.expr(2, 0);
  const bool padded_rows = p.is_padded(rows);
  if (padded_rows && p.fresh(rows, State::zero()).size() > 1)
    refuse("an embedding table with a merged dimension of rows");
  call.integer(3, -1);
  const Value raw = call.tensor(1);
  if (call.boolean(4, false) && raw.padded())
    refuse("gradients by frequency: padded indices would count");
  const Value index = safe_index(p, raw, padded_rows ? std::nullopt : p.pool().constant(rows));
  // The padded rows go to row 0, with gradient 0.
  std::vector<Place> places;
  for (const Place& place : grad.places()) {
    if (place.dim + 1 < grad.rank()) places.push_back(place);
  }
  grad = p.need(grad, int64_t{0}, places);
  for (size_t d = 0; d < index.rank(); ++d) {
    if (!p.same(index.dims[d], grad.dims[d]) && !grad.uniform)
      refuse("indices and gradients are padded differently");
  }
  ArgList args = call.args();
  args[0] = Pass::ref(grad);
  args[1] = Pass::ref(index);
  Layout dims = {p.fresh(call.sizes()[0], State::zero()), grad.dims.back()};
  for (size_t k = 0; k < dims[1].size(); ++k) {
    const State s = grad.at({grad.rank() - 1, k});
    dims[1][k].state = s.is_zero() ? s : finite_if(s.is_finite());
  }
  return one(p.result(p.emit(call.op(), std::move(args)), std::move(dims), call.type(),
                      finite_if(grad.data.is_finite())));
}

// x[i0, i1, ...]: index tensors broadcast against each other; x keeps its other dimensions.
Results index(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  const auto* list = call.arg(1).list();
  if (list == nullptr) refuse("indices that are no list");
  std::vector<Value> indices;
  Checked<size_t> at;
  ArgList args;
  for (size_t d = 0; d < list->size(); ++d) {
    const Arg& a = (*list)[d];
    if (a.is_none()) {
      args.emplace_back();
      continue;
    }
    Value v = call.tensor(a);
    if (v.dtype.is_bool()) refuse("a boolean index: the size of the result depends on the data");
    args.emplace_back();
    at.push_back(d);
    indices.push_back(std::move(v));
  }
  size_t rank = 0;
  std::vector<Value*> all;
  for (Value& v : indices) {
    rank = std::max(rank, v.rank());
    all.push_back(&v);
  }
  const Layout aligned = p.align(all, rank);
  for (size_t i = 0; i < at.size(); ++i) {
    const Value v = safe_index(p, indices[i], fixed_size(p, x, at[i]));
    args[at[i]] = Pass::ref(p.to_padded(v.id, x.dims[at[i]], v.any().is_non_negative()));
  }
  State read = data_of(x);
  for (const Place& place : x.places()) {
    if (std::find(at.begin(), at.end(), place.dim) == at.end()) read = join(read, x.at(place));
  }
  Layout indexed = with_states(aligned, [&](const State&) { return read; });
  const bool together = at.back() - at.front() + 1 == at.size();
  const size_t place = together ? at.front() : 0;
  Layout dims;
  for (size_t d = 0; d < x.rank(); ++d) {
    if (std::find(at.begin(), at.end(), d) == at.end()) dims.push_back(x.dims[d]);
  }
  dims.insert(dims.begin() + static_cast<ptrdiff_t>(place), indexed.begin(), indexed.end());
  if (x.uniform) {
    for (Dim& dim : dims) {
      for (Factor& f : dim) f.state = State::constant(*x.uniform);
    }
  }
  const int64_t id = p.emit("aten.index.Tensor", {Pass::ref(x), Arg{std::move(args)}});
  return one(p.result(id, std::move(dims), call.type(), x.data, x.uniform));
}

Results index_select(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  const size_t d = wrap(call.integer(1, 0), x.rank());
  const Value i = safe_index(p, call.tensor(2), fixed_size(p, x, d));
  Layout dims = x.dims;
  dims[d] = i.rank() == 0 ? Dim{} : i.dims[0];
  for (Factor& f : dims[d]) f.state = x.outside(d);
  const int64_t id = p.pick(x.id, d, p.to_padded(i.id, x.dims[d], i.any().is_non_negative()));
  return one(p.result(id, std::move(dims), call.type(), x.data, x.uniform));
}

// Each row of the index reads from the same row of x: rows must be padded alike.
Results gather(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  const Value raw = call.tensor(2);
  const size_t rank = x.rank();
  if (rank == 0) return unchanged(call);
  const size_t d = wrap(call.integer(1, 0), rank);
  const Value i = safe_index(p, raw, fixed_size(p, x, d));
  Layout dims;
  for (size_t other = 0; other < rank; ++other) {
    Dim dim = i.dims[other];
    bool shorter = false;
    if (other != d && (x.padded(other) || i.padded(other))) {
      if (i.uniform && p.product(dim) == p.size(x, other)) dim = x.dims[other];
      if (!p.same(x.dims[other], dim)) {
        // The first rows of x; those behind them are true ones, or padding.
        shorter = true;
        if (dim.size() > 1 || x.dims[other].size() > 1 || p.product(dim) == p.size(x, other))
          refuse("an index is padded differently from what it reads");
        p.require(p.pool().sub(p.size(x, other), p.product(dim)));
      }
    }
    for (size_t k = 0; k < dim.size(); ++k) {
      if (!dim[k].padded) continue;
      dim[k].state = x.uniform    ? State::constant(*x.uniform)
                     : other == d ? x.outside(d)
                     : shorter    ? x.any()
                                  : x.at({other, k});
    }
    dims.push_back(std::move(dim));
  }
  const int64_t index = p.to_padded(i.id, x.dims[d], i.any().is_non_negative());
  const int64_t id =
      p.emit("aten.gather.default", {Pass::ref(x), Arg{static_cast<int64_t>(d)}, Pass::ref(index)});
  return one(p.result(id, std::move(dims), call.type(), data_of(x), x.uniform));
}

}  // namespace

Value safe_index(Pass& p, const Value& index, std::optional<int64_t> size) {
  if (index.uniform) return index;
  std::vector<Place> bad;
  for (const Place& place : index.places()) {
    const auto v = index.at(place).value();
    const bool inside =
        v && to_double(*v) >= 0 &&
        (to_double(*v) == 0 || (size && to_double(*v) < static_cast<double>(*size)));
    if (!inside) bad.push_back(place);
  }
  return p.masked(index, bad, int64_t{0}, false);
}

void add_index_rules(RuleTable& table) {
  table.add({"embedding"}, embedding, "true rows are in front; padded indices read row 0");
  table.add({"embedding_dense_backward"}, embedding_backward, "padded rows add 0 to row 0");
  table.add({"index", "_unsafe_index"}, index,
            "true coordinates become padded ones; padded indices read position 0");
  table.add({"index_select"}, index_select,
            "true coordinates become padded ones; padded indices read position 0");
  table.add({"gather"}, gather, "rows stay rows; true coordinates become padded ones");
}

}  // namespace nc::padding
