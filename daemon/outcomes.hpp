// What became of every action that was needed under the name of a recording: there already, built,
// waited for, failed. Written down, so that it is known whole after a restart. Thread-safe;
// everything but page() may wait for the disk.
//
// Bounded: what was needed longest ago is forgotten, when it is older than recordings_ttl or beyond
// kMaxOutcomes.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/settings.hpp"
#include "base/thread_annotations.hpp"
#include "cache/store.hpp"

namespace nc::daemon {

// What outcomes are kept under: the name of a recording, or of one run of it: NAME~RUN, both as
// names of recordings. Runs at the same time do not meet.
bool is_run_name(std::string_view text);

enum class OutcomeState { kUnfinished, kHit, kBuilt, kWaited, kFailed };
std::string_view outcome_state_name(OutcomeState state);

struct Outcome {
  static constexpr std::size_t kMaxLogLine = 500;
  static constexpr std::size_t kMaxDiffers = 8;
  static constexpr std::size_t kMaxValue = 200;

  ActionKey key;
  OutcomeState state = OutcomeState::kUnfinished;
  std::string kind, label, program, compiler;
  std::uint64_t build_ms = 0;  // of the entry
  std::string failure_class, message, log_line;
  std::string cause;  // of the miss; "" when it was there, or others built it
  std::string nearest;
  std::vector<Miss::Differs> differs;  // of the nearest, kMaxDiffers at most, cut to kMaxValue
  bool waiting = false;                // unfinished: for who builds it
  Millis first_ms = 0, last_ms = 0;

  std::string encode() const;  // the record in the table "outcomes", without the key
  static std::optional<Outcome> decode(std::string_view text);
};

class Outcomes {
 public:
  static constexpr std::size_t kMaxOutcomes = 50'000;

  Outcomes(Store& store, Clock& clock) : store_(store), clock_(clock) {}

  Status restore(bool persist) NC_EXCLUDES(mutex_);
  void configure(const Settings& settings) NC_EXCLUDES(mutex_);
  void maintain() NC_EXCLUDES(mutex_);  // forgets what is too old

  // Each is one answer to a look-up that named `recording`.
  void hit(const std::string& recording, const Request& request, std::uint64_t build_ms,
           bool waited) NC_EXCLUDES(mutex_);
  void missed(const std::string& recording, const Request& request, const std::optional<Miss>& miss)
      NC_EXCLUDES(mutex_);
  void waiting(const std::string& recording, const Request& request) NC_EXCLUDES(mutex_);
  void refused(const std::string& recording, const Request& request, const Failure& failure)
      NC_EXCLUDES(mutex_);

  // The end of a build, for every recording that has it unfinished.
  void built(const ActionKey& key, std::uint64_t build_ms) NC_EXCLUDES(mutex_);
  void failed(const ActionKey& key, std::string_view failure_class, std::string_view message,
              std::string_view log) NC_EXCLUDES(mutex_);

  // By key, those after `after`; none for a name that is not known.
  std::vector<Outcome> page(const std::string& recording, const std::optional<ActionKey>& after,
                            std::size_t limit) const NC_EXCLUDES(mutex_);
  std::size_t forget(const std::string& recording) NC_EXCLUDES(mutex_);
  // Those of `from` are those of `to` from now on, in the place of what was there. How many.
  std::size_t move(const std::string& from, const std::string& to) NC_EXCLUDES(mutex_);

 private:
  using Rows = std::map<ActionKey, Outcome>;
  using Changes = std::vector<Store::RecordChange>;

  Outcome& row(const std::string& recording, const Request& request, Changes& changes)
      NC_REQUIRES(mutex_);
  void touch(const std::string& recording, Outcome& outcome, Changes& changes) NC_REQUIRES(mutex_);
  void bound(Changes& changes) NC_REQUIRES(mutex_);
  void write(Changes changes);

  Store& store_;
  Clock& clock_;
  mutable Mutex mutex_;
  bool persist_ NC_GUARDED_BY(mutex_) = false;
  std::map<std::string, Rows> recordings_ NC_GUARDED_BY(mutex_);
  std::size_t rows_ NC_GUARDED_BY(mutex_) = 0;
  Millis ttl_ms_ NC_GUARDED_BY(mutex_) = 30LL * 24 * 3'600'000;
};

// The first line of a log that tells of an error, else the first that says something; cut to
// Outcome::kMaxLogLine.
std::string first_log_line(std::string_view log);

}  // namespace nc::daemon
