#include "bucketing/padding/rule.hpp"

#include <cmath>
#include <limits>
#include <set>

#include <fmt/format.h>

namespace nc::padding {
namespace {
const Arg kNone{};
}  // namespace

void RuleTable::add(std::initializer_list<std::string_view> names, RuleFunction run,
                    std::string_view why) {
  for (const auto name : names) rules_[std::string(name)] = Rule{run, why};
}

void RuleTable::mark_unproven(std::initializer_list<std::string_view> names) {
  for (const auto name : names) rules_[std::string(name)].proven = false;
}

const Rule* RuleTable::find(std::string_view name) const {
  const auto it = rules_.find(name);
  return it == rules_.end() ? nullptr : &it->second;
}

const RuleTable& rules() {
  static const RuleTable kTable = [] {
    RuleTable t;
    add_pointwise_rules(t);
    add_view_rules(t);
    add_slice_rules(t);
    add_join_rules(t);
    add_factory_rules(t);
    add_reduction_rules(t);
    add_softmax_rules(t);
    add_scan_rules(t);
    add_sort_rules(t);
    add_matmul_rules(t);
    add_index_rules(t);
    add_scatter_rules(t);
    add_convolution_rules(t);
    add_attention_rules(t);
    add_norm_rules(t);
    add_layer_norm_rules(t);
    add_pool_rules(t);
    add_adaptive_rules(t);
    add_sample_rules(t);
    add_fourier_rules(t);
    add_scatter_row_rules(t);
    add_random_rules(t);
    add_window_rules(t);
    add_collective_rules(t);
    t.mark_unproven({"_grouped_mm", "transformers.grouped_mm_fallback",
                     "transformers.grouped_mm_fallback_backward", "histc", "as_strided",
                     "_fused_rms_norm", "_fused_rms_norm_backward"});
    return t;
  }();
  return kTable;
}

boost::json::array unproven_operators(const Graph& forward, const Graph* backward,
                                      const DeclaredRules& declared) {
  std::set<std::string> found;
  for (const Graph* graph : {&forward, backward}) {
    if (graph == nullptr) continue;
    for (const Node& n : graph->nodes) {
      const Rule* rule = rules().find(n.name);
      const bool proven = rule != nullptr ? rule->proven : !declared.contains(n.op);
      if (!proven) found.insert(n.op);
    }
  }
  boost::json::array list;
  for (const auto& op : found) list.emplace_back(op);
  return list;
}

const Arg& Call::arg(size_t i, std::string_view name) const {
  if (i < args_.size()) return args_[i];
  if (!name.empty()) {
    if (const auto it = kwargs_.find(name); it != kwargs_.end()) return it->second;
  }
  return kNone;
}

Value Call::tensor(const Arg& a) const {
  const auto* r = a.ref();
  if (r == nullptr) refuse("an argument is no tensor where one is expected");
  return pass_.latest(values_.at(r->id));
}

Value Call::tensor(size_t i, std::string_view name) const {
  return tensor(arg(i, name));
}

std::optional<Value> Call::maybe_tensor(size_t i, std::string_view name) const {
  if (!is_tensor(i, name)) return std::nullopt;
  return tensor(i, name);
}

Expr Call::as_expr(Pass& pass, const Arg& a) {
  if (const auto* i = std::get_if<int64_t>(&a.v)) return pass.num(*i);
  if (const auto* b = std::get_if<bool>(&a.v)) return pass.num(*b ? 1 : 0);
  if (const auto* e = std::get_if<Expr>(&a.v)) return pass.unified(*e);
  refuse("an argument is no size where one is expected");
}

Expr Call::expr(size_t i, int64_t otherwise, std::string_view name) const {
  const Arg& a = arg(i, name);
  return a.is_none() ? pass_.num(otherwise) : as_expr(pass_, a);
}

int64_t Call::integer(size_t i, int64_t otherwise, std::string_view name) const {
  const auto c = pass_.pool().constant(expr(i, otherwise, name));
  if (!c) refuse("an argument depends on a size that varies");
  return *c;
}

bool Call::boolean(size_t i, bool otherwise, std::string_view name) const {
  return integer(i, otherwise ? 1 : 0, name) != 0;
}

std::optional<Scalar> Call::scalar(size_t i, std::string_view name) const {
  const Arg& a = arg(i, name);
  if (const auto* b = std::get_if<bool>(&a.v)) return *b;
  if (const auto* n = std::get_if<int64_t>(&a.v)) return *n;
  if (const auto* d = std::get_if<double>(&a.v)) return *d;
  return std::nullopt;
}

Checked<Expr> Call::exprs(size_t i, std::string_view name) const {
  const Arg& a = arg(i, name);
  Checked<Expr> all;
  if (a.is_none()) return all;
  const auto* list = a.list();
  if (list == nullptr) return {as_expr(pass_, a)};
  for (const Arg& item : *list) all.push_back(as_expr(pass_, item));
  return all;
}

Checked<int64_t> Call::integers(size_t i, std::string_view name) const {
  Checked<int64_t> all;
  for (const Expr e : exprs(i, name)) {
    const auto c = pass_.pool().constant(e);
    if (!c) refuse("an argument depends on a size that varies");
    all.push_back(*c);
  }
  return all;
}

const TensorType& Call::type(size_t k) const {
  if (k >= node_.outs.size()) refuse("the operator has fewer results than its rule expects");
  const auto* t = std::get_if<TensorType>(&node_.outs[k]);
  if (t == nullptr) refuse("a result is no tensor");
  return *t;
}

bool Call::is_tensor_result(size_t k) const {
  return k < node_.outs.size() && std::holds_alternative<TensorType>(node_.outs[k]);
}

size_t wrap(int64_t d, size_t rank) {
  const auto n = static_cast<int64_t>(rank);
  const int64_t at = d < 0 ? d + n : d;
  if (at < 0 || at >= n) refuse(fmt::format("dimension {} of {}", d, rank));
  return static_cast<size_t>(at);
}

Checked<size_t> wrap(const std::vector<int64_t>& ds, size_t rank) {
  Checked<size_t> all;
  for (const int64_t d : ds) all.push_back(wrap(d, rank));
  return all;
}

int64_t to_true(Pass& p, int64_t index, const Dim& dim) {
  if (dim.size() < 2) return index;
  int64_t rest = index;
  int64_t out = 0;
  Expr stride = p.num(1);
  for (size_t k = dim.size(); k-- > 0;) {
    int64_t digit = rest;
    if (k > 0) {
      const int64_t size = p.bucket_size(dim[k].size);
      digit = p.binary("aten.remainder.Tensor", rest, size);
      rest = p.emit("aten.div.Tensor_mode", {Pass::ref(rest), Pass::ref(size)},
                    {{"rounding_mode", Arg{std::string("floor")}}});
    }
    out = k + 1 == dim.size() ? digit
                              : p.binary("aten.add.Tensor", out,
                                         p.binary("aten.mul.Tensor", digit, p.truth(stride)));
    stride = p.pool().mul(stride, dim[k].size);
  }
  return out;
}

Scalar lowest(const Dtype& type) {
  if (type.is_bool()) return false;
  if (type.is_inexact()) return -std::numeric_limits<double>::infinity();
  return type.least();
}

Scalar highest(const Dtype& type) {
  if (type.is_bool()) return true;
  if (type.is_inexact()) return std::numeric_limits<double>::infinity();
  return type.greatest();
}

State data_of(const Value& v) {
  return v.uniform ? State::constant(*v.uniform) : v.data;
}

std::optional<int64_t> fixed_size(Pass& p, const Value& x, size_t d) {
  if (x.padded(d)) return std::nullopt;
  return p.pool().constant(p.size(x, d));
}

size_t pooled_dims(std::string_view name) {
  for (const char digit : {'1', '2', '3'}) {
    if (name.find(std::string("pool") + digit) != std::string_view::npos)
      return static_cast<size_t>(digit - '0');
  }
  refuse("a pooling operator that is not known");
}

State finite_if(bool yes) {
  return yes ? State::finite() : State::anything();
}

bool within_one(const State& state) {
  const auto value = state.value();
  return value && std::abs(to_double(*value)) <= 1;
}

}  // namespace nc::padding
