// What nothing names: blobs, files and whole indexes that a crash, a lost index or damage left
// behind.
#include <algorithm>

#include "base/log.hpp"
#include "cache/store_impl.hpp"

namespace nc {
namespace {

constexpr unsigned kShards = 256;
constexpr std::string_view kBrokenPrefix = "index.broken-";

}  // namespace

bool StoreImpl::orphan_is_old(Millis since_wall) {
  const auto now = clock_.wall_ms();
  MutexLock lock(mutex_);
  // A time in the future (the clock went back) says nothing: kept until the clock is past it.
  return std::max(since_wall, adopted_ms_) + options_.orphan_grace_ms <= now;
}

void StoreImpl::sweep_stray(const std::string& path, bool dry_run, Swept& swept) {
  const auto info = fs_.stat(path);
  if (!info.ok() || info->is_dir || !orphan_is_old(info->mtime_ms)) return;
  if (!dry_run && !fs_.remove(path).ok()) return;
  ++swept.files;
  swept.bytes += disk_bytes(*info);
}

bool StoreImpl::sweep_orphan(const Digest& digest, bool dry_run, Swept& swept) {
  const Busy busy(*this, digest);
  {
    MutexLock lock(mutex_);
    if (table_.find_blob(digest) != nullptr || doomed_digests_.contains(digest)) return false;
  }
  const auto text = index_->get(Family::kBlobs, digest.view());
  const auto file = files_.find(digest);
  if ((!text.ok() && !text.is(Code::kCorrupt)) || !file.ok()) return false;
  const bool recorded = !text.ok() || text->has_value();
  Millis since = 0;
  std::uint64_t bytes = 0;
  if (recorded) {
    const auto record = text.ok() ? BlobRecord::decode(**text) : std::nullopt;
    if (record) since = record->created_ms;
    bytes = text.ok() ? (*text)->size() : 0;
  }
  if (*file) {
    since = std::max(since, (*file)->info.mtime_ms);
    bytes = disk_bytes((*file)->info);
  }
  if ((!recorded && !*file) || !orphan_is_old(since)) return false;
  if (!dry_run) {
    if (recorded) {
      KvBatch batch;
      batch.erase(Family::kBlobs, digest.view());
      if (!noted(index_->commit(batch, false)).ok()) return false;
    }
    if (*file && !files_.remove(digest, (*file)->compressed).ok()) return false;
    book_.add("default", Counter::kOrphansRemoved);
  }
  ++swept.files;
  swept.bytes += bytes;
  return true;
}

Result<Swept> StoreImpl::sweep_shard(unsigned shard, bool dry_run) {
  Swept swept;
  std::vector<Digest> suspects;
  NC_ASSIGN(const auto files, files_.list(shard, [&](const std::string& path) {
    sweep_stray(path, dry_run, swept);
  }));
  for (const auto& file : files) suspects.push_back(file.digest);
  const std::string from(1, static_cast<char>(shard));
  NC_TRY(index_->scan(Family::kBlobs, from, [&](std::string_view key, std::string_view) {
    if (key.substr(0, 1) != from) return false;
    if (const auto digest = sha256_of_raw(key)) suspects.push_back(*digest);
    return true;
  }));
  std::sort(suspects.begin(), suspects.end());
  suspects.erase(std::unique(suspects.begin(), suspects.end()), suspects.end());
  {
    MutexLock lock(mutex_);
    std::erase_if(suspects, [&](const Digest& digest) NC_NO_THREAD_SAFETY_ANALYSIS {
      return table_.find_blob(digest) != nullptr;
    });
  }
  for (const auto& digest : suspects) sweep_orphan(digest, dry_run, swept);
  // A second form of a blob, left by a crash between writing one and removing the other.
  for (const auto& file : files) {
    bool other_form = false;
    {
      MutexLock lock(mutex_);
      const auto* blob = table_.find_blob(file.digest);
      other_form = blob != nullptr && (!blob->file || blob->compressed != file.compressed);
    }
    if (other_form) sweep_stray(files_.path(file.digest, file.compressed), dry_run, swept);
  }
  return swept;
}

std::vector<std::string> StoreImpl::broken_indexes() {
  std::vector<std::string> out;
  auto names = fs_.list(dir_);
  if (!names.ok()) return out;
  for (const auto& name : *names) {
    if (name.starts_with(kBrokenPrefix)) out.push_back(join(dir_, name));
  }
  return out;
}

std::uint64_t StoreImpl::tree_bytes(const std::string& dir) {
  std::uint64_t sum = 0;
  auto names = fs_.list(dir);
  if (!names.ok()) return 0;
  for (const auto& name : *names) {
    if (const auto info = fs_.stat(join(dir, name)); info.ok() && !info->is_dir) {
      sum += disk_bytes(*info);
    }
  }
  return sum;
}

Status StoreImpl::remove_tree(const std::string& dir) {
  NC_ASSIGN(const auto names, fs_.list(dir));
  for (const auto& name : names) {
    const auto path = join(dir, name);
    const auto info = fs_.stat(path);
    NC_TRY(info.ok() && info->is_dir ? remove_tree(path) : fs_.remove(path));
  }
  return fs_.remove_dir(dir);
}

Swept StoreImpl::sweep_all(bool dry_run) {
  Swept total;
  for (unsigned shard = 0; shard < kShards; ++shard) {
    const auto swept = sweep_shard(shard, dry_run);
    if (!swept.ok()) {
      log::warn("store", "{}", swept.error().text());
      continue;
    }
    total.files += swept->files;
    total.bytes += swept->bytes;
  }
  for (const auto& dir : broken_indexes()) {
    const auto bytes = tree_bytes(dir);
    if (!dry_run) {
      if (const auto removed = remove_tree(dir); !removed.ok()) {
        log::warn("store", "{}", removed.error().text());
        continue;
      }
    }
    ++total.files;
    total.bytes += bytes;
  }
  if (dry_run) {
    total.bytes += files_.quarantine_bytes();
  } else if (const auto bytes = files_.empty_quarantine(); bytes.ok()) {
    total.bytes += *bytes;
  } else {
    log::warn("store", "{}", bytes.error().text());
  }
  return total;
}

}  // namespace nc
