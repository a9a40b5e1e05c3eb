#include "cache/tier/breaker.hpp"

#include <algorithm>

namespace nc::tier {

std::string_view breaker_state_name(Breaker::State state) {
  switch (state) {
    case Breaker::State::kClosed:
      return "closed";
    case Breaker::State::kOpen:
      return "open";
    case Breaker::State::kHalfOpen:
      break;
  }
  return "half_open";
}

bool sick(const Error& error) {
  switch (error.code) {
    case Code::kDenied:
    case Code::kReadOnly:
    case Code::kNoSpace:
    case Code::kTimeout:
    case Code::kUnavailable:
    case Code::kBusy:
    case Code::kIo:
    case Code::kUnsupported:
      return true;
    default:
      return false;
  }
}

Millis jittered(Millis ms, Random& random) {
  return ms / 2 + static_cast<Millis>(random.next() % static_cast<std::uint64_t>(ms + 1));
}

bool Breaker::may_call() {
  MutexLock lock(mutex_);
  return state_ == State::kClosed;
}

bool Breaker::may_probe() {
  MutexLock lock(mutex_);
  if (state_ == State::kOpen && clock_.monotonic_ms() >= until_ms_) {
    state_ = State::kHalfOpen;
    // Should the probe never come back, another goes after the same pause.
    until_ms_ = clock_.monotonic_ms() + options_.longest_pause_ms;
    return true;
  }
  if (state_ == State::kHalfOpen && clock_.monotonic_ms() >= until_ms_) {
    until_ms_ = clock_.monotonic_ms() + options_.longest_pause_ms;
    return true;
  }
  return state_ == State::kClosed;
}

bool Breaker::done(const Status& outcome, Millis took_ms) {
  MutexLock lock(mutex_);
  if (outcome.ok() || !sick(outcome.error())) {
    // A call that began before it opened says nothing about now.
    if (state_ == State::kOpen) return false;
    state_ = State::kClosed;
    failures_ = 0;
    lost_ms_ = 0;
    pause_ms_ = 0;
    problem_.clear();
    return false;
  }
  problem_ = outcome.error().text();
  if (state_ == State::kOpen) return false;
  ++failures_;
  lost_ms_ += std::max<Millis>(took_ms, 0);
  const Code code = outcome.error().code;
  // These do not pass by asking again.
  const bool lasting = code == Code::kDenied || code == Code::kReadOnly || code == Code::kNoSpace ||
                       code == Code::kUnsupported;
  if (state_ == State::kHalfOpen || lasting || failures_ >= options_.max_failures ||
      lost_ms_ >= options_.max_lost_ms) {
    const bool was_well = pause_ms_ == 0;
    open(code);
    return was_well;
  }
  return false;
}

void Breaker::open(Code code) {
  const Millis longest = code == Code::kDenied || code == Code::kReadOnly
                             ? options_.longest_denied_ms
                             : options_.longest_pause_ms;
  pause_ms_ = pause_ms_ == 0 ? options_.first_pause_ms : std::min(pause_ms_ * 2, longest);
  until_ms_ = clock_.monotonic_ms() + jittered(pause_ms_, random_);
  state_ = State::kOpen;
  failures_ = 0;
  lost_ms_ = 0;
  ++opened_;
}

Breaker::View Breaker::view() const {
  MutexLock lock(mutex_);
  const Millis left = until_ms_ - clock_.monotonic_ms();
  return {state_, problem_, state_ == State::kOpen ? std::max<Millis>(left, 0) : 0, opened_};
}

}  // namespace nc::tier
