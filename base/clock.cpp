#include "base/clock.hpp"

#include <chrono>

namespace nc {
namespace {

template <class C>
Millis since_start_of(const C& /*clock*/) {
  using std::chrono::duration_cast;
  return duration_cast<std::chrono::milliseconds>(C::now().time_since_epoch()).count();
}

class SystemClock final : public Clock {
 public:
  Millis wall_ms() const override { return since_start_of(std::chrono::system_clock{}); }
  Millis monotonic_ms() const override { return since_start_of(std::chrono::steady_clock{}); }
};

}  // namespace

Clock& system_clock() {
  static SystemClock clock;
  return clock;
}

}  // namespace nc
