// A store in memory for tests of the daemon: the contract of cache/store.hpp without a disk, with
// switches that make it fail.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/thread_annotations.hpp"
#include "cache/store.hpp"

namespace nc::daemon {

class FakeStore final : public Store {
 public:
  explicit FakeStore(Clock& clock) : clock_(clock) {}

  // Under the lock.
  template <class F>
  auto with(F work) const NC_NO_THREAD_SAFETY_ANALYSIS {
    MutexLock lock(mutex_);
    return work();
  }

  // What the next calls do.
  void fail_lookups(std::optional<Error> error) {
    with([&] { lookup_error_ = std::move(error); });
  }
  void fail_uploads(std::optional<Error> error) {
    with([&] { upload_error_ = std::move(error); });
  }
  void fail_records(std::optional<Error> error) {
    with([&] { record_error_ = std::move(error); });
  }
  // Runs once, within the next look-up that finds nothing.
  void on_next_miss(std::function<void()> then) {
    with([&] { on_miss_ = std::move(then); });
  }

  std::uint64_t reserved() const {
    return with([&] { return reserved_; });
  }
  std::size_t held(const ActionKey& key) const {
    return with([&] { return holds_.count(key) ? holds_.at(key) : 0; });
  }
  void add_blob(const std::string& bytes) {
    with([&] { blobs_[Digest::of(as_bytes(bytes))] = bytes; });
  }

  Result<std::optional<Hit>> lookup(const ActionKey& key) override {
    std::function<void()> then;
    std::optional<Hit> hit;
    {
      MutexLock lock(mutex_);
      if (lookup_error_) return *lookup_error_;
      if (auto it = manifests_.find(key); it != manifests_.end()) {
        hit.emplace();
        hit->manifest = it->second;
        for (const Output& output : it->second.outputs) {
          hit->blobs.push_back({output, "", blobs_.at(output.digest)});
        }
      } else {
        std::swap(then, on_miss_);
      }
    }
    if (then) then();
    return hit;
  }
  Result<std::optional<Manifest>> peek(const ActionKey& key) override {
    MutexLock lock(mutex_);
    auto it = manifests_.find(key);
    return it == manifests_.end() ? std::optional<Manifest>() : it->second;
  }
  Result<std::optional<Failure>> failure(const ActionKey& key) override {
    MutexLock lock(mutex_);
    auto it = failures_.find(key);
    if (it == failures_.end() || it->second.expires_ms <= clock_.wall_ms()) {
      return std::optional<Failure>();
    }
    return std::optional<Failure>(it->second);
  }
  Result<Miss> explain_miss(const Request& request) override {
    MutexLock lock(mutex_);
    misses_.push_back("{\"key\":\"" + request.key.hex() + "\",\"cause\":\"never_built\"}");
    return Miss{"never_built", std::nullopt};
  }

  Result<bool> has_blob(const Digest& digest) override {
    MutexLock lock(mutex_);
    return blobs_.contains(digest);
  }
  Result<std::unique_ptr<Upload>> begin_upload(const Digest& digest, std::uint64_t size,
                                               bool) override {
    MutexLock lock(mutex_);
    if (upload_error_) return *upload_error_;
    if (size > max_blob_) return Error{Code::kTooLarge, "the blob is too large", ""};
    reserved_ += size;
    return std::unique_ptr<Upload>(new FakeUpload(*this, digest, size));
  }
  Result<std::string> read_blob(const Digest& digest, std::uint64_t) override {
    MutexLock lock(mutex_);
    auto it = blobs_.find(digest);
    if (it == blobs_.end()) return Error{Code::kNotFound, "no such blob", ""};
    return it->second;
  }
  Result<std::unique_ptr<Mapping>> map_blob(const Digest& digest) override {
    NC_ASSIGN(const bool there, has_blob(digest));
    if (!there) return Error{Code::kNotFound, "no such blob", ""};
    return Error{Code::kConflict, "not a file", ""};
  }
  Result<BlobRef> blob_ref(const Digest& digest) override {
    MutexLock lock(mutex_);
    auto it = blobs_.find(digest);
    if (it == blobs_.end()) return Error{Code::kNotFound, "no such blob", ""};
    return BlobRef{{"", digest, it->second.size(), 0644}, "", it->second};
  }

  Result<bool> publish(const Manifest& manifest) override {
    MutexLock lock(mutex_);
    for (const Output& output : manifest.outputs) {
      if (!blobs_.contains(output.digest)) return Error{Code::kNotFound, "a blob is missing", ""};
    }
    failures_.erase(manifest.key);
    return manifests_.emplace(manifest.key, manifest).second;
  }
  Status remember_failure(const Failure& failure) override {
    MutexLock lock(mutex_);
    failures_[failure.key] = failure;
    return {};
  }
  void remove(const ActionKey& key) {
    with([&] { manifests_.erase(key); });
  }

