// Substitution, evaluation, bounds and the wire form of expressions.
#include <limits>

#include <boost/json.hpp>

#include "bucketing/padding/expr.hpp"

namespace nc::padding {
namespace json = boost::json;
namespace {

constexpr int kMaxDepth = 64;

std::optional<int64_t> power(int64_t base, uint32_t exponent) {
  int64_t r = 1;
  for (uint32_t i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(r, base, &r)) return std::nullopt;
  }
  return r;
}

std::optional<int64_t> floor_divide(std::optional<int64_t> a, std::optional<int64_t> b) {
  if (!a || !b || *b == 0 || (*a == std::numeric_limits<int64_t>::min() && *b == -1))
    return std::nullopt;
  const int64_t q = *a / *b;
  return (*a % *b != 0 && (*a < 0) != (*b < 0)) ? q - 1 : q;
}

}  // namespace

Expr ExprPool::substitute(Expr e, const std::map<std::string, Expr>& by) {
  bool touched = false;
  for (const auto& name : nodes_[e.id].symbols) touched = touched || by.contains(name);
  if (!touched) return e;
  const Terms terms = nodes_[e.id].terms;  // a copy: interning moves nodes
  Expr sum = integer(0);
  for (const auto& [monomial, coefficient] : terms) {
    Expr product = integer(coefficient);
    for (const auto& [id, exponent] : monomial) {
      const Atom a = atoms_[id];
      Expr value;
      if (a.kind == AtomKind::kSymbol) {
        const auto it = by.find(a.name);
        value = it == by.end() ? symbol(a.name) : it->second;
      } else {
        std::vector<Expr> args;
        for (const Expr arg : a.args) args.push_back(substitute(arg, by));
        switch (a.kind) {
          case AtomKind::kFloorDiv:
            value = floor_div(args[0], args[1]);
            break;
          case AtomKind::kMod:
            value = mod(args[0], args[1]);
            break;
          case AtomKind::kMax:
            value = max(args[0], args[1]);
            break;
          case AtomKind::kMin:
            value = min(args[0], args[1]);
            break;
          default:
            value = opaque(a.literal, std::move(args));
        }
      }
      for (uint32_t i = 0; i < exponent; ++i) product = mul(product, value);
    }
    sum = add(sum, product);
  }
  return sum;
}

std::optional<int64_t> ExprPool::with_atoms(
    Expr e, const std::function<std::optional<int64_t>(const Atom&)>& value) const {
  int64_t sum = 0;
  for (const auto& [monomial, coefficient] : nodes_[e.id].terms) {
    int64_t product = coefficient;
    for (const auto& [id, exponent] : monomial) {
      const auto base = value(atoms_[id]);
      const auto raised = base ? power(*base, exponent) : base;
      if (!raised || __builtin_mul_overflow(product, *raised, &product)) return std::nullopt;
    }
    if (__builtin_add_overflow(sum, product, &sum)) return std::nullopt;
  }
  return sum;
}

std::optional<int64_t> ExprPool::atom_value(const Atom& a,
                                            const std::map<std::string, int64_t>& sizes) const {
  if (a.kind == AtomKind::kSymbol) {
    const auto it = sizes.find(a.name);
    return it == sizes.end() ? std::nullopt : std::optional(it->second);
  }
  if (a.kind == AtomKind::kOpaque) return std::nullopt;
  const auto x = evaluate(a.args[0], sizes);
  const auto y = evaluate(a.args[1], sizes);
  if (!x || !y) return std::nullopt;
  switch (a.kind) {
    case AtomKind::kFloorDiv:
      return floor_divide(x, y);
    case AtomKind::kMax:
      return std::max(*x, *y);
    case AtomKind::kMin:
      return std::min(*x, *y);
    default: {
      const auto q = floor_divide(x, y);
      return q ? std::optional(*x - *q * *y) : q;
    }
  }
}

std::optional<int64_t> ExprPool::evaluate(Expr e,
                                          const std::map<std::string, int64_t>& sizes) const {
  return with_atoms(e, [&](const Atom& a) { return atom_value(a, sizes); });
}

