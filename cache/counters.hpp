// The counters of the store: one table, kept per namespace, in memory and across restarts.
//
// `lookups` is derived (hits + waits + builds + failures + bypasses), never stored, so that the sum
// holds in every snapshot.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/thread_annotations.hpp"

namespace nc {

// Values are frozen: they are in the index. A retired counter's number is not used again.
enum class Counter : std::uint16_t {
  kLookups = 1,
  kHits = 2,
  kWaits = 3,
  kBuilds = 4,
  kFailures = 5,
  kBypasses = 6,
  kCompileSecondsSaved = 7,
  kCompileSecondsSpent = 8,
  kPublished = 9,
  kDuplicatePublishes = 10,
  kUploads = 11,
  kUploadBytes = 12,
  kDownloads = 13,
  kDownloadBytes = 14,
  kEvictions = 15,
  kEvictedBytes = 16,
  kPruned = 17,
  kPrunedBytes = 18,
  kMissedAfterEviction = 19,
  kFailedWrites = 20,
  kQuarantined = 21,
  kRepaired = 22,
  kOrphansRemoved = 23,
  kFailuresRemembered = 24,
  kFailuresExpired = 25,
  kLeaseTakeovers = 26,
  kAdmissionWaits = 27,
  kAdmissionWaitSeconds = 28,
  kOutOfMemory = 29,
  kTierHits = 30,
};
inline constexpr std::size_t kCounterSlots = 31;  // highest value + 1

enum class CounterClass {
  kDerived,  // computed from others
  kOutcome,  // how a look-up ended; these sum to lookups
  kWork,     // what was done
  kUpkeep,   // what the store did for itself
  kFault,    // what went wrong
};
enum class CounterUnit { kCount, kBytes, kSeconds };

struct CounterSpec {
  Counter id;
  std::string_view name;
  CounterClass counter_class;
  CounterUnit unit;
  std::string_view meaning;  // one sentence, for docs, /metrics and `stats`
};

std::span<const CounterSpec> counter_table();  // ordered by id
const CounterSpec& counter_spec(Counter id);
std::optional<Counter> find_counter(std::string_view name);
std::string_view counter_class_name(CounterClass c);

// Thread-safe; add() is one short lock and no disk.
class CounterBook {
 public:
  using Values = std::map<std::string, double>;        // by counter name, `lookups` included
  using Record = std::pair<std::string, std::string>;  // key and value for the index
  static constexpr std::size_t kMaxNamespaces = 4096;  // more are counted under "(other)"
  static constexpr std::size_t kMaxReasons = 128;      // more, or ill-formed ones, under "other"

  // `by` must be finite and >= 0, else nothing happens. kLookups is derived: not added to.
  void add(std::string_view name_space, Counter id, double by = 1) NC_EXCLUDES(mutex_);
  // By name; false when there is no such counter or it is derived.
  bool add(std::string_view name_space, std::string_view name, double by) NC_EXCLUDES(mutex_);
  // Adds to `bypasses` and to the reason, at once.
  void add_bypass(std::string_view name_space, std::string_view reason, double by = 1)
      NC_EXCLUDES(mutex_);

  // Every counter of the table, zeros too. "" is all namespaces together; an unknown namespace is
  // all zeros.
  Values snapshot(std::string_view name_space) const NC_EXCLUDES(mutex_);
  std::map<std::string, Values> namespaces() const NC_EXCLUDES(mutex_);
  Values bypass_reasons() const NC_EXCLUDES(mutex_);
  double value(std::string_view name_space, Counter id) const NC_EXCLUDES(mutex_);

  // What changed since the last call, as totals (writing a record twice does no harm). Give them
  // back when writing failed.
  std::vector<Record> take_dirty() NC_EXCLUDES(mutex_);
  void give_back(std::span<const Record> records) NC_EXCLUDES(mutex_);
  bool dirty() const NC_EXCLUDES(mutex_);
  // Adds a stored record to what is here (call at open for each). False for one it cannot read: it
  // is left out.
  bool load(std::string_view key, std::string_view value) NC_EXCLUDES(mutex_);

 private:
  struct Slots {
    std::array<double, kCounterSlots> values{};
    std::array<bool, kCounterSlots> dirty{};
  };
  struct Reason {
    double value = 0;
    bool dirty = false;
  };
  Slots& slots(std::string_view name_space) NC_REQUIRES(mutex_);
  Reason& reason(std::string_view name) NC_REQUIRES(mutex_);
  void add_locked(Slots& slots, Counter id, double by) NC_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::map<std::string, Slots, std::less<>> spaces_ NC_GUARDED_BY(mutex_);
  std::map<std::string, Reason, std::less<>> reasons_ NC_GUARDED_BY(mutex_);
  bool any_dirty_ NC_GUARDED_BY(mutex_) = false;
};

}  // namespace nc
