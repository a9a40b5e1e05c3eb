// The right to build one action, held by at most one host of a cluster. It needs nothing of a tier
// but Engine::get, put and an atomic create; no clocks are compared, no locks, no listings.
//
// The objects. The lease of a key is the row of objects v1/leases/<ab>/<key>/<fence>, fence 1, 2,
// 3 ...; the last one is in force. Fence n+1 can be made by create() alone, so exactly one of all
// that want to succeed n does. Only the holder of n writes n.
//   take     create(1); or, when the last object n is released, or has not changed for a whole
//            period of the one who looks, create(n+1). Nothing beyond it? No entry meanwhile?
//   keep     every quarter of a period: n still holds our id? put(n) with the next beat; n+1
//   absent?
//            Only then the lease is believed, until 7/8 of a period after the put began.
//   release  entry visible: remove n, n-1, ... 1. No entry: put(n) as released, or as apart.
//
// Why there are no two holders at once (an engine whose reads see completed writes, clocks whose
// rates differ by less than 1/16):
//   1. A name is made once, so two holders have different fences m < n; n was created after its
//      maker had seen m unchanged for a period, or released, or damaged for a period.
//   2. m's holder believes only after put(m), then seeing m+1 absent. n's maker creates m+1, then
//      reads m again. Whichever came second sees the other: had the put come later than that read,
//      the holder would find m+1 and stop. So at that read every put that m's belief can rest on is
//      visible.
//   3. If m is as it was a whole period before, the last such put began more than a period ago and
//      the belief, 7/8 of a period, is over. If it has changed, the maker of m+1 waits for a period
//      before it believes anything itself.
//   4. Who waits like that does not release before the wait is over, so nobody comes sooner by way
//      of its fence.
//   5. A request that the engine carries out long after its caller has given up changes nothing of
//      this: a late put only writes m, which prolongs nobody's belief; a late create() makes an
//      object with an id that its owner finds, and takes up by the same steps as a beat, or that
//      nobody renews, and so passes on after a period. (An engine that carries out one put twice,
//      with the next beat between, can make m look unchanged.)
//   6. Objects are removed only after the entry is visible, and whoever has created looks for the
//      entry before it believes. So fences may begin at 1 again.
// On an engine with stale reads (a network file system's caches) two hosts may build the same key;
// what they publish is named by its content and the first manifest stays, so that costs time and
// never correctness. The period should be longer than such caches live.
//
// A record that cannot be read is nobody's: after a period its fence is passed over. An engine that
// fails, or refuses, makes a host build for itself (kAlone) after a bounded wait.
//
// Requests. Taking: create, one get, one look for the entry; in a row of n, up to 2 log2(n) + 4
// more. Waiting: one get per poll; polls begin at 1/32 of a period apart (at least 100 ms) and end
// at 1/4,
// +-25 %, so at most 12 + 6 per period waited, and over all keys of a host LeasePace's rate.
// Holding: three per quarter of a period. Ending: one put, or a removal per fence. A holder that
// dies is succeeded within 2 periods: 5/16 until its last beat is seen, one to wait, 1/16 of
// jitter, and the requests themselves.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/clock.hpp"
#include "base/hash.hpp"
#include "base/random.hpp"
#include "base/thread_annotations.hpp"
#include "cache/tier/engine.hpp"
#include "cache/tier/lease_record.hpp"

namespace nc::tier {

// What became of the leases of a host, since it started.
struct LeaseCounters {
  std::atomic<std::uint64_t> requests{0};   // to the engine
  std::atomic<std::uint64_t> taken{0};      // became ours
  std::atomic<std::uint64_t> takeovers{0};  // of those: of a holder that had fallen silent
  std::atomic<std::uint64_t> settled{0};    // ended because the entry was there
  std::atomic<std::uint64_t> lost{0};       // another got it while we held it
  std::atomic<std::uint64_t> alone{0};      // built without: the engine failed or refused
  std::atomic<std::uint64_t> apart{0};      // built without: the holder could not share its result
  std::atomic<std::uint64_t> garbage{0};    // records that could not be read
  std::atomic<std::uint64_t> errors{0};     // requests that failed
};

// Bounds the polls of one host over all its keys: of n that wait, each polls every n / per_second
// seconds at most. Thread-safe.
class LeasePace {
 public:
  explicit LeasePace(double per_second) : per_second_(per_second) {}
  void enter() { ++waiting_; }
  void leave() { --waiting_; }
  Millis shortest_ms() const {
    return static_cast<Millis>(static_cast<double>(waiting_) * 1000 / per_second_);
  }

