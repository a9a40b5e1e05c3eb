#include "bucketing/planner/line_envelope.hpp"

#include <cmath>
#include <compare>

namespace nc::buckets {
namespace {

__extension__ typedef unsigned __int128 UWide;  // NOLINT(modernize-use-using)

// |a| x in 192 bits: high 64, low 128.
struct Product {
  std::uint64_t high;
  UWide low;
  auto operator<=>(const Product&) const = default;  // NOLINT(modernize-use-nullptr): its own zero
};

Product product(UWide a, std::uint64_t x) {
  const UWide low = static_cast<UWide>(static_cast<std::uint64_t>(a)) * x;
  const UWide mid = static_cast<UWide>(static_cast<std::uint64_t>(a >> 64)) * x;
  const UWide sum = low + (mid << 64);
  return {static_cast<std::uint64_t>(mid >> 64) + (sum < low ? 1 : 0), sum};
}

UWide magnitude(Wide a) {
  return a < 0 ? -static_cast<UWide>(a) : static_cast<UWide>(a);
}

bool exactly_at_most(Wide a, std::uint64_t x, Wide b, std::uint64_t y) {
  const Product left = product(magnitude(a), x);
  const Product right = product(magnitude(b), y);
  if ((a < 0) != (b < 0)) {
    const bool both_zero = left == right && left == Product{0, 0};
    return a < 0 || both_zero;
  }
  return a < 0 ? left >= right : left <= right;
}

}  // namespace

bool product_at_most(Wide a, std::uint64_t x, Wide b, std::uint64_t y) {
  // Rounding is within a few 2^-53; only what is closer than that needs 192 bits.
  constexpr double kDoubt = 1e-14;
  const double left = static_cast<double>(a) * static_cast<double>(x);
  const double right = static_cast<double>(b) * static_cast<double>(y);
  const double doubt = kDoubt * (std::abs(left) + std::abs(right));
  if (left < right - doubt) return true;
  if (left > right + doubt) return false;
  return exactly_at_most(a, x, b, y);
}

}  // namespace nc::buckets
