// Repeating what failed for the moment: a few times, with growing waits that differ between hosts.
// Whether the tier is asked at all after that is the breaker's business (cache/tier/breaker.hpp).
#pragma once

#include "base/result.hpp"
#include "cache/tier/open_engine.hpp"

namespace nc::tier {

class Retry {
 public:
  static constexpr int kAttempts = 3;
  static constexpr Millis kFirstWaitMs = 100;
  static constexpr Millis kLongestWaitMs = 2'000;

  explicit Retry(const EngineDeps& deps) : deps_(deps) {}

  // After a failure: true when it is worth another attempt, which may begin now (it has waited).
  // Time-outs are not repeated: each costs a caller the tier's whole patience.
  bool again(const Error& error);
  // The failed attempt got somewhere: the next ones count anew.
  void progressed() { failures_ = 0; }

 private:
  const EngineDeps& deps_;
  int failures_ = 0;
};

// Runs `call` until it succeeds, fails for good, or often enough.
template <class Call>
auto with_retries(const EngineDeps& deps, const Call& call) {
  Retry retry(deps);
  while (true) {
    auto result = call();
    if (result.ok() || !retry.again(result.error())) return result;
  }
}

}  // namespace nc::tier