 private:
  const double per_second_;
  std::atomic<std::int64_t> waiting_{0};
};

class ClusterLease {
 public:
  struct Options {
    Millis period_ms = 60'000;
    Millis patience_ms = 5'000;  // of failing requests until we build alone; a period when another
                                 // host was seen to build
  };
  struct Deps {
    Engine& engine;
    Clock& clock;
    Random& random;
    LeaseCounters& counters;
    LeasePace& pace;
    // Is the key's entry in the tier? May block.
    std::function<Result<bool>()> entry_there;
  };
  struct Who {
    std::string host;
    std::string program;
    std::string label;
    std::int64_t pid = 0;
  };
  enum class State {
    kSeeking,
    kWaiting,  // another host builds; see holder()
    kHeld,
    kSettled,  // the entry is there
    kAlone,    // build without a lease; see reason()
    kLost,     // was held; another host builds
    kEnded,
  };

  ClusterLease(Deps deps, Options options, const ActionKey& key, Who who);
  ~ClusterLease();
  ClusterLease(const ClusterLease&) = delete;
  ClusterLease& operator=(const ClusterLease&) = delete;

  // step() and end() may block on the engine; one thread at a time calls them. The rest is
  // thread-safe and does not block.

  // Does what is due; gives the monotonic time of the next step, nullopt when there is none.
  std::optional<Millis> step();
  // Ends the wait for others: kAlone.
  void give_up(std::string reason);
  enum class End {
    kPublished,  // the entry is where others see it
    kReleased,   // no entry; another may fare better
    kApart,      // no entry that could be shared
  };
  void end(End how);
  // After a restart of its owner: holds `fence` again if it is still `holder`'s; found out by
  // step().
  void resume(const std::string& holder, std::uint64_t fence);

  State state() const NC_EXCLUDES(mutex_);
  // Held, and no other host can hold it at this moment.
  bool believed() const NC_EXCLUDES(mutex_);
  // kWaiting, kLost: what the one that builds last said of itself, as far as known.
  std::optional<LeaseRecord> holder() const NC_EXCLUDES(mutex_);
  std::string reason() const NC_EXCLUDES(mutex_);
  std::string id() const { return id_; }
  std::uint64_t fence() const NC_EXCLUDES(mutex_);
  void set_progress(std::string text) NC_EXCLUDES(mutex_);

 private:
  // An object of the row as it was found. `mark` is equal for equal contents; all that cannot be
  // read is alike, so that a record that is damaged anew all the time holds nobody up.
  struct Seen {
    bool there = false;
    std::optional<LeaseRecord> record;  // nothing: garbage
    std::string mark;
  };
  enum class Beat { kKept, kGone, kTaken };

  // Each gives the time of the next step.
  Millis seek();
  std::optional<Millis> judge(const Seen& seen);  // nothing: look again now
  std::optional<Millis> look_for_entry();
  Millis won(std::uint64_t fence, Millis begun, bool after_silence);
  Millis take_up();
  Millis hold(Millis begun);
  Millis renew();
  Millis trouble(const Error& error);
  Millis next_poll(Millis expires);
  void lose();
  void settle();

  Result<bool> create(std::uint64_t fence);
  Result<Seen> look(std::uint64_t fence);
  Result<std::uint64_t> find_last();
  Result<Beat> beat();
  Status write(LeaseRecord::State state);
  Result<Beat> make_again();
  void clear_row();
  void follow(std::uint64_t fence);
  std::string text(LeaseRecord::State state);
  void become(State state, std::string reason = "") NC_EXCLUDES(mutex_);
  void believe_until(Millis until) NC_EXCLUDES(mutex_);
  void note_ok();
  Millis now() const { return deps_.clock.monotonic_ms(); }
  Millis random_below(Millis ms);

  const Deps deps_;
  const Options options_;
  const ActionKey key_;
  const Who who_;
  std::string id_;

  // Of the stepping thread.
  std::uint64_t last_ = 0;  // the highest fence that is known of, of another; 0: none
  std::string mark_;        // that object as it was at mark_since_ and ever since
  std::optional<Millis> mark_since_;
  bool followed_ = false;  // another was seen to build
  Millis poll_ms_ = 0;
  bool taking_up_ = false;  // fence_ is ours, and not yet, or not any more, believed
  bool resumed_ = false;
  std::uint64_t beat_ = 0;
  Millis since_ = 0;
  Millis wait_until_ =
      0;  // the one before us was alive at the take-over: nothing is believed sooner
  Millis next_beat_ = 0;
  std::optional<Millis> failing_since_;
  int failures_ = 0;

  mutable Mutex mutex_;
  State state_ NC_GUARDED_BY(mutex_) = State::kSeeking;
  std::uint64_t fence_ NC_GUARDED_BY(mutex_) = 0;
  Millis believed_until_ NC_GUARDED_BY(mutex_) = 0;
  std::optional<LeaseRecord> holder_ NC_GUARDED_BY(mutex_);
  std::string progress_ NC_GUARDED_BY(mutex_);
  std::string reason_ NC_GUARDED_BY(mutex_);
};

}  // namespace nc::tier
