// Listing, pins, holds, prune, counters, records.
#include <algorithm>

#include "base/test_point.hpp"
#include "cache/prune_plan.hpp"
#include "cache/store_impl.hpp"
#include "cache/test_points.hpp"

namespace nc {
namespace {

constexpr std::size_t kPruneBatch = 256;

// Where the records of a table lie.
struct RecordPlace {
  Family family = Family::kRecords;
  std::string prefix;
  std::string key(std::string_view name) const { return prefix + std::string(name); }
};

RecordPlace place_of(std::string_view table) {
  if (table == "histograms") return {Family::kHistograms, ""};
  if (table == "plans") return {Family::kPlans, ""};
  return {Family::kRecords, std::string(table) + '\0'};
}

}  // namespace

std::string StoreImpl::label_of(const ActionKey& key) {
  const auto text = index_->get(Family::kEntries, key.view());
  if (!text.ok() || !text->has_value()) return {};
  const auto record = EntryRecord::decode(**text);
  return record ? record->label : std::string();
}

std::optional<EntryInfo> StoreImpl::info_of(const ActionKey& key) {
  MutexLock lock(mutex_);
  const auto* entry = table_.find(key);
  if (entry == nullptr) return std::nullopt;
  return table_.info(key, *entry);
}

Result<std::vector<EntryInfo>> StoreImpl::entries(const EntryFilter& filter,
                                                  const std::string& after, std::size_t limit) {
  NC_TRY(check_filter(filter));
  std::string from;
  if (!after.empty()) {
    const auto key = Sha256::from_hex(after);
    if (!key) {
      return Error{Code::kInvalid, "\"" + after + "\" is not a cursor",
                   "give the `next` of the page before"};
    }
    from = key->view();
  }
  const auto now = clock_.wall_ms();
  std::vector<EntryInfo> out;
  // The index is read in pages and looked up in the table between them: mutex_ is taken before the
  // index's own lock everywhere, never within a scan.
  struct Row {
    std::string key, value;
  };
  constexpr std::size_t kPage = 512;
  std::vector<Row> rows;
  do {
    rows.clear();
    NC_TRY(index_->scan(Family::kEntries, from, [&](std::string_view key, std::string_view value) {
      if (key != from) rows.push_back({std::string(key), std::string(value)});
      return rows.size() < kPage;
    }));
    for (const auto& row : rows) {
      if (out.size() >= limit) break;
      const auto id = sha256_of_raw(row.key);
      if (!id) continue;  // an access record
      auto info = info_of(*id);
      if (!info || !matches(filter, *info, now)) continue;
      if (auto record = EntryRecord::decode(row.value)) info->label = std::move(record->label);
      out.push_back(*std::move(info));
    }
    if (!rows.empty()) from = rows.back().key;
  } while (rows.size() == kPage && out.size() < limit);
  return out;
}

Result<EntryInfo> StoreImpl::entry(std::string_view key_or_prefix) {
  constexpr std::size_t kDigits = 64;
  if (key_or_prefix.empty() || key_or_prefix.size() > kDigits ||
      !is_hex(key_or_prefix, key_or_prefix.size())) {
    return Error{Code::kInvalid, "\"" + std::string(key_or_prefix) + "\" is no key",
                 "give lower-case hex digits, as many as make it unique"};
  }
  std::string padded(key_or_prefix);
  padded.resize(kDigits, '0');
  const auto from = *Sha256::from_hex(padded);
  std::vector<ActionKey> found;
  NC_TRY(index_->scan(Family::kEntries, from.view(), [&](std::string_view key, std::string_view) {
    const auto id = sha256_of_raw(key);
    if (!id) return true;
    if (!id->hex().starts_with(key_or_prefix)) return false;
    found.push_back(*id);
    return found.size() < 2;
  }));
  if (found.size() > 1) {
    return Error{Code::kConflict, "more than one key begins with " + std::string(key_or_prefix),
                 "give more digits"};
  }
  auto info = found.empty() ? std::nullopt : info_of(found.front());
  if (!info) {
    return Error{Code::kNotFound,
                 "no entry has a key that begins with " + std::string(key_or_prefix),
                 "list them with `neuroncache ls`"};
  }
  info->label = label_of(info->key);
  return *std::move(info);
}

Status StoreImpl::pin(const ActionKey& key, bool pinned) {
  if (read_only_) return read_only_error();
  const Busy busy(*this, key);
  AccessRecord access;
  {
    MutexLock lock(mutex_);
    const auto queued = table_.queue().find(key);
    if (table_.find(key) == nullptr || !queued) {
      return Error{Code::kNotFound, "there is no entry " + key.hex(),
                   "list them with `neuroncache ls`"};
    }
    access = {queued->uses, queued->used_ms, queued->age, pinned};
  }
  KvBatch batch;
  batch.put(Family::kEntries, access_key(key), access.encode());
  NC_TRY(noted(index_->commit(batch, true)));
  MutexLock lock(mutex_);
  table_.set_pinned(key, pinned);
  return {};
}

void StoreImpl::release_hold(const ActionKey& key) {
  MutexLock lock(mutex_);
  table_.queue().release(key);
}

std::shared_ptr<void> StoreImpl::hold(const ActionKey& key) {
  {
    MutexLock lock(mutex_);
    table_.queue().hold(key);
  }
  // The store may be gone before the last hold is.
  return {static_cast<void*>(this), [gate = gate_, key](void*) {
            MutexLock lock(gate->mutex);
            if (gate->store != nullptr) gate->store->release_hold(key);
          }};
}

Result<PruneResult> StoreImpl::prune(const PruneRequest& request) {
  if (read_only_ && !request.dry_run) return read_only_error();
  NC_TRY(check_filter(request.filter));
  PrunePlanner planner(request, clock_.wall_ms());
  PruneResult plan;
  {
    MutexLock lock(mutex_);
    for (const auto& [key, entry] : table_.entries()) planner.add(table_.info(key, entry));
    plan = planner.finish([&](const ActionKey& key) NC_NO_THREAD_SAFETY_ANALYSIS {
      std::vector<BlobUse> uses;
      if (const auto* entry = table_.find(key)) {
        for (const auto* blob : entry->blobs) {
          uses.push_back({blob->digest, blob->disk_bytes, blob->refs});
        }
      }
      return uses;
    });
  }
  for (auto& entry : plan.removed) entry.label = label_of(entry.key);
  test_point(points::kPrunePlanned);
  if (!request.dry_run) {
    std::vector<EntryInfo> removed;
    for (std::size_t begin = 0; begin < plan.removed.size(); begin += kPruneBatch) {
      Removal removal(RemovalCause::kPruned);
      const auto end = std::min(begin + kPruneBatch, plan.removed.size());
      {
        MutexLock lock(mutex_);
        for (std::size_t i = begin; i < end; ++i) {
          const auto& key = plan.removed[i].key;
          const auto* entry = table_.find(key);
          if (entry == nullptr) continue;  // gone already
          if (entry->pinned || table_.queue().held(key)) {
            plan.kept.push_back({key, entry->pinned ? "pinned" : "in_use"});
          } else if (take_out(key, removal)) {
            removed.push_back(std::move(plan.removed[i]));
          }
        }
      }
      NC_TRY(remove_now(removal, true));
      test_point(points::kPruneAfterIndex);
    }
    plan.removed = std::move(removed);
  }
  auto swept_bytes = request.dry_run ? idle_bytes() : drop_idle_blobs(SIZE_MAX);
  if (!request.dry_run) drain_doomed(SIZE_MAX, 0);
  swept_bytes += sweep_all(request.dry_run).bytes;
  plan.bytes += swept_bytes;
  plan.swept_bytes = swept_bytes;
  test_point(points::kPruneSwept);
  if (!request.dry_run) {
    MutexLock lock(mutex_);
    next_measure_ = 0;
  }
  if (!request.dry_run) measure();
  return plan;
}

void StoreImpl::count(std::string_view name_space, std::string_view counter, double by) {
  book_.add(name_space, counter, by);
}

void StoreImpl::count_bypass(std::string_view name_space, std::string_view reason, double by) {
  book_.add_bypass(name_space, reason, by);
}

Counters StoreImpl::counters(std::string_view name_space) {
  auto out = book_.snapshot(name_space);
  MutexLock lock(mutex_);
  if (name_space.empty()) {
    out["entries"] = static_cast<double>(table_.queue().size());
    out["bytes"] = static_cast<double>(table_.charged());
  } else {
    const auto share = table_.share(std::string(name_space));
    out["entries"] = static_cast<double>(share.entries);
    out["bytes"] = static_cast<double>(share.bytes);
  }
  return out;
}

std::map<std::string, Counters> StoreImpl::namespaces() {
  auto out = book_.namespaces();
  for (auto& [name, values] : out) values = counters(name);
  return out;
}

std::map<std::string, double> StoreImpl::bypass_reasons() {
  return book_.bypass_reasons();
}

std::optional<double> StoreImpl::usual_build_seconds(std::string_view kind,
                                                     std::string_view label) {
  MutexLock lock(mutex_);
  return table_.build_times().seconds(kind, label);
}

Status StoreImpl::put_record(std::string_view table, std::string_view key, std::string_view value) {
  return change_records(table, {{std::string(key), std::string(value)}});
}

Status StoreImpl::erase_record(std::string_view table, std::string_view key) {
  return change_records(table, {{std::string(key), std::nullopt}});
}

Status StoreImpl::change_records(std::string_view table, std::vector<RecordChange> changes) {
  if (read_only_) return read_only_error();
  const RecordPlace place = place_of(table);
  KvBatch batch;
  for (RecordChange& change : changes) {
    if (change.value) {
      batch.put(place.family, place.key(change.key), *std::move(change.value));
    } else {
      batch.erase(place.family, place.key(change.key));
    }
  }
  return noted(index_->commit(batch, false));
}

Result<std::map<std::string, std::string>> StoreImpl::records(std::string_view table) {
  std::map<std::string, std::string> out;
  const RecordPlace place = place_of(table);
  const std::string& prefix = place.prefix;
  NC_TRY(index_->scan(place.family, prefix, [&](std::string_view key, std::string_view value) {
    if (!key.starts_with(prefix)) return false;
    out.emplace(key.substr(prefix.size()), value);
    return true;
  }));
  return out;
}

}  // namespace nc
