// A rule says how one family of operators runs on padded values, and why that is right.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bucketing/padding/pass.hpp"

namespace nc::padding {

// One node of the graph with its operands looked up. Positions follow the operator's schema; an
// argument that was left out, or is None, is absent.
class Call {
 public:
  Call(Pass& pass, const Node& node, ArgList args, Kwargs kwargs,
       const std::map<int64_t, Value>& values)
      : pass_(pass),
        node_(node),
        args_(std::move(args)),
        kwargs_(std::move(kwargs)),
        values_(values) {}

  Pass& pass() const { return pass_; }
  const std::string& op() const { return node_.op; }
  const std::string& name() const { return node_.name; }
  const Node& node() const { return node_; }
  size_t count() const { return args_.size(); }

  // An argument by position, or by name when it was given so.
  const Arg& arg(size_t i, std::string_view name = {}) const;
  bool has(size_t i, std::string_view name = {}) const { return !arg(i, name).is_none(); }
  bool is_tensor(size_t i, std::string_view name = {}) const {
    return arg(i, name).ref() != nullptr;
  }
  // Throw Refusal when it is something else.
  Value tensor(size_t i, std::string_view name = {}) const;
  std::optional<Value> maybe_tensor(size_t i, std::string_view name = {}) const;
  Value tensor(const Arg& arg) const;
  int64_t integer(size_t i, int64_t otherwise, std::string_view name = {}) const;
  bool boolean(size_t i, bool otherwise, std::string_view name = {}) const;
  Expr expr(size_t i, int64_t otherwise, std::string_view name = {}) const;
  std::optional<Scalar> scalar(size_t i, std::string_view name = {}) const;  // a literal number
  Checked<int64_t> integers(size_t i, std::string_view name = {}) const;     // empty when absent
  Checked<Expr> exprs(size_t i, std::string_view name = {}) const;
  static Expr as_expr(Pass& pass, const Arg& arg);

  // What the graph says of result k.
  const TensorType& type(size_t k = 0) const;
  bool is_tensor_result(size_t k) const;
  Checked<Expr> sizes(size_t k = 0) const { return pass_.sizes(type(k)); }

  // The call as it stands, its values replaced by the plan's.
  const ArgList& args() const { return args_; }
  const Kwargs& kwargs() const { return kwargs_; }

 private:
  Pass& pass_;
  const Node& node_;
  ArgList args_;
  Kwargs kwargs_;
  const std::map<int64_t, Value>& values_;  // by plan id
};

// One per result of the node; absent for results that are no tensors.
using Results = std::vector<std::optional<Value>>;
using RuleFunction = Results (*)(const Call&);

struct Rule {
  RuleFunction run = nullptr;
  std::string_view why;
  bool proven = true;  // the poison tests run it in the proven set of models and operators
};

class RuleTable {
 public:
  // `names`: operators without namespace and overload.
  void add(std::initializer_list<std::string_view> names, RuleFunction run, std::string_view why);
  // Takes rules out of the proven set: the first calls of graphs that hold them are compared to
  // exact ones.
  void mark_unproven(std::initializer_list<std::string_view> names);
  const Rule* find(std::string_view name) const;
  const std::map<std::string, Rule, std::less<>>& all() const { return rules_; }

 private:
  std::map<std::string, Rule, std::less<>> rules_;
};

// All rules; built once.
const RuleTable& rules();

void add_pointwise_rules(RuleTable& table);
void add_view_rules(RuleTable& table);
void add_slice_rules(RuleTable& table);
void add_join_rules(RuleTable& table);
void add_factory_rules(RuleTable& table);
void add_reduction_rules(RuleTable& table);
void add_softmax_rules(RuleTable& table);
void add_scan_rules(RuleTable& table);
void add_sort_rules(RuleTable& table);
void add_matmul_rules(RuleTable& table);
void add_index_rules(RuleTable& table);
void add_scatter_rules(RuleTable& table);
void add_convolution_rules(RuleTable& table);
void add_attention_rules(RuleTable& table);
void add_norm_rules(RuleTable& table);
void add_layer_norm_rules(RuleTable& table);
void add_pool_rules(RuleTable& table);
void add_adaptive_rules(RuleTable& table);
void add_sample_rules(RuleTable& table);
void add_fourier_rules(RuleTable& table);
void add_scatter_row_rules(RuleTable& table);
void add_random_rules(RuleTable& table);
void add_window_rules(RuleTable& table);
void add_collective_rules(RuleTable& table);

// Operators of the graphs whose rules are not in the set that the poison tests prove: those that
// the request declares, too.
boost::json::array unproven_operators(const Graph& forward, const Graph* backward,
                                      const DeclaredRules& declared);

// ---- what several rule files use ----

// d in [0, rank), negative ones counted from the end. Refuses others.
size_t wrap(int64_t d, size_t rank);
Checked<size_t> wrap(const std::vector<int64_t>& ds, size_t rank);
inline Results one(Value v) {
  return {std::optional<Value>(std::move(v))};
}
// The layout with every padded factor's state replaced.
template <class F>
Layout with_states(Layout dims, F state) {
  for (Dim& dim : dims) {
    for (Factor& f : dim) {
      if (f.padded) f.state = state(f.state);
    }
  }
  return dims;
}
// What is neutral for max / min in a type.
Scalar lowest(const Dtype& type);
Scalar highest(const Dtype& type);
// Finite if both are.
State finite_if(bool yes);
// A constant from -1 to 1: of these any number may be multiplied.
bool within_one(const State& state);
// What the true part may hold.
State data_of(const Value& v);
// The size of a dimension without padding, where it is a number.
std::optional<int64_t> fixed_size(Pass& pass, const Value& x, size_t d);
// The number of trailing dimensions over which the windows of a pooling operator slide. Refuses
// operators that are none.
size_t pooled_dims(std::string_view name);
// A pointwise operator's result state; empty when the operator is not pointwise.
std::optional<State> pointwise_state(std::string_view name, std::string_view overload,
                                     const std::vector<State>& operands, const Dtype& out);
bool is_pointwise(std::string_view name);
// Pointwise operators of which nothing is said but what they do to signs and finite values.
std::vector<std::string_view> classed_by_state();
// Runs what the request declares.
Results declared(const Call& call, const Declared& rule);
// The call emitted unchanged on values without padding.
Results unchanged(const Call& call);
// Runs the pointwise rule.
Results pointwise(const Call& call);
// Regroups factors to new sizes, or refuses.
Layout regroup(Pass& pass, const Layout& from, const std::vector<Expr>& to);
// Indices on their way into a dimension, see rules_index.cpp.
Value safe_index(Pass& pass, const Value& index, std::optional<int64_t> size);
// Positions in a merged dimension, from padded to true coordinates (Pass::to_padded is the way
// back).
int64_t to_true(Pass& pass, int64_t index, const Dim& dim);

}  // namespace nc::padding
