// Operators that only rename positions: the same elements under other coordinates.
#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "bucketing/padding/rule.hpp"

namespace nc::padding {
namespace {

// A view of a value that is the same everywhere: its layout is free.
Results uniform_view(const Call& call, const Value& x, int64_t id) {
  Pass& p = call.pass();
  return one(p.result(id, p.fresh(call.sizes(), State::constant(*x.uniform)), call.type(), x.data,
                      x.uniform));
}

// regroup(); a packed prefix that has to come apart is first brought into the order of its symbols.
Layout split_where_needed(Pass& p, Value& x, const std::vector<Expr>& sizes) {
  try {
    return regroup(p, x.dims, sizes);
  } catch (const Refusal&) {
    bool changed = false;
    for (size_t d = 0; d < x.rank(); ++d) {
      if (x.dims[d].size() != 1 || !x.padded(d)) continue;
      const Dim known = p.fresh(p.size(x, d), State::anything());
      if (known.size() < 2) continue;
      p.conform(x, d, known);
      changed = true;
    }
    if (!changed) throw;
    return regroup(p, x.dims, sizes);
  }
}

Results view(const Call& call) {
  Pass& p = call.pass();
  Value x = call.tensor(0);
  const auto sizes = call.sizes();
  if (call.type().dtype != x.dtype) refuse("a view that changes the element type");
  if (x.uniform) return uniform_view(call, x, p.reshape(x.id, sizes));
  Layout dims = split_where_needed(p, x, sizes);
  for (const Dim& dim : dims) p.remember_merge(dim);
  return one(p.result(p.reshape(x.id, sizes), std::move(dims), call.type(), x.data));
}

Results permute_by(const Call& call, const Value& x, const Checked<size_t>& order) {
  Pass& p = call.pass();
  Layout dims;
  std::vector<int64_t> axes;
  for (const size_t d : order) {
    dims.push_back(x.dims[d]);
    axes.push_back(static_cast<int64_t>(d));
  }
  const int64_t id = p.emit("aten.permute.default", {Pass::ref(x), Pass::int_list(axes)});
  return one(p.result(id, std::move(dims), call.type(), x.data, x.uniform));
}

Results permute(const Call& call) {
  const Value x = call.tensor(0);
  return permute_by(call, x, wrap(call.integers(1), x.rank()));
}

Results transpose(const Call& call) {
  const Value x = call.tensor(0);
  Checked<size_t> order(x.rank());
  std::iota(order.begin(), order.end(), size_t{0});
  if (call.name() == "t" || call.name() == "numpy_T") {
    std::reverse(order.begin(), order.end());
  } else if (x.rank() > 1) {
    std::swap(order[wrap(call.integer(1, 0), x.rank())], order[wrap(call.integer(2, 1), x.rank())]);
  }
  return permute_by(call, x, order);
}

// The dimensions of a result of the same elements with dimensions of size 1 added or taken away.
Results squeeze(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  std::vector<bool> gone(x.rank(), !call.has(1));
  for (const size_t d : wrap(call.integers(1), x.rank())) gone[d] = true;
  Layout dims;
  for (size_t d = 0; d < x.rank(); ++d) {
    if (!gone[d] || !x.dims[d].empty()) dims.push_back(x.dims[d]);
  }
  return one(
      p.result(p.reshape(x.id, call.sizes()), std::move(dims), call.type(), x.data, x.uniform));
}

Results unsqueeze(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  const size_t d = wrap(call.integer(1, 0), x.rank() + 1);
  Layout dims = x.dims;
  dims.insert(dims.begin() + static_cast<ptrdiff_t>(d), Dim{});
  const int64_t id = p.emit("aten.unsqueeze.default", {Pass::ref(x), Arg{static_cast<int64_t>(d)}});
  return one(p.result(id, std::move(dims), call.type(), x.data, x.uniform));
}

// A broadcast dimension repeats what is there, in its padding too.
Results expand(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  const auto sizes = call.sizes();
  Layout dims;
  for (size_t d = 0; d < sizes.size(); ++d) {
    const bool old = d + x.rank() >= sizes.size();
    const Dim* from = old ? &x.dims[d + x.rank() - sizes.size()] : nullptr;
    dims.push_back(from != nullptr && !from->empty() ? *from : p.fresh(sizes[d], x.any()));
  }
  const int64_t id = p.emit("aten.expand.default", {Pass::ref(x), Pass::size_list(sizes)});
  return one(p.result(id, std::move(dims), call.type(), x.data, x.uniform));
}

Results repeat(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  const auto times = call.exprs(1);
  const auto sizes = call.sizes();
  if (x.uniform) {
    const int64_t id = p.emit("aten.expand.default",
                              {Pass::ref(p.constant(*x.uniform, x.dtype)), Pass::size_list(sizes)});
    return uniform_view(call, x, id);
  }
  Layout dims;
  std::vector<Expr> split;
  std::vector<Expr> spread;
  for (size_t d = 0; d < sizes.size(); ++d) {
    const bool old = d + x.rank() >= sizes.size();
    const Dim dim = old ? x.dims[d + x.rank() - sizes.size()] : Dim{};
    const Expr size = p.product(dim);
    split.insert(split.end(), {p.num(1), size});
    spread.insert(spread.end(), {times[d], size});
    // The outer factor counts repetitions, the inner ones are the old dimension.
    Dim repeated = p.fresh(times[d], x.any());
    repeated.insert(repeated.end(), dim.begin(), dim.end());
    dims.push_back(std::move(repeated));
  }
  int64_t id = p.reshape(x.id, split);
  id = p.emit("aten.expand.default", {Pass::ref(id), Pass::size_list(spread)});
  id = p.reshape(id, sizes);
  for (const Dim& dim : dims) p.remember_merge(p.canonical(dim));
  return one(p.result(id, std::move(dims), call.type(), x.data));
}

// as_strided in place of a view that AOTAutograd has lost: only when it is the value itself, as a
// dense array of the same sizes.
Results as_strided(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  const auto sizes = call.exprs(1);
  const auto strides = call.exprs(2);
  Expr dense = p.num(1);
  for (size_t i = sizes.size(); i-- > 0;) {
    if (!p.pool().is_constant(sizes[i], 1) && strides[i] != dense)
      refuse("as_strided with other than dense strides");
    dense = p.pool().mul(dense, sizes[i]);
  }
  Expr total = p.num(1);
  for (const Dim& dim : x.dims) total = p.pool().mul(total, p.product(dim));
  if (total != dense || !p.pool().is_constant(call.expr(3, 0), 0)) refuse("as_strided of a part");
  return one(p.result(p.reshape(x.id, call.sizes()), regroup(p, x.dims, call.sizes()), call.type(),
                      x.data, x.uniform));
}

// (x, src, sizes, strides, offset) where the part written is all of x.
Results as_strided_scatter(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  const Value src = call.tensor(1);
  const auto sizes = call.exprs(2);
  const auto strides = call.exprs(3);
  Expr dense = p.num(1);
  for (size_t i = sizes.size(); i-- > 0;) {
    if (!p.pool().is_constant(sizes[i], 1) && strides[i] != dense)
      refuse("as_strided with other than dense strides");
    dense = p.pool().mul(dense, sizes[i]);
  }
  if (p.product(call.sizes()) != dense || !p.pool().is_constant(call.expr(4, 0), 0))
    refuse("as_strided of a part");
  if (src.uniform) return uniform_view(call, src, p.reshape(src.id, call.sizes()));
  return one(p.result(p.reshape(src.id, call.sizes()), regroup(p, src.dims, call.sizes()),
                      call.type(), src.data));
}

// Complex numbers as pairs, and back: one more, or one less, dimension of size 2 at the end.
Results complex_view(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  Layout dims = x.dims;
  for (const Place& place : x.places()) {
    const State s = x.at(place);
    dims[place.dim][place.factor].state = s.is_zero() ? s : finite_if(s.is_finite());
  }
  if (call.name() == "view_as_real") {
    dims.push_back(p.fresh(p.num(2), State::finite()));
  } else {
    if (x.rank() == 0 || x.padded(x.rank() - 1)) refuse("pairs of other than two numbers");
    dims.pop_back();
  }
  return one(p.result(
      p.emit(call.op(), {Pass::ref(x)}), std::move(dims), call.type(),
      finite_if(x.uniform ? State::constant(*x.uniform).is_finite() : x.data.is_finite())));
}

// x[i], x[i+1], ... along a dimension without padding.
Results unbind(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  const size_t d = wrap(call.integer(1, 0), x.rank());
  if (x.padded(d)) refuse("taking a padded dimension apart");
  Layout dims = x.dims;
  dims.erase(dims.begin() + static_cast<ptrdiff_t>(d));
  Results out;
  for (size_t i = 0; i < call.node().outs.size(); ++i) {
    const int64_t id = p.emit("aten.select.int", {Pass::ref(x), Arg{static_cast<int64_t>(d)},
                                                  Arg{static_cast<int64_t>(i)}});
    out.emplace_back(p.result(id, dims, call.type(i), x.data, x.uniform));
  }
  return out;
}

}  // namespace

Layout regroup(Pass& p, const Layout& from, const std::vector<Expr>& to) {
  ExprPool& pool = p.pool();
  std::vector<Factor> left;
  for (const Dim& dim : from) left.insert(left.end(), dim.begin(), dim.end());
  std::reverse(left.begin(), left.end());  // the next one is at the back
  const auto fail = [&](Expr size, std::optional<Expr> missing = {}) {
    // The sizes may fit if two symbols are one.
    if (missing && !left.empty() && pool.symbols(left.back().size).size() == 1) {
      const std::string& have = pool.symbols(left.back().size)[0];
      for (const std::string& want : pool.symbols(*missing)) {
        if (want != have && p.options().may_be_equal.contains({have, want}))
          throw NeedEqual{{{have, want}}};
      }
    }
    std::string have;
    for (const Dim& dim : from) {
      have += have.empty() ? "" : ", ";
      for (const Factor& f : dim)
        have += fmt::format("[{}{}]", pool.text(f.size), f.padded ? "" : "'");
    }
    refuse(fmt::format(
        "a view makes a dimension of size {} out of ({}), which is no prefix of anything",
        pool.text(size), have));
  };
  Layout out;
  for (const Expr size : to) {
    Dim dim;
    Expr done = p.num(1);
    while (done != size) {
      if (left.empty()) fail(size);
      const auto missing = pool.divide(size, done);
      if (!missing) fail(size);
      Factor next = left.back();
      if (pool.divide(*missing, next.size)) {
        left.pop_back();
        done = pool.mul(done, next.size);
        dim.push_back(std::move(next));
        continue;
      }
      if (next.padded) {
        // rows * columns -> rows, columns: a prefix of whole rows. The columns must be fixed.
        const auto columns = pool.divide(next.size, *missing);
        if (!columns || !pool.constant(*columns)) fail(size, missing);
        left.back() = Factor{*columns, false, State::finite()};
        done = size;
        dim.push_back({*missing, true, next.state});
        continue;
      }
      const int64_t have = pool.constant(next.size).value_or(0);
      const int64_t common = std::gcd(have, pool.content(*missing));
      if (common <= 1) fail(size, missing);
      left.back().size = pool.integer(have / common);
      done = pool.mul(done, pool.integer(common));
      dim.push_back({pool.integer(common), false, State::finite()});
    }
    out.push_back(p.canonical(std::move(dim)));
  }
  for (const Factor& f : left) {
    if (!pool.is_constant(f.size, 1)) fail(f.size);
  }
  return out;
}

void add_view_rules(RuleTable& table) {
  table.add({"view", "_unsafe_view", "reshape", "flatten", "unflatten", "view_copy"}, view,
            "elements keep their order; factors are regrouped, never split across a true length");
  table.add({"view_as_real", "view_as_complex"}, complex_view,
            "pairs of numbers side by side; the other dimensions keep their places");
  table.add({"as_strided_scatter"}, as_strided_scatter, "only where it writes all elements");
  table.add({"permute", "permute_copy"}, permute,
            "dimensions change places with all their factors");
  table.add({"transpose", "t", "numpy_T"}, transpose,
            "dimensions change places with all their factors");
  table.add({"squeeze"}, squeeze, "dimensions of size 1 have no factors");
  table.add({"unsqueeze"}, unsqueeze, "dimensions of size 1 have no factors");
  table.add({"expand"}, expand, "a broadcast dimension holds copies, in its padding too");
  table.add({"repeat"}, repeat, "repetitions are an outer factor of the dimension");
  table.add({"as_strided"}, as_strided, "only the dense view of all elements");
  table.add({"unbind"}, unbind, "positions along a dimension without padding");
}

}  // namespace nc::padding
