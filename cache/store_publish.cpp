// The commit point: manifest, entry and access record in one synced batch, after every blob is
// durable.
#include <algorithm>

#include "base/envelope.hpp"
#include "base/test_point.hpp"
#include "cache/failure_policy.hpp"
#include "cache/store_impl.hpp"
#include "cache/test_points.hpp"

namespace nc {

Millis StoreImpl::expiry(const EntryRecord& record) {
  if (!record.failed) return 0;
  // The wall clock may have jumped since it was written: never longer than the time in force.
  const auto left =
      std::clamp<Millis>(record.expires_ms - clock_.wall_ms(), 0, options_.failure_ttl_ms);
  return clock_.monotonic_ms() + left;
}

EntryRecord StoreImpl::describe(const Failure& failure, std::uint64_t stored) {
  EntryRecord record;
  record.failed = true;
  record.kind = failure.kind;
  record.name_space = failure.name_space;
  record.label = failure.label;
  record.model = failure.model;
  record.compiler = failure.compiler;
  record.created_ms = failure.created_ms;
  record.expires_ms = failure.expires_ms;
  record.manifest_bytes = stored;
  return record;
}

// The entry of a manifest whose blobs are all there; kNotFound names the one that is not.
Result<EntryRecord> StoreImpl::describe(const Manifest& manifest, std::uint64_t stored) {
  EntryRecord record;
  record.kind = manifest.kind;
  record.name_space = manifest.name_space;
  record.label = manifest.label;
  record.model = manifest.model;
  record.compiler = manifest.compiler;
  record.build_ms = manifest.build_ms;
  record.created_ms = manifest.created_ms;
  record.manifest_bytes = stored;
  for (const auto& output : manifest.outputs) {
    const auto same = std::find_if(record.blobs.begin(), record.blobs.end(),
                                   [&](const EntryBlob& b) { return b.digest == output.digest; });
    std::uint64_t size = 0;
    if (same == record.blobs.end()) {
      NC_ASSIGN(const auto blob, know_blob(output.digest));
      if (!blob) {
        return Error{Code::kNotFound,
                     "the blob " + output.digest.hex() + " of output " + output.name +
                         " is not in the store",
                     "upload it before the manifest"};
      }
      record.blobs.push_back(*blob);
      size = blob->size;
    } else {
      size = same->size;
    }
    if (size != output.size) {
      return Error{Code::kInvalid,
                   "output " + output.name + " is said to have " + std::to_string(output.size) +
                       " bytes but blob " + output.digest.hex() + " has " + std::to_string(size),
                   "write the blob's size into the manifest"};
    }
  }
  return record;
}

Status StoreImpl::commit_entry(const ActionKey& key, const EntryRecord& record,
                               std::string sealed) {
  Removal removal(RemovalCause::kEvicted);
  std::uint64_t share = record.manifest_bytes;
  for (const auto& blob : record.blobs) share += blob.disk_bytes;
  AccessRecord access;
  access.used_ms = clock_.wall_ms();
  bool fits = false;
  std::vector<Digest> pinned;
  {
    MutexLock lock(mutex_);
    for (const auto& blob : record.blobs) {
      auto* state = table_.find_blob(blob.digest);
      if (state == nullptr || state->doomed) {
        for (const auto& digest : pinned) --table_.find_blob(digest)->pins;
        return Error{Code::kNotFound, "the blob " + blob.digest.hex() + " has just been removed",
                     "upload it again"};
      }
      ++state->pins;
      pinned.push_back(blob.digest);
    }
    fits = make_quota_room(record.name_space, share, removal) &&
           make_room(record.manifest_bytes, table_.find(key) == nullptr ? 1 : 0, removal);
    if (const auto* old = table_.find(key)) access.pinned = old->pinned;
  }
  Status done;
  bool evicted = false;
  if (fits) {
    // What makes room goes in the same batch as what needs it.
    KvBatch batch = removal.batch;
    batch.put(Family::kManifests, key.view(), std::move(sealed));
    batch.put(Family::kEntries, key.view(), record.encode());
    batch.put(Family::kEntries, access_key(key), access.encode());
    if (!removal.keys.empty()) test_point(points::kEvictBeforeIndex);
    test_point(points::kPublishBeforeCommit);
    done = index_->commit(batch, true);
    evicted = done.ok();
    test_point(points::kPublishAfterCommit);
  } else {
    evicted = index_->commit(removal.batch, false).ok();
    done = Error{Code::kNoSpace,
                 "entry " + key.hex() + " does not fit in the store or in the quota of namespace " +
                     record.name_space,
                 "raise max_bytes, max_entries or the quota, unpin entries or prune"};
  }
  {
    MutexLock lock(mutex_);
    if (done.ok()) {
      for (const auto* blob : table_.erase(key)) {  // of one that is replaced
        if (blob->pins == 0) add_idle({blob->digest});
      }
      table_.insert(key, record, access, expiry(record));
    }
    for (const auto& digest : pinned) {
      auto* state = table_.find_blob(digest);
      if (--state->pins == 0 && state->refs == 0) add_idle({digest});
    }
  }
  settle(removal, evicted);
  if (!fits) {
    count_failed_write(record.name_space);
    return done;
  }
  if (evicted && !removal.keys.empty()) test_point(points::kEvictAfterIndex);
  return noted(std::move(done), record.name_space);
}

Result<bool> StoreImpl::publish(const Manifest& manifest) {
  if (read_only_) return read_only_error();
  const auto json = manifest.to_json();
  if (auto valid = Manifest::parse(json); !valid.ok()) return std::move(valid).error();
  const auto duplicate = [&] {
    MutexLock lock(mutex_);
    const auto* entry = table_.find(manifest.key);
    return entry != nullptr && !entry->failed;
  };
  const Busy busy(*this, manifest.key);
  bool known = duplicate();
  if (!known) {
    NC_TRY(restore(manifest.key));
    known = duplicate();
  }
  if (known) {
    book_.add(manifest.name_space, Counter::kDuplicatePublishes);
    return false;
  }
  NC_TRY(put_entry(manifest, json));
  return true;
}

Status StoreImpl::replace(const Manifest& manifest) {
  if (read_only_) return read_only_error();
  const auto json = manifest.to_json();
  if (auto valid = Manifest::parse(json); !valid.ok()) return std::move(valid).error();
  const Busy busy(*this, manifest.key);
  return put_entry(manifest, json);
}

Status StoreImpl::put_entry(const Manifest& manifest, const std::string& json) {
  auto sealed = Envelope::seal(Envelope::Kind::kManifest, as_bytes(json), false);
  auto record = describe(manifest, sealed.size());
  if (!record.ok()) return std::move(record).error().context("publishing " + manifest.key.hex());
  NC_TRY(commit_entry(manifest.key, *record, std::move(sealed)));
  book_.add(manifest.name_space, Counter::kPublished);
  learn(manifest.key, manifest);
  return {};
}

Status StoreImpl::remember_failure(const Failure& failure) {
  if (read_only_) return read_only_error();
  Millis ttl = 0;
  {
    MutexLock lock(mutex_);
    ttl = options_.failure_ttl_ms;
  }
  const auto prepared = prepare_failure(failure, clock_.wall_ms(), ttl);
  if (!prepared) return {};
  const auto json = prepared->to_json();
  if (auto valid = Failure::parse(json); !valid.ok()) return std::move(valid).error();
  const Busy busy(*this, failure.key);
  {
    // A build that worked once is worth more than one that did not.
    MutexLock lock(mutex_);
    const auto* entry = table_.find(failure.key);
    if (entry != nullptr && !entry->failed) return {};
  }
  auto sealed = Envelope::seal(Envelope::Kind::kFailure, as_bytes(json), true);
  const EntryRecord record = describe(*prepared, sealed.size());
  NC_TRY(commit_entry(failure.key, record, std::move(sealed)));
  book_.add(prepared->name_space, Counter::kFailuresRemembered);
  return {};
}

}  // namespace nc
