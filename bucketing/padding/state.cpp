#include "bucketing/padding/state.hpp"

#include <algorithm>
#include <cmath>

namespace nc::padding {
namespace {

// Whole numbers up to here are exact in every floating type, bfloat16 and float16 included.
constexpr double kExact = 256;

bool stored_exactly(double v, const Dtype& type) {
  if (std::isinf(v)) return true;
  if (type.name() == "float64") return true;
  if (type.name() == "float32") return static_cast<double>(static_cast<float>(v)) == v;
  return std::floor(v) == v && std::fabs(v) <= kExact;
}

State of_sign(double v) {
  if (!std::isfinite(v)) return State::anything();
  if (v > 0) return State::positive();
  return v == 0 ? State::non_negative() : State::finite();
}

}  // namespace

double to_double(Scalar s) {
  return std::visit([](auto v) { return static_cast<double>(v); }, s);
}

bool same_value(Scalar a, Scalar b) {
  const auto* ia = std::get_if<int64_t>(&a);
  const auto* ib = std::get_if<int64_t>(&b);
  if (ia != nullptr && ib != nullptr) return *ia == *ib;
  return to_double(a) == to_double(b);
}

bool State::is_finite() const {
  if (claim_ == Claim::kConstant) return std::isfinite(to_double(value_));
  return claim_ != Claim::kAnything;
}

bool State::is_positive() const {
  if (claim_ == Claim::kConstant) return is_finite() && to_double(value_) > 0;
  return claim_ == Claim::kPositive;
}

bool State::is_non_negative() const {
  if (claim_ == Claim::kConstant) return is_finite() && to_double(value_) >= 0;
  return claim_ == Claim::kPositive || claim_ == Claim::kNonNegative;
}

bool State::is_number() const {
  if (claim_ == Claim::kConstant) return !std::isnan(to_double(value_));
  return claim_ != Claim::kAnything;
}

State State::weakened() const {
  if (claim_ != Claim::kConstant) return *this;
  if (std::holds_alternative<bool>(value_)) return non_negative();
  return of_sign(to_double(value_));
}

State State::in(const Dtype& type) const {
  if (!type.is_inexact()) {
    if (claim_ == Claim::kAnything) return finite();
    if (claim_ == Claim::kConstant) {
      if (type.is_bool()) return constant(to_double(value_) != 0);
      if (const auto* d = std::get_if<double>(&value_)) {
        if (!std::isfinite(*d) || std::floor(*d) != *d || std::fabs(*d) > 9e15) return finite();
        return State(Claim::kConstant, static_cast<int64_t>(*d)).in(type);
      }
      const Scalar v = value_;
      const int64_t i = std::holds_alternative<bool>(v) ? static_cast<int64_t>(std::get<bool>(v))
                                                        : std::get<int64_t>(v);
      if (i < type.least() || i > type.greatest()) return finite();
      return constant(i);
    }
    return *this;
  }
  if (claim_ == Claim::kConstant) {
    const double v = to_double(value_);
    if (std::isnan(v)) return type.is_complex() ? anything() : constant(v);
    if (stored_exactly(v, type)) return constant(v);
    // Rounding keeps the sign, but may reach zero or infinity in a narrow type.
    const bool narrow = type.name() != "float64" && type.name() != "float32";
    const double size = std::fabs(v);
    const double most = type.name() == "float32" || type.name() == "bfloat16" ? 3e38
                        : narrow                                              ? 6e4
                                                                              : 1e308;
    const double least = type.name() == "float32" || type.name() == "bfloat16" ? 1e-37
                         : narrow                                              ? 1e-4
                                                                               : 1e-300;
    if (size > most) return anything();
    if (v > 0) return size < least ? non_negative() : positive();
    return finite();
  }
  if (type.is_complex() && claim_ != Claim::kAnything) return finite();
  return *this;
}

bool State::operator==(const State& other) const {
  return claim_ == other.claim_ &&
         (claim_ != Claim::kConstant || (same_value(value_, other.value_)));
}

State join(const State& a, const State& b) {
  if (a == b) return a;
  const State wa = a.weakened();
  const State wb = b.weakened();
  return wa.claim() > wb.claim() ? wa : wb;
}

State join(std::span<const State> states) {
  if (states.empty()) return State::zero();
  State all = states.front();
  for (const State& s : states.subspan(1)) all = join(all, s);
  return all;
}

State computed(double value) {
  if (std::isinf(value) || (std::floor(value) == value && std::fabs(value) <= kExact)) {
    return State::constant(value);
  }
  return of_sign(value);
}

}  // namespace nc::padding
