// One graph on its way to a plan: what rules read and write.
//
// Rules throw Refusal when they cannot prove a call; the engine catches it. No exception leaves
// bucketing/.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bucketing/padding/declared.hpp"
#include "bucketing/padding/ir.hpp"
#include "bucketing/padding/value.hpp"

namespace nc::padding {

// The graph makes sense only when these pairs of symbols are equal, which the request allows to
// assume.
struct NeedEqual {
  std::vector<std::pair<std::string, std::string>> pairs;
};

struct Options {
  bool inputs_are_zero = true;  // else their padding holds anything
  bool statistical_random = false;
  std::set<std::string> padded;                                // symbols, after unification
  std::set<std::pair<std::string, std::string>> may_be_equal;  // both ways round
  std::map<std::string, Expr> unified;                         // symbol -> its representative
  DeclaredRules declared;
};

struct PlanNode {
  std::string op;
  ArgList args;
  std::map<std::string, Arg, std::less<>> kwargs;
  int64_t first_value = 0;
  int64_t count = 1;
  bool several = false;
  int64_t from = -1;
};

struct Truth {
  Expr size;
  bool is_float = false;
};

using Kwargs = std::map<std::string, Arg, std::less<>>;

class Pass {
 public:
  Pass(ExprPool& pool, const Graph& graph, const Options& options)
      : pool_(pool),
        graph_(graph),
        options_(options),
        next_value_(static_cast<int64_t>(graph.inputs.size())) {}

  ExprPool& pool() { return pool_; }
  const Options& options() const { return options_; }
  const Graph& graph() const { return graph_; }

  // ---- sizes ----
  Expr unified(Expr e);    // e with equal symbols replaced
  bool is_padded(Expr e);  // holds a padded symbol
  Expr product(const Dim& dim);
  Expr product(const std::vector<Expr>& sizes);
  Expr size(const Value& v, size_t dim) { return product(v.dims[dim]); }
  Expr num(int64_t n) { return pool_.integer(n); }
  Checked<Expr> sizes(const TensorType& type);
  // The layout of a dimension of a new value. A product of symbols takes the order in which a view
  // merged it last, else it is a packed prefix.
  Dim fresh(Expr size, const State& state);
  Layout fresh(const std::vector<Expr>& sizes, const State& state);
  // The plan is right only at buckets where e >= 0; the caller checks it.
  void require(Expr e);
  const std::vector<Expr>& required() const { return required_; }
  // Sizes of padded factors that may fall where a symbol grows (80 - s0, the rest of a division),
  // or be zero. The plan is right only at buckets where none of them is less than at the true
  // sizes, as the true part has no room else, nor zero, as then there is nothing that an index
  // could point to. The caller checks it.
  std::vector<Expr> unsteady() const;
  // The layout of a dimension whose true part is a prefix.
  Dim prefix_dim(Expr size, const State& state);
  Dim canonical(Dim dim);
  // Whether two dimensions have the same factors. Throws NeedEqual where that can be assumed.
  bool same(const Dim& a, const Dim& b);

  // ---- emitting ----
  int64_t emit(std::string op, ArgList args, Kwargs kwargs = {});
  int64_t emit_several(std::string op, int64_t count, ArgList args, Kwargs kwargs = {});
  static Arg ref(int64_t id) { return Arg{ValueRef{id}}; }
  static Arg ref(const Value& v) { return Arg{ValueRef{v.id}}; }
  static Arg size_list(const std::vector<Expr>& sizes);
  static Arg int_list(const std::vector<int64_t>& values);
  Arg device() const;
  int64_t constant(Scalar value, const Dtype& dtype);  // no dimensions
  int64_t bucket_size(Expr e);                         // int64, no dimensions, e at B
  int64_t truth(Expr e);                               // int64, no dimensions, e at n
  int64_t float_truth(Expr e);                         // float64, for expressions that are no size
  int64_t iota(Expr e);                                // int64, 0 .. e-1 at B
  int64_t prefix(Expr e);                              // bool, iota(e) < truth(e)
  int64_t reshape(int64_t id, const std::vector<Expr>& sizes);
  int64_t where(int64_t condition, int64_t a, int64_t b);
  int64_t cast(int64_t id, const Dtype& dtype);
  int64_t binary(const std::string& op, int64_t a, int64_t b) { return emit(op, {ref(a), ref(b)}); }
  // id seen as dimension `dim` of `rank` (sizes 1 elsewhere).
  int64_t along(int64_t id, size_t rank, size_t dim, Expr size);
  // x indexed along `dim` by a one-dimensional int64 value.
  int64_t pick(int64_t x, size_t dim, int64_t index);
  // True coordinates in a dimension, as coordinates in its padded form. `non_negative`: none counts
  // from the end.
  int64_t to_padded(int64_t index, const Dim& dim, bool non_negative);

