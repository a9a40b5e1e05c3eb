#include "bucketing/padding/analyse.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

namespace nc::padding {
namespace {

// Checks that hold at the true sizes, and say nothing about data.
bool is_assertion(std::string_view name) {
  return name.starts_with("_assert") || name.starts_with("sym_constrain");
}

class Walker {
 public:
  Walker(Pass& pass, Analysed& state) : pass_(pass), state_(state) {}

  void node(const Node& n);

 private:
  Arg resolved(const Arg& arg);
  Value constant(ConstantRef r);
  bool touched(const Node& n, const ArgList& args, const Kwargs& kwargs);
  bool padded(const Arg& arg);

  Pass& pass_;
  Analysed& state_;
  std::map<int64_t, Value> constants_;
};

Arg Walker::resolved(const Arg& arg) {
  if (const auto* r = arg.ref()) {
    const auto& v = state_.values[static_cast<size_t>(r->id)];
    if (!v) refuse("it uses a result that the analysis does not follow");
    return Pass::ref(pass_.latest(*v));
  }
  if (const auto* c = std::get_if<ConstantRef>(&arg.v)) return Pass::ref(constant(*c));
  if (const auto* list = arg.list()) {
    ArgList items;
    for (const Arg& item : *list) items.push_back(resolved(item));
    return Arg{std::move(items)};
  }
  if (const auto* e = std::get_if<Expr>(&arg.v)) return Arg{pass_.unified(*e)};
  return arg;
}

Value Walker::constant(ConstantRef r) {
  const auto known = constants_.find(r.id);
  if (known != constants_.end()) return known->second;
  const TensorType& type = pass_.graph().constants[static_cast<size_t>(r.id)];
  const int64_t id = pass_.emit("aten.clone.default", {Arg{r}});
  // Nothing is known of its elements: they may be infinite.
  Value v =
      pass_.result(id, pass_.fresh(pass_.sizes(type), State::finite()), type, State::anything());
  constants_.emplace(r.id, v);
  return v;
}

bool Walker::padded(const Arg& arg) {
  if (const auto* r = arg.ref()) return pass_.claims().at(r->id).padded();
  if (const auto* list = arg.list())
    return std::any_of(list->begin(), list->end(), [&](const Arg& a) { return padded(a); });
  if (const auto* e = std::get_if<Expr>(&arg.v))
    return pass_.is_padded(*e) || pass_.pool().is_opaque(*e);
  return false;
}

bool Walker::touched(const Node& n, const ArgList& args, const Kwargs& kwargs) {
  for (const Arg& a : args) {
    if (padded(a)) return true;
  }
  for (const auto& [name, a] : kwargs) {
    if (padded(a)) return true;
  }
  for (const Type& t : n.outs) {
    const auto* tensor = std::get_if<TensorType>(&t);
    if (tensor == nullptr) continue;
    for (const Expr e : pass_.sizes(*tensor)) {
      if (pass_.is_padded(e)) return true;
    }
  }
  return false;
}

void Walker::node(const Node& n) {
  const bool tensors = std::any_of(n.outs.begin(), n.outs.end(), [](const Type& t) {
    return std::holds_alternative<TensorType>(t);
  });
  if (!tensors) {
    const bool numbers = !n.outs.empty() &&
                         std::all_of(n.outs.begin(), n.outs.end(),
                                     [](const Type& t) { return std::holds_alternative<Expr>(t); });
    if (numbers || is_assertion(n.name)) return;
    refuse("it returns no tensor");
  }
  ArgList args;
  for (const Arg& a : n.args) args.push_back(resolved(a));
  Kwargs kwargs;
  for (const auto& [name, a] : n.kwargs) kwargs.emplace(name, resolved(a));
  const bool is_touched = touched(n, args, kwargs);
  const Call call(pass_, n, std::move(args), std::move(kwargs), pass_.claims());
  Results results;
  if (!is_touched) {
    results = unchanged(call);
  } else {
    if (n.name.ends_with('_') && !n.name.starts_with("__"))
      refuse("it changes a padded tensor in place");
    const Rule* rule = rules().find(n.name);
    const auto own = pass_.options().declared.find(n.op);
    if (rule != nullptr) {
      results = rule->run(call);
    } else if (own != pass_.options().declared.end()) {
      results = declared(call, own->second);
    } else {
      refuse("there is no rule for it");
    }
  }
  if (results.size() < n.outs.size()) refuse("its rule follows fewer results than it has");
  for (size_t k = 0; k < n.outs.size(); ++k)
    state_.values[static_cast<size_t>(n.first_value) + k] = std::move(results[k]);
}

// Operators whose rules are worth running without padding: they know constants and finite values.
bool has_states(std::string_view name) {
  static const std::set<std::string_view> kNames = {
      "full",      "zeros",     "ones",         "full_like", "zeros_like",
      "ones_like", "new_zeros", "new_ones",     "new_full",  "scalar_tensor",
      "expand",    "view",      "_unsafe_view", "reshape",   "squeeze",
      "unsqueeze", "permute",   "transpose",    "t"};
  return kNames.contains(name);
}

// Operators that make something else than finite numbers out of finite ones: whatever the memory
// held, the variance of one element, a quotient by a singular matrix.
bool may_be_infinite(std::string_view name) {
  static const std::set<std::string_view> kNames = {
      "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided",
      "var",   "var_mean",   "std",           "std_mean",       "prod",      "linalg_vector_norm"};
  return kNames.contains(name) || name.find("triangular") != std::string_view::npos ||
         name.find("cdist") != std::string_view::npos;
}

bool is_infinite(const Arg& a) {
  const auto* d = std::get_if<double>(&a.v);
  return d != nullptr && !std::isfinite(*d);
}

}  // namespace

Results unchanged(const Call& call) {
  Pass& p = call.pass();
  const std::string& name = call.name();
  if (is_pointwise(name) && call.node().outs.size() == 1) return pointwise(call);
  const Rule* rule = rules().find(name);
  if (has_states(name) && rule != nullptr) return rule->run(call);
  ArgList args = call.args();
  // Ends that mean "all of it" are written out: compilers stumble over them.
  const size_t end = name == "slice" ? 3 : name == "slice_scatter" ? 4 : args.size();
  if (end < args.size()) {
    const Value x = call.tensor(0);
    const auto* at = std::get_if<int64_t>(&args[end].v);
    const auto size = p.pool().constant(p.size(x, wrap(call.integer(end - 2, 0), x.rank())));
    if (at != nullptr && size && *at > *size) args[end] = Arg{*size};
  }
  bool finite = rule != nullptr && !may_be_infinite(name);
  const std::function<void(const Arg&)> look = [&](const Arg& a) {
    if (a.ref() != nullptr) finite = finite && p.claims().at(a.ref()->id).any().is_finite();
    if (a.list() != nullptr) std::for_each(a.list()->begin(), a.list()->end(), look);
    if (is_infinite(a)) finite = false;
  };
  for (const Arg& a : args) look(a);
  for (const auto& [kwarg, a] : call.kwargs()) look(a);
  const auto count = static_cast<int64_t>(call.node().outs.size());
  const int64_t first = call.node().several
                            ? p.emit_several(call.op(), count, std::move(args), call.kwargs())
                            : p.emit(call.op(), std::move(args), call.kwargs());
  Results out;
  for (size_t k = 0; k < call.node().outs.size(); ++k) {
    if (!call.is_tensor_result(k)) {
      out.emplace_back();
      continue;
    }
    out.emplace_back(p.result(first + static_cast<int64_t>(k),
                              p.fresh(call.sizes(k), State::finite()), call.type(k),
                              finite_if(finite)));
  }
  return out;
}

bool is_pointwise(std::string_view name) {
  const Rule* rule = rules().find(name);
  return rule != nullptr && rule->run == pointwise;
}

Value arriving(Pass& p, int64_t id, const TensorType& type, const State& state) {
  Layout dims;
  for (const Expr size : p.sizes(type)) {
    Dim dim = p.fresh(size, state);
    // A merged dimension that comes from outside was most likely merged in the order of the
    // symbols.
    if (dim.size() == 1 && dim[0].padded && p.pool().is_product(size)) {
      Dim split;
      Expr rest = size;
      for (const std::string& name : p.pool().symbols(size)) {
        const Expr symbol = p.pool().symbol(name);
        const auto left = p.pool().divide(rest, symbol);
        if (!left) break;
        split.push_back({symbol, true, state});
        rest = *left;
      }
      if (p.pool().constant(rest)) {
        split.push_back({rest, false, State::finite()});
        dim = p.canonical(std::move(split));
        p.remember_merge(dim);
      }
    }
    dims.push_back(std::move(dim));
  }
  return p.result(id, std::move(dims), type, State::finite());
}

Analysed analyse(Pass& pass, std::vector<std::optional<Arrival>> inputs) {
  Analysed state;
  state.values.resize(pass.graph().values.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i]) state.values[i] = inputs[i]->value;
  }
  state.inputs = std::move(inputs);
  Walker walker(pass, state);
  const auto& nodes = pass.graph().nodes;
  for (size_t i = 0; i < nodes.size(); ++i) {
    pass.set_origin_node(static_cast<int64_t>(i));
    try {
      walker.node(nodes[i]);
    } catch (const Refusal& refusal) {
      throw RefusedNode{static_cast<int64_t>(i), nodes[i].op, refusal.reason};
    }
  }
  return state;
}

}  // namespace nc::padding
