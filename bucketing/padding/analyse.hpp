// One graph through the rules.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bucketing/padding/pass.hpp"
#include "bucketing/padding/rule.hpp"

namespace nc::padding {

// What is known of an input before the graph runs.
struct Arrival {
  Value value;        // its layout
  bool kept = false;  // comes padded from the forward graph
};

struct Analysed {
  std::vector<std::optional<Arrival>> inputs;  // absent for symbols
  std::vector<std::optional<Value>> values;    // by the graph's value numbers
};

// A refusal with the node that caused it.
struct RefusedNode {
  int64_t node = -1;
  std::string op;
  std::string reason;
};

// Runs all nodes; throws RefusedNode, NeedEqual.
Analysed analyse(Pass& pass, std::vector<std::optional<Arrival>> inputs);

// The layout of an input that arrives with its true sizes.
Value arriving(Pass& pass, int64_t id, const TensorType& type, const State& state);

}  // namespace nc::padding
