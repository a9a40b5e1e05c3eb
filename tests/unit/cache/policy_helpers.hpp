// Small things the tests of the cache's policies share.
#pragma once

#include <cstdint>
#include <string>

#include "base/hash.hpp"

namespace nc::test {

inline ActionKey key_of(std::uint64_t i) {
  std::string text;
  put_u64(text, i);
  return Sha256::of(as_bytes(text));
}

// Deterministic everywhere, unlike the distributions of <random>.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed) {}
  std::uint64_t below(std::uint64_t n) {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return (state_ >> 33) % n;
  }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  template <class T, std::size_t N>
  const T& pick(const T (&from)[N]) {
    return from[below(N)];
  }

 private:
  std::uint64_t state_;
};

}  // namespace nc::test
