#include "bucketing/padding/pass.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace nc::padding {

void refuse(std::string reason) {
  throw Refusal{std::move(reason)};
}

// ---- values ----

bool Value::padded() const {
  for (size_t d = 0; d < dims.size(); ++d) {
    if (padded(d)) return true;
  }
  return false;
}

bool Value::padded(size_t dim) const {
  if (dim >= dims.size()) return false;
  return std::any_of(dims[dim].begin(), dims[dim].end(), [](const Factor& f) { return f.padded; });
}

std::vector<Place> Value::places(size_t dim) const {
  if (dim >= dims.size()) return {};
  std::vector<Place> found;
  for (size_t k = 0; k < dims[dim].size(); ++k) {
    if (dims[dim][k].padded) found.push_back({dim, k});
  }
  return found;
}

std::vector<Place> Value::places() const {
  std::vector<Place> found;
  for (size_t d = 0; d < dims.size(); ++d) {
    for (const Place& p : places(d)) found.push_back(p);
  }
  return found;
}

State Value::any() const {
  if (uniform) return State::constant(*uniform);
  State all = data;
  for (const Place& p : places()) all = join(all, dims[p.dim][p.factor].state);
  return all;
}

State Value::outside(size_t dim) const {
  if (uniform) return State::constant(*uniform);
  State all = data;
  for (const Place& p : places()) {
    if (p.dim != dim) all = join(all, dims[p.dim][p.factor].state);
  }
  return all;
}

State Value::at(Place place) const {
  if (uniform) return State::constant(*uniform);
  return dims[place.dim][place.factor].state;
}

// ---- sizes ----

Expr Pass::unified(Expr e) {
  if (options_.unified.empty()) return e;
  const auto known = unified_.find(e.id);
  if (known != unified_.end()) return known->second;
  const Expr result = pool_.substitute(e, options_.unified);
  unified_.emplace(e.id, result);
  return result;
}

bool Pass::is_padded(Expr e) {
  for (const auto& name : pool_.symbols(e)) {
    if (options_.padded.contains(name)) return true;
  }
  return false;
}

Expr Pass::product(const Dim& dim) {
  Expr all = num(1);
  for (const Factor& f : dim) all = pool_.mul(all, f.size);
  return all;
}

Expr Pass::product(const std::vector<Expr>& sizes) {
  Expr all = num(1);
  for (const Expr e : sizes) all = pool_.mul(all, e);
  return all;
}

Checked<Expr> Pass::sizes(const TensorType& type) {
  Checked<Expr> all;
  all.reserve(type.sizes.size());
  for (const Expr e : type.sizes) all.push_back(unified(e));
  return all;
}

Dim Pass::canonical(Dim dim) {
  Dim out;
  for (Factor& f : dim) {
    if (!f.padded && pool_.is_constant(f.size, 1)) continue;
    if (!f.padded && !out.empty()) {
      // After a fixed factor: one fixed factor. After a padded one: rows of a prefix, which is a
      // prefix.
      out.back().size = pool_.mul(out.back().size, f.size);
      continue;
    }
    out.push_back(std::move(f));
  }
  return out;
}

Dim Pass::prefix_dim(Expr size, const State& state) {
  return canonical({Factor{size, is_padded(size), state}});
}

Dim Pass::fresh(Expr size, const State& state) {
  if (!is_padded(size)) return canonical({Factor{size, false, State::finite()}});
  if (pool_.is_opaque(size))
    refuse(fmt::format("a size is {}, which the analysis does not know", pool_.text(size)));
  if (const auto known = merged_.find(size.id); known != merged_.end()) {
    Dim dim = known->second;
    for (Factor& f : dim) f.state = state;
    return dim;
  }
  return {Factor{size, true, state}};
}

Layout Pass::fresh(const std::vector<Expr>& sizes, const State& state) {
  Layout dims;
  dims.reserve(sizes.size());
  for (const Expr e : sizes) dims.push_back(fresh(e, state));
  return dims;
}

void Pass::require(Expr e) {
  if (pool_.nonnegative(e)) return;
  if (const auto c = pool_.constant(e))
    refuse(fmt::format("a part of a dimension would end {} beyond it", -*c));
  if (std::find(required_.begin(), required_.end(), e) == required_.end()) required_.push_back(e);
}

std::vector<Expr> Pass::unsteady() const {
  std::vector<Expr> found;
  for (const auto& [id, v] : claims_) {
    for (const Dim& dim : v.dims) {
      for (const Factor& f : dim) {
        if (!f.padded || (pool_.rising(f.size) && pool_.positive(f.size))) continue;
        if (std::find(found.begin(), found.end(), f.size) == found.end()) found.push_back(f.size);
      }
    }
  }
  return found;
}

void Pass::remember_merge(const Dim& dim) {
  if (dim.size() < 2) return;
  merged_[product(dim).id] = dim;
}

