// Runs a declared rule (declared.hpp).
#include <algorithm>

#include <fmt/format.h>

#include "bucketing/padding/declared.hpp"
#include "bucketing/padding/rule.hpp"

namespace nc::padding {
namespace {

State given(Gives gives, const std::vector<State>& from) {
  const bool finite =
      std::all_of(from.begin(), from.end(), [](const State& s) { return s.is_finite(); });
  if (!finite) return State::anything();
  switch (gives) {
    case Gives::kAny:
      return State::anything();
    case Gives::kNonNegative:
      return State::non_negative();
    case Gives::kPositive:
      return State::positive();
    case Gives::kZero: {
      const bool zero =
          std::all_of(from.begin(), from.end(), [](const State& s) { return s.is_zero(); });
      return zero && !from.empty() ? State::zero() : State::finite();
    }
    default:
      return State::finite();
  }
}

// What has no meaning for a declaration is refused.
void check(const Call& call) {
  Pass& p = call.pass();
  const auto varies = [&](const Arg& a) {
    const auto* e = std::get_if<Expr>(&a.v);
    return e != nullptr && (p.is_padded(*e) || p.pool().is_opaque(*e));
  };
  const auto plain = [&](const Arg& a) {
    if (varies(a)) refuse("a size that varies is an argument of an operator with a declared rule");
    const auto* list = a.list();
    if (list == nullptr) return;
    for (const Arg& item : *list) {
      if (item.ref() != nullptr || item.list() != nullptr || varies(item))
        refuse("a list of tensors or sizes in an operator with a declared rule");
    }
  };
  for (const Arg& a : call.args()) plain(a);
  for (const auto& [name, a] : call.kwargs()) {
    if (a.ref() != nullptr)
      refuse(fmt::format("the argument {} of an operator with a declared rule is a tensor", name));
    plain(a);
  }
}

// The tensors among the positional arguments, by position.
std::map<size_t, Value> tensors(const Call& call) {
  std::map<size_t, Value> all;
  for (size_t i = 0; i < call.count(); ++i) {
    if (call.is_tensor(i)) all.emplace(i, call.tensor(i));
  }
  return all;
}

int64_t emitted(const Call& call, const std::map<size_t, Value>& values) {
  ArgList args = call.args();
  for (const auto& [i, v] : values) args[i] = Pass::ref(v);
  Pass& p = call.pass();
  const auto count = static_cast<int64_t>(call.node().outs.size());
  return call.node().several ? p.emit_several(call.op(), count, std::move(args), call.kwargs())
                             : p.emit(call.op(), std::move(args), call.kwargs());
}

Results elementwise(const Call& call, const Declared& rule) {
  Pass& p = call.pass();
  std::map<size_t, Value> values = tensors(call);
  std::vector<Value*> operands;
  size_t rank = 0;
  for (auto& [i, v] : values) {
    operands.push_back(&v);
    rank = std::max(rank, v.rank());
  }
  const Layout dims = p.align(operands, rank);
  const int64_t first = emitted(call, values);
  const auto state = [&](auto of) {
    std::vector<State> states;
    for (const Value* v : operands) states.push_back(of(*v));
    return given(rule.gives, states);
  };
  Layout out = dims;
  for (size_t d = 0; d < rank; ++d) {
    for (size_t k = 0; k < dims[d].size(); ++k) {
      if (dims[d][k].padded)
        out[d][k].state = state([&](const Value& v) { return p.state_at(v, rank, {d, k}, dims); });
    }
  }
  const State data = state(data_of);
  Results results;
  for (size_t k = 0; k < call.node().outs.size(); ++k) {
    results.emplace_back();
    if (call.is_tensor_result(k))
      results.back() = p.result(first + static_cast<int64_t>(k), out, call.type(k), data);
  }
  return results;
}

struct Along {
  const Call& call;
  const Declared& rule;
  Pass& p;
  std::map<size_t, Value> values;

