// The door to time. Wall time is for records that outlive the process; monotonic time is for
// deadlines, and is the only one that decides expiry inside a process, so that a jump of the wall
// clock never ends or prolongs a lease.
#pragma once

#include <atomic>
#include <cstdint>

namespace nc {

using Millis = std::int64_t;  // milliseconds

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Millis wall_ms() const = 0;       // since the Unix epoch
  virtual Millis monotonic_ms() const = 0;  // since an arbitrary point
};

Clock& system_clock();

// Set by hand. Thread-safe.
class FakeClock final : public Clock {
 public:
  explicit FakeClock(Millis wall = 1'700'000'000'000) : wall_(wall) {}
  Millis wall_ms() const override { return wall_; }
  Millis monotonic_ms() const override { return mono_; }
  void advance(Millis ms) {
    wall_ += ms;
    mono_ += ms;
  }
  void jump_wall(Millis ms) { wall_ += ms; }  // e.g. a clock that goes backwards

 private:
  std::atomic<Millis> wall_;
  std::atomic<Millis> mono_{0};
};

}  // namespace nc
