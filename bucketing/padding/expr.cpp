#include "bucketing/padding/expr.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <tuple>

#include <boost/json.hpp>

namespace nc::padding {
namespace {

constexpr size_t kMaxTerms = 1024;

std::optional<int64_t> checked_add(int64_t a, int64_t b) {
  int64_t r = 0;
  if (__builtin_add_overflow(a, b, &r)) return std::nullopt;
  return r;
}

std::optional<int64_t> checked_mul(int64_t a, int64_t b) {
  int64_t r = 0;
  if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
  return r;
}

int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}

void add_new(std::vector<std::string>& to, const std::vector<std::string>& from) {
  for (const auto& name : from) {
    if (std::find(to.begin(), to.end(), name) == to.end()) to.push_back(name);
  }
}

}  // namespace

ExprPool::ExprPool() {
  intern({});
}  // handle 0 is zero

Expr ExprPool::intern(Terms terms) {
  const auto known = by_terms_.find(terms);
  if (known != by_terms_.end()) return Expr{known->second};
  Node node;
  for (const auto& [monomial, coefficient] : terms) {
    for (const auto& [id, power] : monomial) {
      const Atom& a = atoms_[id];
      if (a.kind == AtomKind::kSymbol) {
        add_new(node.symbols, {a.name});
      } else {
        node.opaque = node.opaque || a.kind == AtomKind::kOpaque;
        for (const Expr arg : a.args) {
          add_new(node.symbols, nodes_[arg.id].symbols);
          node.opaque = node.opaque || nodes_[arg.id].opaque;
        }
      }
    }
  }
  node.terms = terms;
  const auto id = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back(std::move(node));
  by_terms_.emplace(std::move(terms), id);
  return Expr{id};
}

Expr ExprPool::atom(Atom value) {
  std::string key =
      std::to_string(static_cast<int>(value.kind)) + ":" + value.name + ":" + value.literal;
  for (const Expr arg : value.args) key += "," + std::to_string(arg.id);
  auto [entry, is_new] = by_atom_.try_emplace(key, static_cast<uint32_t>(atoms_.size()));
  if (is_new) atoms_.push_back(std::move(value));
  if (const auto known = assumed_.find(entry->second); known != assumed_.end())
    return integer(known->second);
  return intern({{Monomial{{entry->second, 1}}, 1}});
}

Expr ExprPool::opaque(std::string literal, std::vector<Expr> args) {
  return atom({AtomKind::kOpaque, "", std::move(args), std::move(literal)});
}

Expr ExprPool::integer(int64_t value) {
  if (value == 0) return intern({});
  return intern({{Monomial{}, value}});
}

Expr ExprPool::symbol(std::string_view name) {
  if (!name.empty() && name.front() == 'f') {
    // A float symbol: never a size, always handed on as it is.
    Expr e = atom({AtomKind::kSymbol, std::string(name), {}, ""});
    nodes_[e.id].opaque = true;
    return e;
  }
  return atom({AtomKind::kSymbol, std::string(name), {}, ""});
}

Expr ExprPool::add(Expr a, Expr b) {
  Terms sum = nodes_[a.id].terms;
  for (const auto& [monomial, coefficient] : nodes_[b.id].terms) {
    const auto total = checked_add(sum.contains(monomial) ? sum[monomial] : 0, coefficient);
    if (!total) return opaque("+", {a, b});
    if (*total == 0) {
      sum.erase(monomial);
    } else {
      sum[monomial] = *total;
    }
  }
  return intern(std::move(sum));
}

Expr ExprPool::sub(Expr a, Expr b) {
  return add(a, mul(integer(-1), b));
}

Expr ExprPool::mul(Expr a, Expr b) {
  if (b < a) std::swap(a, b);
  const uint64_t key = (static_cast<uint64_t>(a.id) << 32) | b.id;
  if (const auto known = products_.find(key); known != products_.end()) return known->second;
  Terms product;
  // A size has few terms; what grows beyond that is not followed.
  bool overflow = nodes_[a.id].terms.size() * nodes_[b.id].terms.size() > kMaxTerms;
  if (overflow) return products_.emplace(key, opaque("*", {a, b})).first->second;
  for (const auto& [ma, ca] : nodes_[a.id].terms) {
    for (const auto& [mb, cb] : nodes_[b.id].terms) {
      std::map<uint32_t, uint32_t> powers(ma.begin(), ma.end());
      for (const auto& [id, power] : mb) powers[id] += power;
      const Monomial monomial(powers.begin(), powers.end());
      const auto c = checked_mul(ca, cb);
      const auto total =
          c ? checked_add(product.contains(monomial) ? product[monomial] : 0, *c) : c;
      if (!total) {
        overflow = true;
      } else if (*total == 0) {
        product.erase(monomial);
      } else {
        product[monomial] = *total;
      }
    }
  }
  const Expr result = overflow ? opaque("*", {a, b}) : intern(std::move(product));
  products_.emplace(key, result);
  return result;
}

