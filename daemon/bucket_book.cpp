#include "daemon/bucket_book.hpp"

#include <algorithm>

#include "base/log.hpp"

namespace nc::daemon {
namespace {

constexpr Millis kDay = 24 * 3'600'000;
constexpr std::uint64_t kMostCompile = 1ULL << 50;  // of all builds of a program together

std::string key_of(const Sha256& program, std::uint32_t generation, const std::string& family) {
  return sizes_key(program, generation, family);
}
std::string key_of(const Sha256& program, std::uint32_t generation,
                   const std::pair<std::string, std::string>& families) {
  return pairs_key(program, generation, families.first, families.second);
}

}  // namespace

std::size_t BucketBook::Program::cells() const {
  std::size_t sum = 0;
  for (const auto& [name, histogram] : sizes) sum += histogram.cells();
  for (const auto& [names, histogram] : pairs) sum += 2 * histogram.cells();
  return sum;
}

const buckets::FamilyPlan* BucketBook::Program::in_force(const std::string& family) const {
  for (auto plan = epochs.rbegin(); plan != epochs.rend(); ++plan) {
    if (const auto* found = plan->second.find(family)) return found;
  }
  return nullptr;
}

std::uint32_t BucketBook::generation() const {
  return static_cast<std::uint32_t>(std::clamp<Millis>(clock_.wall_ms() / kDay, 0, UINT32_MAX));
}

void BucketBook::load(const RecordName& name, std::string_view value) {
  Program& program = programs_[name.program];
  bool good = true;
  switch (name.kind) {
    case 'h':
      if (const auto head = ProgramHead::decode(value)) {
        program.head = *head;
      } else {
        good = false;
      }
      break;
    case 'f':
      good = program.sizes[name.first].decode(value);
      break;
    case 'j':
      good = program.pairs[{name.first, name.second}].decode(value);
      break;
    case 'e':
      if (auto plan = buckets::Plan::parse(value); plan.ok() && plan->epoch == name.number) {
        program.epochs.emplace(name.number, *std::move(plan));
      } else {
        good = false;
      }
      break;
    case 'p':
      if (auto pin = Pin::decode(value)) {
        program.pins.emplace(name.pin, *std::move(pin));
        ++pins_;
      } else {
        good = false;
      }
      break;
    default:
      good = false;
  }
  if (!good) log::warn("buckets", "a record of program {} is damaged", name.program.hex());
}

Status BucketBook::restore() {
  NC_ASSIGN(const auto sizes, store_.records(kHistogramTable));
  NC_ASSIGN(const auto plans, store_.records(kPlanTable));
  MutexLock lock(mutex_);
  for (const auto* table : {&sizes, &plans}) {
    for (const auto& [key, value] : *table) {
      if (const auto name = read_name(key)) load(*name, value);
    }
  }
  for (const auto& [id, program] : programs_) cells_ += program.cells();
  forget_least_used({});
  return {};
}

template <std::size_t Dims, class Name>
void BucketBook::add(std::map<Name, buckets::Histogram<Dims>>& into, const Name& name,
                     std::size_t most,
                     std::span<const typename buckets::Histogram<Dims>::Cell> cells,
                     std::set<std::pair<Name, std::uint32_t>>& dirty, const Sha256& program) {
  auto at = into.find(name);
  if (at == into.end()) {
    if (into.size() >= most) return;
    at = into.try_emplace(name).first;
  }
  auto& histogram = at->second;
  const auto before = histogram.generations();
  const std::size_t had = histogram.cells();
  const std::uint32_t now = generation();
  histogram.add(now, cells);
  cells_ += Dims * histogram.cells();
  cells_ -= Dims * had;
  dirty.insert({name, now});
  const auto after = histogram.generations();
  for (const std::uint32_t one : before) {
    if (std::find(after.begin(), after.end(), one) != after.end()) continue;
    gone_sizes_.push_back({key_of(program, one, name), std::nullopt});
    dirty.erase({name, one});
  }
}

void BucketBook::observe(const Observation& seen) {
  MutexLock lock(mutex_);
  Program& program = programs_[seen.program];
  for (const auto& [family, sizes] : seen.families) {
    add<1>(program.sizes, family, kMaxFamilies, buckets::to_cells(sizes), program.dirty_sizes,
           seen.program);
  }
  for (const auto& [first, second, cells] : seen.pairs) {
    add<2>(program.pairs, Pair{first, second}, kMaxPairs, cells, program.dirty_pairs, seen.program);
  }
  program.head.seen_ms = clock_.wall_ms();
  if (!seen.label.empty()) program.head.label = seen.label;
  if (seen.compile_ms && program.head.compile_ms < kMostCompile) {
    program.head.compile_ms += *seen.compile_ms;
    ++program.head.builds;
  }
  program.head.add_calls(seen.calls, seen.calls_us);
  for (auto& [id, pin] : program.pins) {
    if (pin.job == seen.job) pin.used_ms = program.head.seen_ms;  // its job is alive
  }
  program.dirty_head = true;
  forget_least_used(seen.program);
}

void BucketBook::forget_least_used(const Sha256& keep) {
  while (programs_.size() > 1 && (programs_.size() > kMaxPrograms || cells_ > kMaxCells)) {
    auto victim = programs_.end();
    for (auto at = programs_.begin(); at != programs_.end(); ++at) {
      if (at->first == keep) continue;
      if (victim == programs_.end() || at->second.head.seen_ms < victim->second.head.seen_ms) {
        victim = at;
      }
    }
    forget(victim);
  }
}

void BucketBook::forget(Programs::iterator at) {
  const auto& [id, program] = *at;
  gone_sizes_.push_back({head_key(id), std::nullopt});
  for (const auto& [name, histogram] : program.sizes) {
    for (const auto one : histogram.generations()) {
      gone_sizes_.push_back({key_of(id, one, name), std::nullopt});
    }
  }
  for (const auto& [names, histogram] : program.pairs) {
    for (const auto one : histogram.generations()) {
      gone_sizes_.push_back({key_of(id, one, names), std::nullopt});
    }
  }
  for (const auto& [epoch, plan] : program.epochs) {
    gone_plans_.push_back({epoch_key(id, epoch), std::nullopt});
  }
  for (const auto& [pin, answer] : program.pins) {
    gone_plans_.push_back({pin_key(id, pin), std::nullopt});
  }
  cells_ -= program.cells();
  pins_ -= program.pins.size();
  programs_.erase(at);
}

void BucketBook::take_dirty(const Sha256& id, Program& program, Changes& changes) {
  if (std::exchange(program.dirty_head, false)) {
    changes.push_back({head_key(id), program.head.encode()});
  }
  for (const auto& [name, generation] : std::exchange(program.dirty_sizes, {})) {
    changes.push_back({key_of(id, generation, name), program.sizes[name].encode(generation)});
  }
  for (const auto& [names, generation] : std::exchange(program.dirty_pairs, {})) {
    changes.push_back({key_of(id, generation, names), program.pairs[names].encode(generation)});
  }
}

Status BucketBook::write() {
  Changes sizes;
  Changes plans;
  {
    MutexLock lock(mutex_);
    // What is gone first: the same key may have come again since.
    sizes = std::exchange(gone_sizes_, {});
    plans = std::exchange(gone_plans_, {});
    for (auto& [id, program] : programs_) take_dirty(id, program, sizes);
  }
  Status written;
  if (!sizes.empty()) written = store_.change_records(kHistogramTable, sizes);
  if (written.ok() && !plans.empty()) written = store_.change_records(kPlanTable, plans);
  if (written.ok()) return written;
  // Everything is tried again, from what is known then.
  MutexLock lock(mutex_);
  for (Changes* changes : {&sizes, &plans}) {
    for (Store::RecordChange& change : *changes) {
      const auto name = read_name(change.key);
      const auto at = name ? programs_.find(name->program) : programs_.end();
      if (!change.value) {
        (changes == &sizes ? gone_sizes_ : gone_plans_).push_back(std::move(change));
      } else if (at != programs_.end()) {
        const auto generation = static_cast<std::uint32_t>(name->number);
        Program& program = at->second;
        if (name->kind == 'h') program.dirty_head = true;
        if (name->kind == 'f') program.dirty_sizes.insert({name->first, generation});
        if (name->kind == 'j') {
          program.dirty_pairs.insert({Pair{name->first, name->second}, generation});
        }
      }
    }
  }
  return written;
}

std::vector<ProgramView> BucketBook::programs(const std::optional<Sha256>& only) {
  std::vector<ProgramView> out;
  MutexLock lock(mutex_);
  for (const auto& [id, program] : programs_) {
    if (only && *only != id) continue;
    ProgramView view;
    view.program = id;
    view.head = program.head;
    if (!program.epochs.empty()) view.plan = program.epochs.rbegin()->second;
    std::set<std::string> jobs;
    for (const auto& [pin, answer] : program.pins) jobs.insert(answer.job);
    view.jobs = jobs.size();
    std::set<std::string> names;
    for (const auto& [name, histogram] : program.sizes) names.insert(name);
    for (const auto& [epoch, plan] : program.epochs) {
      for (const auto& family : plan.families) names.insert(family.family);
    }
    for (const std::string& name : names) {
      ProgramView::Family& family = view.families.emplace_back();
      family.name = name;
      if (const auto* plan = program.in_force(name)) family.plan = *plan;
      const auto histogram = program.sizes.find(name);
      if (histogram == program.sizes.end()) continue;
      const auto sizes = buckets::to_counts(histogram->second.weighted());
      family.calls = histogram->second.calls();
      family.distinct = sizes.size();
      family.smallest = histogram->second.smallest()[0];
      family.largest = histogram->second.largest()[0];
      if (!family.plan) continue;
      family.waste =
          buckets::padding_cost(*family.plan, sizes, buckets::CostModel::linear()).waste();
    }
    out.push_back(std::move(view));
  }
  std::stable_sort(out.begin(), out.end(), [](const ProgramView& a, const ProgramView& b) {
    return a.head.seen_ms > b.head.seen_ms;
  });
  return out;
}

}  // namespace nc::daemon
