#include "base/random.hpp"

#include <sys/random.h>

#include <cerrno>
#include <cstdlib>

#include "base/bytes.hpp"

namespace nc {
namespace {

class SystemRandom final : public Random {
 public:
  std::uint64_t next() override {
    std::uint64_t value = 0;
    // Eight bytes come whole or not at all once the kernel's pool is ready; only a signal can
    // interrupt the wait for it.
    while (::getrandom(&value, sizeof value, 0) != static_cast<ssize_t>(sizeof value)) {
      if (errno != EINTR) std::abort();
    }
    return value;
  }
};

}  // namespace

std::string Random::hex_id() {
  std::string raw;
  put_u64(raw, next());
  put_u64(raw, next());
  return to_hex(as_bytes(raw));
}

Random& system_random() {
  static SystemRandom random;
  return random;
}

}  // namespace nc
