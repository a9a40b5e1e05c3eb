// What became of the actions that were needed under the name of a recording (docs/protocol.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "client/types.hpp"

namespace nc::client {

struct ActionOutcome {
  std::string key;
  std::string outcome;  // hit, built, waited, failed, unfinished
  std::string kind, label, program, compiler;
  std::uint64_t build_ms = 0;
  std::string failure_class, message, log_line;  // of a failure
  MissReason miss;  // its cause is "" when there was none, or when others built it meanwhile
  Millis first_ms = 0, last_ms = 0;
};

struct OutcomePage {
  std::vector<ActionOutcome> outcomes;
  std::optional<std::string> next;
};

}  // namespace nc::client
