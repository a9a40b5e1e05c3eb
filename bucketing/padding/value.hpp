// What the analysis knows of one value of the plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bucketing/padding/checked.hpp"
#include "bucketing/padding/dtype.hpp"
#include "bucketing/padding/expr.hpp"
#include "bucketing/padding/state.hpp"

namespace nc::padding {

// Part of a dimension, see docs/padding.md. `state` says what its padding holds, when it has any.
struct Factor {
  Expr size;
  bool padded = false;
  State state = State::finite();
};
// Outermost first. Canonical: no factor of size 1, no two fixed ones side by side, no fixed one
// right after a padded one (both are one prefix).
using Dim = Checked<Factor>;
using Layout = Checked<Dim>;

// One factor of a layout.
struct Place {
  size_t dim = 0;
  size_t factor = 0;
  auto operator<=>(const Place&) const = default;  // NOLINT(modernize-use-nullptr): its own zero
};

// How a value came to be, where a later operation needs to know.
struct Origin {
  enum class Kind : uint8_t {
    kMaximum,      // amax(of) over `places`, dimensions kept
    kNonPositive,  // of - amax(of) over `places`
    kIota,         // 0, 1, 2, ... along its one dimension, true coordinates
  };
  Kind kind;
  int64_t of = 0;
  std::vector<Place> places;
};

struct Value {
  int64_t id = 0;  // >= 0: an input or a node's result; < 0: truth number -1 - id
  Layout dims;
  Dtype dtype;
  State data = State::finite();  // of the true part
  std::optional<Scalar>
      uniform;  // every element, padding included, is this; then the factors are free
  std::shared_ptr<const Origin> origin;

  size_t rank() const { return dims.size(); }
  bool padded() const;
  bool padded(size_t dim) const;
  std::vector<Place> places() const;            // all padded factors
  std::vector<Place> places(size_t dim) const;  // those of one dimension
  // What any element may be, true part and padding.
  State any() const;
  // The same but for the elements that only the padding of `dim` holds.
  State outside(size_t dim) const;
  State at(Place place) const;
};

}  // namespace nc::padding
