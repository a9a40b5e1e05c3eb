// The store's parts under one roof; each store_*.cpp holds the calls of one concern. Private to
// cache/.
//
// Locks. mutex_ guards what is in memory and is never held over disk access. A key or digest whose
// files or records are being changed is marked busy: whoever wants to change it too waits for the
// mark (Busy). What leaves (evicted, pruned, damaged) goes in three steps: take_out() under the
// lock, commit of the batch, settle(); files are unlinked later from a queue. Order: a key's mark
// before a digest's, any mark before mutex_, never mutex_ and explain_mutex_ together.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/thread_annotations.hpp"
#include "cache/blob_files.hpp"
#include "cache/counters.hpp"
#include "cache/entry_table.hpp"
#include "cache/key_value.hpp"
#include "cache/miss_explainer.hpp"
#include "cache/store.hpp"
#include "cache/store_parts.hpp"

namespace nc {

class StoreImpl final : public Store {
 public:
  StoreImpl(StoreOptions options, Deps deps);
  ~StoreImpl() override;
  StoreImpl(const StoreImpl&) = delete;
  StoreImpl& operator=(const StoreImpl&) = delete;
  Status start();

  Result<std::optional<Hit>> lookup(const ActionKey& key) override;
  bool reuse(const ActionKey& key, std::uint64_t generation) override;
  Result<std::optional<Manifest>> peek(const ActionKey& key) override;
  Result<std::optional<Failure>> failure(const ActionKey& key) override;
  Result<Miss> explain_miss(const Request& request) override;
  Result<bool> has_blob(const Digest& digest) override;
  Result<std::unique_ptr<Upload>> begin_upload(const Digest& digest, std::uint64_t size,
                                               bool may_compress) override;
  Result<std::string> read_blob(const Digest& digest, std::uint64_t limit) override;
  Result<std::unique_ptr<Mapping>> map_blob(const Digest& digest) override;
  Result<BlobRef> blob_ref(const Digest& digest) override;
  Result<bool> publish(const Manifest& manifest) override;
  Status replace(const Manifest& manifest) override;
  Status remember_failure(const Failure& failure) override;
  Result<std::vector<EntryInfo>> entries(const EntryFilter& filter, const std::string& after,
                                         std::size_t limit) override;
  Result<EntryInfo> entry(std::string_view key_or_prefix) override;
  Status pin(const ActionKey& key, bool pinned) override;
  Result<PruneResult> prune(const PruneRequest& request) override;
  Result<VerifyPage> verify(const std::string& after, std::size_t limit, bool repair) override;
  std::shared_ptr<void> hold(const ActionKey& key) override;
  void count(std::string_view name_space, std::string_view counter, double by) override;
  void count_bypass(std::string_view name_space, std::string_view reason, double by) override;
  Counters counters(std::string_view name_space) override;
  std::map<std::string, Counters> namespaces() override;
  std::map<std::string, double> bypass_reasons() override;
  Result<std::vector<std::string>> misses(std::size_t limit) override;
  StoreSize size() override;
  StoreHealth health() override;
  const std::string& id() const override { return id_; }
  std::optional<double> usual_build_seconds(std::string_view kind, std::string_view label) override;
  Status put_record(std::string_view table, std::string_view key, std::string_view value) override;
  Status erase_record(std::string_view table, std::string_view key) override;
  Result<std::map<std::string, std::string>> records(std::string_view table) override;
  Status change_records(std::string_view table, std::vector<RecordChange> changes) override;
  void set_limits(const StoreOptions& options) override;
  void maintain() override;
  Status flush() override;

 private:
  friend class UploadImpl;

  // Alone with a key or a digest until destroyed.
  class Busy {
   public:
    Busy(StoreImpl& store, const Sha256& id);
    ~Busy();
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;

   private:
    StoreImpl& store_;
    const Sha256 id_;
  };

  struct HoldGate {
    Mutex mutex;
    StoreImpl* store NC_GUARDED_BY(mutex) = nullptr;
  };

  // store_open.cpp
  Status check_dir();
  Status read_store_file();
  Status write_store_file();
  Status take_lock();
  Status open_index();
  Status set_index_aside(const Error& why);
  Status finish_repair();
  std::uint64_t salvage(const std::string& dir);
  Status load();
  Status load_entries();
  Status load_tombstones();
  std::string broken_index_name();

