// Size expressions: polynomials with integer coefficients over atoms.
//
// An atom is a symbol, a floor division, a remainder, a maximum or minimum of polynomials, or an
// operation that the engine only passes on ("opaque"). Expressions are interned in a pool: two of
// them are the same polynomial exactly when their handles are equal. Coefficients are checked:
// arithmetic that would overflow 64 bits gives an opaque atom, which no rule takes for known.
//
// Grammar on the wire: `expr` of docs/ir.md.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <boost/json/fwd.hpp>

namespace nc::padding {

// A handle; meaningful only together with its pool.
struct Expr {
  uint32_t id = 0;
  auto operator<=>(const Expr&) const = default;  // NOLINT(modernize-use-nullptr): its own zero
};

class ExprPool {
 public:
  ExprPool();
  ExprPool(const ExprPool&) = delete;
  ExprPool& operator=(const ExprPool&) = delete;

  Expr integer(int64_t value);
  Expr symbol(std::string_view name);  // "s0"; names starting with 'f' are floats, hence opaque
  Expr add(Expr a, Expr b);
  Expr sub(Expr a, Expr b);
  Expr mul(Expr a, Expr b);
  Expr floor_div(Expr a, Expr b);
  Expr mod(Expr a, Expr b);
  Expr max(Expr a, Expr b);
  Expr min(Expr a, Expr b);

  // From the wire, with the symbols of `rename` replaced. Empty when it is no expression; what is
  // well formed but unknown becomes opaque.
  std::optional<Expr> parse(const boost::json::value& value,
                            const std::map<std::string, Expr>& rename = {});
  boost::json::value to_json(Expr e) const;
  std::string text(Expr e) const;  // for messages

  std::optional<int64_t> constant(Expr e) const;
  bool is_constant(Expr e, int64_t value) const;
  // a / b when b divides a without a rest as polynomials.
  std::optional<Expr> divide(Expr a, Expr b);
  // The greatest integer that divides every coefficient (0 for the zero polynomial).
  int64_t content(Expr e) const;
  // e == a*b*... of several factors that hold symbols: whether the polynomial is one monomial with
  // more than one symbol in it.
  bool is_product(Expr e) const;
  bool is_single_symbol(Expr e) const;

  // Names of all symbols in it, those inside of atoms too, in order of first use.
  const std::vector<std::string>& symbols(Expr e) const;
  bool is_opaque(Expr e) const;  // holds an opaque atom somewhere

  // e with symbols replaced.
  Expr substitute(Expr e, const std::map<std::string, Expr>& by);
  // The value at known sizes; empty for opaque atoms, unknown symbols, divisions by zero, overflow.
  std::optional<int64_t> evaluate(Expr e, const std::map<std::string, int64_t>& sizes) const;
  // Whether e > 0 (or >= 0) for all sizes within the ranges told; false: not known.
  bool positive(Expr e) const;
  bool nonnegative(Expr e) const;
  // Whether no symbol that grows makes e less; false: not known.
  bool rising(Expr e) const;
  // The least size of a symbol (by default 0), and its greatest (by default none).
  void set_lower(std::string_view symbol, int64_t least);
  void set_upper(std::string_view symbol, int64_t greatest);
  // From now on e is taken to be `value`: what is parsed or computed later holds the number
  // instead, and a quotient by a number bounds its symbol. Without effect where e is not a multiple
  // of one floor division, remainder, maximum or minimum, but for a constant.
  void assume(Expr e, int64_t value);

 private:
  using Power = std::pair<uint32_t, uint32_t>;  // atom, exponent >= 1
  using Monomial = std::vector<Power>;          // sorted by atom
  using Terms = std::map<Monomial, int64_t>;    // no zero coefficients

  enum class AtomKind : uint8_t { kSymbol, kFloorDiv, kMod, kMax, kMin, kOpaque };
  struct Atom {
    AtomKind kind;
    std::string name;          // of a symbol or an opaque operation
    std::vector<Expr> args;    // of the others
    std::string literal = {};  // opaque: what goes back to the wire (JSON)
  };
  struct Node {
    Terms terms;
    std::vector<std::string> symbols;
    bool opaque = false;
  };

  Expr intern(Terms terms);
  Expr atom(Atom value);
  Expr opaque(std::string literal, std::vector<Expr> args);
  Expr extreme(AtomKind kind, Expr a, Expr b);
  std::optional<int64_t> lower_bound(Expr e) const;
  std::optional<int64_t> atom_lower(const Atom& atom) const;
  std::optional<int64_t> monomial_upper(const Monomial& monomial) const;
  void bound_by_quotient(const Atom& quotient, int64_t value);
  std::optional<int64_t> atom_value(const Atom& atom,
                                    const std::map<std::string, int64_t>& sizes) const;
  std::optional<int64_t> with_atoms(
      Expr e, const std::function<std::optional<int64_t>(const Atom&)>& value) const;
  boost::json::value atom_json(const Atom& atom) const;

  std::deque<Node> nodes_;
  std::map<Terms, uint32_t> by_terms_;
  std::deque<Atom> atoms_;
  std::unordered_map<std::string, uint32_t> by_atom_;
  std::unordered_map<std::string, int64_t> lower_;
  std::unordered_map<std::string, int64_t> upper_;
  std::unordered_map<uint32_t, int64_t> assumed_;  // atom -> value
  std::unordered_map<uint64_t, Expr> products_;    // memo of mul
};

}  // namespace nc::padding
