// Emitting plan nodes, and masks.
#include <algorithm>

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include "bucketing/padding/pass.hpp"

namespace nc::padding {
namespace json = boost::json;
namespace {

std::string text(Scalar value) {
  return json::serialize(to_json(value));
}

Arg scalar_arg(Scalar value) {
  return std::visit([](auto v) { return Arg{v}; }, value);
}

}  // namespace

int64_t Pass::emit(std::string op, ArgList args, Kwargs kwargs) {
  nodes_.push_back(
      {std::move(op), std::move(args), std::move(kwargs), next_value_, 1, false, from_});
  return next_value_++;
}

int64_t Pass::emit_several(std::string op, int64_t count, ArgList args, Kwargs kwargs) {
  nodes_.push_back(
      {std::move(op), std::move(args), std::move(kwargs), next_value_, count, true, from_});
  const int64_t first = next_value_;
  next_value_ += count;
  return first;
}

Arg Pass::size_list(const std::vector<Expr>& sizes) {
  ArgList list;
  for (const Expr e : sizes) list.push_back(Arg{e});
  return Arg{std::move(list)};
}

Arg Pass::int_list(const std::vector<int64_t>& values) {
  ArgList list;
  for (const int64_t i : values) list.push_back(Arg{i});
  return Arg{std::move(list)};
}

Arg Pass::device() const {
  return Arg{json::value{{"device", graph_.device}}};
}

int64_t Pass::constant(Scalar value, const Dtype& dtype) {
  return once(fmt::format("constant {} {}", text(value), dtype.name()), [&] {
    return emit("aten.full.default", {Arg{ArgList{}}, scalar_arg(value)},
                {{"dtype", Arg{dtype}}, {"device", device()}});
  });
}

int64_t Pass::bucket_size(Expr e) {
  return once(fmt::format("bucket {}", e.id), [&] {
    return emit("aten.full.default", {Arg{ArgList{}}, Arg{e}},
                {{"dtype", Arg{Dtype("int64")}}, {"device", device()}});
  });
}

int64_t Pass::truth(Expr e) {
  if (const auto c = pool_.constant(e)) return constant(*c, Dtype("int64"));
  if (pool_.is_opaque(e))
    refuse(fmt::format("a length is {}, which the analysis does not know", pool_.text(e)));
  return once(fmt::format("truth {}", e.id), [&] {
    truths_.push_back({e, false});
    return -static_cast<int64_t>(truths_.size());
  });
}

int64_t Pass::float_truth(Expr e) {
  return once(fmt::format("float truth {}", e.id), [&] {
    truths_.push_back({e, true});
    return -static_cast<int64_t>(truths_.size());
  });
}

int64_t Pass::iota(Expr e) {
  return once(fmt::format("iota {}", e.id), [&] {
    return emit("aten.arange.start_step", {Arg{int64_t{0}}, Arg{e}, Arg{int64_t{1}}},
                {{"dtype", Arg{Dtype("int64")}}, {"device", device()}});
  });
}

int64_t Pass::prefix(Expr e) {
  return once(fmt::format("prefix {}", e.id),
              [&] { return binary("aten.lt.Tensor", iota(e), truth(e)); });
}

int64_t Pass::reshape(int64_t id, const std::vector<Expr>& sizes) {
  return emit("aten.reshape.default", {ref(id), size_list(sizes)});
}

int64_t Pass::where(int64_t condition, int64_t a, int64_t b) {
  return emit("aten.where.self", {ref(condition), ref(a), ref(b)});
}

int64_t Pass::cast(int64_t id, const Dtype& dtype) {
  return emit("prims.convert_element_type.default", {ref(id), Arg{dtype}});
}

int64_t Pass::along(int64_t id, size_t rank, size_t dim, Expr size) {
  if (rank == 1) return id;
  std::vector<Expr> sizes(rank, num(1));
  sizes[dim] = size;
  return reshape(id, sizes);
}

int64_t Pass::pick(int64_t x, size_t dim, int64_t index) {
  ArgList list(dim);
  list.push_back(ref(index));
  return emit("aten.index.Tensor", {ref(x), Arg{std::move(list)}});
}

int64_t Pass::to_padded(int64_t index, const Dim& dim, bool non_negative) {
  const bool padded = std::any_of(dim.begin(), dim.end(), [](const Factor& f) { return f.padded; });
  if (!padded) return index;
  if (!non_negative) {
    const int64_t negative = binary("aten.lt.Tensor", index, constant(int64_t{0}, Dtype("int64")));
    index = where(negative, binary("aten.add.Tensor", index, truth(product(dim))), index);
  }
  if (dim.size() == 1) return index;
  // Digits of the true coordinate in the true sizes, put together in the padded sizes.
  int64_t rest = index;
  int64_t out = 0;
  Expr stride = num(1);
  for (size_t k = dim.size(); k-- > 0;) {
    int64_t digit = rest;
    if (k > 0) {
      const int64_t size = truth(dim[k].size);
      digit = binary("aten.remainder.Tensor", rest, size);
      rest = emit("aten.div.Tensor_mode", {ref(rest), ref(size)},
                  {{"rounding_mode", Arg{std::string("floor")}}});
    }
    if (k + 1 == dim.size()) {
      out = digit;
    } else {
      out = binary("aten.add.Tensor", out, binary("aten.mul.Tensor", digit, bucket_size(stride)));
    }
    stride = pool_.mul(stride, dim[k].size);
  }
  return out;
}

// ---- masks ----

int64_t Pass::dim_mask(const Dim& dim, const std::vector<size_t>& factors) {
  if (dim.size() == 1) return prefix(dim[0].size);
  std::string name = "dim mask " + key(dim);
  for (const size_t k : factors) name += fmt::format(" {}", k);
  return once(name, [&] {
    std::vector<Expr> full;
    for (const Factor& f : dim) full.push_back(f.size);
    int64_t all = 0;
    bool first = true;
    for (const size_t k : factors) {
      const int64_t one = along(prefix(dim[k].size), dim.size(), k, dim[k].size);
      all = first ? one : binary("aten.logical_and.default", all, one);
      first = false;
    }
    all = emit("aten.expand.default", {ref(all), size_list(full)});
    return reshape(all, {product(dim)});
  });
}

int64_t Pass::mask(const Layout& dims, const std::vector<Place>& places) {
  std::map<size_t, std::vector<size_t>> by_dim;
  for (const Place& p : places) by_dim[p.dim].push_back(p.factor);
  std::string name = fmt::format("mask {}", dims.size());
  for (const auto& [d, factors] : by_dim) {
    name += fmt::format(" {}:{}", d, key(dims[d]));
    for (const size_t k : factors) name += fmt::format("/{}", k);
  }
  return once(name, [&] {
    int64_t all = 0;
    bool first = true;
    for (const auto& [d, factors] : by_dim) {
      const int64_t one = along(dim_mask(dims[d], factors), dims.size(), d, product(dims[d]));
      all = first ? one : binary("aten.logical_and.default", all, one);
      first = false;
    }
    return all;
  });
}

Value Pass::masked(const Value& v, std::vector<Place> places, Scalar value, bool commit) {
  if (places.empty()) return v;
  std::sort(places.begin(), places.end());
  std::string name = fmt::format("{} {}", v.id, text(value));
  for (const Place& p : places) name += fmt::format(" {}.{}", p.dim, p.factor);
  if (const auto known = masked_.find(name); known != masked_.end()) return known->second;
  const State filled = State::constant(value).in(v.dtype);
  const int64_t condition = mask(v.dims, places);
  const Scalar typed = filled.value().value_or(value);
  const int64_t id = where(condition, v.id, constant(typed, v.dtype));
  mask_ids_.insert(id);
  Value out = v;
  out.id = id;
  out.origin = nullptr;
  out.uniform.reset();
  for (const Place& p : v.places()) {
    Factor& f = out.dims[p.dim][p.factor];
    const bool is_masked = std::find(places.begin(), places.end(), p) != places.end();
    f.state = is_masked ? filled : join(v.at(p), filled);
  }
  if (v.uniform) out.data = State::constant(*v.uniform);
  Filled exact{out, places};
  for (const Place& p : v.places()) {
    if (std::find(places.begin(), places.end(), p) == places.end())
      exact.v.dims[p.dim][p.factor].state = v.at(p);
  }
  filled_.emplace(id, std::move(exact));
  claims_[id] = out;
  masked_.emplace(name, out);
  if (commit && filled.is_zero() && !v.uniform) committed_[v.id] = out;
  return out;
}

Value Pass::need(const Value& v, Scalar value, const std::vector<Place>& places) {
  if (v.uniform && same_value(*v.uniform, value)) return v;
  const State wanted = State::constant(value).in(v.dtype);
  std::vector<Place> bad;
  for (const Place& p : places) {
    if (v.dims[p.dim][p.factor].padded && !(v.at(p) == wanted)) bad.push_back(p);
  }
  return masked(v, std::move(bad), value);
}

Value Pass::finite(const Value& v, const std::vector<Place>& places) {
  std::vector<Place> bad;
  for (const Place& p : places) {
    if (v.dims[p.dim][p.factor].padded && !v.at(p).is_finite()) bad.push_back(p);
  }
  return masked(v, std::move(bad), int64_t{0});
}

}  // namespace nc::padding
