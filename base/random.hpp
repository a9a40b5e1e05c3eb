// The door to randomness (ids, temporary names). Not for keys.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace nc {

class Random {
 public:
  virtual ~Random() = default;
  virtual std::uint64_t next() = 0;
  std::string hex_id();  // 32 hex digits
};

Random& system_random();  // getrandom(2); thread-safe

class FakeRandom final : public Random {  // 1, 2, 3, ... ; for tests; thread-safe
 public:
  std::uint64_t next() override { return ++last_; }

 private:
  std::atomic<std::uint64_t> last_ = 0;
};

}  // namespace nc
