// What the store keeps in memory of its entries and blobs. Not thread-safe: the store locks.
// Everything is O(log n) or better but entries_of().
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "cache/eviction.hpp"
#include "cache/index_records.hpp"
#include "cache/store.hpp"

namespace nc {

// A blob that is there: named by `refs` entries, and about to be by `pins` publishes.
struct BlobState {
  Digest digest;
  std::uint64_t size = 0;
  std::uint64_t disk_bytes = 0;
  std::uint32_t refs = 0;
  std::uint32_t pins = 0;
  bool file = false;
  bool compressed = false;
  bool doomed = false;  // on its way out, not counted any more
  // The file was read whole and found right when it had this identity.
  bool checked = false;
  Millis checked_mtime = 0;
  std::uint64_t checked_inode = 0;
  Millis idle_since = 0;  // monotonic; since when no entry names it
};

std::uint64_t inline_disk_bytes(const BlobRecord& record);

struct EntryState {
  std::uint64_t generation = 0;   // tells an entry from a later one of the same key
  std::uint64_t bytes = 0;        // raw
  std::uint64_t disk_bytes = 0;   // of its distinct blobs and its manifest
  std::uint64_t index_bytes = 0;  // of the latter, the manifest's
  std::uint64_t build_ms = 0;
  Millis created_ms = 0;
  Millis expires_mono = 0;                                          // of a failure
  std::uint32_t kind = 0, name_space = 0, model = 0, compiler = 0;  // see Names
  bool failed = false;
  bool pinned = false;
  bool dirty = false;  // its access record is to be written
  std::vector<BlobState*> blobs;
};

// Strings that many entries share, kept once.
class Names {
 public:
  std::uint32_t id(const std::string& name);
  const std::string& name(std::uint32_t id) const { return *names_[id]; }

 private:
  std::unordered_map<std::string, std::uint32_t> ids_;
  std::vector<const std::string*> names_;
};

// Usual build times by kind and label; bounded, the longest unused goes.
class BuildTimes {
 public:
  void add(std::string_view kind, std::string_view label, std::uint64_t build_ms);
  std::optional<double> seconds(std::string_view kind, std::string_view label) const;

 private:
  struct Usual {
    double ms = 0;
    std::uint64_t stamp = 0;
  };
  static std::uint64_t hash(std::string_view kind, std::string_view label);
  std::unordered_map<std::uint64_t, Usual> usual_;
  std::map<std::uint64_t, std::uint64_t> by_stamp_;
  std::uint64_t stamp_ = 0;
};

class EntryTable {
 public:
  EntryTable() = default;
  EntryTable(const EntryTable&) = delete;
  EntryTable& operator=(const EntryTable&) = delete;

  EntryState* find(const ActionKey& key);
  // The blobs are added when they are not there. Replaces an entry of the same key.
  EntryState& insert(const ActionKey& key, const EntryRecord& record, const AccessRecord& access,
                     Millis expires_mono);
  // Blobs that nothing names any more afterwards; they stay in the table.
  std::vector<BlobState*> erase(const ActionKey& key);
  EntryInfo info(const ActionKey& key, const EntryState& entry) const;  // without label
  std::vector<ActionKey> entries_of(const BlobState& blob) const;       // O(n)
  const std::unordered_map<ActionKey, EntryState, Sha256Hash>& entries() const { return entries_; }

  BlobState* find_blob(const Digest& digest);
  BlobState& add_blob(const EntryBlob& blob);  // or finds it
  void erase_blob(const Digest& digest);       // nothing names it
  void set_doomed(BlobState& blob, bool doomed);

  // Failures in the order in which they end.
  std::optional<std::pair<Millis, ActionKey>> first_to_expire() const;

  EvictionQueue& queue() { return queue_; }
  const EvictionQueue& queue() const { return queue_; }
  Names& names() { return names_; }
  BuildTimes& build_times() { return build_times_; }
  const BuildTimes& build_times() const { return build_times_; }

  std::uint64_t charged() const { return file_bytes_ + index_bytes_; }  // each blob once
  std::uint64_t file_bytes() const { return file_bytes_; }
  std::uint64_t index_bytes() const { return index_bytes_; }
  std::uint64_t pinned_bytes() const { return pinned_bytes_; }  // of entries that must stay
  bool set_pinned(const ActionKey& key, bool pinned);
  std::uint64_t blob_count() const { return blobs_.size(); }
  struct Share {
    std::uint64_t entries = 0, bytes = 0;
  };
  Share share(const std::string& name_space);  // bytes: raw

 private:
  void charge(const BlobState& blob, bool add);

  std::unordered_map<ActionKey, EntryState, Sha256Hash> entries_;
  std::unordered_map<Digest, BlobState, Sha256Hash> blobs_;
  std::set<std::pair<Millis, ActionKey>> expiring_;
  std::unordered_map<std::uint32_t, Share> shares_;
  EvictionQueue queue_;
  Names names_;
  BuildTimes build_times_;
  std::uint64_t file_bytes_ = 0;
  std::uint64_t index_bytes_ = 0;
  std::uint64_t pinned_bytes_ = 0;
  std::uint64_t generation_ = 0;
};

}  // namespace nc
