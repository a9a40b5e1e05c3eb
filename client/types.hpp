// What goes over the wire, as plain types. docs/protocol.md says what each field means; the names
// are the same
// (`namespace` is `name_space` here). Fields the daemon did not send keep their defaults.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/hash.hpp"

namespace nc::client {

struct Hello {
  int min_protocol = 0;
  int max_protocol = 0;
  std::string version;
  std::vector<std::string> capabilities;
  std::int64_t pid = 0;
  Millis started_ms = 0;
  std::string store_id;
  std::string store_path;
  bool read_only = false;
};

struct OutputInfo {
  std::string name;
  Digest digest;
  std::uint64_t size = 0;
  std::uint32_t mode = 0644;
};

struct ProducerInfo {
  std::string host;
  std::int64_t pid = 0;
  std::string program;
  std::string version;
};

struct EntryManifest {
  ActionKey key;
  std::string kind;
  std::string name_space = "default";
  std::string label;
  std::string model;
  std::string compiler;
  Millis created_ms = 0;
  std::uint64_t build_ms = 0;
  std::uint64_t peak_rss_bytes = 0;
  ProducerInfo producer;
  KeyParts parts;
  std::vector<OutputInfo> outputs;
  std::map<std::string, std::string> meta;
};

// Where an output's bytes are: `path`, or `inline_bytes`, or neither (then Client::download).
struct BlobPlace {
  OutputInfo output;
  std::string path;
  std::optional<std::string> inline_bytes;
};

struct Lease {
  ActionKey key;
  std::string id;
  std::uint64_t fence = 0;
  Millis ttl_ms = 0;
  Millis heartbeat_ms = 0;
};

struct Difference {
  std::string name, wanted, have;
};

struct NearestEntry {
  std::string key;
  Millis created_ms = 0;
  std::string host;
  std::vector<Difference> differs;
};

struct MissReason {
  std::string cause;
  std::optional<NearestEntry> nearest;
};

struct MissRecord {  // one line of the journal
  Millis time_ms = 0;
  std::string key, name_space, kind, label, program, compiler, model;
  MissReason reason;
};

struct BuildingInfo {
  std::string ticket;
  ProducerInfo builder;
  double elapsed_s = 0;
  std::optional<double> usual_s;
  std::int64_t waiters = 0;
  std::string progress;
};

struct FailureInfo {
  std::string failure_class;
  std::string message;
  std::string log;
  std::int64_t exit_code = 0;
  Millis created_ms = 0;
  Millis expires_ms = 0;
};

struct AcquireRequest {
  ActionKey key;
  std::string name_space = "default";
  std::string kind, label, program, compiler, model;
  bool lookup_only = false;
  bool retry = false;     // skip a remembered failure
  Millis wait_ms = 0;     // how long this one call may wait for another builder
  std::string ticket;     // of an earlier kBuilding answer
  std::string recording;  // the outcome is kept under this name; "": it is not
  KeyParts parts;
};

struct Acquired {
  enum class State { kHit, kMiss, kLease, kBuilding, kFailed };
  State state = State::kMiss;
  // kHit
  bool waited = false;
  EntryManifest manifest;
  std::vector<BlobPlace> blobs;  // in the order of manifest.outputs
  // kLease; `miss` also for kMiss
  Lease lease;
  MissReason miss;
  BuildingInfo building;  // kBuilding
  FailureInfo failure;    // kFailed
};

struct FailReport {
  std::string failure_class;  // "deterministic", "out_of_memory", ...
  std::string message;
  std::string log;
  std::int64_t exit_code = 0;
  std::uint64_t peak_rss_bytes = 0;  // of the process tree, where it was measured
  bool unstored = false;  // it was built; who waits is to build for itself rather than take over
};

struct FailAnswer {
  bool remembered = false;
  Millis expires_ms = 0;
};

struct EntrySummary {
  std::string key, kind, name_space, label, model, compiler;
  std::uint64_t bytes = 0;
  std::uint64_t build_ms = 0;
  Millis created_ms = 0;
  Millis used_ms = 0;
  std::uint64_t uses = 0;
  bool pinned = false;
  bool in_use = false;
  bool failed = false;
};

struct EntryDetails {
  EntrySummary summary;
  std::optional<EntryManifest> manifest;
  std::optional<FailureInfo> failure;
  KeyParts failure_parts;  // of a failure
};

struct EntryFilter {  // all that are set must hold
  std::optional<std::string> name_space, compiler, model, kind;
  std::optional<double> older_than_s;
  std::optional<double> unused_since_s;
  std::optional<bool> failed;
};

struct EntryPage {
  std::vector<EntrySummary> entries;
  std::optional<std::string> next;
};

struct PruneRequest {
  EntryFilter filter;
  std::optional<std::uint64_t> max_bytes;
  std::optional<std::uint64_t> max_entries;
  bool dry_run = false;
};

struct PruneAnswer {
  std::vector<EntrySummary> entries;
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;        // freed on disk
  std::uint64_t swept_bytes = 0;  // of these, what no entry named
  double rebuild_seconds = 0;
  struct Kept {
    std::string key, why;
  };
  std::vector<Kept> kept;
};

struct VerifyPage {
  std::uint64_t checked = 0;
  std::uint64_t bytes = 0;
  struct Bad {
    std::string what;  // key or digest
    std::string problem, action;
  };
  std::vector<Bad> bad;
  std::uint64_t orphans = 0;
  std::optional<std::string> next;
};

using Numbers = std::map<std::string, double>;

struct Stats {
  Numbers counters;
  Numbers bypass_reasons;
  std::map<std::string, Numbers> kinds;
  std::map<std::string, Numbers> namespaces;
  Numbers limits;  // null (no limit) is left out
  Numbers builds;  // running, waiting, budget_bytes, reserved_bytes, queued, ...
  struct Health {
    bool ok = true;
    std::vector<std::string> problems;
    Numbers numbers;  // failed_writes, quarantined, ...
  } health;
};

struct LeaseInfo {
  std::string id, key, kind, label, progress;
  ProducerInfo builder;
  double elapsed_s = 0;
  std::optional<double> usual_s;
  std::int64_t waiters = 0;
};

struct ConfigValue {
  std::string name, value, origin, origin_detail, default_value;
  bool live = false;
};

}  // namespace nc::client
