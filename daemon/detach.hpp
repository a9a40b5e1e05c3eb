// Becoming a daemon (`--detach`): a session of its own, no terminal, no file of the starter's left
// open. The starter stays until it is told how the start ended.
#pragma once

#include <string_view>

#include "base/unique_fd.hpp"

namespace nc::daemon {

// What the daemon tells whoever started it. Without detach() it says errors on standard error.
class Starter {
 public:
  // Returns in the daemon only; the calling process ends with 0 once the daemon is ready (or
  // another one is), or with 1 and the reason on standard error. Call before any thread is started.
  static Starter detach();

  Starter() = default;
  void ready();
  void failed(std::string_view why);

 private:
  UniqueFd pipe_;
};

}  // namespace nc::daemon
