// Rules that a request declares for operators from outside of torch: docs/padding.md, "Declared
// rules". The engine believes them; what follows from them is proved like everything else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/json/fwd.hpp>

#include "base/result.hpp"

namespace nc::padding {

// What a result holds where all that it depends on is finite.
enum class Gives : uint8_t { kAny, kFinite, kNonNegative, kPositive, kZero };
// What the padding of an argument has to hold.
enum class Needs : uint8_t { kAny, kFinite, kZero };

struct Declared {
  // One dimension of one argument; negative dimensions count from the last.
  struct Axis {
    size_t input = 0;
    int64_t dim = 0;
  };
  struct Output {
    std::vector<std::vector<Axis>> follows;  // per dimension; empty: it follows nothing
    Gives gives = Gives::kAny;
  };
  bool pointwise = false;
  Gives gives = Gives::kAny;                   // pointwise
  std::vector<std::optional<Output>> outputs;  // along; absent: no tensor
  std::map<size_t, Needs> needs;               // along; finite when left out
  std::vector<Axis> sums;                      // along
};

// By operator, "mylib.swish.default".
using DeclaredRules = std::map<std::string, Declared, std::less<>>;

// Errors: kInvalid.
Result<DeclaredRules> read_declared(const boost::json::value& v);

}  // namespace nc::padding
