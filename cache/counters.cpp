#include "cache/counters.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

namespace nc {
namespace {

using C = CounterClass;
using U = CounterUnit;

constexpr std::array kTable{
    CounterSpec{Counter::kLookups, "lookups", C::kDerived, U::kCount,
                "look-ups that ended: hits + waits + builds + failures + bypasses"},
    CounterSpec{Counter::kHits, "hits", C::kOutcome, U::kCount,
                "look-ups answered at once from the store"},
    CounterSpec{Counter::kWaits, "waits", C::kOutcome, U::kCount,
                "look-ups answered by another process's build after waiting for it"},
    CounterSpec{Counter::kBuilds, "builds", C::kOutcome, U::kCount,
                "look-ups that got the right to build"},
    CounterSpec{Counter::kFailures, "failures", C::kOutcome, U::kCount,
                "look-ups answered by a remembered failure"},
    CounterSpec{Counter::kBypasses, "bypasses", C::kOutcome, U::kCount,
                "times a client did without the cache, by reason in bypass_reasons"},
    CounterSpec{Counter::kCompileSecondsSaved, "compile_seconds_saved", C::kWork, U::kSeconds,
                "build time of what hits and waits were given"},
    CounterSpec{Counter::kCompileSecondsSpent, "compile_seconds_spent", C::kWork, U::kSeconds,
                "build time of what was published"},
    CounterSpec{Counter::kPublished, "published", C::kWork, U::kCount, "entries published"},
    CounterSpec{Counter::kDuplicatePublishes, "duplicate_publishes", C::kWork, U::kCount,
                "entries that were there already when they were published"},
    CounterSpec{Counter::kUploads, "uploads", C::kWork, U::kCount, "blobs stored"},
    CounterSpec{Counter::kUploadBytes, "upload_bytes", C::kWork, U::kBytes,
                "raw bytes of the blobs stored"},
    CounterSpec{Counter::kDownloads, "downloads", C::kWork, U::kCount,
                "blobs sent through the socket"},
    CounterSpec{Counter::kDownloadBytes, "download_bytes", C::kWork, U::kBytes,
                "raw bytes of the blobs sent through the socket"},
    CounterSpec{Counter::kEvictions, "evictions", C::kUpkeep, U::kCount,
                "entries evicted to keep a limit"},
    CounterSpec{Counter::kEvictedBytes, "evicted_bytes", C::kUpkeep, U::kBytes,
                "bytes of evicted entries"},
    CounterSpec{Counter::kPruned, "pruned", C::kUpkeep, U::kCount, "entries removed by prune"},
    CounterSpec{Counter::kPrunedBytes, "pruned_bytes", C::kUpkeep, U::kBytes,
                "bytes of pruned entries"},
    CounterSpec{Counter::kMissedAfterEviction, "missed_after_eviction", C::kUpkeep, U::kCount,
                "misses on keys evicted not long ago: a larger limit would have kept them"},
    CounterSpec{Counter::kFailedWrites, "failed_writes", C::kFault, U::kCount,
                "writes to the store that the disk refused"},
    CounterSpec{Counter::kQuarantined, "quarantined", C::kFault, U::kCount,
                "damaged blobs found and set aside"},
    CounterSpec{Counter::kRepaired, "repaired", C::kUpkeep, U::kCount,
                "records found missing or wrong and put right"},
    CounterSpec{Counter::kOrphansRemoved, "orphans_removed", C::kUpkeep, U::kCount,
                "blobs removed because no entry named them"},
    CounterSpec{Counter::kFailuresRemembered, "failures_remembered", C::kWork, U::kCount,
                "build failures kept for replay"},
    CounterSpec{Counter::kFailuresExpired, "failures_expired", C::kUpkeep, U::kCount,
                "remembered failures whose time was over"},
    CounterSpec{Counter::kLeaseTakeovers, "lease_takeovers", C::kFault, U::kCount,
                "builds taken over from a builder that died or fell silent"},
    CounterSpec{Counter::kAdmissionWaits, "admission_waits", C::kWork, U::kCount,
                "builds that had to wait for memory or cores"},
    CounterSpec{Counter::kAdmissionWaitSeconds, "admission_wait_seconds", C::kWork, U::kSeconds,
                "how long builds waited for memory or cores"},
    CounterSpec{Counter::kOutOfMemory, "out_of_memory", C::kFault, U::kCount,
                "builds that were killed for want of memory"},
    CounterSpec{
        Counter::kTierHits, "tier_hits", C::kWork, U::kCount,
        "entries that a shared tier had for a look-up; those who asked are counted as hits"},
};
static_assert(kTable.size() + 1 == kCounterSlots);

constexpr std::string_view kOtherSpace = "(other)";
constexpr std::string_view kOtherReason = "other";
constexpr char kSep = '\0';

std::size_t slot(Counter id) {
  return static_cast<std::size_t>(id);
}

bool sane(double by) {
  return std::isfinite(by) && by >= 0;
}

bool is_reason(std::string_view s) {
  return !s.empty() && s.size() <= 64 && std::all_of(s.begin(), s.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == ':';
  });
}

double total_lookups(const std::array<double, kCounterSlots>& values) {
  double sum = 0;
  for (const CounterSpec& spec : kTable) {
    if (spec.counter_class == C::kOutcome) sum += values[slot(spec.id)];
  }
  return sum;
}

CounterBook::Values named(std::array<double, kCounterSlots> values) {
  values[slot(Counter::kLookups)] = total_lookups(values);
  CounterBook::Values out;
  for (const CounterSpec& spec : kTable) out.emplace(spec.name, values[slot(spec.id)]);
  return out;
}

// Shortest text that reads back as the same number.
std::string number(double value) {
  return fmt::format("{}", value);
}

std::string space_key(std::string_view name_space, std::size_t id) {
  std::string key = "c";
  key += kSep;
  key += name_space;
  key += kSep;
  key += std::to_string(id);
  return key;
}

std::string reason_key(std::string_view reason) {
  std::string key = "r";
  key += kSep;
  key += reason;
  return key;
}

// A record's key taken apart: a counter of a namespace (id set) or a reason.
struct KeyText {
  std::string_view name;
  std::optional<std::size_t> id;
};

std::optional<KeyText> read_key(std::string_view key) {
  if (key.size() < 2 || key[1] != kSep) return std::nullopt;
  const std::string_view rest = key.substr(2);
  if (key[0] == 'r') return KeyText{rest, std::nullopt};
  const std::size_t sep = rest.rfind(kSep);
  if (key[0] != 'c' || sep == std::string_view::npos) return std::nullopt;
  std::size_t id = 0;
  const char* end = rest.data() + rest.size();
  const auto [stop, error] = std::from_chars(rest.data() + sep + 1, end, id);
  if (error != std::errc() || stop != end) return std::nullopt;
  if (id == 0 || id >= kCounterSlots || id == slot(Counter::kLookups)) return std::nullopt;
  return KeyText{rest.substr(0, sep), id};
}

}  // namespace

