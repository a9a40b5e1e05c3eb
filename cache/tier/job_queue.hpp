// The cluster's queue of builds, which lies in a tier: recorded actions that some host is to build.
// It needs no service: whoever shares the tier puts jobs there, and takes them under the lease of
// the action's key (cache/tier/lease.hpp), which decides alone who builds.
//
//   v1/queue/<key>          the job: the recorded action of <key> as an entry (a manifest, signed),
//                           its inputs being the manifest's outputs; written after their blobs,
//                           which it keeps from being collected
//   v1/queue/<key>.failed   nobody takes it until it is queued anew: a note
//   (cache/tier/job_note.hpp) v1/queue/<key>.tried    it was taken at least once: likewise
//
// A job is believed like any entry of a tier: somebody who may write its namespace has signed it
// (docs/security.md). Notes are claims. No times are in any of it. The holder of the action's lease
// writes notes and removes a job; besides it only who queues it anew, who knows that it must fail,
// and people who clear it.
// Blocks on the tier; thread-safe, as it keeps nothing.
#pragma once

#include <string>
#include <vector>

#include "cache/tier/job_note.hpp"
#include "cache/tier/transfer.hpp"

namespace nc::tier {

class JobQueue {
 public:
  static constexpr std::size_t kMaxJobs = 20'000;
  static constexpr unsigned kMaxAttempts = 3;  // that nobody finished

  // `engine`: of the link, for what is small.
  JobQueue(Engine& engine, Link& link, Transfer& transfer)
      : engine_(engine), link_(link), transfer_(transfer) {}

  struct Listed {
    ActionKey key;
    bool tried = false, failed = false;
  };
  // All jobs, by key; at most kMaxJobs.
  Result<std::vector<Listed>> list();

  enum class Added { kQueued, kAlready };
  // The recorded action of `key` is the entry `entry` of the local store. One that failed is queued
  // anew. kNotFound: there is no such entry; kDenied: this host may not sign it.
  Result<Added> add(const ActionKey& key, const ActionKey& entry);

  // As it was put there, and believed. `refused`, if given: whether it is there, and not believed.
  Result<Manifest> job(const ActionKey& key, const ActionKey& entry, bool* refused = nullptr);
  Result<bool> there(const ActionKey& key);
  // Its inputs and itself, into the local store.
  Status bring(const Manifest& job, const Progress& progress);
  // Of the attempts so far; one without attempts when there were none, or nothing can be read.
  Result<JobNote> note(const ActionKey& key, bool failed);

  // For who holds the action's lease.
  // It is built by `host` now. False: it was begun too often, and has failed.
  Result<bool> begin(const ActionKey& key, const std::string& host, const std::string& compiler);
  // It was not tried after all: that is no attempt.
  Status given_back(const ActionKey& key);
  // `again`: it may go better another time, unless it was tried too often.
  Status failed(const ActionKey& key, JobNote why, bool again);
  // There is an entry, or nobody wants it any more.
  Status remove(const ActionKey& key);

 private:
  Result<bool> exists(const std::string& name);
  Status put(const std::string& name, const JobNote& note);
  Status fail(const ActionKey& key, JobNote note);

  Engine& engine_;
  Link& link_;
  Transfer& transfer_;
};

// The key of the job that the object is, or nothing: a note, or something else.
std::optional<ActionKey> parse_job(std::string_view name);

}  // namespace nc::tier
