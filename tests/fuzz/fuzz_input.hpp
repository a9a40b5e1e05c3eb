// What every fuzz target needs: the input as bytes, and a check that also holds in release builds.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "base/bytes.hpp"

namespace nc {

inline Bytes fuzz_bytes(const std::uint8_t* data, std::size_t size) {
  return std::as_bytes(std::span(data, size));
}

inline void fuzz_require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

}  // namespace nc

#define FUZZ_REQUIRE(condition) nc::fuzz_require((condition), #condition)