bool Pass::same(const Dim& a, const Dim& b) {
  if (a.size() == b.size() &&
      std::equal(a.begin(), a.end(), b.begin(),
                 [](const Factor& x, const Factor& y) { return x.size == y.size; })) {
    return true;
  }
  if (a.size() != b.size()) return false;
  std::vector<std::pair<std::string, std::string>> pairs;
  for (size_t k = 0; k < a.size(); ++k) {
    if (a[k].size == b[k].size) continue;
    const auto& from = pool_.symbols(a[k].size);
    const auto& to = pool_.symbols(b[k].size);
    if (from.empty() || from.size() != to.size()) return false;
    std::map<std::string, Expr> swap;
    for (size_t i = 0; i < from.size(); ++i) {
      if (from[i] == to[i]) continue;
      if (!options_.may_be_equal.contains({from[i], to[i]})) return false;
      swap.emplace(from[i], pool_.symbol(to[i]));
      pairs.emplace_back(from[i], to[i]);
    }
    if (pool_.substitute(a[k].size, swap) != b[k].size) return false;
  }
  if (pairs.empty()) return false;
  throw NeedEqual{std::move(pairs)};
}

// ---- results ----

Value Pass::result(int64_t id, Layout dims, const TensorType& type, State data,
                   std::optional<Scalar> uniform) {
  Value v;
  v.id = id;
  v.dtype = type.dtype;
  v.data = data.in(type.dtype);
  v.uniform = uniform;
  const auto want = sizes(type);
  if (dims.size() != want.size()) {
    refuse(
        fmt::format("the result has {} dimensions, the graph says {}", dims.size(), want.size()));
  }
  for (size_t d = 0; d < dims.size(); ++d) {
    Dim dim = canonical(std::move(dims[d]));
    const Expr have = product(dim);
    if (have != want[d]) {
      refuse(fmt::format("a dimension of size {} would be laid out as {}", pool_.text(want[d]),
                         pool_.text(have)));
    }
    for (Factor& f : dim) f.state = f.state.in(type.dtype);
    v.dims.push_back(std::move(dim));
  }
  claims_[id] = v;
  return v;
}

Value Pass::made(int64_t id, Layout dims, const Dtype& dtype, State data) {
  Value v;
  v.id = id;
  v.dtype = dtype;
  v.data = data.in(dtype);
  for (Dim& dim : dims) v.dims.push_back(canonical(std::move(dim)));
  claims_[id] = v;
  return v;
}

Value Pass::latest(Value v) const {
  // A mask that was put on a value once serves all later uses.
  for (auto it = committed_.find(v.id); it != committed_.end(); it = committed_.find(v.id))
    v = it->second;
  return v;
}

// ---- broadcasting ----

void Pass::conform(Value& v, size_t d, const Dim& model) {
  if (same(model, v.dims[d])) return;
  if (product(model) != product(v.dims[d])) {
    refuse(fmt::format("dimensions are padded differently: {} against {}", key(model),
                       key(v.dims[d])));
  }
  Layout dims = v.dims;
  dims[d] = model;
  const State state = v.any();
  for (Factor& f : dims[d]) f.state = state;
  if (v.uniform) {
    v.dims = std::move(dims);
    return;
  }
  v = made(pick(v.id, d, to_padded(true_coordinates(model), v.dims[d], true)), std::move(dims),
           v.dtype, v.data);
}

int64_t Pass::true_coordinates(const Dim& dim) {
  const Expr size = product(dim);
  return once("coordinates " + key(dim), [&] {
    int64_t all = 0;
    Expr stride = num(1);
    for (size_t k = dim.size(); k-- > 0;) {
      int64_t part = along(iota(dim[k].size), dim.size(), k, dim[k].size);
      if (!pool_.is_constant(stride, 1)) part = binary("aten.mul.Tensor", part, truth(stride));
      all = k + 1 == dim.size() ? part : binary("aten.add.Tensor", all, part);
      stride = pool_.mul(stride, dim[k].size);
    }
    if (dim.size() > 1) all = reshape(all, {size});
    return binary("aten.minimum.default", all, truth(pool_.sub(size, num(1))));
  });
}

Layout Pass::align(const std::vector<Value*>& values, size_t rank) {
  Layout out(rank);
  for (size_t d = 0; d < rank; ++d) {
    const Dim* chosen = nullptr;
    bool chosen_is_uniform = false;
    for (const Value* v : values) {
      if (d + v->rank() < rank) continue;
      const Dim& dim = v->dims[d + v->rank() - rank];
      if (dim.empty()) continue;
      if (chosen == nullptr || (chosen_is_uniform && !v->uniform)) {
        chosen = &dim;
        chosen_is_uniform = v->uniform.has_value();
      }
    }
    if (chosen == nullptr) continue;
    out[d] = *chosen;
    for (Value* v : values) {
      if (d + v->rank() >= rank && !v->dims[d + v->rank() - rank].empty())
        conform(*v, d + v->rank() - rank, out[d]);
    }
  }
  return out;
}

State Pass::state_at(const Value& v, size_t rank, Place place, const Layout& aligned) {
  if (v.uniform) return State::constant(*v.uniform);
  if (place.dim + v.rank() < rank) return v.any();
  const Dim& dim = v.dims[place.dim + v.rank() - rank];
  if (dim.empty()) return v.any();
  if (place.factor >= dim.size() || dim.size() != aligned[place.dim].size()) return v.any();
  return dim[place.factor].state;
}

std::string Pass::key(const Dim& dim) const {
  std::string text;
  for (const Factor& f : dim)
    text += fmt::format("[{}{}]", pool_.text(f.size), f.padded ? "" : "'");
  return text.empty() ? "[1]" : text;
}

}  // namespace nc::padding
