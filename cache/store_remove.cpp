// How things leave: eviction, the queue of files to unlink, quarantine.
#include <algorithm>

#include "base/log.hpp"
#include "base/test_point.hpp"
#include "cache/store_impl.hpp"
#include "cache/test_points.hpp"

namespace nc {
namespace {

constexpr Millis kIdleKept = 60'000;  // an upload is not evicted before its publish had this time

}  // namespace

StoreImpl::Busy::Busy(StoreImpl& store, const Sha256& id) : store_(store), id_(id) {
  MutexLock lock(store_.mutex_);
  while (!store_.busy_.insert(id_).second) store_.changed_.wait(store_.mutex_);
}

StoreImpl::Busy::~Busy() {
  MutexLock lock(store_.mutex_);
  store_.busy_.erase(id_);
  store_.changed_.notify_all();
}

void StoreImpl::put_tombstone(const ActionKey& key, RemovalCause cause, KvBatch& batch) {
  std::string value(1, static_cast<char>(cause));
  value += key.view();
  batch.put(Family::kMisses, ring_key(kTombstoneRing, tombstone_next_++), std::move(value));
  while (tombstone_next_ - tombstone_first_ > kMaxTombstones) {
    batch.erase(Family::kMisses, ring_key(kTombstoneRing, tombstone_first_++));
  }
}

bool StoreImpl::take_out(const ActionKey& key, Removal& removal) {
  const auto* entry = table_.find(key);
  if (entry == nullptr || busy_.contains(key)) return false;
  removal.keys.push_back({key, table_.names().name(entry->name_space), entry->disk_bytes});
  busy_.insert(key);
  removal.batch.erase(Family::kManifests, key.view());
  removal.batch.erase(Family::kEntries, key.view());
  removal.batch.erase(Family::kEntries, access_key(key));
  put_tombstone(key, removal.cause, removal.batch);
  for (auto* blob : table_.erase(key)) {
    if (blob->pins == 0 && busy_.insert(blob->digest).second) {
      removal.digests.push_back(blob->digest);
      removal.batch.erase(Family::kBlobs, blob->digest.view());
      table_.set_doomed(*blob, true);
    } else {
      blob->idle_since = clock_.monotonic_ms();
      idle_.emplace_back(blob->idle_since, blob->digest);
    }
  }
  return true;
}

void StoreImpl::settle(Removal& removal, bool committed) {
  {
    MutexLock lock(mutex_);
    const auto now = clock_.monotonic_ms();
    for (const auto& digest : removal.digests) {
      auto* blob = table_.find_blob(digest);
      if (blob == nullptr) continue;
      if (committed) {
        if (blob->file) {
          doomed_.push_back({digest, blob->compressed, blob->disk_bytes, now});
          doomed_digests_[digest] = blob->compressed;
          doomed_bytes_ += blob->disk_bytes;
        }
        table_.erase_blob(digest);
      } else {
        // The index still has the entry; it comes back when somebody asks for it.
        table_.set_doomed(*blob, false);
        blob->idle_since = now;
        idle_.emplace_back(now, digest);
      }
      busy_.erase(digest);
    }
    for (const auto& gone : removal.keys) busy_.erase(gone.key);
    for (const auto& key : removal.skipped) table_.queue().release(key);
    changed_.notify_all();
  }
  if (committed && !removal.keys.empty()) {
    MutexLock lock(explain_mutex_);
    for (const auto& gone : removal.keys) explainer_.removed(gone.key, removal.cause);
  }
  if (!committed) return;
  for (const auto& gone : removal.keys) {
    const auto bytes = static_cast<double>(gone.bytes);
    if (removal.cause == RemovalCause::kEvicted) {
      book_.add(gone.name_space, Counter::kEvictions);
      book_.add(gone.name_space, Counter::kEvictedBytes, bytes);
    } else if (removal.cause == RemovalCause::kPruned) {
      book_.add(gone.name_space, Counter::kPruned);
      book_.add(gone.name_space, Counter::kPrunedBytes, bytes);
    } else if (removal.cause == RemovalCause::kFailureExpired) {
      book_.add(gone.name_space, Counter::kFailuresExpired);
    } else {
      book_.add(gone.name_space, Counter::kRepaired);
    }
  }
}

Status StoreImpl::remove_now(Removal& removal, bool sync) {
  if (removal.batch.empty()) {
    settle(removal, false);
    return {};
  }
  const bool evict = removal.cause == RemovalCause::kEvicted;
  if (evict) test_point(points::kEvictBeforeIndex);
  auto done = index_->commit(removal.batch, sync);
  settle(removal, done.ok());
  if (evict) test_point(points::kEvictAfterIndex);
  return noted(std::move(done));
}

Status StoreImpl::drop(const ActionKey& key, std::uint64_t generation, RemovalCause cause) {
  if (read_only_) return {};
  Removal removal(cause);
  {
    MutexLock lock(mutex_);
    const auto* entry = table_.find(key);
    if (entry == nullptr || entry->generation != generation) return {};
    take_out(key, removal);
  }
  log::warn("store", "entry {} is dropped: {}", key.hex(), removal_cause_name(cause));
  return remove_now(removal, false);
}

bool StoreImpl::evict_one(const Victim& victim, Removal& removal) {
  if (busy_.contains(victim.key)) {
    // Being changed right now: held until this removal is settled, so that the next one is chosen.
    table_.queue().hold(victim.key);
    removal.skipped.push_back(victim.key);
    return false;
  }
  table_.queue().evicted(victim);
  return take_out(victim.key, removal);
}

bool StoreImpl::make_quota_room(const std::string& name_space, std::uint64_t bytes,
                                Removal& removal) {
  const auto quota = options_.namespace_quota.find(name_space);
  if (quota != options_.namespace_quota.end() && bytes > quota->second) return false;
  while (const auto victim = table_.queue().over_quota(name_space, bytes)) {
    evict_one(*victim, removal);
  }
  return true;
}

bool StoreImpl::make_room(std::uint64_t bytes, std::uint64_t entries, Removal& removal) {
  auto& queue = table_.queue();
  const auto limit = options_.max_bytes;
  const auto fixed = reserved_ + quarantine_bytes_ + bytes;
  // Nothing is evicted for what cannot fit even in an empty store.
  if (fixed + table_.pinned_bytes() > limit || entries > options_.max_entries) return false;
  const auto over = [&](std::uint64_t max_bytes,
                        std::uint64_t max_entries) NC_NO_THREAD_SAFETY_ANALYSIS {
    return table_.charged() + fixed > max_bytes || queue.size() + entries > max_entries;
  };
  if (!over(limit, options_.max_entries)) return true;
  // A little more than needed, so that a full store does not evict at every write.
  const auto low_bytes = std::max(fixed + table_.pinned_bytes(), limit - limit / 64);
  const auto low_entries = options_.max_entries - options_.max_entries / 64;
  while (over(low_bytes, low_entries)) {
    const auto victim = queue.victim();
    if (!victim) break;
    evict_one(*victim, removal);
  }
  const auto now = clock_.monotonic_ms();
  while (over(limit, options_.max_entries) && !idle_.empty() &&
         idle_.front().first + kIdleKept <= now) {
    const auto [since, digest] = idle_.front();
    idle_.pop_front();
    auto* blob = idle_blob(since, digest);
    if (blob == nullptr || !busy_.insert(digest).second) continue;
    removal.digests.push_back(digest);
    removal.batch.erase(Family::kBlobs, digest.view());
    table_.set_doomed(*blob, true);
  }
  return !over(limit, options_.max_entries);
}

Status StoreImpl::make_disk_room(std::uint64_t bytes) {
  std::uint64_t floor = 0;
  const auto missing = [&]() -> Result<std::uint64_t> {
    NC_ASSIGN(const auto space, fs_.space(dir_));
    MutexLock lock(mutex_);
    floor = options_.min_free;
    const auto needed = bytes + reserved_ + floor;
    return needed > space.available ? needed - space.available : 0;
  };
  NC_ASSIGN(auto shortfall, missing());
  if (shortfall == 0) return {};
  drain_doomed(SIZE_MAX, 0);
  NC_ASSIGN(shortfall, missing());
  if (shortfall == 0) return {};
  const Error no_space{Code::kNoSpace,
                       "the disk of " + dir_ + " lacks " + format_size(shortfall) + " for " +
                           format_size(bytes) + " (" + format_size(floor) + " stay free)",
                       "free space on that disk, prune the store, or lower min_free"};
  Removal removal(RemovalCause::kEvicted);
  bool enough = false;
  {
    MutexLock lock(mutex_);
    const auto before = table_.file_bytes();
    if (before < shortfall + table_.pinned_bytes()) return no_space;
    while (!enough) {
      const auto victim = table_.queue().victim();
      if (!victim) break;
      evict_one(*victim, removal);
      enough = before - table_.file_bytes() >= shortfall;
    }
  }
  NC_TRY(remove_now(removal, true));
  drain_doomed(SIZE_MAX, 0);
  NC_ASSIGN(shortfall, missing());
  if (shortfall != 0) return no_space;
  return {};
}

std::optional<Doomed> StoreImpl::next_doomed(Millis older_than) {
  MutexLock lock(mutex_);
  while (!doomed_.empty() && doomed_.front().since + older_than <= clock_.monotonic_ms()) {
    const Doomed item = doomed_.front();
    const auto marked = doomed_digests_.find(item.digest);
    if (marked == doomed_digests_.end()) {  // uploaded again since
      doomed_.pop_front();
      doomed_bytes_ -= item.bytes;
      continue;
    }
    // Being uploaded again right now: that takes it off the list.
    if (!busy_.insert(item.digest).second) return std::nullopt;
    doomed_digests_.erase(marked);
    doomed_.pop_front();
    doomed_bytes_ -= item.bytes;
    return item;
  }
  return std::nullopt;
}

std::size_t StoreImpl::drain_doomed(std::size_t limit, Millis older_than) {
  // The index must have forgotten for good what the disk is about to lose: nothing that comes into
  // the queue after the sync is taken.
  std::size_t ready = 0;
  {
    MutexLock lock(mutex_);
    ready = std::min(limit, doomed_.size());
  }
  if (ready == 0) return 0;
  if (!noted(index_->sync()).ok()) return 0;
  std::size_t done = 0;
  for (; done < ready; ++done) {
    const auto item = next_doomed(older_than);
    if (!item) break;
    test_point(points::kEvictBeforeUnlink);
    const auto removed = files_.remove(item->digest, item->compressed);
    if (!removed.ok() && !removed.is(Code::kNotFound)) {
      log::warn("store", "{}", removed.error().text());  // the sweep of orphans tries again
    }
    test_point(points::kEvictAfterUnlink);
    MutexLock lock(mutex_);
    busy_.erase(item->digest);
    changed_.notify_all();
  }
  return done;
}

std::uint64_t StoreImpl::drop_idle_blobs(std::size_t limit) {
  Removal removal(RemovalCause::kPruned);
  std::uint64_t bytes = 0;
  {
    MutexLock lock(mutex_);
    const auto now = clock_.monotonic_ms();
    for (; limit > 0 && !idle_.empty() && idle_.front().first + options_.orphan_grace_ms <= now;
         --limit) {
      const auto [since, digest] = idle_.front();
      idle_.pop_front();
      auto* blob = idle_blob(since, digest);
      if (blob == nullptr) continue;
      if (!busy_.insert(digest).second) {
        blob->idle_since = now;
        idle_.emplace_back(now, digest);
        continue;
      }
      removal.digests.push_back(digest);
      removal.batch.erase(Family::kBlobs, digest.view());
      table_.set_doomed(*blob, true);
      bytes += blob->disk_bytes;
    }
  }
  const auto count = removal.digests.size();
  if (count == 0 || !remove_now(removal, false).ok()) return 0;
  book_.add("default", Counter::kOrphansRemoved, static_cast<double>(count));
  return bytes;
}

BlobState* StoreImpl::idle_blob(Millis since, const Digest& digest) {
  auto* blob = table_.find_blob(digest);
  const bool idle = blob != nullptr && blob->refs == 0 && blob->pins == 0 && !blob->doomed &&
                    blob->idle_since == since;
  return idle ? blob : nullptr;
}

std::uint64_t StoreImpl::idle_bytes() {
  MutexLock lock(mutex_);
  const auto now = clock_.monotonic_ms();
  std::uint64_t bytes = 0;
  for (const auto& [since, digest] : idle_) {
    if (since + options_.orphan_grace_ms > now) break;
    if (const auto* blob = idle_blob(since, digest)) bytes += blob->disk_bytes;
  }
  return bytes;
}

Status StoreImpl::quarantine(const Digest& digest, const std::string& problem) {
  if (read_only_) return {};
  log::warn("store", "blob {} is set aside: {}", digest.hex(), problem);
  Removal removal(RemovalCause::kCorrupt);
  {
    Busy busy(*this, digest);
    bool file = true;
    bool compressed = false;
    {
      MutexLock lock(mutex_);
      auto* blob = table_.find_blob(digest);
      if (blob == nullptr) return {};  // somebody else was faster
      file = blob->file;
      compressed = blob->compressed;
    }
    test_point(points::kQuarantineBefore);
    std::uint64_t bytes = 0;
    if (file) {
      if (const auto info = files_.stat(digest, compressed); info.ok()) bytes = disk_bytes(*info);
      auto moved = files_.quarantine(digest, compressed, clock_.wall_ms());
      if (moved.is(Code::kNotFound)) bytes = 0;
      if (!moved.ok() && !moved.is(Code::kNotFound)) NC_TRY(noted(std::move(moved)));
    }
    test_point(points::kQuarantineMoved);
    {
      MutexLock lock(mutex_);
      auto* blob = table_.find_blob(digest);
      removal.batch.erase(Family::kBlobs, digest.view());
      for (const auto& key : table_.entries_of(*blob)) take_out(key, removal);
      quarantine_bytes_ += bytes;
      // The mark on this digest kept take_out() from taking the blob along; it goes here.
      if (blob->refs == 0 && blob->pins == 0) table_.erase_blob(digest);
    }
    NC_TRY(remove_now(removal, true));
  }
  book_.add("default", Counter::kQuarantined);
  test_point(points::kQuarantineDone);
  return {};
}

}  // namespace nc
