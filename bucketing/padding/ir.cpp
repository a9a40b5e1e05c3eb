#include "bucketing/padding/ir.hpp"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

namespace nc::padding {
namespace json = boost::json;
namespace {

// Limits of what is read at all; a graph of a 100-layer model has some 40,000 nodes.
constexpr size_t kMaxNodes = 400'000;
constexpr int kMaxDepth = 16;

Error invalid(std::string message) {
  return {Code::kInvalid, std::move(message), "send a graph as docs/ir.md describes it"};
}

// Why a graph with subgraphs is not read, with the operators that hold them.
std::string higher_order(const json::object& graph) {
  std::set<std::string> found;
  if (const auto* nodes = graph.if_contains("nodes"); nodes != nullptr && nodes->is_array()) {
    for (const auto& item : nodes->get_array()) {
      const auto* node = item.if_object();
      const auto* op = node == nullptr ? nullptr : node->if_contains("op");
      if (op != nullptr && op->is_string() && op->get_string().starts_with("higher_order."))
        found.emplace(op->get_string());
    }
  }
  return fmt::format(
      "higher-order operators have no padding rule: {}",
      found.empty() ? "the graph holds graphs" : fmt::to_string(fmt::join(found, ", ")));
}

class Reader {
 public:
  Reader(ExprPool& pool, const std::map<std::string, std::string>& rename) : pool_(pool) {
    for (const auto& [from, to] : rename) rename_.emplace(from, pool_.symbol(to));
  }

  Result<Graph> run(const json::value& document);

 private:
  Result<void> symbols(const json::object& o);
  Result<void> input(const json::value& v);
  Result<void> node(const json::value& v);
  Result<Arg> arg(const json::value& v, int depth);
  Result<Arg> tagged(const json::object& o, int depth);
  Result<Type> type(const json::value& v);
  Result<std::vector<Expr>> exprs(const json::value* v);
  Result<Expr> expr(const json::value& v);

