#include "bucketing/padding/write_plan.hpp"

#include <functional>
#include <map>
#include <vector>

#include <boost/json.hpp>

namespace nc::padding {
namespace json = boost::json;
namespace {

json::value state_json(const State& s) {
  switch (s.claim()) {
    case Claim::kConstant:
      return {{"c", to_json(*s.value())}};
    case Claim::kPositive:
      return "positive";
    case Claim::kNonNegative:
      return "nonnegative";
    case Claim::kFinite:
      return "finite";
    default:
      return "any";
  }
}

class Writer {
 public:
  Writer(Pass& pass, const Analysed& analysed, const std::set<int64_t>& kept)
      : pass_(pass), analysed_(analysed), kept_(kept) {}

  Written run(bool claims);

 private:
  void need(const Arg& arg);
  void number();
  int64_t numbered(int64_t id) const;
  Arg numbered(const Arg& arg) const;
  json::value dims(const Layout& layout, bool states) const;
  json::value output(size_t k, const Arg& arg);
  json::array claims() const;

  Pass& pass_;
  const Analysed& analysed_;
  const std::set<int64_t>& kept_;
  std::set<int64_t> needed_;           // values
  std::map<int64_t, int64_t> number_;  // of truths and results
  std::vector<const PlanNode*> nodes_;
  std::vector<Truth> truths_;
};

void Writer::need(const Arg& arg) {
  if (const auto* r = arg.ref()) needed_.insert(r->id);
  if (const auto* list = arg.list()) {
    for (const Arg& item : *list) need(item);
  }
}

void Writer::number() {
  const auto& nodes = pass_.nodes();
  std::vector<bool> live(nodes.size(), false);
  for (size_t i = nodes.size(); i-- > 0;) {
    const PlanNode& n = nodes[i];
    for (int64_t k = 0; k < n.count; ++k) live[i] = live[i] || needed_.contains(n.first_value + k);
    const std::string base = n.op.substr(0, n.op.rfind('.'));
    live[i] = live[i] || (base.ends_with('_') && !base.ends_with("__"));
    if (!live[i]) continue;
    for (const Arg& a : n.args) need(a);
    for (const auto& [name, a] : n.kwargs) need(a);
  }
  auto next = static_cast<int64_t>(pass_.graph().inputs.size());
  for (size_t i = 0; i < pass_.truths().size(); ++i) {
    const int64_t id = -1 - static_cast<int64_t>(i);
    if (!needed_.contains(id)) continue;
    number_[id] = next++;
    truths_.push_back(pass_.truths()[i]);
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!live[i]) continue;
    for (int64_t k = 0; k < nodes[i].count; ++k) number_[nodes[i].first_value + k] = next++;
    nodes_.push_back(&nodes[i]);
  }
}

int64_t Writer::numbered(int64_t id) const {
  const auto it = number_.find(id);
  return it == number_.end() ? id : it->second;
}

Arg Writer::numbered(const Arg& arg) const {
  if (const auto* r = arg.ref()) return Pass::ref(numbered(r->id));
  if (const auto* list = arg.list()) {
    ArgList items;
    for (const Arg& item : *list) items.push_back(numbered(item));
    return Arg{std::move(items)};
  }
  return arg;
}

json::value Writer::dims(const Layout& layout, bool states) const {
  json::array all;
  for (const Dim& dim : layout) {
    json::array factors;
    for (const Factor& f : dim) {
      json::object o{{"e", pass_.pool().to_json(f.size)}};
      if (f.padded) o.emplace("p", true);
      if (f.padded && states) o.emplace("s", state_json(f.state));
      factors.push_back(std::move(o));
    }
    all.push_back(std::move(factors));
  }
  return all;
}

json::value Writer::output(size_t k, const Arg& arg) {
  if (const auto* r = arg.ref()) {
    const Value& v = *analysed_.values[static_cast<size_t>(r->id)];
    const bool keep = kept_.contains(static_cast<int64_t>(k));
    const int64_t id = keep ? pass_.latest(v).id : v.id;
    json::object o{{"v", numbered(id)}, {"d", dims(v.dims, false)}};
    if (keep) o.emplace("kept", true);
    return o;
  }
  if (const auto* e = std::get_if<Expr>(&arg.v))
    return {{"e", pass_.pool().to_json(pass_.unified(*e))}};
  return to_json(arg, pass_.pool());
}

json::array Writer::claims() const {
  json::array all;
  for (const auto& [id, v] : pass_.claims()) {
    const bool input = id >= 0 && id < static_cast<int64_t>(pass_.graph().inputs.size());
    if (!input && !number_.contains(id)) continue;
    const auto filled = pass_.filled().find(id);
    const Layout& layout = filled == pass_.filled().end() ? v.dims : filled->second.v.dims;
    json::object o{{"v", numbered(id)},
                   {"t", v.dtype.name()},
                   {"d", dims(layout, true)},
                   {"data", state_json(v.data)}};
    if (filled != pass_.filled().end()) {
      json::array over;
      for (const Place& p : filled->second.places) over.push_back(json::array{p.dim, p.factor});
      o.emplace("over", std::move(over));
    }
    if (v.uniform) o.emplace("uniform", to_json(*v.uniform));
    all.push_back(std::move(o));
  }
  return all;
}

Written Writer::run(bool with_claims) {
  const Graph& graph = pass_.graph();
  for (size_t k = 0; k < graph.outputs.size(); ++k) {
    const auto* r = graph.outputs[k].ref();
    if (r == nullptr) continue;
    const Value& v = *analysed_.values[static_cast<size_t>(r->id)];
    needed_.insert(kept_.contains(static_cast<int64_t>(k)) ? pass_.latest(v).id : v.id);
  }
  number();
  json::array inputs;
  for (const auto& arrival : analysed_.inputs) {
    if (!arrival || !arrival->value.padded()) {
      inputs.emplace_back(nullptr);
    } else {
      inputs.push_back({{"d", dims(arrival->value.dims, false)}, {"kept", arrival->kept}});
    }
  }
  json::array truths;
  for (const Truth& t : truths_)
    truths.push_back(
        {{"e", pass_.pool().to_json(t.size)}, {"t", t.is_float ? "float64" : "int64"}});
  json::array nodes;
  int masks = 0;
  for (const PlanNode* n : nodes_) {
    json::array args;
    for (const Arg& a : n->args) args.push_back(to_json(numbered(a), pass_.pool()));
    json::object o{{"op", n->op}, {"a", std::move(args)}};
    if (!n->kwargs.empty()) {
      json::object kwargs;
      for (const auto& [name, a] : n->kwargs)
        kwargs.emplace(name, to_json(numbered(a), pass_.pool()));
      o.emplace("k", std::move(kwargs));
    }
    if (n->several) o.emplace("n", n->count);
    if (n->from >= 0) o.emplace("from", n->from);
    if (pass_.is_mask(n->first_value)) ++masks;
    nodes.push_back(std::move(o));
  }
  json::array outputs;
  for (size_t k = 0; k < graph.outputs.size(); ++k) outputs.push_back(output(k, graph.outputs[k]));
  json::object sub{{"inputs", std::move(inputs)},
                   {"truths", std::move(truths)},
                   {"nodes", std::move(nodes)},
                   {"outputs", std::move(outputs)}};
  if (!pass_.required().empty()) {
    json::array require;
    for (const Expr e : pass_.required()) require.push_back(pass_.pool().to_json(e));
    sub.emplace("require", std::move(require));
  }
  if (const auto unsteady = pass_.unsteady(); !unsteady.empty()) {
    json::array grow;
    for (const Expr e : unsteady) grow.push_back(pass_.pool().to_json(e));
    sub.emplace("grow", std::move(grow));
  }
  if (with_claims) sub.emplace("claims", claims());
  return {std::move(sub), masks};
}

}  // namespace

Written write_plan(Pass& pass, const Analysed& analysed, const std::set<int64_t>& kept,
                   bool claims) {
  return Writer(pass, analysed, kept).run(claims);
}

}  // namespace nc::padding