std::optional<int64_t> ExprPool::atom_lower(const Atom& a) const {
  switch (a.kind) {
    case AtomKind::kSymbol: {
      const auto it = lower_.find(a.name);
      return it == lower_.end() ? 0 : it->second;
    }
    case AtomKind::kFloorDiv: {
      const auto divisor = constant(a.args[1]);
      const auto x = lower_bound(a.args[0]);
      if (divisor && *divisor > 0) return floor_divide(x, divisor);
      // Sizes are not negative, so a quotient of two is not either.
      if (x && *x >= 0 && positive(a.args[1])) return 0;
      return std::nullopt;
    }
    case AtomKind::kMod:
      return positive(a.args[1]) ? std::optional<int64_t>(0) : std::nullopt;
    case AtomKind::kMax: {
      const auto x = lower_bound(a.args[0]);
      const auto y = lower_bound(a.args[1]);
      if (x && y) return std::max(*x, *y);
      return x ? x : y;
    }
    case AtomKind::kMin: {
      const auto x = lower_bound(a.args[0]);
      const auto y = lower_bound(a.args[1]);
      return x && y ? std::optional(std::min(*x, *y)) : std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

// Of a product of symbols.
std::optional<int64_t> ExprPool::monomial_upper(const Monomial& monomial) const {
  int64_t product = 1;
  for (const auto& [id, exponent] : monomial) {
    const Atom& a = atoms_[id];
    const auto least = atom_lower(a);
    const auto greatest = a.kind == AtomKind::kSymbol ? upper_.find(a.name) : upper_.end();
    if (greatest == upper_.end() || !least || *least < 0) return std::nullopt;
    const auto raised = power(greatest->second, exponent);
    if (!raised || __builtin_mul_overflow(product, *raised, &product)) return std::nullopt;
  }
  return product;
}

std::optional<int64_t> ExprPool::lower_bound(Expr e) const {
  // With every atom at its least, and at its greatest in negative terms; where that is not known
  // the proof ends, but for the one pattern that remainders leave behind: x - c*(x // c) >= 0,
  // which is taken out first.
  Terms terms = nodes_[e.id].terms;
  for (const auto& [monomial, coefficient] : nodes_[e.id].terms) {
    if (coefficient >= 0 || monomial.size() != 1 || monomial[0].second != 1) continue;
    const Atom& a = atoms_[monomial[0].first];
    if (a.kind != AtomKind::kFloorDiv) continue;
    const auto divisor = constant(a.args[1]);
    if (!divisor || *divisor <= 0 || -coefficient % *divisor != 0) continue;
    const int64_t times = -coefficient / *divisor;
    Terms without = terms;
    without.erase(monomial);
    bool fits = true;
    for (const auto& [m, c] : nodes_[a.args[0].id].terms) {
      const auto have = without.find(m);
      int64_t left = (have == without.end() ? 0 : have->second);
      if (__builtin_sub_overflow(left, c * times, &left)) fits = false;
      if (left == 0) {
        without.erase(m);
      } else {
        without[m] = left;
      }
    }
    if (fits) terms = std::move(without);
  }
  int64_t sum = 0;
  for (const auto& [monomial, coefficient] : terms) {
    int64_t product = coefficient;
    if (coefficient < 0 && !monomial.empty()) {
      const auto greatest = monomial_upper(monomial);
      if (!greatest || __builtin_mul_overflow(product, *greatest, &product) ||
          __builtin_add_overflow(sum, product, &sum))
        return std::nullopt;
      continue;
    }
    for (const auto& [id, exponent] : monomial) {
      const auto least = atom_lower(atoms_[id]);
      if (!least || *least < 0) return std::nullopt;
      const auto raised = power(*least, exponent);
      if (!raised || __builtin_mul_overflow(product, *raised, &product)) return std::nullopt;
    }
    if (__builtin_add_overflow(sum, product, &sum)) return std::nullopt;
  }
  return sum;
}

bool ExprPool::positive(Expr e) const {
  const auto least = lower_bound(e);
  return least && *least > 0;
}

bool ExprPool::nonnegative(Expr e) const {
  const auto least = lower_bound(e);
  return least && *least >= 0;
}

bool ExprPool::rising(Expr e) const {
  // A sum of rising terms; a term of several atoms rises where none of them is negative.
  const auto atom_rises = [&](const Atom& a) {
    switch (a.kind) {
      case AtomKind::kSymbol:
        return true;
      case AtomKind::kFloorDiv: {
        const auto divisor = constant(a.args[1]);
        return divisor && *divisor > 0 && rising(a.args[0]);
      }
      case AtomKind::kMax:
      case AtomKind::kMin:
        return rising(a.args[0]) && rising(a.args[1]);
      default:
        return false;
    }
  };
  for (const auto& [monomial, coefficient] : nodes_[e.id].terms) {
    if (monomial.empty()) continue;
    if (coefficient < 0) return false;
    const bool alone = monomial.size() == 1 && monomial[0].second == 1;
    for (const auto& [id, exponent] : monomial) {
      if (!atom_rises(atoms_[id])) return false;
      const auto least = alone ? std::optional<int64_t>(0) : atom_lower(atoms_[id]);
      if (!least || *least < 0) return false;
    }
  }
  return true;
}

std::optional<Expr> ExprPool::parse(const json::value& value,
                                    const std::map<std::string, Expr>& rename) {
  // Renamed here and not afterwards: what is known of sizes simplifies expressions as they are
  // made, and must be that of the right symbols.
  struct Parser {
    ExprPool& pool;
    const std::map<std::string, Expr>& rename;
    std::optional<Expr> run(const json::value& v, int depth) {
      if (depth > kMaxDepth) return std::nullopt;
      if (const auto* i = v.if_int64()) return pool.integer(*i);
      if (const auto* s = v.if_string()) {
        if (s->empty()) return std::nullopt;
        const auto other = rename.find(std::string(*s));
        return other == rename.end() ? pool.symbol(std::string_view(*s)) : other->second;
      }
      const auto* list = v.if_array();
      if (list == nullptr || list->empty() || !list->front().is_string()) return std::nullopt;
      const std::string_view op = list->front().get_string();
      if (op == "float" || op == "rational" || op == "bool")
        return pool.opaque(json::serialize(v), {});
      std::vector<Expr> args;
      for (auto it = list->begin() + 1; it != list->end(); ++it) {
        const auto arg = run(*it, depth + 1);
        if (!arg) return std::nullopt;
        args.push_back(*arg);
      }
      const auto fold = [&](auto operation) {
        Expr r = args[0];
        for (size_t i = 1; i < args.size(); ++i) r = operation(r, args[i]);
        return r;
      };
      if (!args.empty()) {
        if (op == "+") return fold([&](Expr a, Expr b) { return pool.add(a, b); });
        if (op == "*") return fold([&](Expr a, Expr b) { return pool.mul(a, b); });
        if (op == "Max") return fold([&](Expr a, Expr b) { return pool.max(a, b); });
        if (op == "Min") return fold([&](Expr a, Expr b) { return pool.min(a, b); });
      }
      const bool whole = args.size() == 2 && !pool.is_opaque(args[0]) && !pool.is_opaque(args[1]);
      if (whole && (op == "//" || op == "CleanDiv")) return pool.floor_div(args[0], args[1]);
      if (whole && op == "%") return pool.mod(args[0], args[1]);
      if (whole && op == "**") {
        const auto exponent = pool.constant(args[1]);
        if (exponent && *exponent >= 1 && *exponent <= 8) {
          Expr r = args[0];
          for (int64_t i = 1; i < *exponent; ++i) r = pool.mul(r, args[0]);
          return r;
        }
      }
      return pool.opaque(std::string(op), std::move(args));
    }
  };
  return Parser{*this, rename}.run(value, 0);
}

json::value ExprPool::atom_json(const Atom& a) const {
  if (a.kind == AtomKind::kSymbol) return json::value(a.name);
  if (a.kind == AtomKind::kOpaque && a.args.empty() && a.literal.starts_with('[')) {
    return json::parse(a.literal);
  }
  json::array list;
  switch (a.kind) {
    case AtomKind::kFloorDiv:
      list.emplace_back("//");
      break;
    case AtomKind::kMod:
      list.emplace_back("%");
      break;
    case AtomKind::kMax:
      list.emplace_back("Max");
      break;
    case AtomKind::kMin:
      list.emplace_back("Min");
      break;
    default:
      list.emplace_back(a.literal);
  }
  for (const Expr arg : a.args) list.push_back(to_json(arg));
  return list;
}

json::value ExprPool::to_json(Expr e) const {
  if (const auto c = constant(e)) return *c;
  json::array sum;
  for (const auto& [monomial, coefficient] : nodes_[e.id].terms) {
    json::array product;
    if (coefficient != 1 || monomial.empty()) product.emplace_back(coefficient);
    for (const auto& [id, exponent] : monomial) {
      for (uint32_t i = 0; i < exponent; ++i) product.push_back(atom_json(atoms_[id]));
    }
    if (product.size() == 1) {
      sum.push_back(std::move(product.front()));
    } else {
      product.insert(product.begin(), json::value("*"));
      sum.emplace_back(std::move(product));
    }
  }
  if (sum.size() == 1) return std::move(sum.front());
  sum.insert(sum.begin(), json::value("+"));
  return sum;
}

std::string ExprPool::text(Expr e) const {
  if (const auto c = constant(e)) return std::to_string(*c);
  std::string sum;
  for (const auto& [monomial, coefficient] : nodes_[e.id].terms) {
    if (!sum.empty())
      sum += coefficient < 0 ? " - " : " + ";
    else if (coefficient < 0)
      sum += "-";
    const int64_t size = coefficient < 0 ? -coefficient : coefficient;
    std::string product;
    if (size != 1 || monomial.empty()) product = std::to_string(size);
    for (const auto& [id, exponent] : monomial) {
      const Atom& a = atoms_[id];
      const std::string name = a.kind == AtomKind::kSymbol ? a.name : json::serialize(atom_json(a));
      for (uint32_t i = 0; i < exponent; ++i) product += (product.empty() ? "" : "*") + name;
    }
    sum += product;
  }
  return sum;
}

}  // namespace nc::padding
