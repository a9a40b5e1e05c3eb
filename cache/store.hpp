// The local store: what the daemon asks. All calls are thread-safe and may block on the disk (never
// call them on an I/O thread).
//
//   <dir>/STORE          "neuroncache-store 1 <store id>"; another version is refused, never
//   touched <dir>/lock           flock of the one process that writes <dir>/index/         RocksDB:
//   manifests, small blobs, entries (size, cost, use), leases, statistics, misses
//   <dir>/cas/ab/cd/<sha256>[.zst]   blobs of 64 KiB and more; written aside, synced, renamed,
//   directory synced <dir>/staging/       uploads under way (emptied at open) <dir>/quarantine/
//   damaged blobs, kept for a look, counted in bytes, removed by prune
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "base/filesystem.hpp"
#include "base/hash.hpp"
#include "base/random.hpp"
#include "base/result.hpp"
#include "cache/manifest.hpp"

namespace nc {

struct StoreOptions {
  std::string dir;
  bool read_only = false;       // opens beside a live writer; every change is kReadOnly
  std::uint64_t max_bytes = 0;  // 0: 10 % of the disk, at most 50 GiB
  std::uint64_t max_entries = 1'000'000;
  std::uint64_t min_free = 256ULL << 20;
  std::uint64_t max_blob = 16ULL << 30;
  std::map<std::string, std::uint64_t> namespace_quota;
  bool compression = true;
  Millis failure_ttl_ms = 3'600'000;
  Millis orphan_grace_ms = 3'600'000;
};

// Where a blob's bytes are. Exactly one of path / inline_bytes is set, or neither for a compressed
// file (use read_blob).
struct BlobRef {
  Output output;
  std::string path;  // a file holding exactly the raw bytes
  std::optional<std::string> inline_bytes;
};

struct Hit {
  Manifest manifest;
  std::vector<BlobRef> blobs;    // in the order of manifest.outputs; all present
  std::string json;              // the manifest's text as to_json() gives it
  std::uint64_t generation = 0;  // see Store::reuse()
};

// Why nothing was found; journaled, so that `neuroncache misses` can explain.
struct Miss {
  std::string cause;  // never_built | evicted | pruned | corrupt | failure_expired | parts_differ
  struct Differs {
    std::string name, wanted, have;
  };
  struct Nearest {
    ActionKey key;
    Millis created_ms = 0;
    std::string host;
    std::vector<Differs> differs;
  };
  std::optional<Nearest> nearest;
};

struct Request {  // what a caller says when it asks for a key
  ActionKey key;
  std::string name_space = "default";
  std::string kind, label, program, compiler, model;
  KeyParts parts;  // may be empty
};

// An upload: space is reserved from begin to finish/destruction. Not thread-safe; one per
// connection.
class Upload {
 public:
  virtual ~Upload() = default;            // without finish(): everything is undone
  virtual Status write(Bytes bytes) = 0;  // kTooLarge past the declared size
  // What is uploaded can be had again: finish() does not wait for the disk. Should the power fail
  // before it is written, the blob is found damaged and is as if it had never come.
  virtual void may_be_lost() {}
  // kDigestMismatch. A file is durable when ok, a small blob with the publish that names it.
  virtual Status finish() = 0;
};

struct EntryInfo {
  ActionKey key;
  std::string kind, name_space, label, model, compiler;
  std::uint64_t bytes = 0;  // raw bytes of its outputs
  std::uint64_t build_ms = 0;
  Millis created_ms = 0;
  Millis used_ms = 0;
  std::uint64_t uses = 0;
  bool pinned = false;
  bool in_use = false;
  bool failed = false;  // a failure entry
};

struct EntryFilter {  // all that are set must hold
  std::optional<std::string> name_space, compiler, model,
      kind;                              // compiler/model: substring; others: exact
  std::optional<double> older_than_s;    // since created
  std::optional<double> unused_since_s;  // since last use
  std::optional<bool> failed;
};

struct PruneRequest {
  EntryFilter filter;
  std::optional<std::uint64_t> max_bytes;  // of what matches, keep at most this much, dearest first
  std::optional<std::uint64_t> max_entries;
  bool dry_run = false;
};

struct PruneResult {
  std::vector<EntryInfo> removed;  // or would be, when dry_run
  std::uint64_t bytes = 0;         // freed on disk (blobs shared with survivors not counted)
  std::uint64_t swept_bytes =
      0;                       // of these: orphans whose grace is over, quarantine, broken indexes
  double rebuild_seconds = 0;  // what building them again would cost
  struct Kept {
    ActionKey key;
    std::string why;
  };  // pinned | in_use
  std::vector<Kept> kept;
};

struct VerifyPage {
  std::uint64_t checked = 0;
  std::uint64_t bytes = 0;
  struct Bad {
    std::string what;  // key or digest, hex
    std::string problem, action;
  };
  std::vector<Bad> bad;
  std::uint64_t orphans = 0;        // blobs on disk that nothing names and whose grace is over
  std::optional<std::string> next;  // cursor
};

struct StoreHealth {
  bool writable = true;
  std::string problem;  // "" when well; else what is wrong and since when
  std::uint64_t failed_writes = 0, quarantined = 0, repaired = 0;
};

struct StoreSize {
  std::uint64_t bytes = 0;  // on disk: blobs, index, quarantine
  std::uint64_t entries = 0, blobs = 0, reserved = 0, max_bytes = 0, max_entries = 0;
  std::uint64_t disk_available = 0;
};

// Named counters per namespace, kept across restarts. Which exist: cache/counters.hpp.
using Counters = std::map<std::string, double>;

class Store {
 public:
  struct Deps {
    FileSystem& fs;
    Clock& clock;
    Random& random;
  };
  // kBusy: another daemon has it. kUnsupported: another version's store. kDenied: not ours (owner
  // or mode). An index that will not open is set aside (index.broken-<time>) and a new one is made;
  // blobs on disk are adopted.
  static Result<std::unique_ptr<Store>> open(StoreOptions options, Deps deps);
  virtual ~Store() = default;

