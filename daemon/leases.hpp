// Who may build which key, and who waits for it. Pure logic: time comes from the Clock, what
// follows is returned as Effects; no sockets, no disk, no threads. Thread-safe.
//
// A key has at most one lease. Whoever asks meanwhile is a waiter with a ticket, in order of
// arrival; it is parked (its request is open and `wake` will be called) or between two requests.
// When a lease ends without an entry, the longest waiting parked one gets it; when nobody is
// parked, the next that asks.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.hpp"
#include "base/process.hpp"
#include "base/random.hpp"
#include "base/thread_annotations.hpp"
#include "cache/store.hpp"

namespace nc::daemon {

struct Builder {
  ProcessId process;  // pid 0: in a namespace that we cannot see
  std::string host;
};

struct Lease {
  std::string id;
  std::uint64_t fence = 0;  // grows with every lease that is granted
  Request request;          // what is built
  Builder builder;
  Millis granted_ms = 0;  // wall clock
  std::string progress;   // the builder's own words
};

// What a waiter is told about the build it waits for.
struct Progress {
  std::string ticket;
  Lease lease;
  double elapsed_s = 0;
  std::size_t waiters = 0;
};

// How a parked request ends.
struct Wake {
  enum class Kind {
    kGranted,    // the lease is yours
    kEnded,      // an entry or a failure is there now: look it up
    kStillBusy,  // the time is over
    kGone,       // the client hung up; already counted as abandoned
  };
  Kind kind = Kind::kStillBusy;
  Lease lease;        // kGranted
  Progress progress;  // kStillBusy
};
using WakeFn = std::function<void(Wake)>;

// What a change brought about. Run the wakes and write the rest down outside of any lock.
struct Effects {
  std::vector<std::function<void()>> wakes;
  std::vector<std::string> ended;      // lease ids that are no more
  std::vector<std::string> abandoned;  // namespace of each look-up that nobody will end any more
  std::vector<std::string> takeovers;  // namespace of each lease that went to a waiter

  void add(Effects&& other);
};

class LeaseTable {
 public:
  struct Options {
    Millis lease_ttl_ms = 15'000;
    Millis ticket_ttl_ms = 60'000;
    std::size_t max_tickets = 100'000;
  };

  LeaseTable(Clock& clock, Random& random, Options options);

  struct Ask {
    Request request;
    Builder who;
    std::uint64_t connection = 0;
    std::string ticket;  // from an earlier Progress, or empty; an unknown one is taken as it is
    Millis wait_ms = 0;  // 0: never parks
    WakeFn wake;         // called once when the answer is kParked
  };
  struct Answer {
    enum class Kind { kGranted, kParked, kBusy, kRefused } kind = Kind::kRefused;
    Lease lease;        // kGranted
    Progress progress;  // kBusy
    Error error;        // kRefused: too many tickets, or draining
    Effects effects;
  };
  Answer ask(Ask ask) NC_EXCLUDES(mutex_);
  // The look-up of this ticket has ended in some other way (an entry was there).
  Effects forget_ticket(std::string_view ticket) NC_EXCLUDES(mutex_);

  // The right to build for nobody in particular, if it is free: others wait meanwhile. For what may
  // bring the entry from elsewhere. It ends as others do.
  std::optional<Lease> take(Request request, Builder who) NC_EXCLUDES(mutex_);

  enum class Beat { kExtended, kUnknown, kLost };
  // kUnknown: nobody holds the key and the id is not one that ended; see adopt().
  Beat heartbeat(const std::string& id, const ActionKey& key, std::uint64_t fence,
                 std::string_view progress) NC_EXCLUDES(mutex_);
  // Extends without words, for uploads. Nothing happens when it is unknown.
  void touch(std::string_view id) NC_EXCLUDES(mutex_);
  // Takes a lease that we do not know (after a restart) as held. False: somebody holds the key.
  bool adopt(Lease lease) NC_EXCLUDES(mutex_);
  // Puts `lease` in place of the one with this id, which ends; false when that is over. It stands
  // for a build on another host: it never expires, is not written down, and ends by settled() or
  // end().
  bool replace(const std::string& id, Lease lease) NC_EXCLUDES(mutex_);
  // Who builds (builder, program, progress) and for how long, as far as known now; by lease.id.
  void describe(const Lease& lease, Millis building_ms) NC_EXCLUDES(mutex_);
  struct Interest {
    std::size_t waiters = 0;
    bool any_before = false;  // somebody waited for it once
  };
  Interest interest(const std::string& id) const NC_EXCLUDES(mutex_);

  // kLeaseLost when somebody else holds the key; else ok, and the holder's time starts anew.
  Status may_commit(const ActionKey& key, const std::string& id) NC_EXCLUDES(mutex_);
  // An entry or a remembered failure is there: all waiters are woken to look it up.
  Effects settled(const ActionKey& key) NC_EXCLUDES(mutex_);

