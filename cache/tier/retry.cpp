#include "cache/tier/retry.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

namespace nc::tier {

bool Retry::again(const Error& error) {
  if (error.code != Code::kUnavailable && error.code != Code::kBusy &&
      error.code != Code::kCorrupt) {
    return false;
  }
  if (++failures_ >= kAttempts) return false;
  const Millis wait = std::min(kFirstWaitMs << (2 * (failures_ - 1)), kLongestWaitMs);
  const auto jitter = static_cast<Millis>(deps_.random->next() % static_cast<unsigned>(wait));
  const Millis total = wait / 2 + jitter;
  if (deps_.sleep) {
    deps_.sleep(total);
  } else {
    std::this_thread::sleep_for(std::chrono::milliseconds(total));
  }
  return true;
}

}  // namespace nc::tier
