// How long a failed build is remembered. Only deterministic and uncacheable failures are
// (remembered() in manifest.hpp), for a limited time, and a clock that jumps never makes one last
// longer than that.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "cache/manifest.hpp"

namespace nc {

inline constexpr std::size_t kMaxFailureMessage = 1024;
inline constexpr std::size_t kMaxFailureLog = 1 << 20;

// Ready to be stored: times set from `now`, message cut to one line, log cut in its middle. nullopt
// when this failure must not be remembered (its class, or ttl_ms <= 0).
std::optional<Failure> prepare_failure(Failure failure, Millis now, Millis ttl_ms);

// True when it must not be replayed any more: past expires_ms, older than the TTL in force now, or
// created in the future (the clock went back).
bool failure_expired(const Failure& failure, Millis now, Millis ttl_ms);
Millis failure_expires_ms(const Failure& failure, Millis ttl_ms);  // the earlier of both ends

// At most `limit` bytes: head and tail, with a line between that says how many bytes are left out.
// Never cuts UTF-8 in two.
std::string cut_middle(std::string_view text, std::size_t limit);

}  // namespace nc
