#include "cache/entry_table.hpp"

#include <algorithm>

namespace nc {
namespace {

constexpr std::size_t kMaxBuildTimes = 20'000;
// What an entry costs in the index beside its manifest: the entry and access records and their
// keys.
constexpr std::uint64_t kEntryOverhead = 512;

}  // namespace

std::uint32_t Names::id(const std::string& name) {
  const auto [it, added] = ids_.try_emplace(name, static_cast<std::uint32_t>(names_.size()));
  if (added) names_.push_back(&it->first);
  return it->second;
}

std::uint64_t BuildTimes::hash(std::string_view kind, std::string_view label) {
  std::string text(kind);
  text.push_back('\0');
  text.append(label);
  return xxh128(as_bytes(text)).low;
}

void BuildTimes::add(std::string_view kind, std::string_view label, std::uint64_t build_ms) {
  const auto id = hash(kind, label);
  auto [it, added] = usual_.try_emplace(id);
  auto& usual = it->second;
  // The latest counts most: the same label with a new compiler takes a new time.
  const auto ms = static_cast<double>(build_ms);
  usual.ms = added ? ms : usual.ms * 0.6 + ms * 0.4;
  if (!added) by_stamp_.erase(usual.stamp);
  usual.stamp = ++stamp_;
  by_stamp_.emplace(usual.stamp, id);
  if (usual_.size() > kMaxBuildTimes) {
    usual_.erase(by_stamp_.begin()->second);
    by_stamp_.erase(by_stamp_.begin());
  }
}

std::optional<double> BuildTimes::seconds(std::string_view kind, std::string_view label) const {
  const auto it = usual_.find(hash(kind, label));
  if (it == usual_.end()) return std::nullopt;
  return it->second.ms / 1000;
}

EntryState* EntryTable::find(const ActionKey& key) {
  const auto it = entries_.find(key);
  return it == entries_.end() ? nullptr : &it->second;
}

void EntryTable::charge(const BlobState& blob, bool add) {
  auto& sum = blob.file ? file_bytes_ : index_bytes_;
  sum += add ? blob.disk_bytes : 0 - blob.disk_bytes;
}

EntryState& EntryTable::insert(const ActionKey& key, const EntryRecord& record,
                               const AccessRecord& access, Millis expires_mono) {
  erase(key);
  auto& entry = entries_[key];
  entry.generation = ++generation_;
  entry.bytes = record.bytes();
  entry.index_bytes = record.manifest_bytes + kEntryOverhead;
  entry.disk_bytes = entry.index_bytes;
  entry.build_ms = record.build_ms;
  entry.created_ms = record.created_ms;
  entry.kind = names_.id(record.kind);
  entry.name_space = names_.id(record.name_space);
  entry.model = names_.id(record.model);
  entry.compiler = names_.id(record.compiler);
  entry.failed = record.failed;
  entry.pinned = access.pinned;
  entry.blobs.reserve(record.blobs.size());
  for (const auto& blob : record.blobs) {
    auto& state = add_blob(blob);
    ++state.refs;
    entry.disk_bytes += state.disk_bytes;
    entry.blobs.push_back(&state);
  }
  index_bytes_ += entry.index_bytes;
  if (entry.pinned) pinned_bytes_ += entry.disk_bytes;
  auto& share = shares_[entry.name_space];
  ++share.entries;
  share.bytes += entry.bytes;
  if (entry.failed) {
    entry.expires_mono = expires_mono;
    expiring_.emplace(expires_mono, key);
  } else if (entry.build_ms != 0) {
    build_times_.add(record.kind, record.label, entry.build_ms);
  }
  queue_.insert({key, record.name_space, entry.disk_bytes, entry.build_ms, access.uses,
                 access.used_ms, access.age, access.pinned});
  return entry;
}

std::vector<BlobState*> EntryTable::erase(const ActionKey& key) {
  std::vector<BlobState*> unnamed;
  const auto it = entries_.find(key);
  if (it == entries_.end()) return unnamed;
  auto& entry = it->second;
  for (auto* blob : entry.blobs) {
    if (--blob->refs == 0) unnamed.push_back(blob);
  }
  index_bytes_ -= entry.index_bytes;
  if (entry.pinned) pinned_bytes_ -= entry.disk_bytes;
  auto& share = shares_[entry.name_space];
  --share.entries;
  share.bytes -= entry.bytes;
  if (entry.failed) expiring_.erase({entry.expires_mono, key});
  queue_.erase(key);
  entries_.erase(it);
  return unnamed;
}

EntryInfo EntryTable::info(const ActionKey& key, const EntryState& entry) const {
  EntryInfo out;
  out.key = key;
  out.kind = names_.name(entry.kind);
  out.name_space = names_.name(entry.name_space);
  out.model = names_.name(entry.model);
  out.compiler = names_.name(entry.compiler);
  out.bytes = entry.bytes;
  out.build_ms = entry.build_ms;
  out.created_ms = entry.created_ms;
  out.failed = entry.failed;
  out.in_use = queue_.held(key);
  if (const auto queued = queue_.find(key)) {
    out.uses = queued->uses;
    out.used_ms = queued->used_ms;
    out.pinned = queued->pinned;
  }
  return out;
}

std::vector<ActionKey> EntryTable::entries_of(const BlobState& blob) const {
  std::vector<ActionKey> out;
  for (const auto& [key, entry] : entries_) {
    if (std::find(entry.blobs.begin(), entry.blobs.end(), &blob) != entry.blobs.end()) {
      out.push_back(key);
    }
  }
  return out;
}

BlobState* EntryTable::find_blob(const Digest& digest) {
  const auto it = blobs_.find(digest);
  return it == blobs_.end() ? nullptr : &it->second;
}

BlobState& EntryTable::add_blob(const EntryBlob& blob) {
  auto [it, added] = blobs_.try_emplace(blob.digest);
  auto& state = it->second;
  if (added) {
    state.digest = blob.digest;
    state.size = blob.size;
    state.disk_bytes = blob.disk_bytes;
    state.file = blob.file;
    state.compressed = blob.compressed;
    charge(state, true);
  }
  return state;
}

void EntryTable::erase_blob(const Digest& digest) {
  const auto it = blobs_.find(digest);
  if (it == blobs_.end()) return;
  if (!it->second.doomed) charge(it->second, false);
  blobs_.erase(it);
}

void EntryTable::set_doomed(BlobState& blob, bool doomed) {
  if (blob.doomed == doomed) return;
  blob.doomed = doomed;
  charge(blob, !doomed);
}

bool EntryTable::set_pinned(const ActionKey& key, bool pinned) {
  auto* entry = find(key);
  if (entry == nullptr) return false;
  if (entry->pinned != pinned) {
    entry->pinned = pinned;
    pinned_bytes_ += pinned ? entry->disk_bytes : 0 - entry->disk_bytes;
    queue_.set_pinned(key, pinned);
  }
  return true;
}

std::optional<std::pair<Millis, ActionKey>> EntryTable::first_to_expire() const {
  if (expiring_.empty()) return std::nullopt;
  return *expiring_.begin();
}

EntryTable::Share EntryTable::share(const std::string& name_space) {
  const auto it = shares_.find(names_.id(name_space));
  return it == shares_.end() ? Share{} : it->second;
}

}  // namespace nc
