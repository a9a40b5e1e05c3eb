// What is known of a set of elements: the padding of one factor, or the true part of a value.
//
// An order of claims, from strong to weak: constant(v), positive, non-negative, finite, anything.
// Elements of integer and boolean types are always finite. A constant is exact in the type of the
// value that holds it; arithmetic on constants yields a constant only where every type gives the
// same (small whole numbers and infinities), else what is known of its sign.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "bucketing/padding/dtype.hpp"

namespace nc::padding {

// A number as it is written in a graph. Booleans are kept apart from integers, as torch does.
using Scalar = std::variant<bool, int64_t, double>;

double to_double(Scalar s);
bool same_value(Scalar a, Scalar b);  // as numbers: true == 1 == 1.0; NaN equals nothing

enum class Claim : uint8_t { kConstant, kPositive, kNonNegative, kFinite, kAnything };

class State {
 public:
  State() = default;  // anything
  static State constant(Scalar value) { return State(Claim::kConstant, value); }
  static State positive() { return State(Claim::kPositive); }
  static State non_negative() { return State(Claim::kNonNegative); }
  static State finite() { return State(Claim::kFinite); }
  static State anything() { return State(Claim::kAnything); }
  static State zero() { return constant(int64_t{0}); }

  Claim claim() const { return claim_; }
  std::optional<Scalar> value() const {
    return claim_ == Claim::kConstant ? std::optional(value_) : std::nullopt;
  }
  bool is(Scalar value) const { return claim_ == Claim::kConstant && same_value(value_, value); }
  bool is_zero() const { return is(int64_t{0}); }
  // Neither NaN nor infinite.
  bool is_finite() const;
  // Finite and > 0, >= 0.
  bool is_positive() const;
  bool is_non_negative() const;
  // Not NaN (infinities may be): what maxima and comparisons with it need.
  bool is_number() const;

  // The same without its value: positive, non-negative, finite or anything.
  State weakened() const;
  // For an element type: integers are finite; a constant is as the type stores it.
  State in(const Dtype& type) const;
  bool operator==(const State& other) const;

 private:
  explicit State(Claim claim, Scalar value = int64_t{0}) : claim_(claim), value_(value) {}
  Claim claim_ = Claim::kAnything;
  Scalar value_ = int64_t{0};
};

// What is known of elements that are either.
State join(const State& a, const State& b);
State join(
    std::span<const State> states);  // of none: constant 0 (the empty set has every property)

// A constant that arithmetic in any floating type computes exactly, or what remains known of it.
State computed(double value);

}  // namespace nc::padding