std::span<const CounterSpec> counter_table() {
  return kTable;
}

const CounterSpec& counter_spec(Counter id) {
  for (const CounterSpec& spec : kTable) {
    if (spec.id == id) return spec;
  }
  return kTable[0];
}

std::optional<Counter> find_counter(std::string_view name) {
  for (const CounterSpec& spec : kTable) {
    if (spec.name == name) return spec.id;
  }
  return std::nullopt;
}

std::string_view counter_class_name(CounterClass c) {
  switch (c) {
    case C::kDerived:
      return "derived";
    case C::kOutcome:
      return "outcome";
    case C::kWork:
      return "work";
    case C::kUpkeep:
      return "upkeep";
    case C::kFault:
      return "fault";
  }
  return "";
}

CounterBook::Slots& CounterBook::slots(std::string_view name_space) {
  if (auto it = spaces_.find(name_space); it != spaces_.end()) return it->second;
  if (name_space.empty() || spaces_.size() >= kMaxNamespaces) name_space = kOtherSpace;
  return spaces_.try_emplace(std::string(name_space)).first->second;
}

CounterBook::Reason& CounterBook::reason(std::string_view name) {
  if (auto it = reasons_.find(name); it != reasons_.end()) return it->second;
  if (!is_reason(name) || reasons_.size() >= kMaxReasons) name = kOtherReason;
  return reasons_.try_emplace(std::string(name)).first->second;
}

