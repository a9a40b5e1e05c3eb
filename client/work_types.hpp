// What goes over the wire about recorded actions and the queue of those that somebody is to build.
// docs/protocol.md says what each field means.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/hash.hpp"
#include "client/types.hpp"

namespace nc::client {

// All that is needed to build an action again. In an argument {in/<name>} stands for the path of
// that input, {out/<name>} for that of an output. Everything is UTF-8.
struct RecordedAction {
  ActionKey key;
  std::string name_space = "default";
  std::string kind, label, program, model, compiler;
  KeyParts parts;
  std::vector<std::string> argv;  // without the compiler's own name
  std::map<std::string, std::string> env;
  std::vector<OutputInfo> inputs;  // blobs that were uploaded
};

struct RecordingInfo {
  std::string name;
  std::uint64_t actions = 0;
  std::uint64_t bytes = 0;  // of the inputs
  Millis first_ms = 0, last_ms = 0;
};

struct RecordedPage {
  struct Action {
    std::string key, label, compiler;
    std::uint64_t bytes = 0;
    std::uint64_t build_ms = 0;  // how long its build took; 0: not known
    Millis recorded_ms = 0;
    bool built = false;  // there is an entry
    std::string lost;    // why it cannot be built again, "" when it can
  };
  std::vector<Action> actions;
  std::optional<std::string> next;
};

struct Enqueued {
  std::uint64_t queued = 0;
  std::uint64_t already = 0;  // waiting or being built
  std::uint64_t built = 0;    // there is an entry, nothing to do
  std::uint64_t lost = 0;     // cannot be built again
};

struct QueueCounts {
  std::uint64_t queued = 0, building = 0, built = 0, failed = 0;
};

struct QueuePage {
  struct Job {
    std::string key, state, label, compiler;
    std::uint64_t number = 0;
    std::uint64_t attempts = 0;
    std::string failure_class, message;  // of the last failure
    Millis queued_ms = 0, ended_ms = 0;
  };
  QueueCounts counts;
  std::vector<Job> jobs;
  std::optional<std::uint64_t> next;
};

// The cluster's queue, as it lies in the tier.
struct ClusterQueuePage {
  struct Job {
    std::string key, state, label, compiler;
    std::uint64_t attempts = 0;
    std::string host;                         // that took it last
    std::string failure_class, message, log;  // of the last failure
    std::string problem;                      // why no worker of this host would take it
  };
  std::string tier;
  std::uint64_t queued = 0, building = 0, failed = 0;
  std::vector<Job> jobs;
  std::optional<std::string> next;
};

// What a worker is given: build it under this lease, then commit or fail as ever.
struct TakenJob {
  RecordedAction record;
  Lease lease;
};

struct Taken {
  std::optional<TakenJob> job;
  std::uint64_t pending = 0;  // there is none now, but so many may be for the worker later
  std::string problem;        // why the cluster's queue was not looked at, or ""
  QueueCounts counts;         // when there is none
};

}  // namespace nc::client
