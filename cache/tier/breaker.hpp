// Whether a tier is asked. One that fails is left alone for a while, so that a sick tier costs
// seconds in total and not its timeout at every call. Pure logic over Clock and Random;
// thread-safe.
//
//   closed     calls go through; failures in a row are counted, and the time that they took
//   open       no call goes through until the pause is over: 1 s, twice as long each time up to a
//              minute (ten minutes for one that denies), each +-50 % by chance
//   half open  one call, the probe, goes through; its outcome closes or opens
//
// Probes are made on purpose, by whoever has the time: nobody's look-up waits for one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "base/random.hpp"
#include "base/result.hpp"
#include "base/thread_annotations.hpp"

namespace nc::tier {

class Breaker {
 public:
  enum class State { kClosed, kOpen, kHalfOpen };

  struct Options {
    int max_failures = 3;        // in a row
    Millis max_lost_ms = 4'000;  // that failures in a row took together
    Millis first_pause_ms = 1'000;
    Millis longest_pause_ms = 60'000;
    Millis longest_denied_ms = 600'000;
  };

  Breaker(Clock& clock, Random& random) : Breaker(clock, random, Options()) {}
  Breaker(Clock& clock, Random& random, Options options)
      : clock_(clock), random_(random), options_(options) {}

  // Whether a call may be made. Every call that is has to be told about with done().
  bool may_call() NC_EXCLUDES(mutex_);
  // As may_call(); and, when the pause is over, true for the one call that is the probe.
  bool may_probe() NC_EXCLUDES(mutex_);
  // The outcome of a call and what it took. Absent, too large and the like are answers of a tier
  // that is well; see sick(). True: with this one the tier, which was well, became sick.
  bool done(const Status& outcome, Millis took_ms) NC_EXCLUDES(mutex_);

  struct View {
    State state = State::kClosed;
    std::string problem;       // of the last failure since it was well; "" when it is
    Millis retry_in_ms = 0;    // when open
    std::uint64_t opened = 0;  // how often
  };
  View view() const NC_EXCLUDES(mutex_);

 private:
  void open(Code code) NC_REQUIRES(mutex_);

  Clock& clock_;
  Random& random_;
  const Options options_;
  mutable Mutex mutex_;
  State state_ NC_GUARDED_BY(mutex_) = State::kClosed;
  std::string problem_ NC_GUARDED_BY(mutex_);
  int failures_ NC_GUARDED_BY(mutex_) = 0;
  Millis lost_ms_ NC_GUARDED_BY(mutex_) = 0;
  Millis pause_ms_ NC_GUARDED_BY(mutex_) = 0;  // of the last opening; 0: it was well since
  Millis until_ms_ NC_GUARDED_BY(mutex_) = 0;  // monotonic
  std::uint64_t opened_ NC_GUARDED_BY(mutex_) = 0;
};

std::string_view breaker_state_name(Breaker::State state);  // "closed", "open", "half_open"

// Errors that say something about the tier, not about what was asked for.
bool sick(const Error& error);

// `ms` +-50 % by chance.
Millis jittered(Millis ms, Random& random);

}  // namespace nc::tier
