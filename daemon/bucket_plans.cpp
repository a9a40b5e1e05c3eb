// How an answer about buckets is made and pinned.
#include <utility>

#include "base/log.hpp"
#include "daemon/bucket_book.hpp"

namespace nc::daemon {
namespace {

std::vector<std::string> names_of(const PlanRequest& request) {
  std::vector<std::string> names;
  for (const PlanRequest::Family& family : request.families) names.push_back(family.name);
  return names;
}

}  // namespace

buckets::ProgramAsk BucketBook::ask_of(const PlanRequest& request) {
  const Program& program = programs_[request.program];
  buckets::ProgramAsk ask;
  ask.program = request.program;
  ask.cost = request.cost;
  ask.limits = request.limits;
  ask.max_artifacts = request.max_artifacts;
  ask.measured = {program.head.usual_compile_ms(), program.head.usual_call_us()};
  const auto now_used = program.epochs.find(request.after);
  for (const PlanRequest::Family& wanted : request.families) {
    buckets::FamilyAsk family;
    family.family = wanted.name;
    family.axis = wanted.axis;
    buckets::SizeHistogram histogram;
    if (const auto known = program.sizes.find(wanted.name); known != program.sizes.end()) {
      histogram = known->second;
    }
    histogram.add(generation(), buckets::to_cells(wanted.seen));
    family.history = buckets::History::of(histogram);
    const buckets::FamilyPlan* in_force = program.in_force(wanted.name);
    if (now_used != program.epochs.end()) {
      if (const auto* own = now_used->second.find(wanted.name)) in_force = own;
    }
    if (in_force != nullptr) family.in_force = *in_force;
    // The job may have asked for this family in another set.
    for (const auto& [id, pin] : program.pins) {
      if (pin.job != request.job || pin.after != request.after) continue;
      if (const auto* pinned = pin.plan.find(wanted.name)) family.fixed = *pinned;
    }
    ask.families.push_back(std::move(family));
  }
  for (const auto& [first, second] : request.joints) {
    const auto pairs = program.pairs.find({first, second});
    if (pairs != program.pairs.end()) {
      ask.joints.push_back({first, second, pairs->second.weighted()});
    }
  }
  return ask;
}

// Gives the plan its epoch: that of an equal plan, else the next one.
Pin BucketBook::pin_of(const PlanRequest& request, const buckets::ProgramAsk& ask,
                       buckets::ProgramPlan made) {
  Program& program = programs_[request.program];
  Pin pin;
  pin.job = request.job;
  pin.after = request.after;
  pin.used_ms = clock_.wall_ms();
  pin.waste_met = made.waste_met;
  pin.plan = std::move(made.plan);
  pin.plan.epoch = program.epochs.empty() ? 1 : program.epochs.rbegin()->first + 1;
  for (const auto& [epoch, plan] : program.epochs) {
    buckets::Plan renumbered = pin.plan;
    renumbered.epoch = epoch;
    if (renumbered == plan) pin.plan.epoch = epoch;
  }
  for (std::size_t i = 0; i < ask.families.size(); ++i) {
    const auto& sizes = ask.families[i].history.sizes;
    pin.waste.push_back(buckets::padding_cost(pin.plan.families[i], sizes, ask.cost).waste());
  }
  return pin;
}

void BucketBook::bound_pins(const Sha256& keep, Changes& changes) {
  while (pins_ > kMaxPins) {
    Program* owner = nullptr;
    Sha256 owner_id;
    std::map<Sha256, Pin>::iterator oldest;
    for (auto& [id, program] : programs_) {
      for (auto at = program.pins.begin(); at != program.pins.end(); ++at) {
        if (at->first == keep) continue;
        if (owner != nullptr && at->second.used_ms >= oldest->second.used_ms) continue;
        owner = &program;
        owner_id = id;
        oldest = at;
      }
    }
    if (owner == nullptr) return;
    changes.push_back({pin_key(owner_id, oldest->first), std::nullopt});
    owner->pins.erase(oldest);
    --pins_;
  }
}

Pin BucketBook::plan(const PlanRequest& request) {
  const Sha256 id = pin_id(request.job, request.after, names_of(request));
  MutexLock one_at_a_time(planning_);
  buckets::ProgramAsk ask;
  {
    MutexLock lock(mutex_);
    Program& program = programs_[request.program];
    program.head.seen_ms = clock_.wall_ms();
    program.dirty_head = true;
    if (const auto known = program.pins.find(id); known != program.pins.end()) {
      known->second.used_ms = clock_.wall_ms();
      return known->second;
    }
    ask = ask_of(request);
  }
  buckets::ProgramPlan made = buckets::plan_program(ask);
  Pin pin;
  Changes changes;
  {
    MutexLock lock(mutex_);
    changes = std::exchange(gone_plans_, {});  // first: the same keys may come again
    pin = pin_of(request, ask, std::move(made));
    Program& program = programs_[request.program];
    if (program.epochs.emplace(pin.plan.epoch, pin.plan).second) {
      changes.push_back({epoch_key(request.program, pin.plan.epoch), pin.plan.text()});
    }
    while (program.epochs.size() > kMaxEpochs) {
      changes.push_back({epoch_key(request.program, program.epochs.begin()->first), std::nullopt});
      program.epochs.erase(program.epochs.begin());
    }
    changes.push_back({pin_key(request.program, id), pin.encode()});
    program.pins[id] = pin;
    ++pins_;
    bound_pins(id, changes);
    forget_least_used(request.program);
  }
  const Status kept = store_.change_records(kPlanTable, std::move(changes));
  if (!kept.ok() && !kept.is(Code::kReadOnly)) {
    log::warn("buckets", "a plan is kept in memory only: {}", kept.error().text());
  }
  return pin;
}

}  // namespace nc::daemon