void CounterBook::add_locked(Slots& slots, Counter id, double by) {
  slots.values[slot(id)] += by;
  slots.dirty[slot(id)] = true;
  any_dirty_ = true;
}

void CounterBook::add(std::string_view name_space, Counter id, double by) {
  if (!sane(by) || id == Counter::kLookups) return;
  const MutexLock lock(mutex_);
  add_locked(slots(name_space), id, by);
}

bool CounterBook::add(std::string_view name_space, std::string_view name, double by) {
  const auto id = find_counter(name);
  if (!id || *id == Counter::kLookups) return false;
  add(name_space, *id, by);
  return true;
}

void CounterBook::add_bypass(std::string_view name_space, std::string_view name, double by) {
  if (!sane(by)) return;
  const MutexLock lock(mutex_);
  add_locked(slots(name_space), Counter::kBypasses, by);
  Reason& r = reason(name);
  r.value += by;
  r.dirty = true;
}

CounterBook::Values CounterBook::snapshot(std::string_view name_space) const {
  std::array<double, kCounterSlots> values{};
  {
    const MutexLock lock(mutex_);
    if (name_space.empty()) {
      for (const auto& [name, slots] : spaces_) {
        for (std::size_t i = 0; i < kCounterSlots; ++i) values[i] += slots.values[i];
      }
    } else if (auto it = spaces_.find(name_space); it != spaces_.end()) {
      values = it->second.values;
    }
  }
  return named(values);
}

std::map<std::string, CounterBook::Values> CounterBook::namespaces() const {
  std::map<std::string, Values> out;
  const MutexLock lock(mutex_);
  for (const auto& [name, slots] : spaces_) out.emplace(name, named(slots.values));
  return out;
}

CounterBook::Values CounterBook::bypass_reasons() const {
  Values out;
  const MutexLock lock(mutex_);
  for (const auto& [name, reason] : reasons_) out.emplace(name, reason.value);
  return out;
}

double CounterBook::value(std::string_view name_space, Counter id) const {
  return snapshot(name_space).find(std::string(counter_spec(id).name))->second;
}

std::vector<CounterBook::Record> CounterBook::take_dirty() {
  std::vector<Record> records;
  const MutexLock lock(mutex_);
  if (!any_dirty_) return records;
  any_dirty_ = false;
  for (auto& [name, slots] : spaces_) {
    for (std::size_t i = 0; i < kCounterSlots; ++i) {
      if (!slots.dirty[i]) continue;
      slots.dirty[i] = false;
      records.emplace_back(space_key(name, i), number(slots.values[i]));
    }
  }
  for (auto& [name, reason] : reasons_) {
    if (!reason.dirty) continue;
    reason.dirty = false;
    records.emplace_back(reason_key(name), number(reason.value));
  }
  return records;
}

void CounterBook::give_back(std::span<const Record> records) {
  const MutexLock lock(mutex_);
  for (const Record& record : records) {
    const auto key = read_key(record.first);
    if (!key) continue;
    any_dirty_ = true;
    if (key->id) {
      slots(key->name).dirty[*key->id] = true;
    } else {
      reason(key->name).dirty = true;
    }
  }
}

bool CounterBook::dirty() const {
  const MutexLock lock(mutex_);
  return any_dirty_;
}

bool CounterBook::load(std::string_view key, std::string_view value) {
  const auto parsed = read_key(key);
  double by = 0;
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, by);
  if (!parsed || error != std::errc() || stop != end || !sane(by)) return false;
  const MutexLock lock(mutex_);
  // Past the bounds on names too: what was stored passed them once.
  if (parsed->id) {
    spaces_[std::string(parsed->name)].values[*parsed->id] += by;
  } else {
    reasons_[std::string(parsed->name)].value += by;
  }
  return true;
}

}  // namespace nc
