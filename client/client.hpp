// The client of the daemon: one keep-alive connection over its Unix socket, typed calls for the
// whole protocol.
//
// Every call ends within a time limit and never throws. Errors: what the daemon answered (its code,
// message and action), else kUnavailable (nobody listens), kTimeout, kUnsupported (no common
// protocol version), kIo. A connection that was dropped while idle is opened again, once, without
// the caller noticing. After fork() the child opens its own connection.
//
// A Client is for one thread at a time; make one per thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "client/bucket_types.hpp"
#include "client/build_types.hpp"
#include "client/outcome_types.hpp"
#include "client/types.hpp"
#include "client/work_types.hpp"

namespace nc {
class Settings;
}

namespace nc::client {

class BodySource;  // client/connection.hpp

struct ClientOptions {
  std::string socket_path;
  Millis connect_timeout_ms = 5'000;  // to connect, or for the daemon to start
  Millis request_timeout_ms =
      30'000;               // a control call as a whole; a blob body: no byte for that long
  bool autostart = false;   // start the daemon when nobody listens
  std::string daemon_path;  // see find_daemon() in client/autostart.hpp
  std::vector<std::string> daemon_arguments;

  // From the settings socket, connect_timeout, autostart and daemon_path.
  static ClientOptions from(const Settings& settings);
};

class Client {
 public:
  explicit Client(ClientOptions options);  // connects at the first call
  ~Client();
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;

  const ClientOptions& options() const;
  void disconnect();  // the daemon counts an open connection as an attached client

  // Versions and capabilities. kUnsupported when there is no common version.
  Result<Hello> hello();

  Result<Acquired> acquire(const AcquireRequest& request);
  // Asks until the answer is final (not kBuilding): waits in steps of request.wait_ms (1 s when 0).
  // `progress` is called after each step and ends the wait by returning false (then the kBuilding
  // answer is returned). `timeout_ms` 0: no limit.
  using WaitProgress = std::function<bool(const BuildingInfo&)>;
  Result<Acquired> acquire_and_wait(AcquireRequest request, Millis timeout_ms,
                                    const WaitProgress& progress);

  // Room to build, for the holder of a lease: before it starts its compiler. What is reserved goes
  // back when the lease ends in whatever way. kLeaseLost when another builder holds it now. Asking
  // again is harmless; one that needs more than it got waits anew, in front of all others.
  Result<Admission> admit(const Lease& lease, const AdmissionRequest& request);
  // Asks until it is admitted: waits in steps of request.wait_ms (1 s when 0). `progress` is called
  // after each step and ends the wait by returning false (then the kWaiting answer is returned).
  // `timeout_ms` 0: no limit. Somebody has to send heartbeats meanwhile only if a step is longer
  // than the lease's ttl: a call counts as one.
  using AdmissionProgress = std::function<bool(const Admission&)>;
  Result<Admission> admit_and_wait(const Lease& lease, AdmissionRequest request, Millis timeout_ms,
                                   const AdmissionProgress& progress);

  // -> the new ttl. kLeaseLost when another builder holds it now.
  Result<Millis> heartbeat(const Lease& lease, std::string_view progress);
  Result<HeartbeatAnswer> heartbeat(const Lease& lease, const BuildStatus& status);
  Result<FailAnswer> fail(const Lease& lease, const FailReport& report);
  Status release(const Lease& lease);

  Result<BuildsInfo> builds();

  // ---- Recorded actions, and the queue of those that somebody is to build ----
  // True: it was not in this recording yet. Its inputs must have been uploaded (kNotFound).
  Result<bool> record(std::string_view recording, const RecordedAction& action);
  // Notes an action that cannot be recorded (key, label, compiler), and why: who builds the
  // recording again is told that it is not whole.
  Status record_lost(std::string_view recording, const RecordedAction& action,
                     const std::string& why);
  Result<RecordedAction> recorded(std::string_view recording, const ActionKey& key);
  Result<std::vector<RecordingInfo>> recordings();
  Result<RecordedPage> recorded_actions(std::string_view recording, std::string_view after,
                                        std::size_t limit);
  Status forget_recording(std::string_view recording);
  Result<Enqueued> enqueue(const ActionKey& recorded_key);
  Result<Enqueued> enqueue_recording(std::string_view recording);
  // As it is; it is recorded under the name "queue". `cluster`: in the cluster's queue, below.
  Result<Enqueued> enqueue(const RecordedAction& action, bool cluster = false);
  // The next action whose compiler's text contains `compiler` and whose key has these `parts`, with
  // the lease to build it.
  Result<Taken> take_job(std::string_view compiler, const KeyParts& parts = {},
                         bool cluster = false);
  // `state`: queued, building, built, failed, or "" for all.
  Result<QueuePage> queue(std::string_view state, std::uint64_t after, std::size_t limit);
  Result<std::uint64_t> clear_queue();  // how many waited