  Value& argument(const Declared::Axis& axis) {
    const auto it = values.find(axis.input);
    if (it == values.end()) refuse("its declared rule names an argument that is no tensor");
    return it->second;
  }
  size_t dim(const Declared::Axis& axis) { return wrap(axis.dim, argument(axis).rank()); }
  bool names(const std::vector<Declared::Axis>& axes, size_t input, size_t d) {
    return std::any_of(axes.begin(), axes.end(), [&](const Declared::Axis& axis) {
      return axis.input == input && dim(axis) == d;
    });
  }

  // Dimensions that belong together get one layout.
  void tie() {
    for (const auto& out : rule.outputs) {
      if (!out) continue;
      for (const auto& axes : out->follows) {
        for (const auto& axis : axes)
          p.conform(argument(axis), dim(axis), argument(axes[0]).dims[dim(axes[0])]);
      }
    }
    // A later one may have changed what an earlier one was tied to.
    for (const auto& out : rule.outputs) {
      if (!out) continue;
      for (const auto& axes : out->follows) {
        for (const auto& axis : axes) {
          if (!p.same(argument(axis).dims[dim(axis)], argument(axes[0]).dims[dim(axes[0])]))
            refuse("its arguments are padded differently");
        }
      }
    }
  }

  void ready() {
    for (auto& [i, v] : values) {
      const auto it = rule.needs.find(i);
      const Needs need = it == rule.needs.end() ? Needs::kFinite : it->second;
      if (need == Needs::kFinite) v = p.finite(v);
      if (need == Needs::kZero) v = p.need(v, int64_t{0});
    }
  }

  void covered(const Declared::Output& out) {
    for (const auto& [i, v] : values) {
      for (size_t d = 0; d < v.rank(); ++d) {
        if (!v.padded(d) || names(rule.sums, i, d)) continue;
        bool followed = false;
        for (const auto& axes : out.follows) followed = followed || names(axes, i, d);
        if (!followed) {
          refuse(
              fmt::format("dimension {} of argument {} is padded, and its declared rule does "
                          "not follow it",
                          d, i));
        }
      }
    }
  }

  Value result(size_t k, int64_t id, const Declared::Output& out) {
    const auto sizes = call.sizes(k);
    if (sizes.size() != out.follows.size())
      refuse("a result has another rank than its declared rule says");
    covered(out);
    Layout dims;
    for (size_t d = 0; d < sizes.size(); ++d) {
      const auto& axes = out.follows[d];
      if (axes.empty()) {
        if (p.is_padded(sizes[d]))
          refuse("a dimension of a result is padded, and its declared rule follows nothing");
        dims.push_back(p.fresh(sizes[d], State::finite()));
        continue;
      }
      Dim own = argument(axes[0]).dims[dim(axes[0])];
      for (size_t f = 0; f < own.size(); ++f) {
        if (!own[f].padded) continue;
        std::vector<State> states;
        for (const auto& [i, v] : values) {
          State s = v.any();
          for (const auto& axis : axes) {
            if (axis.input == i) s = v.at({dim(axis), f});
          }
          states.push_back(s);
        }
        own[f].state = given(out.gives, states);
      }
      dims.push_back(std::move(own));
    }
    std::vector<State> data;
    for (const auto& [i, v] : values) data.push_back(data_of(v));
    return p.result(id, std::move(dims), call.type(k), given(out.gives, data));
  }
};

Results along(const Call& call, const Declared& rule) {
  if (rule.outputs.size() != call.node().outs.size())
    refuse("it has another number of results than its declared rule says");
  Along run{call, rule, call.pass(), tensors(call)};
  run.tie();
  run.ready();
  const int64_t first = emitted(call, run.values);
  Results results;
  for (size_t k = 0; k < rule.outputs.size(); ++k) {
    results.emplace_back();
    if (rule.outputs[k].has_value() != call.is_tensor_result(k))
      refuse("its declared rule says something else of which results are tensors");
    if (rule.outputs[k])
      results.back() = run.result(k, first + static_cast<int64_t>(k), *rule.outputs[k]);
  }
  return results;
}

}  // namespace

Results declared(const Call& call, const Declared& rule) {
  check(call);
  return rule.pointwise ? elementwise(call, rule) : along(call, rule);
}

}  // namespace nc::padding