  // ---- masks ----
  // bool, broadcasts against `dims`: true where every factor named is in its true part.
  int64_t mask(const Layout& dims, const std::vector<Place>& places);
  // v with `value` in the padding of the factors named. Later uses of v see it, too, when it is 0.
  Value masked(const Value& v, std::vector<Place> places, Scalar value, bool commit = true);
  // v with padding that holds `value` (by a mask, unless it does already).
  Value need(const Value& v, Scalar value, const std::vector<Place>& places);
  Value need(const Value& v, Scalar value) { return need(v, value, v.places()); }
  // v with finite padding.
  Value finite(const Value& v, const std::vector<Place>& places);
  Value finite(const Value& v) { return finite(v, v.places()); }
  bool is_mask(int64_t id) const { return mask_ids_.contains(id); }

  // ---- results ----
  // A value of the plan for a value of the graph; proves that the layout has the type's sizes.
  Value result(int64_t id, Layout dims, const TensorType& type, State data,
               std::optional<Scalar> uniform = std::nullopt);
  // A helper value that rules make on the way.
  Value made(int64_t id, Layout dims, const Dtype& dtype, State data);
  // v as later uses see it.
  Value latest(Value v) const;
  void remember_merge(const Dim& dim);

  // ---- broadcasting ----
  // The layout of the result. Operands that hold the same elements in another layout (a packed
  // prefix against a product of prefixes) are read through an index first, so they may change.
  Layout align(const std::vector<Value*>& values, size_t rank);
  // v with dimension d laid out as `model`, of the same size; refuses when it cannot be.
  void conform(Value& v, size_t d, const Dim& model);
  // int64, along a dimension: the true coordinate of each position, kept inside of the true part.
  int64_t true_coordinates(const Dim& dim);
  // What v holds where factor `place` of the broadcast result is in its padding.
  State state_at(const Value& v, size_t rank, Place place, const Layout& aligned);

  void set_origin_node(int64_t node) { from_ = node; }
  const std::vector<PlanNode>& nodes() const { return nodes_; }
  const std::vector<Truth>& truths() const { return truths_; }
  const std::map<int64_t, Value>& claims() const { return claims_; }
  // A masked value, more exactly than its states say: in the padding of `places` it holds the fill,
  // and outside of that what `v` says.
  struct Filled {
    Value v;
    std::vector<Place> places;
  };
  const std::map<int64_t, Filled>& filled() const { return filled_; }
  // Orders in which views merged dimensions, for the backward graph.
  const std::map<uint32_t, Dim>& merges() const { return merged_; }
  void learn(const std::map<uint32_t, Dim>& merges) { merged_ = merges; }

 private:
  template <class Make>
  int64_t once(const std::string& name, Make make) {
    if (const auto known = made_.find(name); known != made_.end()) return known->second;
    const int64_t id = make();
    made_.emplace(name, id);
    return id;
  }
  int64_t dim_mask(const Dim& dim, const std::vector<size_t>& factors);
  std::string key(const Dim& dim) const;

  ExprPool& pool_;
  const Graph& graph_;
  const Options& options_;
  std::vector<PlanNode> nodes_;
  std::vector<Truth> truths_;
  std::vector<Expr> required_;
  std::map<std::string, int64_t> made_;  // values that are made once, by what they are
  std::map<int64_t, Value> claims_;
  std::map<int64_t, Value> committed_;
  std::map<int64_t, Filled> filled_;
  std::map<std::string, Value> masked_;
  std::map<uint32_t, Expr> unified_;
  std::map<uint32_t, Dim> merged_;
  int64_t next_value_;
  int64_t from_ = -1;
  std::set<int64_t> mask_ids_;
};

}  // namespace nc::padding
