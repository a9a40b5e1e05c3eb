// What goes over the wire about builds that run or wait for room. docs/protocol.md says what each
// field means.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.hpp"

namespace nc::client {

// Asks for room to build, once a lease is held and before the compiler starts.
struct AdmissionRequest {
  std::string compiler;  // its version text: what is learned of its memory goes by that
  std::uint64_t input_bytes = 0;
  std::uint32_t cores = 1;
  // At least so much: for another try after the build was killed for want of memory.
  std::uint64_t minimum_bytes = 0;
  bool alone = false;  // only while nothing else runs
  Millis wait_ms = 0;  // how long this one call may wait
};

struct Admission {
  enum class State { kAdmitted, kWaiting };
  State state = State::kWaiting;
  std::uint64_t expected_bytes = 0;  // what such a build takes at its peak
  bool learned = false;              // from builds before; else a guess
  double waited_s = 0;
  std::uint64_t reserved_bytes = 0;  // kAdmitted: for this build; kWaiting: for all that run
  // kAdmitted
  std::uint32_t cores = 0;
  bool alone = false;
  Millis build_timeout_ms = 0;  // the compiler has to be ended after this long; 0: never
  // kWaiting
  std::int64_t ahead = 0;  // builds before this one in line
  std::int64_t running = 0;
  std::uint64_t budget_bytes = 0;
};

// What a builder says with each heartbeat.
struct BuildStatus {
  std::string progress;              // for those who wait
  std::uint64_t reserved_bytes = 0;  // as admitted, so that a daemon started anew knows it
  std::uint32_t cores = 0;
  bool detached = false;  // nobody but those who wait wants the result
};

struct HeartbeatAnswer {
  Millis ttl_ms = 0;
  bool cancel = false;  // nobody wants it any more: end the build and give the lease back
  std::int64_t waiters = 0;
};

// What runs and what waits for room.
struct BuildsInfo {
  struct Build {
    std::string lease, key, label;
    std::uint64_t bytes = 0;  // reserved, or asked for
    std::uint64_t taken_bytes = 0;
    std::uint64_t cores = 0;
    double since_s = 0;  // how long it has run, or waited
  };
  std::uint64_t budget_bytes = 0;
  std::uint64_t reserved_bytes = 0;
  std::uint64_t cores = 0, cores_used = 0;
  std::vector<Build> running, waiting;
};

}  // namespace nc::client
