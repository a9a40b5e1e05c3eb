// Opening: whose store it is, which version, one writer, the index, what is in it.
#include <unistd.h>

#include <algorithm>

#include "base/log.hpp"
#include "base/test_point.hpp"
#include "cache/store_impl.hpp"
#include "cache/test_points.hpp"

namespace nc {
namespace {

constexpr std::string_view kStoreMark = "neuroncache-store ";
constexpr std::string_view kStoreVersion = "1";
constexpr std::size_t kLearnAtOpen = 1000;
constexpr std::string_view kRepairMark = "index.repairing";
constexpr std::size_t kMaxSalvageTries = 3;

Result<std::string> read_store_id(std::string_view text, const std::string& path) {
  const Error foreign{Code::kUnsupported, path + " is not of a neuroncache store",
                      "choose another directory for the store"};
  if (!text.starts_with(kStoreMark)) return foreign;
  text.remove_prefix(kStoreMark.size());
  const auto space = text.find(' ');
  if (space == std::string_view::npos) return foreign;
  const auto version = text.substr(0, space);
  if (version != kStoreVersion) {
    return Error{Code::kUnsupported,
                 path + " is of store version " + std::string(version) + ", this program speaks " +
                     std::string(kStoreVersion),
                 "choose another directory or use the version of neuroncache that made it"};
  }
  auto id = text.substr(space + 1);
  while (!id.empty() && (id.back() == '\n' || id.back() == ' ')) id.remove_suffix(1);
  if (id.empty()) return foreign;
  return std::string(id);
}

}  // namespace

Result<std::unique_ptr<Store>> Store::open(StoreOptions options, Deps deps) {
  auto store = std::make_unique<StoreImpl>(std::move(options), deps);
  NC_TRY(store->start());
  return std::unique_ptr<Store>(std::move(store));
}

StoreImpl::StoreImpl(StoreOptions options, Deps deps)
    : fs_(deps.fs),
      clock_(deps.clock),
      random_(deps.random),
      dir_(options.dir),
      files_(deps.fs, options.dir),
      read_only_(options.read_only),
      gate_(std::make_shared<HoldGate>()),
      options_(std::move(options)) {
  MutexLock lock(gate_->mutex);
  gate_->store = this;
}

StoreImpl::~StoreImpl() {
  MutexLock lock(gate_->mutex);
  gate_->store = nullptr;
}

Error StoreImpl::read_only_error() const {
  return {Code::kReadOnly, "the store " + dir_ + " is open for reading only",
          "open it for writing, on a disk that can be written"};
}

void StoreImpl::resolve_limits(StoreOptions& options) const {
  if (options.max_bytes == 0) {
    constexpr std::uint64_t kMost = 50ULL << 30;
    const auto space = fs_.space(dir_);
    options.max_bytes = space.ok() ? std::min(kMost, space->total / 10) : kMost;
  }
  options.max_entries = std::max<std::uint64_t>(options.max_entries, 1);
}

Status StoreImpl::check_dir() {
  auto info = fs_.stat(dir_);
  if (info.is(Code::kNotFound)) {
    if (read_only_) {
      return Error{Code::kNotFound, "there is no store in " + dir_,
                   "start the daemon once to make it, or name another directory"};
    }
    // Every directory made on the way has to be there after a power cut, too.
    std::vector<std::string> made;
    for (auto dir = dir_; fs_.stat(dir).is(Code::kNotFound); dir = parent_dir(dir)) {
      made.push_back(parent_dir(dir));
    }
    NC_TRY(fs_.make_dirs(dir_, 0700));
    for (const auto& dir : made) NC_TRY(fs_.sync_dir(dir));
    info = fs_.stat(dir_);
  }
  if (!info.ok()) return std::move(info).error();
  if (!info->is_dir) {
    return Error{Code::kDenied, dir_ + " is not a directory", "choose another place for the store"};
  }
  // Whoever can write an artifact can run code in whoever loads it.
  if (info->uid != ::geteuid()) {
    return Error{Code::kDenied,
                 "the store " + dir_ + " belongs to user " + std::to_string(info->uid) +
                     ", not to user " + std::to_string(::geteuid()),
                 "choose a directory of your own with NEURONCACHE_DIR"};
  }
  if ((info->mode & 022U) != 0) {
    return Error{Code::kDenied, "others can write into the store " + dir_,
                 "run: chmod go-w " + dir_};
  }
  return {};
}

Status StoreImpl::read_store_file() {
  const auto path = join(dir_, "STORE");
  auto text = fs_.read_all(path, 4096);
  if (text.is(Code::kNotFound)) {
    if (!read_only_) return {};
    return Error{Code::kNotFound, "there is no store in " + dir_,
                 "start the daemon once to make it, or name another directory"};
  }
  if (text.is(Code::kTooLarge)) {
    return Error{Code::kUnsupported, path + " is not of a neuroncache store",
                 "choose another directory for the store"};
  }
  if (!text.ok()) return std::move(text).error();
  NC_ASSIGN(id_, read_store_id(*text, path));
  return {};
}

Status StoreImpl::write_store_file() {
  if (!id_.empty()) return {};
  id_ = random_.hex_id();
  const auto text = std::string(kStoreMark) + std::string(kStoreVersion) + " " + id_ + "\n";
  return fs_.write_atomically(join(dir_, "STORE"), as_bytes(text));
}

Status StoreImpl::take_lock() {
  auto lock = fs_.lock(join(dir_, "lock"));
  if (lock.is(Code::kBusy)) {
    return Error{Code::kBusy, "the store " + dir_ + " is in use by another process",
                 "talk to the daemon that has it, or stop it with `neuroncache daemon stop`"};
  }
  if (!lock.ok()) return std::move(lock).error();
  lock_ = *std::move(lock);
  return {};
}

std::string StoreImpl::broken_index_name() {
  const auto base = join(dir_, "index.broken-" + std::to_string(clock_.wall_ms()));
  auto name = base;
  for (int i = 1; fs_.stat(name).ok(); ++i) name = base + "-" + std::to_string(i);
  return name;
}

// The new index is made beside the old one and takes its place only when it is complete, so that a
// crash in between loses nothing: the next open begins again, or finds the place empty and the new
// one ready.
Status StoreImpl::set_index_aside(const Error& why) {
  const auto old_dir = join(dir_, "index");
  const auto new_dir = join(dir_, "index.new");
  const auto trying = join(dir_, kRepairMark);
  const auto aside = broken_index_name();
  log::error("store", "{}; it is set aside as {} and made anew", why.message, aside);
  // Should reading the damaged files bring the process down again and again, they are left alone.
  const auto marks = fs_.read_all(trying, 16);
  const auto tries = marks.ok() ? marks->size() : 0;
  NC_TRY(fs_.write_atomically(trying, as_bytes(std::string(tries + 1, '.'))));
  if (fs_.stat(new_dir).ok()) NC_TRY(remove_tree(new_dir));
  NC_ASSIGN(index_, KeyValueDb::open(fs_, {new_dir, false, true}));
  const auto saved = tries < kMaxSalvageTries ? salvage(old_dir) : 0;
  adopted_ms_ = clock_.wall_ms();
  KvBatch batch;
  batch.put(Family::kMeta, "adopted_ms", std::to_string(adopted_ms_));
  NC_TRY(index_->commit(batch, true));
  index_.reset();
  test_point(points::kOpenIndexMade);
  NC_TRY(fs_.rename(old_dir, aside));
  test_point(points::kOpenIndexAside);
  NC_TRY(fs_.rename(new_dir, old_dir));
  NC_TRY(fs_.sync_dir(dir_));
  test_point(points::kOpenIndexReplaced);
  NC_ASSIGN(index_, KeyValueDb::open(fs_, {old_dir, false, true}));
  MutexLock lock(mutex_);
  notice_ = "the index was damaged and made anew, " + std::to_string(saved) +
            " records were saved; the old one is " + aside;
  return {};
}

// What a repair that was cut short left behind, once the index opens.
Status StoreImpl::finish_repair() {
  const auto trying = join(dir_, kRepairMark);
  if (!fs_.stat(trying).ok()) return {};
  const auto new_dir = join(dir_, "index.new");
  if (fs_.stat(new_dir).ok()) NC_TRY(remove_tree(new_dir));
  return fs_.remove(trying);
}

// What the old index still tells goes into the new one. Whatever is wrong with it shows when it is
// used.
std::uint64_t StoreImpl::salvage(const std::string& dir) {
  constexpr std::size_t kBatch = 500;
  std::uint64_t saved = 0;
  const auto repaired = KeyValueDb::repair(fs_, dir);
  auto old = KeyValueDb::open(fs_, {dir, false, false});
  if (!old.ok()) {
    log::warn("store", "nothing can be saved: {}",
              repaired.ok() ? old.error().message : repaired.error().message);
    return saved;
  }
  for (const auto family : {Family::kManifests, Family::kBlobs, Family::kEntries, Family::kRecords,
                            Family::kStats, Family::kMisses, Family::kHistograms, Family::kPlans}) {
    KvBatch batch;
    const auto write = [&] {
      if (index_->commit(batch, false).ok()) saved += batch.size();
      batch = {};
    };
    const auto read = (*old)->scan(family, {}, [&](std::string_view key, std::string_view value) {
      batch.put(family, key, std::string(value));
      if (batch.size() == kBatch) write();
      return true;
    });
    write();
    if (!read.ok()) log::warn("store", "not everything can be saved: {}", read.error().message);
  }
  ignore_error(index_->sync(), "what is lost again is built again");
  return saved;
}

Status StoreImpl::open_index() {
  const auto dir = join(dir_, "index");
  if (!read_only_ && fs_.stat(dir).is(Code::kNotFound) && fs_.stat(dir + ".new").ok()) {
    NC_TRY(fs_.rename(dir + ".new", dir));
    NC_TRY(fs_.sync_dir(dir_));
  }
  auto index = KeyValueDb::open(fs_, {dir, read_only_, true});
  if (index.ok()) {
    index_ = *std::move(index);
    return {};
  }
  if (!index.is(Code::kCorrupt) || read_only_) return std::move(index).error();
  return set_index_aside(index.error());
}

Status StoreImpl::start() {
  NC_TRY(check_dir());
  NC_TRY(read_store_file());
  if (!read_only_) {
    auto locked = take_lock();
    if (locked.is(Code::kReadOnly) && !id_.empty()) {
      // What is there can still be served.
      read_only_ = true;
      MutexLock lock(mutex_);
      notice_ = locked.error().message;
    } else if (!locked.ok()) {
      return locked;
    }
  }
  if (!read_only_) {
    test_point(points::kOpenLocked);
    // Another process may have made it between our look and our lock.
    if (id_.empty()) NC_TRY(read_store_file());
    NC_TRY(write_store_file());
    test_point(points::kOpenMarked);
    NC_TRY(files_.make_dirs());
    NC_TRY(files_.empty_staging());
    test_point(points::kOpenStagingEmptied);
  }
  NC_TRY(open_index());
  // The names of what was made in it: index, cas, staging, quarantine.
  if (!read_only_) NC_TRY(fs_.sync_dir(dir_));
  test_point(points::kOpenIndexOpened);
  {
    MutexLock lock(mutex_);
    resolve_limits(options_);
    table_.queue().set_quotas(options_.namespace_quota);
  }
  auto loaded = load();
  if (loaded.is(Code::kCorrupt) && !read_only_) {
    index_.reset();
    NC_TRY(set_index_aside(loaded.error()));
    loaded = load();
  }
  NC_TRY(std::move(loaded));
  if (const auto broken = index_->broken()) {
    MutexLock lock(mutex_);
    write_problem_ = broken->message;
  }
  if (!read_only_) NC_TRY(finish_repair());
  learn_manifests(kLearnAtOpen);
  measure();
  test_point(points::kOpenLoaded);
  return {};
}

Status StoreImpl::load() {
  NC_ASSIGN(const auto adopted, index_->get(Family::kMeta, "adopted_ms"));
  if (adopted) adopted_ms_ = std::strtoll(adopted->c_str(), nullptr, 10);
  NC_ASSIGN(const auto age, index_->get(Family::kMeta, "age"));
  if (age) {
    if (const auto record = AccessRecord::decode(*age)) {
      MutexLock lock(mutex_);
      table_.queue().set_age(record->age);
      stored_age_ = record->age;
    }
  }
  NC_TRY(load_entries());
  NC_TRY(load_tombstones());
  return index_->scan(Family::kStats, {}, [&](std::string_view key, std::string_view value) {
    book_.load(key, value);
    return true;
  });
}

Status StoreImpl::load_entries() {
  struct Loaded {
    ActionKey key;
    EntryRecord record;
    AccessRecord access;
  };
  // Inserted in the order of their last use, a piece of the key space at a time to keep this small.
  std::vector<Loaded> loaded;
  KvBatch stale;
  std::size_t damaged = 0;
  NC_TRY(index_->scan(Family::kEntries, {}, [&](std::string_view key, std::string_view value) {
    const auto id = sha256_of_raw(key.substr(0, 32));
    if (id && key.size() == 32) {
      if (auto record = EntryRecord::decode(value)) {
        AccessRecord access;
        access.used_ms = record->created_ms;
        loaded.push_back({*id, *std::move(record), access});
      } else {
        ++damaged;  // made again from its manifest when that is read
        stale.erase(Family::kEntries, key);
      }
    } else if (id && key.size() == 33 && !loaded.empty() && loaded.back().key == *id) {
      if (const auto access = AccessRecord::decode(value)) loaded.back().access = *access;
    } else {
      stale.erase(Family::kEntries, key);
    }
    return true;
  }));
  std::sort(loaded.begin(), loaded.end(), [](const Loaded& a, const Loaded& b) {
    return a.access.used_ms != b.access.used_ms ? a.access.used_ms < b.access.used_ms
                                                : a.key < b.key;
  });
  {
    MutexLock lock(mutex_);
    for (const auto& entry : loaded) {
      table_.insert(entry.key, entry.record, entry.access, expiry(entry.record));
    }
  }
  if (damaged != 0) log::warn("store", "{} entry records are damaged", damaged);
  if (!stale.empty() && !read_only_) {
    ignore_error(index_->commit(stale, false), "they are met again at the next open");
  }
  return {};
}

Status StoreImpl::load_tombstones() {
  std::vector<std::pair<ActionKey, RemovalCause>> gone;
  {
    MutexLock lock(mutex_);
    bool first_tombstone = true;
    bool first_miss = true;
    NC_TRY(index_->scan(
        Family::kMisses, {},
        [&](std::string_view key, std::string_view value) NC_NO_THREAD_SAFETY_ANALYSIS {
          if (const auto number = ring_number(kMissRing, key)) {
            if (first_miss) miss_first_ = *number;
            first_miss = false;
            miss_next_ = *number + 1;
          } else if (const auto tombstone = ring_number(kTombstoneRing, key)) {
            if (first_tombstone) tombstone_first_ = *tombstone;
            first_tombstone = false;
            tombstone_next_ = *tombstone + 1;
            if (value.empty()) return true;
            const auto id = sha256_of_raw(value.substr(1));
            const auto cause = static_cast<unsigned char>(value[0]);
            if (id && cause <= static_cast<unsigned char>(RemovalCause::kFailureExpired) &&
                table_.find(*id) == nullptr) {
              gone.emplace_back(*id, static_cast<RemovalCause>(cause));
            }
          }
          return true;
        }));
  }
  MutexLock lock(explain_mutex_);
  for (const auto& [key, cause] : gone) explainer_.removed(key, cause);
  return {};
}

}  // namespace nc
