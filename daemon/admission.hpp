// Which builds may run now, so that together they fit into memory and cores. Pure logic: time comes
// from the Clock, memory from a MemoryDoor, whom to wake is returned. Thread-safe.
//
// A reservation belongs to a lease and ends with it. Rules:
// - What is reserved stays within the budget whenever something is admitted: bytes within `memory`,
//   cores within `cores`. Unset, the budget of memory is 80 % of what the host has free and what
//   the running builds have taken already, looked at anew for each decision. It may shrink below
//   what is reserved when others take memory; then nothing is admitted.
// - When nothing runs, the first in line is admitted, however much it needs. One that asks to be
//   alone is admitted only then, and nothing beside it.
// - First come, first served, with bounded overtaking: while the first in line does not fit, later
//   ones that do may start, but at most kMaxOvertakes of them pass the same build. After that the
//   running ones end and it has its turn.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/thread_annotations.hpp"

namespace nc::daemon {

class MemoryDoor {
 public:
  virtual ~MemoryDoor() = default;
  // What new processes can take without the host, or the control group that we are in, running out;
  // nullopt: it cannot be told.
  virtual std::optional<std::uint64_t> available() = 0;
  // What each of these processes has taken together with all that it has started.
  virtual std::vector<std::uint64_t> taken(std::span<const std::int64_t> pids) = 0;
};

// What a build needs.
struct Demand {
  std::uint64_t bytes = 0;
  unsigned cores = 1;
  bool alone = false;
  bool operator==(const Demand&) const = default;
};

class AdmissionQueue {
 public:
  static constexpr unsigned kMaxOvertakes = 16;
  static constexpr std::size_t kMaxWaiting = 2'000;

  struct Limits {
    std::uint64_t memory = 0;  // bytes; 0: worked out
    unsigned cores = 1;
  };
  struct Answer {
    enum class Kind { kAdmitted, kWaiting, kParked, kRefused } kind = Kind::kRefused;
    Demand granted;           // kAdmitted
    bool joined = false;      // kWaiting, kParked: it stands in line since now
    Millis waited_ms = 0;     // how long it has, or, the first time that kAdmitted is said, had
    std::size_t ahead = 0;    // kWaiting: builds before it in line
    std::size_t running = 0;  // kWaiting, like what follows
    std::uint64_t budget = 0;
    std::uint64_t reserved = 0;  // by all that run
  };
  using Wake = std::function<void(const Answer&)>;
  using Wakes = std::vector<std::function<void()>>;  // to be run outside of any lock

  AdmissionQueue(Clock& clock, MemoryDoor& door) : clock_(clock), door_(door) {}

  // Asks, or asks again, for the build of a lease; `pid` is its builder's, 0 when not known. A
  // build that was admitted is told so again, unless it needs more than it has: then it goes back
  // to the front of the line. When it has to wait and wait_ms > 0 the answer is kParked and `wake`
  // is called once. kRefused: too many wait.
  Answer ask(const std::string& lease, std::int64_t pid, const Demand& demand, Millis wait_ms,
             Wake wake, Wakes& wakes) NC_EXCLUDES(mutex_);
  // A build that runs already, whatever the budget says.
  void adopt(const std::string& lease, std::int64_t pid, const Demand& demand) NC_EXCLUDES(mutex_);
  // The lease is no more.
  Wakes release(const std::string& lease) NC_EXCLUDES(mutex_);
  Wakes set_limits(Limits limits) NC_EXCLUDES(mutex_);
  // Ends waits whose time is over, and admits what fits by now.
  Wakes tick() NC_EXCLUDES(mutex_);
  std::optional<Millis> next_deadline() const NC_EXCLUDES(mutex_);
  // Nothing is admitted any more; parked requests are told to ask again.
  Wakes drain() NC_EXCLUDES(mutex_);

  bool admitted(const std::string& lease) const NC_EXCLUDES(mutex_);

  struct View {
    struct Build {
      std::string lease;
      Demand demand;
      Millis since_ms = 0;      // how long it has run, or waited
      std::uint64_t taken = 0;  // of memory, when it was last looked at
      unsigned overtaken = 0;   // by how many, when it waits
    };
    std::uint64_t budget = 0;
    std::uint64_t reserved = 0;
    std::optional<std::uint64_t> available;
    bool automatic = false;
    unsigned cores = 0, cores_used = 0;
    std::vector<Build> running, waiting;
  };
  View view() NC_EXCLUDES(mutex_);

 private:
  struct Running {
    Demand demand;
    std::int64_t pid = 0;
    Millis since = 0;
    std::uint64_t taken = 0;
    Millis waited = 0;  // until it is told
  };
  struct Waiting {
    std::string lease;
    Demand demand;
    std::int64_t pid = 0;
    Millis since = 0;
    unsigned overtaken = 0;
    Wake wake;            // set: parked
    Millis deadline = 0;  // when parked
  };
  using Line = std::list<Waiting>;

  void look() NC_REQUIRES(mutex_);
  std::uint64_t budget() const NC_REQUIRES(mutex_);
  bool fits(const Demand& demand) const NC_REQUIRES(mutex_);
  Running& start(const std::string& lease, std::int64_t pid, const Demand& demand)
      NC_REQUIRES(mutex_);
  static Answer admitted_answer(Running& one);
  void stop(std::map<std::string, Running>::iterator at) NC_REQUIRES(mutex_);
  void pump(Wakes& wakes) NC_REQUIRES(mutex_);
  Line::iterator find(const std::string& lease) NC_REQUIRES(mutex_);
  Answer waiting_answer(Line::const_iterator at) const NC_REQUIRES(mutex_);
  void unpark(Line::iterator at, Wakes& wakes) NC_REQUIRES(mutex_);

  Clock& clock_;
  MemoryDoor& door_;
  mutable Mutex mutex_;
  Limits limits_ NC_GUARDED_BY(mutex_);
  std::map<std::string, Running> running_ NC_GUARDED_BY(mutex_);
  Line line_ NC_GUARDED_BY(mutex_);
  std::uint64_t reserved_ NC_GUARDED_BY(mutex_) = 0;
  unsigned cores_used_ NC_GUARDED_BY(mutex_) = 0;
  unsigned running_alone_ NC_GUARDED_BY(mutex_) = 0;
  bool draining_ NC_GUARDED_BY(mutex_) = false;
  // What the door said last.
  std::optional<Millis> looked_ NC_GUARDED_BY(mutex_);
  std::optional<std::uint64_t> available_ NC_GUARDED_BY(mutex_);
};

}  // namespace nc::daemon
