// Whether a service really honours "only if there is none": one that does not know the condition
// stores whatever comes, and says that it did.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "base/result.hpp"

namespace nc::tier {

class Exclusive {
 public:
  // One conditional request: true: made, false: there is one already.
  using Once = std::function<Result<bool>()>;

  // The first success is proven by sending it again, which must fail: the object is there now.
  // kUnsupported for a service that accepts it again.
  Result<bool> create(const std::string& shown, const Once& once);
  bool broken() const { return state_ == State::kBroken; }

 private:
  enum class State { kUnknown, kProven, kBroken };
  std::atomic<State> state_ = State::kUnknown;
};

}  // namespace nc::tier
