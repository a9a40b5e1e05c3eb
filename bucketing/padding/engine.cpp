#include "bucketing/padding/engine.hpp"

#include <algorithm>
#include <exception>

#include <boost/json.hpp>
#include <fmt/format.h>

#include "bucketing/padding/analyse.hpp"
#include "bucketing/padding/write_plan.hpp"

namespace nc::padding {
namespace json = boost::json;
namespace {

Error invalid(std::string message) {
  return {Code::kInvalid, std::move(message), "send a request as docs/padding.md describes it"};
}

struct Link {
  std::map<std::string, std::string> rename;  // backward symbol -> forward symbol
  std::map<int64_t, int64_t> saved;           // backward input -> forward output
  std::map<int64_t, int64_t> tangents;
};

// Equal symbols by their greatest common name.
class Classes {
 public:
  std::string root(std::string name) const {
    for (auto it = parent_.find(name); it != parent_.end(); it = parent_.find(name))
      name = it->second;
    return name;
  }
  bool join(const std::string& a, const std::string& b) {
    std::string x = root(a);
    std::string y = root(b);
    if (x == y) return false;
    // The earlier symbol stands for both.
    if (number(y) < number(x)) std::swap(x, y);
    parent_[y] = x;
    return true;
  }

 private:
  static int64_t number(const std::string& name) { return std::atoll(name.c_str() + 1); }
  std::map<std::string, std::string> parent_;
};

class Planner {
 public:
  Result<json::value> run(const json::value& request);

 private:
  Result<void> read(const json::object& o);
  Result<void> read_link(const json::object& o);
  Result<void> read_known(const json::value* v);
  Result<void> read_pairs(const json::value* v, std::map<int64_t, int64_t>& to, size_t inputs,
                          size_t outputs) const;
  json::value attempt();
  std::vector<std::optional<Arrival>> forward_inputs(Pass& pass) const;
  std::vector<std::optional<Arrival>> backward_inputs(Pass& pass, const Pass& forward,
                                                      const Analysed& done) const;
  json::value refusal(std::string_view graph, const RefusedNode& why) const;

