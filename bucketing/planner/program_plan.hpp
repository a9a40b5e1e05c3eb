// All families of a program planned together: each by itself, pairs jointly where that is cheaper,
// and fewer buckets all round until the artifacts that they may need are few enough. A pure
// function of its arguments.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bucketing/planner/epochs.hpp"
#include "bucketing/planner/planner.hpp"

namespace nc::buckets {

struct FamilyAsk {
  std::string family;
  Axis axis;
  History history;
  std::optional<FamilyPlan> in_force;  // stays unless a new one gains
  std::optional<FamilyPlan> fixed;     // not to be planned: this is it
};

struct JointAsk {
  std::string first, second;  // two of the families
  std::vector<PairHistogram::Cell> cells;
};

struct ProgramAsk {
  Sha256 program;
  std::vector<FamilyAsk> families;  // sorted by name, each once
  std::vector<JointAsk> joints;     // no family in two of them
  CostModel cost = CostModel::linear();
  Limits limits;
  std::uint64_t max_artifacts = 1024;
  Measured measured;
};

struct ProgramPlan {
  Plan plan;  // epoch 0
  bool waste_met = true;
};

ProgramPlan plan_program(const ProgramAsk& ask);

}  // namespace nc::buckets