  Result<std::vector<EntryInfo>> entries(const EntryFilter&, const std::string& after,
                                         std::size_t limit) override {
    MutexLock lock(mutex_);
    std::vector<EntryInfo> all;
    for (const auto& [key, manifest] : manifests_) {
      if (key.hex() > after && all.size() < limit) all.push_back(info(manifest));
    }
    return all;
  }
  Result<EntryInfo> entry(std::string_view prefix) override {
    MutexLock lock(mutex_);
    for (const auto& [key, manifest] : manifests_) {
      if (key.hex().starts_with(prefix)) return info(manifest);
    }
    return Error{Code::kNotFound, "no such entry", ""};
  }
  Status pin(const ActionKey& key, bool) override {
    MutexLock lock(mutex_);
    if (!manifests_.contains(key)) return Error{Code::kNotFound, "no such entry", ""};
    return {};
  }
  Result<PruneResult> prune(const PruneRequest& request) override {
    MutexLock lock(mutex_);
    PruneResult result;
    for (const auto& [key, manifest] : manifests_) result.removed.push_back(info(manifest));
    if (!request.dry_run) manifests_.clear();
    return result;
  }
  Result<VerifyPage> verify(const std::string&, std::size_t, bool) override { return VerifyPage{}; }

  std::shared_ptr<void> hold(const ActionKey& key) override {
    with([&] { ++holds_[key]; });
    return {this, [key](void* store) {
              static_cast<FakeStore*>(store)->with(
                  [&] { --static_cast<FakeStore*>(store)->holds_[key]; });
            }};
  }

  void count(std::string_view name_space, std::string_view counter, double by) override {
    with([&] { counters_[std::string(name_space)][std::string(counter)] += by; });
  }
  void count_bypass(std::string_view name_space, std::string_view reason, double by) override {
    with([&] {
      counters_[std::string(name_space)]["bypasses"] += by;
      reasons_[std::string(reason)] += by;
    });
  }
  Counters counters(std::string_view name_space) override {
    MutexLock lock(mutex_);
    Counters sum;
    for (const auto& [name, values] : counters_) {
      if (!name_space.empty() && name != name_space) continue;
      for (const auto& [counter, value] : values) sum[counter] += value;
    }
    return sum;
  }
  double counter(const std::string& name) { return counters("")[name]; }
  std::map<std::string, Counters> namespaces() override {
    MutexLock lock(mutex_);
    return counters_;
  }
  std::map<std::string, double> bypass_reasons() override {
    MutexLock lock(mutex_);
    return reasons_;
  }
  Result<std::vector<std::string>> misses(std::size_t limit) override {
    MutexLock lock(mutex_);
    std::vector<std::string> newest(misses_.rbegin(), misses_.rend());
    newest.resize(std::min(limit, newest.size()));
    return newest;
  }
  StoreSize size() override {
    MutexLock lock(mutex_);
    StoreSize size;
    size.entries = manifests_.size();
    size.blobs = blobs_.size();
    size.reserved = reserved_;
    return size;
  }
  StoreHealth health() override { return {}; }
  const std::string& id() const override { return id_; }
  std::optional<double> usual_build_seconds(std::string_view, std::string_view) override {
    return std::nullopt;
  }

  Status put_record(std::string_view table, std::string_view key, std::string_view value) override {
    MutexLock lock(mutex_);
    if (record_error_) return *record_error_;
    records_[std::string(table)][std::string(key)] = value;
    return {};
  }
  Status erase_record(std::string_view table, std::string_view key) override {
    MutexLock lock(mutex_);
    if (record_error_) return *record_error_;
    records_[std::string(table)].erase(std::string(key));
    return {};
  }
  Result<std::map<std::string, std::string>> records(std::string_view table) override {
    MutexLock lock(mutex_);
    return records_[std::string(table)];
  }

  void set_limits(const StoreOptions& options) override {
    with([&] { max_blob_ = options.max_blob; });
  }
  void maintain() override {}
  Status flush() override { return {}; }

 private:
  class FakeUpload final : public Upload {
   public:
    FakeUpload(FakeStore& store, const Digest& digest, std::uint64_t size)
        : store_(store), digest_(digest), size_(size) {}
    ~FakeUpload() override {
      store_.with([&] { store_.reserved_ -= size_; });
    }
    Status write(Bytes bytes) override {
      bytes_ += as_text(bytes);
      if (bytes_.size() > size_) return Error{Code::kTooLarge, "more than was declared", ""};
      return {};
    }
    Status finish() override {
      if (Digest::of(as_bytes(bytes_)) != digest_) {
        return Error{Code::kDigestMismatch, "the bytes are not what their name says", ""};
      }
      store_.with([&] { store_.blobs_[digest_] = std::move(bytes_); });
      return {};
    }

   private:
    FakeStore& store_;
    const Digest digest_;
    const std::uint64_t size_;
    std::string bytes_;
  };

  static EntryInfo info(const Manifest& manifest) {
    EntryInfo entry;
    entry.key = manifest.key;
    entry.kind = manifest.kind;
    entry.name_space = manifest.name_space;
    entry.label = manifest.label;
    entry.bytes = manifest.bytes();
    entry.build_ms = manifest.build_ms;
    return entry;
  }

  Clock& clock_;
  const std::string id_ = "0123456789abcdef0123456789abcdef";
  mutable Mutex mutex_;
  std::optional<Error> lookup_error_;
  std::optional<Error> upload_error_;
  std::optional<Error> record_error_;
  std::function<void()> on_miss_;
  std::map<ActionKey, Manifest> manifests_;
  std::map<ActionKey, Failure> failures_;
  std::map<Digest, std::string> blobs_;
  std::map<ActionKey, std::size_t> holds_;
  std::map<std::string, Counters> counters_;
  std::map<std::string, double> reasons_;
  std::map<std::string, std::map<std::string, std::string>> records_;
  std::vector<std::string> misses_;
  std::uint64_t reserved_ = 0;
  std::uint64_t max_blob_ = 16ULL << 30;
};

}  // namespace nc::daemon
