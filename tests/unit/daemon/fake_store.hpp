// A store in memory for tests of the daemon: the contract of cache/store.hpp without a disk, with
// switches that make it fail.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_annotations.hpp"
#include "cache/store.hpp"

namespace nc::daemon {

class FakeStore final : public Store {
 public:
  explicit FakeStore(Clock& clock) : clock_(clock) {}

  // What the next calls do.
  void fail_lookups(std::optional<Error> error);
  void fail_uploads(std::optional<Error> error);
  void fail_records(std::optional<Error> error);
  // Runs once, within the next look-up that finds nothing.
  void on_next_miss(std::function<void()> then);

  void add_blob(const std::string& bytes);
  std::uint64_t reserved() const;
  void remove(const ActionKey& key);
  std::size_t lookups() const;
  std::size_t held(const ActionKey& key) const;
  double counter(const std::string& name);  // of all namespaces

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
  Status replace(const Manifest& manifest) override {
    remove(manifest.key);
    NC_TRY(publish(manifest));
    return {};
  }
  Status remember_failure(const Failure& failure) override;

  Result<std::vector<EntryInfo>> entries(const EntryFilter& filter, const std::string& after,
                                         std::size_t limit) override;
  Result<EntryInfo> entry(std::string_view prefix) override;
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
  StoreHealth health() override { return {}; }
  const std::string& id() const override { return id_; }
  std::optional<double> usual_build_seconds(std::string_view, std::string_view) override {
    return std::nullopt;
  }

  Status put_record(std::string_view table, std::string_view key, std::string_view value) override;
  Status erase_record(std::string_view table, std::string_view key) override;
  Result<std::map<std::string, std::string>> records(std::string_view table) override;
  Status change_records(std::string_view table, std::vector<RecordChange> changes) override;

  void set_limits(const StoreOptions& options) override;
  void maintain() override {}
  Status flush() override { return {}; }

 private:
  class FakeUpload;

  Clock& clock_;
  const std::string id_ = "0123456789abcdef0123456789abcdef";
  mutable Mutex mutex_;
  std::optional<Error> lookup_error_ NC_GUARDED_BY(mutex_);
  std::optional<Error> upload_error_ NC_GUARDED_BY(mutex_);
  std::optional<Error> record_error_ NC_GUARDED_BY(mutex_);
  std::function<void()> on_miss_ NC_GUARDED_BY(mutex_);
  std::map<ActionKey, Manifest> manifests_ NC_GUARDED_BY(mutex_);
  std::size_t lookups_ NC_GUARDED_BY(mutex_) = 0;
  std::map<ActionKey, Failure> failures_ NC_GUARDED_BY(mutex_);
  std::map<Digest, std::string> blobs_ NC_GUARDED_BY(mutex_);
  std::map<ActionKey, std::size_t> holds_ NC_GUARDED_BY(mutex_);
  std::map<std::string, Counters> counters_ NC_GUARDED_BY(mutex_);
  std::map<std::string, double> reasons_ NC_GUARDED_BY(mutex_);
  std::map<std::string, std::map<std::string, std::string>> records_ NC_GUARDED_BY(mutex_);
  std::vector<std::string> misses_ NC_GUARDED_BY(mutex_);
  std::uint64_t reserved_ NC_GUARDED_BY(mutex_) = 0;
  std::uint64_t max_blob_ NC_GUARDED_BY(mutex_) = 16ULL << 30;
};

}  // namespace nc::daemon