  ExprPool pool_;
  Graph forward_;
  std::optional<Graph> backward_;
  Link link_;
  Options options_;
  Classes equal_;  // by their size when traced
  Classes unified_;
  std::vector<std::pair<std::string, std::string>> unify_;
  bool claims_ = false;
};

Result<void> Planner::read_pairs(const json::value* v, std::map<int64_t, int64_t>& to,
                                 size_t inputs, size_t outputs) const {
  if (v == nullptr) return {};
  if (!v->is_array()) return invalid("a link is no list of pairs");
  for (const auto& item : v->get_array()) {
    const auto* pair = item.if_array();
    if (pair == nullptr || pair->size() != 2 || !(*pair)[0].is_int64() || !(*pair)[1].is_int64())
      return invalid("a link is no pair of numbers");
    const int64_t b = (*pair)[0].get_int64();
    const int64_t f = (*pair)[1].get_int64();
    if (b < 0 || f < 0 || static_cast<size_t>(b) >= inputs || static_cast<size_t>(f) >= outputs)
      return invalid("a link names an input or output that does not exist");
    to[b] = f;
  }
  return {};
}

Result<void> Planner::read_link(const json::object& o) {
  const auto* backward = o.if_contains("backward");
  if (backward == nullptr || backward->is_null()) return {};
  const auto* link = o.if_contains("link");
  if (link == nullptr || !link->is_object())
    return invalid("a backward graph comes without a link");
  const auto* symbols = link->get_object().if_contains("symbols");
  const auto* graph = backward->if_object();
  const auto* table = graph == nullptr ? nullptr : graph->if_contains("symbols");
  if (symbols == nullptr || !symbols->is_array()) return invalid("a link has no symbols");
  const size_t count = table != nullptr && table->is_array() ? table->get_array().size() : 0;
  if (symbols->get_array().size() != count)
    return invalid("a link has another number of symbols than the backward graph");
  for (size_t i = 0; i < count; ++i) {
    const auto& target = symbols->get_array()[i];
    const auto* entry = table->get_array()[i].if_object();
    const auto* id = entry == nullptr ? nullptr : entry->if_contains("id");
    if (id == nullptr || !id->is_string()) return invalid("a symbol has no id");
    if (!target.is_int64() || target.get_int64() < 0 ||
        static_cast<size_t>(target.get_int64()) >= forward_.symbols.size()) {
      return invalid("a symbol of the backward graph is none of the forward graph");
    }
    link_.rename.emplace(std::string(id->get_string()),
                         forward_.symbols[static_cast<size_t>(target.get_int64())]);
  }
  auto read = read_graph(*backward, pool_, link_.rename);
  if (!read) return std::move(read).error().context("the backward graph");
  backward_ = *std::move(read);
  const auto& l = link->get_object();
  if (auto r = read_pairs(l.if_contains("saved"), link_.saved, backward_->inputs.size(),
                          forward_.outputs.size());
      !r)
    return r;
  return read_pairs(l.if_contains("tangents"), link_.tangents, backward_->inputs.size(),
                    forward_.outputs.size());
}

Result<void> Planner::read_known(const json::value* v) {
  if (v == nullptr || v->is_null()) return {};
  if (!v->is_array()) return invalid("the known sizes are no list");
  for (const auto& item : v->get_array()) {
    const auto* pair = item.if_array();
    if (pair == nullptr || pair->size() != 2 || !(*pair)[1].is_int64())
      return invalid("a known size is no pair of an expression and a number");
    const auto e = pool_.parse((*pair)[0]);
    if (!e) return invalid("a known size is no expression");
    pool_.assume(*e, (*pair)[1].get_int64());
  }
  return {};
}

Result<void> Planner::read(const json::object& o) {
  const auto* version = o.if_contains("request");
  if (version == nullptr || !version->is_int64()) return invalid("a request has no version");
  if (version->get_int64() != 1)
    return Error{Code::kUnsupported, "the request is not of version 1",
                 "use a client of the same version"};
  const auto* forward = o.if_contains("forward");
  if (forward == nullptr) return invalid("a request has no forward graph");
  if (auto r = read_known(o.if_contains("known")); !r) return r;
  auto read = read_graph(*forward, pool_, {});
  if (!read) return std::move(read).error().context("the forward graph");
  forward_ = *std::move(read);
  if (auto r = read_link(o); !r) return r;
  if (const auto* pairs = o.if_contains("equal"); pairs != nullptr && pairs->is_array()) {
    for (const auto& item : pairs->get_array()) {
      const auto* pair = item.if_array();
      if (pair == nullptr || pair->size() != 2 || !(*pair)[0].is_string() ||
          !(*pair)[1].is_string())
        return invalid("equal symbols are no pair of ids");
      equal_.join(std::string((*pair)[0].get_string()), std::string((*pair)[1].get_string()));
    }
  }
  const auto text = [&](const char* name) {
    const auto* v = o.if_contains(name);
    return v != nullptr && v->is_string() ? std::string(v->get_string()) : std::string();
  };
  options_.inputs_are_zero = text("inputs") != "any";
  options_.statistical_random = text("random") == "statistical";
  if (const auto* rules = o.if_contains("rules"); rules != nullptr && !rules->is_null()) {
    auto table = read_declared(*rules);
    if (!table) return std::move(table).error();
    options_.declared = *std::move(table);
  }
  const auto* claims = o.if_contains("claims");
  claims_ = claims != nullptr && claims->is_bool() && claims->get_bool();
  return {};
}

std::vector<std::optional<Arrival>> Planner::forward_inputs(Pass& pass) const {
  std::vector<std::optional<Arrival>> all;
  for (size_t i = 0; i < forward_.inputs.size(); ++i) {
    const auto* type = std::get_if<TensorType>(&forward_.inputs[i].type);
    if (type == nullptr) {
      all.emplace_back();
      continue;
    }
    const State state = options_.inputs_are_zero ? State::zero() : State::anything();
    all.emplace_back(Arrival{arriving(pass, static_cast<int64_t>(i), *type, state), false});
  }
  return all;
}

std::vector<std::optional<Arrival>> Planner::backward_inputs(Pass& pass, const Pass& forward,
                                                             const Analysed& done) const {
  std::vector<std::optional<Arrival>> all;
  for (size_t i = 0; i < backward_->inputs.size(); ++i) {
    const auto id = static_cast<int64_t>(i);
    const auto* type = std::get_if<TensorType>(&backward_->inputs[i].type);
    if (type == nullptr) {
      all.emplace_back();
      continue;
    }
    const auto saved = link_.saved.find(id);
    const auto tangent = link_.tangents.find(id);
    const auto* source = saved != link_.saved.end()
                             ? forward_.outputs[static_cast<size_t>(saved->second)].ref()
                         : tangent != link_.tangents.end()
                             ? forward_.outputs[static_cast<size_t>(tangent->second)].ref()
                             : nullptr;
    if (source == nullptr) {
      const bool zero = tangent != link_.tangents.end() || options_.inputs_are_zero;
      all.emplace_back(
          Arrival{arriving(pass, id, *type, zero ? State::zero() : State::anything()), false});
      continue;
    }
    const Value& made = *done.values[static_cast<size_t>(source->id)];
    const bool kept = saved != link_.saved.end();
    const Value v = kept ? forward.latest(made) : made;
    Layout dims = kept ? v.dims : with_states(v.dims, [](const State&) { return State::zero(); });
    for (const Dim& dim : dims) pass.remember_merge(dim);
    all.emplace_back(
        Arrival{pass.result(id, std::move(dims), *type, kept ? v.data : State::finite(),
                            kept ? v.uniform : std::nullopt),
                kept});
  }
  return all;
}

json::value Planner::refusal(std::string_view graph, const RefusedNode& why) const {
  json::object o{{"graph", graph}, {"op", why.op}, {"reason", why.reason}};
  o.emplace("node", why.node < 0 ? json::value(nullptr) : json::value(why.node));
  return {{"plan", 1}, {"engine", kEngineVersion}, {"refusal", std::move(o)}};
}

// One try under the symbols unified so far. Throws NeedEqual.
json::value Planner::attempt() {
  std::string_view where = "forward";
  try {
    Pass forward(pool_, forward_, options_);
    const Analysed done = analyse(forward, forward_inputs(forward));
    for (const Arg& out : forward_.outputs) {
      if (out.ref() != nullptr && !done.values[static_cast<size_t>(out.ref()->id)])
        refuse("an output is nothing the analysis follows");
    }
    std::set<int64_t> kept;
    for (const auto& [b, f] : link_.saved) kept.insert(f);
    json::object answer{{"plan", 1}, {"engine", kEngineVersion}};
    int masks = 0;
    std::optional<Written> second;
    if (backward_) {
      where = "backward";
      Pass backward(pool_, *backward_, options_);
      backward.learn(forward.merges());
      const Analysed back = analyse(backward, backward_inputs(backward, forward, done));
      for (const Arg& out : backward_->outputs) {
        if (out.ref() != nullptr && !back.values[static_cast<size_t>(out.ref()->id)])
          refuse("a gradient is nothing the analysis follows");
      }
      second = write_plan(backward, back, {}, claims_);
      masks += second->masks;
    }
    Written first = write_plan(forward, done, kept, claims_);
    masks += first.masks;
    json::array symbols;
    for (const auto& name : forward_.symbols) {
      if (name.starts_with('s')) symbols.emplace_back(name);
    }
    json::array unify;
    for (const auto& [a, b] : unify_) unify.push_back(json::array{a, b});
    answer.emplace("symbols", std::move(symbols));
    answer.emplace("unify", std::move(unify));
    answer.emplace("forward", std::move(first.json));
    if (second) answer.emplace("backward", std::move(second->json));
    answer.emplace("masks", masks);
    answer.emplace("unproven", unproven_operators(forward_, backward_ ? &*backward_ : nullptr,
                                                  options_.declared));
    return answer;
  } catch (const RefusedNode& why) {
    return refusal(where, why);
  } catch (const Refusal& why) {
    return refusal(where, {-1, "", why.reason});
  }
}

Result<json::value> Planner::run(const json::value& request) {
  const auto* o = request.if_object();
  if (o == nullptr) return invalid("a request is no object");
  if (auto r = read(*o); !r) {
    // What the reader does not look into is a reason to run unpadded, no fault of the client.
    if (r.is(Code::kUnsupported)) return refusal("forward", {-1, "", r.error().message});
    return r.error();
  }
  for (const auto& name : forward_.symbols) {
    if (name.starts_with('u'))
      return refusal("forward", {-1, "", "a size is known only at run time"});
  }
  const std::vector<std::string> names = forward_.symbols;
  for (size_t tries = 0; tries <= names.size(); ++tries) {
    options_.padded.clear();
    options_.unified.clear();
    options_.may_be_equal.clear();
    std::map<std::string, std::vector<std::string>> classes;
    for (const auto& name : names) {
      const std::string root = unified_.root(name);
      if (root != name) options_.unified.emplace(name, pool_.symbol(root));
      if (root == name && name.starts_with('s')) {
        options_.padded.insert(name);
        classes[equal_.root(name)].push_back(name);
      }
    }
    for (const auto& [root, members] : classes) {
      for (const auto& a : members) {
        for (const auto& b : members) options_.may_be_equal.emplace(a, b);
      }
    }
    try {
      return attempt();
    } catch (const NeedEqual& need) {
      for (const auto& [a, b] : need.pairs) {
        if (unified_.join(a, b)) unify_.emplace_back(a, b);
      }
    }
  }
  return Error{Code::kInternal, "the padding analysis did not settle which sizes are equal",
               "report the graph"};
}

}  // namespace

Result<json::value> plan(const json::value& request) {
  try {
    return Planner().run(request);
  } catch (const std::exception& e) {
    return Error{Code::kInternal, fmt::format("the padding analysis failed: {}", e.what()),
                 "report the graph; it runs unpadded"};
  }
}

}  // namespace nc::padding
