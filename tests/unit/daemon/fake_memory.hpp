// A host's memory that a test sets by hand.
#pragma once

#include <map>

#include "daemon/admission.hpp"

namespace nc::daemon {

class FakeMemory final : public MemoryDoor {
 public:
  std::optional<std::uint64_t> available() override { return free; }
  std::vector<std::uint64_t> taken(std::span<const std::int64_t> pids) override {
    ++looks;
    std::vector<std::uint64_t> out;
    for (const std::int64_t pid : pids) {
      const auto it = of.find(pid);
      out.push_back(it == of.end() ? 0 : it->second);
    }
    return out;
  }

  std::optional<std::uint64_t> free = 100'000;
  std::map<std::int64_t, std::uint64_t> of;  // by pid
  int looks = 0;
};

}  // namespace nc::daemon