Expr ExprPool::floor_div(Expr a, Expr b) {
  const auto ca = constant(a);
  const auto cb = constant(b);
  if (cb && *cb == 0) return opaque("//", {a, b});
  if (ca && cb) return integer(floor_divide(*ca, *cb));
  if (cb && *cb == 1) return a;
  if (const auto exact = divide(a, b)) return *exact;
  if (cb && *cb > 0) {
    // (c*q + r) // c == q + r // c: what divides evenly comes out.
    Terms even;
    Terms rest;
    for (const auto& [monomial, coefficient] : nodes_[a.id].terms) {
      const int64_t q = coefficient / *cb;  // towards zero: (-s) // 4 stays as it is
      if (q != 0) even[monomial] = q;
      if (coefficient - q * *cb != 0) rest[monomial] = coefficient - q * *cb;
    }
    if (!even.empty()) return add(intern(std::move(even)), floor_div(intern(std::move(rest)), b));
  }
  return atom({AtomKind::kFloorDiv, "", {a, b}, ""});
}

Expr ExprPool::mod(Expr a, Expr b) {
  const auto ca = constant(a);
  const auto cb = constant(b);
  if (cb && *cb == 0) return opaque("%", {a, b});
  if (ca && cb) return integer(*ca - floor_divide(*ca, *cb) * *cb);
  // a % b == a - b * (a // b): one atom less to know about.
  return sub(a, mul(b, floor_div(a, b)));
}

Expr ExprPool::extreme(AtomKind kind, Expr a, Expr b) {
  if (a == b) return a;
  const bool is_max = kind == AtomKind::kMax;
  if (nonnegative(sub(a, b))) return is_max ? a : b;
  if (nonnegative(sub(b, a))) return is_max ? b : a;
  if (b < a) std::swap(a, b);
  return atom({kind, "", {a, b}, ""});
}

Expr ExprPool::max(Expr a, Expr b) {
  return extreme(AtomKind::kMax, a, b);
}
Expr ExprPool::min(Expr a, Expr b) {
  return extreme(AtomKind::kMin, a, b);
}

std::optional<int64_t> ExprPool::constant(Expr e) const {
  const Terms& terms = nodes_[e.id].terms;
  if (terms.empty()) return 0;
  if (terms.size() == 1 && terms.begin()->first.empty()) return terms.begin()->second;
  return std::nullopt;
}

bool ExprPool::is_constant(Expr e, int64_t value) const {
  return constant(e) == value;
}

std::optional<Expr> ExprPool::divide(Expr a, Expr b) {
  if (nodes_[b.id].terms.empty()) return std::nullopt;
  Terms rest = nodes_[a.id].terms;
  Terms quotient;
  const auto& [lead, lead_coefficient] = *nodes_[b.id].terms.rbegin();
  // Long division by the greatest term; every step removes the greatest term of the rest.
  for (int steps = 0; !rest.empty(); ++steps) {
    if (steps > 64) return std::nullopt;
    const auto [monomial, coefficient] = *rest.rbegin();
    if (coefficient % lead_coefficient != 0) return std::nullopt;
    std::map<uint32_t, uint32_t> powers(monomial.begin(), monomial.end());
    for (const auto& [id, power] : lead) {
      const auto it = powers.find(id);
      if (it == powers.end() || it->second < power) return std::nullopt;
      it->second -= power;
      if (it->second == 0) powers.erase(it);
    }
    const Monomial step(powers.begin(), powers.end());
    const int64_t factor = coefficient / lead_coefficient;
    quotient[step] += factor;
    for (const auto& [mb, cb] : nodes_[b.id].terms) {
      std::map<uint32_t, uint32_t> product(step.begin(), step.end());
      for (const auto& [id, power] : mb) product[id] += power;
      const Monomial key(product.begin(), product.end());
      const auto c = checked_mul(cb, -factor);
      const auto total = c ? checked_add(rest.contains(key) ? rest[key] : 0, *c) : c;
      if (!total) return std::nullopt;
      if (*total == 0) {
        rest.erase(key);
      } else {
        rest[key] = *total;
      }
    }
    if (rest.contains(monomial)) return std::nullopt;
  }
  return intern(std::move(quotient));
}