  ExprPool& pool_;
  std::map<std::string, Expr> rename_;
  Graph graph_;
  bool device_known_ = false;
};

Result<Expr> Reader::expr(const json::value& v) {
  const auto parsed = pool_.parse(v, rename_);
  if (!parsed)
    return invalid(fmt::format("{} is no size expression", json::serialize(v).substr(0, 200)));
  return *parsed;
}

Result<std::vector<Expr>> Reader::exprs(const json::value* v) {
  std::vector<Expr> list;
  if (v == nullptr) return list;
  if (!v->is_array()) return invalid("sizes of a tensor are no array");
  for (const auto& item : v->get_array()) {
    auto e = expr(item);
    if (!e) return std::move(e).error();
    list.push_back(*e);
  }
  return list;
}

Result<Type> Reader::type(const json::value& v) {
  const auto* o = v.if_object();
  if (o == nullptr) return Type{};
  if (const auto* number = o->if_contains("int")) {
    auto e = expr(*number);
    if (!e) return std::move(e).error();
    return Type{*e};
  }
  for (const char* kind : {"float", "bool"}) {
    if (const auto* number = o->if_contains(kind)) {
      auto e = expr(*number);
      if (!e) return std::move(e).error();
      return Type{*e};
    }
  }
  const auto* dtype = o->if_contains("t");
  if (dtype == nullptr || !dtype->is_string()) return Type{};
  TensorType tensor;
  tensor.dtype = Dtype(std::string_view(dtype->get_string()));
  auto sizes = exprs(o->if_contains("d"));
  if (!sizes) return std::move(sizes).error();
  tensor.sizes = *std::move(sizes);
  auto strides = exprs(o->if_contains("s"));
  if (!strides) return std::move(strides).error();
  tensor.strides = *std::move(strides);
  if (const auto* device = o->if_contains("dev"); device != nullptr && device->is_string()) {
    tensor.device = std::string(device->get_string());
  }
  if (!device_known_) {
    graph_.device = tensor.device;
    device_known_ = true;
  }
  return Type{std::move(tensor)};
}

Result<Arg> Reader::tagged(const json::object& o, int depth) {
  if (o.size() != 1) return Arg{json::value(o)};
  const auto& [name, value] = *o.begin();
  const std::string_view key = name;
  if (key == "v") {
    const auto* id = value.if_int64();
    if (id == nullptr || *id < 0 || static_cast<size_t>(*id) >= graph_.values.size()) {
      return invalid("an argument names a value that does not exist yet");
    }
    // A symbolic number is its expression, wherever it is used.
    if (const auto* e = std::get_if<Expr>(&graph_.values[static_cast<size_t>(*id)])) return Arg{*e};
    return Arg{ValueRef{*id}};
  }
  if (key == "e") {
    auto e = expr(value);
    if (!e) return std::move(e).error();
    if (const auto c = pool_.constant(*e)) return Arg{*c};
    return Arg{*e};
  }
  if (key == "f" && value.is_string()) {
    const auto f = parse_hexfloat(std::string_view(value.get_string()));
    if (!f) return invalid("a float is not written in hexadecimal");
    return Arg{*f};
  }
  if (key == "const") {
    const auto* id = value.if_int64();
    if (id == nullptr || *id < 0 || static_cast<size_t>(*id) >= graph_.constants.size()) {
      return invalid("an argument names a constant that does not exist");
    }
    return Arg{ConstantRef{*id}};
  }
  if (key == "dtype" && value.is_string()) return Arg{Dtype(std::string_view(value.get_string()))};
  if (key == "str" && value.is_string()) return Arg{std::string(value.get_string())};
  if (key == "tuple" && value.is_array()) return arg(value, depth + 1);
  return Arg{json::value(o)};
}

Result<Arg> Reader::arg(const json::value& v, int depth) {
  if (depth > kMaxDepth) return invalid("arguments are nested too deeply");
  if (v.is_null()) return Arg{};
  if (const auto* b = v.if_bool()) return Arg{*b};
  if (const auto* i = v.if_int64()) return Arg{*i};
  if (const auto* list = v.if_array()) {
    ArgList items;
    for (const auto& item : *list) {
      auto one = arg(item, depth + 1);
      if (!one) return one;
      items.push_back(*std::move(one));
    }
    return Arg{std::move(items)};
  }
  if (const auto* o = v.if_object()) return tagged(*o, depth);
  return invalid(fmt::format("{} is no argument", json::serialize(v).substr(0, 200)));
}

Result<void> Reader::symbols(const json::object& o) {
  const auto* list = o.if_contains("symbols");
  if (list == nullptr) return {};
  if (!list->is_array()) return invalid("symbols are no array");
  for (const auto& item : list->get_array()) {
    const auto* entry = item.if_object();
    const auto* id = entry == nullptr ? nullptr : entry->if_contains("id");
    if (id == nullptr || !id->is_string()) return invalid("a symbol has no id");
    const std::string name(id->get_string());
    graph_.symbols.push_back(name);
    const auto known = rename_.find(name);
    const std::string& target =
        known == rename_.end() ? name : pool_.symbols(known->second).front();
    const auto* range = entry->if_contains("range");
    if (range != nullptr && range->is_array() && range->get_array().size() == 2) {
      if (const auto* least = range->get_array()[0].if_int64()) pool_.set_lower(target, *least);
      // Buckets are kept inside of the forward graph's ranges, as docs/padding.md asks of callers.
      const auto* greatest = range->get_array()[1].if_int64();
      if (greatest != nullptr && rename_.empty()) pool_.set_upper(target, *greatest);
    }
  }
  return {};
}

Result<void> Reader::input(const json::value& v) {
  const auto* o = v.if_object();
  const auto* kind = o == nullptr ? nullptr : o->if_contains("kind");
  const auto* what = o == nullptr ? nullptr : o->if_contains("type");
  if (kind == nullptr || !kind->is_string() || what == nullptr)
    return invalid("an input has no kind or type");
  auto t = type(*what);
  if (!t) return std::move(t).error();
  graph_.values.push_back(*t);
  graph_.inputs.push_back({std::string(kind->get_string()), *std::move(t)});
  return {};
}

Result<void> Reader::node(const json::value& v) {
  const auto* o = v.if_object();
  const auto* op = o == nullptr ? nullptr : o->if_contains("op");
  const auto* args = o == nullptr ? nullptr : o->if_contains("a");
  if (op == nullptr || !op->is_string() || args == nullptr || !args->is_array()) {
    return invalid("a node has no operator or arguments");
  }
  Node n;
  n.op = std::string(op->get_string());
  const size_t dot = n.op.find('.');
  const std::string space = n.op.substr(0, dot);
  const bool own = space == "aten" || space == "prims";
  const size_t from = own && dot != std::string::npos ? dot + 1 : 0;
  const size_t to = dot == std::string::npos ? dot : n.op.find('.', dot + 1);
  n.name = n.op.substr(from, to == std::string::npos ? to : to - from);
  auto list = arg(*args, 0);
  if (!list) return std::move(list).error();
  n.args = std::get<ArgList>(std::move(list->v));
  if (const auto* kwargs = o->if_contains("k"); kwargs != nullptr && kwargs->is_object()) {
    for (const auto& [name, value] : kwargs->get_object()) {
      auto one = arg(value, 0);
      if (!one) return std::move(one).error();
      n.kwargs.emplace(std::string(name), *std::move(one));
    }
  }
  n.first_value = static_cast<int64_t>(graph_.values.size());
  if (const auto* outs = o->if_contains("outs"); outs != nullptr && outs->is_array()) {
    n.several = true;
    for (const auto& item : outs->get_array()) {
      auto t = type(item);
      if (!t) return std::move(t).error();
      n.outs.push_back(*std::move(t));
    }
  } else if (const auto* out = o->if_contains("out")) {
    auto t = type(*out);
    if (!t) return std::move(t).error();
    n.outs.push_back(*std::move(t));
  } else {
    return invalid("a node has no type");
  }
  for (const auto& t : n.outs) graph_.values.push_back(t);
  graph_.nodes.push_back(std::move(n));
  return {};
}

Result<Graph> Reader::run(const json::value& document) {
  const auto* o = document.if_object();
  if (o == nullptr) return invalid("a graph is no object");
  const auto* version = o->if_contains("ir");
  if (version == nullptr || !version->is_int64() || version->get_int64() != 1) {
    return Error{Code::kUnsupported, "the graph is not of version 1 of docs/ir.md",
                 "use a client of the same version"};
  }
  const auto* graphs = o->if_contains("graphs");
  if (graphs != nullptr && graphs->is_array() && !graphs->get_array().empty()) {
    return Error{Code::kUnsupported, higher_order(*o), ""};
  }
  if (auto r = symbols(*o); !r) return r.error();
  const auto* inputs = o->if_contains("inputs");
  const auto* nodes = o->if_contains("nodes");
  const auto* outputs = o->if_contains("outputs");
  if (inputs == nullptr || !inputs->is_array() || nodes == nullptr || !nodes->is_array() ||
      outputs == nullptr) {
    return invalid("a graph has no inputs, nodes or outputs");
  }
  if (nodes->get_array().size() > kMaxNodes) return invalid("the graph has too many nodes");
  for (const auto& item : inputs->get_array()) {
    if (auto r = input(item); !r) return r.error();
  }
  if (const auto* constants = o->if_contains("constants");
      constants != nullptr && constants->is_array()) {
    for (const auto& item : constants->get_array()) {
      const auto* entry = item.if_object();
      const auto* what = entry == nullptr ? nullptr : entry->if_contains("type");
      auto t = what == nullptr ? Result<Type>(Type{}) : type(*what);
      if (!t) return std::move(t).error();
      const auto* tensor = std::get_if<TensorType>(&*t);
      if (tensor == nullptr) return invalid("a constant has no type");
      graph_.constants.push_back(*tensor);
    }
  }
  for (const auto& item : nodes->get_array()) {
    if (auto r = node(item); !r) return r.error();
  }
  auto outs = arg(*outputs, 0);
  if (!outs) return std::move(outs).error();
  if (auto* list = std::get_if<ArgList>(&outs->v)) {
    graph_.outputs = std::move(*list);
  } else {
    graph_.outputs = {*std::move(outs)};
  }
  return std::move(graph_);
}

}  // namespace

std::optional<double> parse_hexfloat(std::string_view text) {
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (text.find("0x") == std::string_view::npos || text.size() > 64) return std::nullopt;
  const std::string copy(text);
  char* end = nullptr;
  const double value = std::strtod(copy.c_str(), &end);
  if (end != copy.c_str() + copy.size()) return std::nullopt;
  return value;
}

std::string hexfloat(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  return fmt::format("{:a}", value);
}

json::value to_json(const Scalar& scalar) {
  if (const auto* b = std::get_if<bool>(&scalar)) return *b;
  if (const auto* i = std::get_if<int64_t>(&scalar)) return *i;
  return json::value{{"f", hexfloat(std::get<double>(scalar))}};
}

json::value to_json(const Arg& arg, const ExprPool& pool) {
  struct Visitor {
    const ExprPool& pool;
    json::value operator()(std::monostate) const { return nullptr; }
    json::value operator()(bool b) const { return b; }
    json::value operator()(int64_t i) const { return i; }
    json::value operator()(double d) const { return {{"f", hexfloat(d)}}; }
    json::value operator()(ValueRef r) const { return {{"v", r.id}}; }
    json::value operator()(ConstantRef r) const { return {{"const", r.id}}; }
    json::value operator()(Expr e) const {
      if (const auto c = pool.constant(e)) return *c;
      return {{"e", pool.to_json(e)}};
    }
    json::value operator()(const Dtype& d) const { return {{"dtype", d.name()}}; }
    json::value operator()(const std::string& s) const { return {{"str", s}}; }
    json::value operator()(const ArgList& list) const {
      json::array items;
      for (const Arg& item : list) items.push_back(to_json(item, pool));
      return items;
    }
    json::value operator()(const json::value& v) const { return v; }
  };
  return std::visit(Visitor{pool}, arg.v);
}

Result<Graph> read_graph(const json::value& document, ExprPool& pool,
                         const std::map<std::string, std::string>& rename) {
  return Reader(pool, rename).run(document);
}

}  // namespace nc::padding