  // ---- The cluster's queue, in a shared tier ----
  // By key, those after `after`; at most a hundred.
  Result<ClusterQueuePage> cluster_queue(std::string_view after = "");
  // What nobody has begun, or what failed; how many.
  Result<std::uint64_t> clear_cluster_queue(bool failed, bool dry_run);

  // What became of the actions that were needed under the name of a recording, by key.
  Result<OutcomePage> outcomes(std::string_view recording, std::string_view after,
                               std::size_t limit);
  Status forget_outcomes(std::string_view recording);
  // Those of `from` are those of `to` from now on.
  Status move_outcomes(std::string_view from, std::string_view to);

  struct UploadOptions {
    bool may_compress = true;  // false for outputs that are loaded by path
    std::string lease_id;
  };
  struct Uploaded {
    Digest digest;
    std::uint64_t size = 0;
    bool existed = false;
  };
  Result<Uploaded> upload(const Digest& digest, Bytes bytes, const UploadOptions& options);
  // Streams the file; its digest is worked out first (one more read) unless given.
  Result<Uploaded> upload_file(const std::string& path, const UploadOptions& options,
                               const Digest* known_digest = nullptr);
  // From a source that may be readable only once: then a dropped connection is an error.
  Result<Uploaded> upload_from(const Digest& digest, BodySource& source,
                               const UploadOptions& options);
  Result<bool> has_blob(const Digest& digest);
  // Has the daemon read it: true when it is well. What is not is dropped, with all that needs it.
  Result<bool> check_blob(const Digest& digest);

  // kTooLarge over `limit`. The bytes are checked against the digest (kDigestMismatch).
  Result<std::string> download(const Digest& digest, std::uint64_t limit);
  // In pieces, not checked: the caller hashes. An error of `sink` ends the call and is returned.
  using Sink = std::function<Status(Bytes)>;
  Result<std::uint64_t> download_to(const Digest& digest, const Sink& sink);

  // -> true: published; false: an entry was there already and stays. The lease's key must be the
  // manifest's.
  Result<bool> commit(const Lease& lease, const EntryManifest& manifest);
  // Without a lease. kCorrupt when the manifest is of another key.
  Result<bool> commit_import(const ActionKey& key, std::string_view manifest_json);
  Result<EntryManifest> manifest(const ActionKey& key);
  Result<std::string> manifest_json(const ActionKey& key);  // as stored, for copying

  Status bypass(std::string_view name_space, std::string_view reason, std::string_view ticket,
                std::uint64_t count = 1);

  Result<Stats> stats(std::string_view name_space);  // "": all
  Result<EntryPage> entries(const EntryFilter& filter, std::string_view after, std::size_t limit);
  // kNotFound; kConflict when the prefix fits several.
  Result<EntryDetails> show(std::string_view key_or_prefix);
  Result<PruneAnswer> prune(const PruneRequest& request);
  Result<VerifyPage> verify(std::string_view after, std::size_t limit, bool repair);

  // Shared tiers: bodies and answers are JSON texts, as docs/protocol.md describes them.
  Result<std::string> tiers();
  // `call`: push, pull, prune, verify or collect. May take long.
  Result<std::string> tier_call(std::string_view call, std::string_view body);
  Status pin(const ActionKey& key, bool pinned);
  Result<std::vector<MissRecord>> misses(std::size_t limit);
  Result<std::vector<LeaseInfo>> leases();
  // The most recently seen first.
  Result<std::vector<BucketProgram>> bucket_programs();
  Result<std::vector<ConfigValue>> config();
  Status set_config(std::string_view name, std::string_view value);
  Status shutdown(Millis drain_ms);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace nc::client
