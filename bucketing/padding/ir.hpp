// The functional graph that the engine reads: docs/ir.md in memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <boost/json/value.hpp>

#include "base/result.hpp"
#include "bucketing/padding/checked.hpp"
#include "bucketing/padding/dtype.hpp"
#include "bucketing/padding/expr.hpp"
#include "bucketing/padding/state.hpp"

namespace nc::padding {

// One argument of a call. What the engine has no use for (devices, layouts, enumerations, strings)
// stays JSON and is handed on.
struct Arg;
using ArgList = Checked<Arg>;
struct ValueRef {
  int64_t id = 0;
};
// A tensor that belongs to the graph.
struct ConstantRef {
  int64_t id = 0;
};
struct Arg {
  std::variant<std::monostate, bool, int64_t, double, ValueRef, ConstantRef, Expr, Dtype,
               std::string, ArgList, boost::json::value>
      v;

  bool is_none() const { return std::holds_alternative<std::monostate>(v); }
  const ArgList* list() const { return std::get_if<ArgList>(&v); }
  const ValueRef* ref() const { return std::get_if<ValueRef>(&v); }
};

struct TensorType {
  Dtype dtype;
  std::vector<Expr> sizes;
  std::vector<Expr> strides;  // as traced; rules use them only to tell layouts of results apart
  std::string device = "cpu";
};
// What a value is: a tensor, a symbolic number, or something the engine does not look into.
struct NoType {};
using Type = std::variant<NoType, TensorType, Expr>;

struct Input {
  std::string kind;
  Type type;
};

struct Node {
  std::string op;  // "aten.add.Tensor"
  // "add": without overload; operators from outside of torch keep their namespace ("mylib.add"), so
  // that none is taken for one of torch's.
  std::string name;
  ArgList args;
  std::map<std::string, Arg, std::less<>> kwargs;
  std::vector<Type> outs;
  bool several = false;  // the operator returns a tuple, even if of one
  int64_t first_value = 0;
};

struct Graph {
  std::vector<std::string> symbols;  // ids, in order of their numbers
  std::vector<Input> inputs;
  std::vector<TensorType> constants;
  std::vector<Type> values;  // types by value number: inputs, then results
  std::vector<Node> nodes;
  ArgList outputs;
  std::string device = "cpu";  // of the first tensor
};

// Reads a graph. `rename` gives the forward symbol for each symbol of a backward graph, and the
// ranges of symbols are told to the pool. Errors: kInvalid (no graph), kUnsupported (it holds
// subgraphs, or its version is another).
Result<Graph> read_graph(const boost::json::value& document, ExprPool& pool,
                         const std::map<std::string, std::string>& rename);

boost::json::value to_json(const Arg& arg, const ExprPool& pool);
boost::json::value to_json(const Scalar& scalar);
std::optional<double> parse_hexfloat(std::string_view text);
std::string hexfloat(double value);

}  // namespace nc::padding
