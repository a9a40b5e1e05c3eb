#include "bucketing/planner/planner.hpp"

#include <algorithm>
#include <set>

#include "bucketing/planner/optimum.hpp"

namespace nc::buckets {
namespace {

constexpr std::uint64_t kMillion = 1'000'000;
constexpr Wide kGain = 100;          // a new plan has to gain more than 1 / kGain
constexpr Wide kResidentShare = 50;  // an artifact that exists costs this part of a new one
constexpr std::uint64_t kPriorCalls =
    50;  // spread evenly over the ladder, at most a fiftieth of all
constexpr std::uint64_t kPriorShare = 50;

// Sizes that say something about cost: 0 and what is over the axis run as they are.
SizeCounts countable(const SizeCounts& sizes, const Axis& axis) {
  SizeCounts out;
  for (const SizeCount& one : sizes) {
    if (one.size > 0 && axis.up(one.size)) out.push_back(one);
  }
  return out;
}

// Pseudo-calls that keep a short history from putting all buckets where it happened to look.
void add_prior(SizeCounts& sizes, const Axis& axis) {
  const auto points = Ladder{*axis.up(1), 5, 4, axis.tile, axis.max}.up_to(sizes.back().size);
  const std::uint64_t calls =
      std::min(kPriorCalls * SizeHistogram::kUnit, total(sizes) / kPriorShare);
  const Size top = *axis.up(sizes.back().size);
  for (const Size point : points) {
    if (point <= top) sizes.push_back({point, calls / points.size()});
  }
  normalise(sizes);
}

std::vector<Candidate> candidates_of(const SizeCounts& sizes, const Axis& axis,
                                     const CostModel& cost, const std::set<Size>& resident) {
  SizeCounts ends;
  for (const SizeCount& one : sizes) ends.push_back({*axis.up(one.size), one.count});
  normalise(ends);
  std::vector<Candidate> out;
  out.reserve(ends.size() + resident.size());
  auto built = resident.begin();
  for (const SizeCount& end : ends) {
    for (; built != resident.end() && *built < end.size; ++built) {
      if (axis.has(*built)) out.push_back({*built, true, 0, cost.at(*built)});
    }
    const bool exists = built != resident.end() && *built == end.size;
    if (exists) ++built;
    out.push_back({end.size, exists, end.count, cost.at(end.size)});
  }
  return out;
}

// The buckets of `plan` that the history has led to: their artifacts exist.
std::set<Size> used_buckets(const FamilyPlan* plan, const SizeCounts& sizes) {
  std::set<Size> used;
  if (plan == nullptr) return used;
  for (const SizeCount& one : sizes) {
    if (const auto bucket = plan->bucket(one.size)) used.insert(*bucket);
  }
  return used;
}

// The most that padded calls may cost.
std::optional<Wide> most_cost(const SizeCounts& sizes, const CostModel& cost,
                              const Limits& limits) {
  if (!limits.max_waste_ppm) return std::nullopt;
  Wide unpadded = 0;
  for (const SizeCount& one : sizes) unpadded += static_cast<Wide>(cost.at(one.size)) * one.count;
  return unpadded + unpadded / kMillion * std::min(*limits.max_waste_ppm, kMaxWastePpm);
}

Choice choose(std::span<const Candidate> candidates, const Prices& prices, const Limits& limits,
              std::optional<Wide> most) {
  Choice choice = best_at_most(candidates, prices, limits.max_buckets);
  if (!most || choice.cost <= *most) return choice;
  const BestByCount by_count(candidates, prices, limits.max_buckets);
  for (auto k = static_cast<std::uint32_t>(choice.picks.size()) + 1; k <= by_count.most(); ++k) {
    choice = by_count.choice(k);
    if (choice.cost <= *most) return choice;
  }
  return best_at_most(candidates, {}, limits.max_buckets);  // the least waste, whatever it costs
}

// May `plan` go on under these limits?
bool allowed(const FamilyPlan& plan, const Axis& axis, const Limits& limits) {
  return plan.varies && plan.axis == axis && !plan.buckets.empty() &&
         plan.buckets.size() <= limits.max_buckets;
}

// Nothing is known: the ladder alone, or the finest one whose points up to max are few enough.
FamilyPlan unlearned(FamilyPlan plan, const Limits& limits) {
  if (limits.max_buckets < 16) plan.num = 2, plan.den = 1;
  if (plan.axis.max == 0) return plan;
  constexpr std::pair<Size, Size> kRatios[] = {{5, 4}, {4, 3}, {3, 2},  {2, 1},  {3, 1},
                                               {4, 1}, {8, 1}, {16, 1}, {64, 1}, {1024, 1}};
  for (const auto& [num, den] : kRatios) {
    plan.buckets =
        Ladder{*plan.axis.up(1), num, den, plan.axis.tile, plan.axis.max}.up_to(plan.axis.max);
    if (plan.buckets.size() <= limits.max_buckets) return plan;
  }
  plan.buckets = {plan.axis.max};
  return plan;
}

}  // namespace

History History::of(const SizeHistogram& histogram) {
  return {to_counts(histogram.weighted()), histogram.smallest()[0], histogram.largest()[0],
          histogram.empty()};
}

Wide build_price(const CostModel& cost, Wide unpadded, Wide calls, const Measured& measured) {
  constexpr std::uint64_t kMinute = 60'000;
  constexpr std::uint64_t kLongest = 7 * 24 * 60 * kMinute;
  constexpr std::uint64_t kLongestCall = 1ULL << 40;
  const std::uint64_t compile_ms =
      std::min(measured.compile_ms == 0 ? kMinute : measured.compile_ms, kLongest);
  const Wide tenth = static_cast<Wide>(compile_ms) * 1000 / 10 * SizeHistogram::kUnit;
  Wide price = 0;
  if (cost.is_time()) {
    price = tenth;
  } else if (measured.call_us > 0 && calls > 0) {
    // unpadded / (calls * call_us) units are a microsecond; in doubles, as products can be large.
    const double each = static_cast<double>(std::min(measured.call_us, kLongestCall));
    const double units = static_cast<double>(unpadded) / (static_cast<double>(calls) * each);
    price = static_cast<Wide>(
        std::min(static_cast<double>(tenth) * units, static_cast<double>(unpadded)));
  } else {
    const std::uint64_t sixteenths = std::clamp<std::uint64_t>(compile_ms * 16 / kMinute, 1, 256);
    price = unpadded / 16'000 * static_cast<Wide>(sixteenths);
  }
  return std::min(price, unpadded / 64);
}

PaddingCost padding_cost(const FamilyPlan& plan, const SizeCounts& sizes, const CostModel& cost) {
  PaddingCost sum;
  for (const SizeCount& one : sizes) {
    const auto bucket = plan.bucket(one.size);
    if (one.size == 0 || !bucket) continue;
    sum.unpadded += static_cast<Wide>(cost.at(one.size)) * one.count;
    sum.padded += static_cast<Wide>(cost.at(*bucket)) * one.count;
  }
  return sum;
}

std::optional<double> PaddingCost::waste() const {
  if (unpadded <= 0) return std::nullopt;
  return static_cast<double>(padded - unpadded) / static_cast<double>(unpadded);
}

Planned plan_family(const std::string& family, const History& history, const Axis& axis,
                    const CostModel& cost, const Limits& limits, const Measured& measured,
                    const FamilyPlan* in_force) {
  Planned out;
  out.plan.family = family;
  out.plan.axis = axis;
  out.plan.varies = !history.empty && history.smallest != history.largest;
  SizeCounts sizes = countable(history.sizes, axis);
  if (sizes.empty()) {
    out.plan = unlearned(std::move(out.plan), limits);
    return out;
  }
  if (!out.plan.varies) {
    out.plan.buckets = {history.largest};
    return out;
  }
  const auto used = used_buckets(in_force, sizes);
  const auto most = most_cost(sizes, cost, limits);
  SizeCounts spread = sizes;
  add_prior(spread, axis);
  const auto candidates = candidates_of(spread, axis, cost, used);
  Wide unpadded = 0;
  for (const SizeCount& one : sizes) unpadded += static_cast<Wide>(cost.at(one.size)) * one.count;
  const Wide fresh = build_price(cost, unpadded, static_cast<Wide>(total(sizes)), measured);
  const Prices prices{fresh, fresh / kResidentShare};
  const Choice choice = choose(candidates, prices, limits, most);
  Wide price = 0;
  for (const std::uint32_t pick : choice.picks) {
    out.plan.buckets.push_back(candidates[pick].end);
    price += prices.of(candidates[pick]);
  }
  const PaddingCost now = padding_cost(out.plan, sizes, cost);
  out.waste_met = !most || now.padded <= *most;
  if (in_force == nullptr || !allowed(*in_force, axis, limits)) return out;
  const PaddingCost before = padding_cost(*in_force, sizes, cost);
  if (out.waste_met && most && before.padded > *most) return out;
  const Wide before_price = prices.resident * static_cast<Wide>(used.size());
  const Wide gain = before.padded + before_price - now.padded - price;
  if (gain * kGain >= before.padded + before_price && gain > 0) return out;
  out.plan = *in_force;
  out.waste_met = !most || before.padded <= *most;
  out.kept = true;
  return out;
}

}  // namespace nc::buckets