int64_t ExprPool::content(Expr e) const {
  int64_t g = 0;
  for (const auto& [monomial, coefficient] : nodes_[e.id].terms) {
    int64_t a = g;
    int64_t b = coefficient < 0 ? -coefficient : coefficient;
    while (b != 0) std::tie(a, b) = std::pair(b, a % b);
    g = a;
  }
  return g;
}

bool ExprPool::is_product(Expr e) const {
  const Terms& terms = nodes_[e.id].terms;
  if (terms.size() != 1) return false;
  uint32_t degree = 0;
  for (const auto& [id, power] : terms.begin()->first) degree += power;
  return degree > 1;
}

bool ExprPool::is_single_symbol(Expr e) const {
  const Terms& terms = nodes_[e.id].terms;
  if (terms.size() != 1 || terms.begin()->second != 1) return false;
  const Monomial& m = terms.begin()->first;
  return m.size() == 1 && m[0].second == 1 && atoms_[m[0].first].kind == AtomKind::kSymbol;
}

const std::vector<std::string>& ExprPool::symbols(Expr e) const {
  return nodes_[e.id].symbols;
}
bool ExprPool::is_opaque(Expr e) const {
  return nodes_[e.id].opaque;
}

void ExprPool::set_lower(std::string_view symbol, int64_t least) {
  const auto [entry, is_new] = lower_.try_emplace(std::string(symbol), least);
  if (!is_new) entry->second = std::max(entry->second, least);
}

void ExprPool::set_upper(std::string_view symbol, int64_t greatest) {
  const auto [entry, is_new] = upper_.try_emplace(std::string(symbol), greatest);
  if (!is_new) entry->second = std::min(entry->second, greatest);
}

void ExprPool::assume(Expr e, int64_t value) {
  Terms terms = nodes_[e.id].terms;
  if (const auto number = terms.find({}); number != terms.end()) {
    if (__builtin_sub_overflow(value, number->second, &value)) return;
    terms.erase(number);
  }
  if (terms.size() != 1) return;
  const auto& [monomial, coefficient] = *terms.begin();
  if (monomial.size() != 1 || monomial[0].second != 1) return;
  const AtomKind kind = atoms_[monomial[0].first].kind;
  // -1: the least integer has no counterpart, and a quotient by it overflows.
  if (kind == AtomKind::kSymbol || kind == AtomKind::kOpaque) return;
  if (coefficient == -1 ? value == std::numeric_limits<int64_t>::min() : value % coefficient != 0)
    return;
  assumed_.emplace(monomial[0].first, value / coefficient);
  if (kind == AtomKind::kFloorDiv)
    bound_by_quotient(atoms_[monomial[0].first], value / coefficient);
}

// (c*s + k) // d == value, d > 0: c*s + k lies in [value*d, value*d + d - 1].
void ExprPool::bound_by_quotient(const Atom& quotient, int64_t value) {
  constexpr int64_t kMost = int64_t{1} << 31;  // sizes; keeps the arithmetic below in range
  const auto d = constant(quotient.args[1]);
  Terms terms = nodes_[quotient.args[0].id].terms;
  int64_t k = 0;
  if (const auto number = terms.find({}); number != terms.end()) {
    k = number->second;
    terms.erase(number);
  }
  if (!d || *d <= 0 || *d > kMost || value > kMost || value < -kMost || k > kMost || k < -kMost)
    return;
  if (terms.size() != 1) return;
  const auto& [monomial, c] = *terms.begin();
  if (monomial.size() != 1 || monomial[0].second != 1 || c > kMost || c < -kMost) return;
  const Atom& symbol = atoms_[monomial[0].first];
  if (symbol.kind != AtomKind::kSymbol) return;
  const int64_t low = value * *d - k;
  const int64_t high = low + *d - 1;
  const int64_t greatest = c > 0 ? floor_divide(high, c) : floor_divide(-low, -c);
  const int64_t least = c > 0 ? -floor_divide(-low, c) : -floor_divide(high, -c);
  set_upper(symbol.name, greatest);
  set_lower(symbol.name, std::max<int64_t>(least, 0));
}

}  // namespace nc::padding
