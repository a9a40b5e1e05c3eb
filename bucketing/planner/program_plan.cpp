#include "bucketing/planner/program_plan.hpp"

#include <algorithm>
#include <set>

#include "bucketing/planner/optimum.hpp"

namespace nc::buckets {
namespace {

using Cell = PairHistogram::Cell;

constexpr std::uint32_t kSides = 32;  // of a rectangle, per dimension: bounds the greedy search

// The ends that rectangles may have in one dimension: those of the best kSides buckets for it
// alone.
std::vector<Size> sides(const std::vector<Cell>& cells, std::size_t dim, const Axis& axis) {
  SizeCounts ends;
  for (const Cell& cell : cells) ends.push_back({*axis.up(cell.key[dim]), cell.count});
  normalise(ends);
  std::vector<Candidate> candidates;
  for (const SizeCount& end : ends) candidates.push_back({end.size, false, end.count, end.size});
  std::vector<Size> out;
  for (const std::uint32_t pick : best_at_most(candidates, {}, kSides).picks) {
    out.push_back(candidates[pick].end);
  }
  return out;
}

Size side_of(const std::vector<Size>& sides, Size size) {
  return *std::lower_bound(sides.begin(), sides.end(), size);
}

// What the calls and the artifacts cost when each family goes its own way.
Wide grid_cost(const std::vector<Cell>& cells, const FamilyPlan& first, const FamilyPlan& second,
               Wide price) {
  std::set<Pair> used;
  Wide sum = 0;
  for (const Cell& cell : cells) {
    const auto a = first.bucket(cell.key[0]);
    const auto b = second.bucket(cell.key[1]);
    if (!a || !b) continue;
    used.insert({*a, *b});
    sum += static_cast<Wide>(*a) * *b * static_cast<Wide>(cell.count);
  }
  return sum + price * static_cast<Wide>(used.size());
}

// The rectangles for two families; empty when their own buckets are no dearer.
Rectangles better_together(const JointAsk& ask, const FamilyPlan& first, const FamilyPlan& second,
                           const ProgramAsk& program) {
  std::vector<Cell> cells;
  Wide elements = 0, calls = 0;
  for (const Cell& cell : ask.cells) {
    const auto [a, b] = cell.key;
    if (a == 0 || b == 0 || !first.axis.up(a) || !second.axis.up(b)) continue;
    cells.push_back(cell);
    elements += static_cast<Wide>(a) * b * static_cast<Wide>(cell.count);
    calls += static_cast<Wide>(cell.count);
  }
  if (cells.empty() || !first.varies || !second.varies) return {};
  const auto first_sides = sides(cells, 0, first.axis);
  const auto second_sides = sides(cells, 1, second.axis);
  std::vector<Cell> rounded = cells;
  for (Cell& cell : rounded) {
    cell.key = {side_of(first_sides, cell.key[0]), side_of(second_sides, cell.key[1])};
  }
  std::sort(rounded.begin(), rounded.end());
  const Wide price = build_price(CostModel::linear(), elements, calls, program.measured);
  const std::size_t most = std::min<std::uint64_t>(
      {first.buckets.size() * second.buckets.size(), program.max_artifacts, Plan::kMaxRectangles});
  Rectangles rectangles = plan_joint(rounded, first_sides, second_sides, price, most);
  if (joint_cost(rectangles, cells, price) >= grid_cost(cells, first, second, price)) return {};
  return rectangles;
}

class Planning {
 public:
  explicit Planning(const ProgramAsk& ask) : ask_(ask), most_(ask.families.size()) {}

  ProgramPlan run() {
    out_.plan.program = ask_.program;
    for (std::size_t i = 0; i < ask_.families.size(); ++i) {
      most_[i] = ask_.limits.max_buckets;
      out_.plan.families.emplace_back();
      plan(i);
    }
    for (;;) {
      add_joints();
      if (out_.plan.artifacts() <= ask_.max_artifacts || !take_one_away()) break;
    }
    return std::move(out_);
  }

 private:
  void plan(std::size_t i) {
    const FamilyAsk& family = ask_.families[i];
    if (family.fixed) {
      out_.plan.families[i] = *family.fixed;
      return;
    }
    Limits limits = ask_.limits;
    limits.max_buckets = most_[i];
    Planned planned = plan_family(family.family, family.history, family.axis, ask_.cost, limits,
                                  ask_.measured, family.in_force ? &*family.in_force : nullptr);
    out_.plan.families[i] = std::move(planned.plan);
    if (!planned.waste_met) out_.waste_met = false;
  }

  // The family with the most buckets gets one less.
  bool take_one_away() {
    std::optional<std::size_t> largest;
    for (std::size_t i = 0; i < ask_.families.size(); ++i) {
      const std::size_t count = out_.plan.families[i].buckets.size();
      if (ask_.families[i].fixed || count < 2) continue;
      if (!largest || count > out_.plan.families[*largest].buckets.size()) largest = i;
    }
    if (!largest) return false;
    most_[*largest] = static_cast<std::uint32_t>(out_.plan.families[*largest].buckets.size()) - 1;
    plan(*largest);
    return true;
  }

  void add_joints() {
    out_.plan.joints.clear();
    for (const JointAsk& joint : ask_.joints) {
      const auto first = place(joint.first);
      const auto second = place(joint.second);
      if (!first || !second || *first == *second) continue;
      if (ask_.families[*first].fixed || ask_.families[*second].fixed) continue;
      auto& families = out_.plan.families;
      Rectangles rectangles = better_together(joint, families[*first], families[*second], ask_);
      if (rectangles.empty()) continue;
      if (*first > *second) {  // the lower place comes first
        for (Pair& pair : rectangles) std::swap(pair[0], pair[1]);
        sort_rectangles(rectangles);
      }
      out_.plan.joints.push_back(
          {std::min(*first, *second), std::max(*first, *second), std::move(rectangles)});
    }
    std::sort(out_.plan.joints.begin(), out_.plan.joints.end(),
              [](const JointPlan& a, const JointPlan& b) { return a.first < b.first; });
  }

  std::optional<std::uint32_t> place(const std::string& name) const {
    for (std::uint32_t i = 0; i < ask_.families.size(); ++i) {
      if (ask_.families[i].family == name) return i;
    }
    return std::nullopt;
  }

  const ProgramAsk& ask_;
  std::vector<std::uint32_t> most_;
  ProgramPlan out_;
};

}  // namespace

ProgramPlan plan_program(const ProgramAsk& ask) {
  return Planning(ask).run();
}

}  // namespace nc::buckets