  // store_remove.cpp
  bool take_out(const ActionKey& key, Removal& removal) NC_REQUIRES(mutex_);
  void settle(Removal& removal, bool committed) NC_EXCLUDES(mutex_);
  Status remove_now(Removal& removal, bool sync) NC_EXCLUDES(mutex_);
  Status drop(const ActionKey& key, std::uint64_t generation, RemovalCause cause)
      NC_EXCLUDES(mutex_);
  // Evicts until `bytes` more (and `entries` more) fit; false when they cannot.
  bool make_room(std::uint64_t bytes, std::uint64_t entries, Removal& removal) NC_REQUIRES(mutex_);
  bool make_quota_room(const std::string& name_space, std::uint64_t bytes, Removal& removal)
      NC_REQUIRES(mutex_);
  bool evict_one(const Victim& victim, Removal& removal) NC_REQUIRES(mutex_);
  Status make_disk_room(std::uint64_t bytes) NC_EXCLUDES(mutex_);
  std::optional<Doomed> next_doomed(Millis older_than) NC_EXCLUDES(mutex_);
  std::size_t drain_doomed(std::size_t limit, Millis older_than) NC_EXCLUDES(mutex_);
  std::uint64_t drop_idle_blobs(std::size_t limit) NC_EXCLUDES(mutex_);  // bytes
  std::uint64_t idle_bytes() NC_EXCLUDES(mutex_);                        // that it would drop
  BlobState* idle_blob(Millis since, const Digest& digest) NC_REQUIRES(mutex_);
  Status quarantine(const Digest& digest, const std::string& problem) NC_EXCLUDES(mutex_);
  void put_tombstone(const ActionKey& key, RemovalCause cause, KvBatch& batch) NC_REQUIRES(mutex_);

  // store_blobs.cpp
  Result<std::optional<EntryBlob>> know_blob(const Digest& digest) NC_EXCLUDES(mutex_);
  Result<std::optional<BlobRecord>> blob_record(const Digest& digest);
  Result<std::optional<BlobRecord>> adopt(const Digest& digest);
  BlobState& add_idle(const EntryBlob& blob) NC_REQUIRES(mutex_);
  Result<BlobRef> serve(const EntryBlob& blob) NC_EXCLUDES(mutex_);
  Status check_file(const EntryBlob& blob) NC_EXCLUDES(mutex_);
  Result<std::string> raw_bytes(const EntryBlob& blob, const BlobRecord& record,
                                std::uint64_t limit);

  // store_lookup.cpp
  Result<std::optional<Found>> find(const ActionKey& key) NC_EXCLUDES(mutex_);
  // Makes the entry again from its manifest when the index has one. Call with the key busy.
  Result<bool> restore(const ActionKey& key) NC_EXCLUDES(mutex_);
  static std::optional<Manifest> parse_sealed(std::string_view sealed);  // no failure
  void learn(const ActionKey& key, const Manifest& manifest);

  // store_publish.cpp
  static EntryRecord describe(const Failure& failure, std::uint64_t stored);
  Result<EntryRecord> describe(const Manifest& manifest, std::uint64_t stored) NC_EXCLUDES(mutex_);
  Status put_entry(const Manifest& manifest, const std::string& json) NC_EXCLUDES(mutex_);
  Status commit_entry(const ActionKey& key, const EntryRecord& record, std::string sealed)
      NC_EXCLUDES(mutex_);
  Millis expiry(const EntryRecord& record) NC_REQUIRES(mutex_);

  // store_admin.cpp, store_sweep.cpp
  // Blobs and files that nothing names: those of one shard (first byte of the digest).
  Result<Swept> sweep_shard(unsigned shard, bool dry_run) NC_EXCLUDES(mutex_);
  void sweep_stray(const std::string& path, bool dry_run, Swept& swept);
  bool sweep_orphan(const Digest& digest, bool dry_run, Swept& swept);
  bool orphan_is_old(Millis since_wall) NC_EXCLUDES(mutex_);
  Swept sweep_all(bool dry_run);
  std::vector<std::string> broken_indexes();
  std::uint64_t tree_bytes(const std::string& dir);
  Status remove_tree(const std::string& dir);
  std::optional<EntryInfo> info_of(const ActionKey& key) NC_EXCLUDES(mutex_);
  std::string label_of(const ActionKey& key);

