// What was seen of each program's sizes, and the plans made of it. In memory, written to the store
// every second; a pinned plan is written before it is answered. Thread-safe. plan() and write()
// wait for the disk, observe() does not.
//
// Bounds: kMaxPrograms and kMaxCells in all (the least recently seen programs go), kMaxFamilies and
// kMaxPairs of a program (further ones are not counted), kMaxPins in all (the least recently used
// go), the last kMaxEpochs plans of a program.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/thread_annotations.hpp"
#include "bucketing/planner/program_plan.hpp"
#include "cache/store.hpp"
#include "daemon/bucket_records.hpp"

namespace nc::daemon {

struct SeenPairs {
  std::string first, second;
  std::vector<buckets::PairHistogram::Cell> cells;
};

struct Observation {
  Sha256 program;
  std::string job, label;
  std::vector<std::pair<std::string, buckets::SizeCounts>> families;
  std::vector<SeenPairs> pairs;  // first < second
  std::optional<std::uint64_t> compile_ms;
  std::uint64_t calls = 0, calls_us = 0;  // timed calls, and what they took together
};

struct PlanRequest {
  struct Family {
    std::string name;
    buckets::Axis axis;
    buckets::SizeCounts seen;
  };
  Sha256 program;
  std::string job;
  std::vector<Family> families;                             // sorted by name, each once
  std::vector<std::pair<std::string, std::string>> joints;  // first < second
  buckets::CostModel cost = buckets::CostModel::linear();
  buckets::Limits limits;
  std::uint64_t max_artifacts = 1024;
  std::uint64_t after = 0;
};

// A program as it is shown to people.
struct ProgramView {
  struct Family {
    std::string name;
    std::uint64_t calls = 0, distinct = 0;
    buckets::Size smallest = 0, largest = 0;
    std::optional<buckets::FamilyPlan> plan;
    std::optional<double> waste;  // linear, of the plan over the history
  };
  Sha256 program;
  ProgramHead head;
  std::optional<buckets::Plan> plan;  // the newest
  std::uint64_t jobs = 0;             // with a pinned plan
  std::vector<Family> families;
};

class BucketBook {
 public:
  static constexpr std::size_t kMaxPrograms = 1024;
  static constexpr std::size_t kMaxCells = 400'000;
  static constexpr std::size_t kMaxFamilies = buckets::Plan::kMaxFamilies;
  static constexpr std::size_t kMaxPairs = 16;
  static constexpr std::size_t kMaxPins = 4096;
  static constexpr std::size_t kMaxEpochs = 16;

  BucketBook(Store& store, Clock& clock) : store_(store), clock_(clock) {}

  Status restore() NC_EXCLUDES(mutex_);
  void observe(const Observation& seen) NC_EXCLUDES(mutex_);
  // The answer that is pinned for the job, made and pinned when there is none.
  Pin plan(const PlanRequest& request) NC_EXCLUDES(mutex_, planning_);
  Status write() NC_EXCLUDES(mutex_);
  // The most recently seen first; with a program only that one.
  std::vector<ProgramView> programs(const std::optional<Sha256>& only) NC_EXCLUDES(mutex_);

 private:
  using Pair = std::pair<std::string, std::string>;
  struct Program {
    ProgramHead head;
    std::map<std::string, buckets::SizeHistogram> sizes;
    std::map<Pair, buckets::PairHistogram> pairs;
    std::map<std::uint64_t, buckets::Plan> epochs;
    std::map<Sha256, Pin> pins;
    bool dirty_head = false;
    std::set<std::pair<std::string, std::uint32_t>> dirty_sizes;
    std::set<std::pair<Pair, std::uint32_t>> dirty_pairs;

    std::size_t cells() const;
    // The newest plan of a family.
    const buckets::FamilyPlan* in_force(const std::string& family) const;
  };
  using Programs = std::map<Sha256, Program>;
  using Changes = std::vector<Store::RecordChange>;

  // bucket_book.cpp
  void load(const RecordName& name, std::string_view value) NC_REQUIRES(mutex_);
  template <std::size_t Dims, class Name>
  void add(std::map<Name, buckets::Histogram<Dims>>& into, const Name& name, std::size_t most,
           std::span<const typename buckets::Histogram<Dims>::Cell> cells,
           std::set<std::pair<Name, std::uint32_t>>& dirty, const Sha256& program)
      NC_REQUIRES(mutex_);
  void forget_least_used(const Sha256& keep) NC_REQUIRES(mutex_);
  void forget(Programs::iterator at) NC_REQUIRES(mutex_);
  void take_dirty(const Sha256& id, Program& program, Changes& changes) NC_REQUIRES(mutex_);
  std::uint32_t generation() const;

  // bucket_plans.cpp
  buckets::ProgramAsk ask_of(const PlanRequest& request) NC_REQUIRES(mutex_);
  Pin pin_of(const PlanRequest& request, const buckets::ProgramAsk& ask, buckets::ProgramPlan made)
      NC_REQUIRES(mutex_);
  void bound_pins(const Sha256& keep, Changes& changes) NC_REQUIRES(mutex_);

  Store& store_;
  Clock& clock_;
  Mutex planning_;  // one plan is made at a time; before mutex_
  Mutex mutex_;
  Programs programs_ NC_GUARDED_BY(mutex_);
  std::size_t cells_ NC_GUARDED_BY(mutex_) = 0;
  std::size_t pins_ NC_GUARDED_BY(mutex_) = 0;
  Changes gone_sizes_ NC_GUARDED_BY(mutex_);  // records to be erased with the next write
  Changes gone_plans_ NC_GUARDED_BY(mutex_);
};

}  // namespace nc::daemon