  // kNotThere: what take() or replace() put there; the first of those who wait is the first
  // builder.
  enum class End { kReleased, kDied, kFailed, kNotThere };
  // Ends one lease without an entry; a waiter takes over. Nothing when the id is unknown.
  Effects end(const std::string& id, End why) NC_EXCLUDES(mutex_);
  std::optional<Lease> find(const std::string& id) const NC_EXCLUDES(mutex_);

  // The client hung up: its parked requests and tickets are abandoned. Leases stay.
  Effects connection_closed(std::uint64_t connection) NC_EXCLUDES(mutex_);
  // Ends what is over: waits, tickets, leases without heartbeat.
  Effects tick() NC_EXCLUDES(mutex_);
  // Monotonic time of the next thing that tick() would do; nullopt: nothing.
  std::optional<Millis> next_deadline() const NC_EXCLUDES(mutex_);

  // No lease is granted any more; parked requests are woken as kStillBusy.
  Effects drain() NC_EXCLUDES(mutex_);
  void set_lease_ttl(Millis ttl_ms) NC_EXCLUDES(mutex_);
  Millis lease_ttl() const NC_EXCLUDES(mutex_);

  // Fences below `floor` are never given again. The next one that will be given.
  void raise_fence(std::uint64_t floor) NC_EXCLUDES(mutex_);
  std::uint64_t next_fence() const NC_EXCLUDES(mutex_);

  struct Listed {
    Lease lease;
    double elapsed_s = 0;
    Millis expires_in_ms = 0;
    std::size_t waiters = 0;
  };
  std::vector<Listed> list() const NC_EXCLUDES(mutex_);
  std::size_t leases() const NC_EXCLUDES(mutex_);
  std::size_t tickets() const NC_EXCLUDES(mutex_);
  // Of the lease: an opaque thing that lives as long as it does (Store::hold).
  void attach(const std::string& id, std::shared_ptr<void> hold) NC_EXCLUDES(mutex_);

 private:
  struct Waiter {
    std::string ticket;
    Request request;
    Builder who;
    std::uint64_t connection = 0;
    std::uint64_t arrival = 0;
    WakeFn wake;          // set: parked
    Millis deadline = 0;  // monotonic: of the wait when parked, else of the ticket
  };
  struct Held {
    Lease lease;
    Millis deadline = 0;  // monotonic
    Millis since = 0;     // monotonic
    std::shared_ptr<void> hold;
    bool waited_for = false;
  };
  struct Slot {  // of one key
    std::optional<Held> held;
    std::map<std::uint64_t, Waiter> waiters;  // by arrival
  };
  using Slots = std::unordered_map<ActionKey, Slot, Sha256Hash>;

  Lease grant(Slot& slot, Request request, Builder who) NC_REQUIRES(mutex_);
  Progress progress_of(const Slot& slot, const Waiter& waiter) const NC_REQUIRES(mutex_);
  // A parked request is answered that it still has to wait; its ticket goes on.
  void unpark(const Slot& slot, Waiter& waiter, Effects& effects) NC_REQUIRES(mutex_);
  void end_held(Slot& slot, bool gone_for_good, Effects& effects) NC_REQUIRES(mutex_);
  void hand_over(Slot& slot, Effects& effects) NC_REQUIRES(mutex_);
  void remove_waiter(Slot& slot, std::uint64_t arrival) NC_REQUIRES(mutex_);
  void drop_if_empty(const ActionKey& key) NC_REQUIRES(mutex_);
  Slot* slot_of_lease(std::string_view id) NC_REQUIRES(mutex_);
  void bury(std::string id) NC_REQUIRES(mutex_);

  struct Place {
    ActionKey key;
    std::uint64_t arrival = 0;
  };

  Clock& clock_;
  Random& random_;
  mutable Mutex mutex_;
  Options options_ NC_GUARDED_BY(mutex_);
  Slots slots_ NC_GUARDED_BY(mutex_);
  std::map<std::string, ActionKey, std::less<>> by_id_ NC_GUARDED_BY(mutex_);
  std::map<std::string, Place, std::less<>> by_ticket_ NC_GUARDED_BY(mutex_);
  // Ids that ended on purpose: a heartbeat that was on its way must not bring them back.
  std::map<std::string, Millis, std::less<>> graves_ NC_GUARDED_BY(mutex_);
  std::uint64_t next_fence_ NC_GUARDED_BY(mutex_) = 1;
  std::uint64_t arrivals_ NC_GUARDED_BY(mutex_) = 0;
  bool draining_ NC_GUARDED_BY(mutex_) = false;
};

}  // namespace nc::daemon