  // store_verify.cpp
  Status verify_manifests(std::string& cursor, std::size_t limit, bool repair, VerifyPage& page);
  Status verify_records(std::string& cursor, std::size_t limit, bool repair, VerifyPage& page);
  Status verify_blobs(std::string& cursor, std::size_t limit, bool repair, VerifyPage& page);
  Status verify_files(std::string& cursor, std::size_t limit, bool repair, VerifyPage& page);
  std::string manifest_problem(const ActionKey& key, std::string_view sealed);
  Result<std::string> blob_problem(const Digest& digest, const std::optional<BlobRecord>& record,
                                   VerifyPage& page);

  // store_maintain.cpp
  Status write_counters(std::size_t max_entries) NC_EXCLUDES(mutex_);
  void expire_failures(std::size_t limit) NC_EXCLUDES(mutex_);
  void enforce_limits() NC_EXCLUDES(mutex_);
  void learn_manifests(std::size_t limit) NC_EXCLUDES(mutex_);
  void get_well() NC_EXCLUDES(mutex_);
  Status check_floor() NC_EXCLUDES(mutex_);
  void measure() NC_EXCLUDES(mutex_);
  // Every failed write goes through here: it is counted and shown.
  Status noted(Status status, std::string_view name_space = {}) NC_EXCLUDES(mutex_);
  void count_failed_write(std::string_view name_space);
  Error read_only_error() const;
  void release_hold(const ActionKey& key) NC_EXCLUDES(mutex_);
  void resolve_limits(StoreOptions& options) const;

  FileSystem& fs_;
  Clock& clock_;
  Random& random_;
  const std::string dir_;
  BlobFiles files_;
  std::string id_;
  bool read_only_ = false;
  std::unique_ptr<FileLock> lock_;
  std::unique_ptr<KeyValueDb> index_;
  Millis adopted_ms_ = 0;  // the index was made anew then: older blobs count from there
  CounterBook book_;
  std::shared_ptr<HoldGate> gate_;

  Mutex mutex_;
  std::condition_variable_any changed_;
  StoreOptions options_ NC_GUARDED_BY(mutex_);
  EntryTable table_ NC_GUARDED_BY(mutex_);
  std::unordered_set<Sha256, Sha256Hash> busy_ NC_GUARDED_BY(mutex_);
  std::vector<ActionKey> dirty_ NC_GUARDED_BY(mutex_);
  std::uint64_t reserved_ NC_GUARDED_BY(mutex_) = 0;
  std::deque<Doomed> doomed_ NC_GUARDED_BY(mutex_);
  std::unordered_map<Digest, bool, Sha256Hash> doomed_digests_ NC_GUARDED_BY(mutex_);
  std::uint64_t doomed_bytes_ NC_GUARDED_BY(mutex_) = 0;
  std::deque<std::pair<Millis, Digest>> idle_ NC_GUARDED_BY(mutex_);
  std::uint64_t tombstone_first_ NC_GUARDED_BY(mutex_) = 0, tombstone_next_
                                                            NC_GUARDED_BY(mutex_) = 0;
  std::uint64_t miss_first_ NC_GUARDED_BY(mutex_) = 0, miss_next_ NC_GUARDED_BY(mutex_) = 0;
  std::uint64_t quarantine_bytes_ NC_GUARDED_BY(mutex_) = 0;
  std::string notice_ NC_GUARDED_BY(mutex_);  // how it was opened, when that is worth telling
  std::string write_problem_ NC_GUARDED_BY(mutex_);  // why writes fail; empty while they do not
  double stored_age_ NC_GUARDED_BY(mutex_) = 0;
  std::string learn_cursor_ NC_GUARDED_BY(mutex_);
  bool learned_all_ NC_GUARDED_BY(mutex_) = false;
  unsigned sweep_shard_ NC_GUARDED_BY(mutex_) = 0;
  Millis next_sweep_ NC_GUARDED_BY(mutex_) = 0;    // monotonic
  Millis next_measure_ NC_GUARDED_BY(mutex_) = 0;  // monotonic

  Mutex explain_mutex_;
  MissExplainer explainer_ NC_GUARDED_BY(explain_mutex_);
};

}  // namespace nc