  // A hit only when every output is there. Counts a use. nullopt: a miss.
  virtual Result<std::optional<Hit>> lookup(const ActionKey& key) = 0;
  // True: what lookup() gave with this generation is still the entry; counts a use. False: look it
  // up. Asks memory only and does not wait for the disk, so it may be called on an I/O thread; that
  // the files are there is not looked at again.
  virtual bool reuse(const ActionKey& key, std::uint64_t generation) = 0;
  virtual Result<std::optional<Manifest>> peek(const ActionKey& key) = 0;  // no use counted
  virtual Result<std::optional<Failure>> failure(
      const ActionKey& key) = 0;                                  // remembered and not expired
  virtual Result<Miss> explain_miss(const Request& request) = 0;  // and writes it into the journal

  virtual Result<bool> has_blob(const Digest& digest) = 0;
  // kNoSpace when size does not fit even after evicting; kTooLarge over max_blob; a finished upload
  // of a known blob is dropped.
  virtual Result<std::unique_ptr<Upload>> begin_upload(const Digest& digest, std::uint64_t size,
                                                       bool may_compress) = 0;
  // Raw bytes, checked (XXH3-128). A damaged blob is quarantined, its entries dropped: kCorrupt.
  virtual Result<std::string> read_blob(const Digest& digest, std::uint64_t limit) = 0;
  // A mapping of an uncompressed file, or kConflict when it is not one.
  virtual Result<std::unique_ptr<Mapping>> map_blob(const Digest& digest) = 0;
  virtual Result<BlobRef> blob_ref(const Digest& digest) = 0;

  // True: published and durable. False: an entry exists already. kNotFound: an output's blob is
  // missing.
  virtual Result<bool> publish(const Manifest& manifest) = 0;
  // As publish(), in the place of the entry that is there, if any: nobody believes that any more.
  virtual Status replace(const Manifest& manifest) = 0;
  virtual Status remember_failure(const Failure& failure) = 0;
  virtual Result<std::vector<EntryInfo>> entries(const EntryFilter& filter,
                                                 const std::string& after,
                                                 std::size_t limit) = 0;  // by key
  virtual Result<EntryInfo> entry(
      std::string_view key_or_prefix) = 0;  // kNotFound; kConflict when ambiguous
  virtual Status pin(const ActionKey& key, bool pinned) = 0;
  virtual Result<PruneResult> prune(const PruneRequest& request) = 0;
  virtual Result<VerifyPage> verify(const std::string& after, std::size_t limit, bool repair) = 0;

  // Marks a key as being used by a client or a build (never evicted or pruned while held).
  virtual std::shared_ptr<void> hold(const ActionKey& key) = 0;

  virtual void count(std::string_view name_space, std::string_view counter,
                     double by) = 0;  // cheap, no disk
  virtual void count_bypass(std::string_view name_space, std::string_view reason, double by) = 0;
  virtual Counters counters(std::string_view name_space) = 0;  // "" : all together
  virtual std::map<std::string, Counters> namespaces() = 0;
  virtual std::map<std::string, double> bypass_reasons() = 0;
  virtual Result<std::vector<std::string>> misses(std::size_t limit) = 0;  // JSON, newest first
  virtual StoreSize size() = 0;
  virtual StoreHealth health() = 0;
  virtual const std::string& id() const = 0;
  virtual std::optional<double> usual_build_seconds(std::string_view kind,
                                                    std::string_view label) = 0;

  // Small records of the daemon (leases, histograms, plans): durable against a kill, not against
  // power loss. Any name is a table; "histograms" and "plans" have column families of their own.
  virtual Status put_record(std::string_view table, std::string_view key,
                            std::string_view value) = 0;
  virtual Status erase_record(std::string_view table, std::string_view key) = 0;
  virtual Result<std::map<std::string, std::string>> records(std::string_view table) = 0;
  struct RecordChange {
    std::string key;
    std::optional<std::string> value;  // nullopt: erased
  };
  // All of them or none.
  virtual Status change_records(std::string_view table, std::vector<RecordChange> changes) = 0;

  // Live settings.
  virtual void set_limits(const StoreOptions& options) = 0;  // every field but dir and read_only

  // Call every second or so from a background thread: writes counters and access times, empties the
  // delete queue, ends expired failures and orphans, tries to get well after a full disk. Bounded
  // work per call.
  virtual void maintain() = 0;
  virtual Status flush() = 0;  // all of that at once; before exit
};

}  // namespace nc
