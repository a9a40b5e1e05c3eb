// What happens beside the calls: counters and uses are written, limits enforced, files unlinked, a
// full disk got over.
#include "base/log.hpp"
#include "base/test_point.hpp"
#include "cache/store_impl.hpp"
#include "cache/test_points.hpp"

namespace nc {
namespace {

constexpr std::size_t kUsesPerCall = 2000;
constexpr std::size_t kRemovalsPerCall = 256;
constexpr std::size_t kManifestsPerCall = 1000;
constexpr Millis kUnlinkDelay = 2000;  // who was just given a path can still open it
constexpr Millis kFirstSweep = 60'000;
constexpr Millis kSweepPause = 3'600'000;
constexpr Millis kMeasurePause = 10'000;
constexpr unsigned kShards = 256;

}  // namespace

void StoreImpl::count_failed_write(std::string_view name_space) {
  book_.add(name_space.empty() ? "default" : name_space, Counter::kFailedWrites);
}

Status StoreImpl::noted(Status status, std::string_view name_space) {
  if (status.ok()) return status;
  count_failed_write(name_space);
  MutexLock lock(mutex_);
  if (write_problem_.empty()) {
    write_problem_ = status.error().message;
    log::error("store", "{}", status.error().text());
  }
  return status;
}

// Below the floor uploads are refused: that is worth telling even while small writes work.
Status StoreImpl::check_floor() {
  NC_ASSIGN(const auto space, fs_.space(dir_));
  MutexLock lock(mutex_);
  if (space.available >= options_.min_free) return {};
  return Error{Code::kNoSpace,
               "the disk of " + dir_ + " has only " + format_size(space.available) + " left",
               "free space on that disk or lower min_free"};
}

void StoreImpl::get_well() {
  std::string problem;
  {
    MutexLock lock(mutex_);
    problem = write_problem_;
  }
  const auto broken = index_->broken();
  if (problem.empty() && !broken) return;
  Status well;
  if (broken) well = index_->recover();
  if (well.ok()) well = check_floor();
  if (well.ok()) well = fs_.write_atomically(join(dir_, "staging/probe"), as_bytes("probe"));
  if (well.ok()) {
    ignore_error(fs_.remove(join(dir_, "staging/probe")), "staging is emptied at the next open");
    KvBatch batch;
    batch.put(Family::kMeta, "probe", "");
    well = index_->commit(batch, true);
  }
  MutexLock lock(mutex_);
  if (well.ok()) {
    log::info("store", "writes work again in {}", dir_);
    write_problem_.clear();
  } else {
    write_problem_ = well.error().message;
  }
}

Status StoreImpl::write_counters(std::size_t max_entries) {
  KvBatch batch;
  auto records = book_.take_dirty();
  for (const auto& [key, value] : records) batch.put(Family::kStats, key, value);
  std::vector<ActionKey> used;
  double age = 0;
  bool aged = false;
  {
    MutexLock lock(mutex_);
    age = table_.queue().age();
    aged = age != stored_age_;
    while (!dirty_.empty() && used.size() < max_entries) {
      const auto key = dirty_.back();
      dirty_.pop_back();
      auto* entry = table_.find(key);
      const auto queued = table_.queue().find(key);
      if (entry == nullptr || !queued || !entry->dirty) continue;
      entry->dirty = false;
      table_.queue().settle(key);
      const AccessRecord access{queued->uses, queued->used_ms, queued->age, entry->pinned};
      batch.put(Family::kEntries, access_key(key), access.encode());
      used.push_back(key);
    }
  }
  if (aged) batch.put(Family::kMeta, "age", AccessRecord{0, 0, age, false}.encode());
  if (batch.empty()) return {};
  test_point(points::kMaintainBeforeWrite);
  auto done = noted(index_->commit(batch, false));
  test_point(points::kMaintainAfterWrite);
  if (!done.ok()) {
    book_.give_back(records);
    MutexLock lock(mutex_);
    for (const auto& key : used) {
      auto* entry = table_.find(key);
      if (entry == nullptr || entry->dirty) continue;
      entry->dirty = true;
      dirty_.push_back(key);
    }
    return done;
  }
  if (aged) {
    MutexLock lock(mutex_);
    stored_age_ = age;
  }
  MutexLock lock(explain_mutex_);
  for (const auto& key : used) explainer_.seen(key);
  return done;
}

void StoreImpl::expire_failures(std::size_t limit) {
  Removal removal(RemovalCause::kFailureExpired);
  {
    MutexLock lock(mutex_);
    const auto now = clock_.monotonic_ms();
    for (; limit > 0; --limit) {
      const auto first = table_.first_to_expire();
      if (!first || first->first > now || !take_out(first->second, removal)) break;
    }
  }
  ignore_error(remove_now(removal, false), "noted; they are not replayed any more anyhow");
}

void StoreImpl::enforce_limits() {
  Removal removal(RemovalCause::kEvicted);
  {
    MutexLock lock(mutex_);
    while (const auto victim = table_.queue().over_quota()) evict_one(*victim, removal);
    make_room(0, 0, removal);
  }
  ignore_error(remove_now(removal, false), "noted; tried again at the next call");
}

void StoreImpl::learn_manifests(std::size_t limit) {
  std::string from;
  {
    MutexLock lock(mutex_);
    if (learned_all_) return;
    from = learn_cursor_;
  }
  std::vector<std::pair<ActionKey, std::string>> read;
  const auto scanned =
      index_->scan(Family::kManifests, from, [&](std::string_view key, std::string_view value) {
        if (key == from) return true;
        if (read.size() == limit) return false;
        if (const auto id = sha256_of_raw(key)) read.emplace_back(*id, value);
        return true;
      });
  if (!scanned.ok()) log::warn("store", "{}", scanned.error().text());
  for (const auto& [key, sealed] : read) {
    bool known = false;
    {
      MutexLock lock(mutex_);
      known = table_.find(key) != nullptr;
    }
    if (known) {
      if (const auto manifest = parse_sealed(sealed)) learn(key, *manifest);
    } else {
      const Busy busy(*this, key);
      ignore_error(restore(key), "tried again when somebody asks for it");
    }
  }
  MutexLock lock(mutex_);
  learned_all_ = read.size() < limit || !scanned.ok();
  if (!read.empty()) learn_cursor_ = read.back().first.view();
}

void StoreImpl::measure() {
  {
    MutexLock lock(mutex_);
    if (clock_.monotonic_ms() < next_measure_) return;
    next_measure_ = clock_.monotonic_ms() + kMeasurePause;
  }
  auto aside = files_.quarantine_bytes();
  for (const auto& dir : broken_indexes()) aside += tree_bytes(dir);
  MutexLock lock(mutex_);
  quarantine_bytes_ = aside;
}

void StoreImpl::maintain() {
  if (read_only_) return;
  get_well();
  ignore_error(write_counters(kUsesPerCall), "noted; they stay in memory until it works");
  expire_failures(kRemovalsPerCall);
  enforce_limits();
  drain_doomed(kRemovalsPerCall, kUnlinkDelay);
  drop_idle_blobs(kRemovalsPerCall);
  learn_manifests(kManifestsPerCall);
  measure();
  unsigned shard = kShards;
  {
    MutexLock lock(mutex_);
    const auto now = clock_.monotonic_ms();
    if (next_sweep_ == 0) next_sweep_ = now + kFirstSweep;
    if (now >= next_sweep_) {
      shard = sweep_shard_++;
      if (sweep_shard_ == kShards) {
        sweep_shard_ = 0;
        next_sweep_ = now + kSweepPause;
      }
    }
  }
  if (shard < kShards) ignore_error(sweep_shard(shard, false), "swept again in an hour");
}

Status StoreImpl::flush() {
  if (read_only_) return {};
  get_well();
  NC_TRY(write_counters(SIZE_MAX));
  expire_failures(SIZE_MAX);
  enforce_limits();
  drain_doomed(SIZE_MAX, 0);
  return noted(index_->sync());
}

StoreHealth StoreImpl::health() {
  StoreHealth out;
  const auto value = [&](Counter counter) {
    return static_cast<std::uint64_t>(book_.value("", counter));
  };
  out.failed_writes = value(Counter::kFailedWrites);
  out.quarantined = value(Counter::kQuarantined);
  out.repaired = value(Counter::kRepaired);
  MutexLock lock(mutex_);
  out.writable = !read_only_ && write_problem_.empty();
  out.problem = write_problem_.empty() ? notice_ : write_problem_;
  return out;
}

StoreSize StoreImpl::size() {
  StoreSize out;
  const auto index = tree_bytes(join(dir_, "index"));
  auto aside = files_.quarantine_bytes();
  for (const auto& dir : broken_indexes()) aside += tree_bytes(dir);
  if (const auto space = fs_.space(dir_); space.ok()) out.disk_available = space->available;
  MutexLock lock(mutex_);
  out.bytes = table_.file_bytes() + doomed_bytes_ + index + aside;
  out.entries = table_.queue().size();
  out.blobs = table_.blob_count();
  out.reserved = reserved_;
  out.max_bytes = options_.max_bytes;
  out.max_entries = options_.max_entries;
  return out;
}

void StoreImpl::set_limits(const StoreOptions& options) {
  auto copy = options;
  resolve_limits(copy);
  MutexLock lock(mutex_);
  copy.dir = options_.dir;
  copy.read_only = options_.read_only;
  options_ = std::move(copy);
  table_.queue().set_quotas(options_.namespace_quota);
}

}  // namespace nc
