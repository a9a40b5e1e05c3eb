#include "tests/unit/daemon/fake_store.hpp"

#include <algorithm>
#include <utility>

namespace nc::daemon {
namespace {

Error no_blob() {
  return {Code::kNotFound, "no such blob", ""};
}

EntryInfo info_of(const Manifest& manifest) {
  EntryInfo entry;
  entry.key = manifest.key;
  entry.kind = manifest.kind;
  entry.name_space = manifest.name_space;
  entry.label = manifest.label;
  entry.bytes = manifest.bytes();
  entry.build_ms = manifest.build_ms;
  return entry;
}

}  // namespace

class FakeStore::FakeUpload final : public Upload {
 public:
  FakeUpload(FakeStore& store, const Digest& digest, std::uint64_t size)
      : store_(store), digest_(digest), size_(size) {}
  ~FakeUpload() override {
    MutexLock lock(store_.mutex_);
    store_.reserved_ -= size_;
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
    MutexLock lock(store_.mutex_);
    store_.blobs_[digest_] = std::move(bytes_);
    return {};
  }

 private:
  FakeStore& store_;
  const Digest digest_;
  const std::uint64_t size_;
  std::string bytes_;
};

// ---- What tests set and see ----

void FakeStore::fail_lookups(std::optional<Error> error) {
  MutexLock lock(mutex_);
  lookup_error_ = std::move(error);
}

void FakeStore::fail_uploads(std::optional<Error> error) {
  MutexLock lock(mutex_);
  upload_error_ = std::move(error);
}

void FakeStore::fail_records(std::optional<Error> error) {
  MutexLock lock(mutex_);
  record_error_ = std::move(error);
}

void FakeStore::on_next_miss(std::function<void()> then) {
  MutexLock lock(mutex_);
  on_miss_ = std::move(then);
}

void FakeStore::add_blob(const std::string& bytes) {
  MutexLock lock(mutex_);
  blobs_[Digest::of(as_bytes(bytes))] = bytes;
}

void FakeStore::remove(const ActionKey& key) {
  MutexLock lock(mutex_);
  manifests_.erase(key);
}

std::size_t FakeStore::lookups() const {
  MutexLock lock(mutex_);
  return lookups_;
}

std::uint64_t FakeStore::reserved() const {
  MutexLock lock(mutex_);
  return reserved_;
}

std::size_t FakeStore::held(const ActionKey& key) const {
  MutexLock lock(mutex_);
  auto it = holds_.find(key);
  return it == holds_.end() ? 0 : it->second;
}

double FakeStore::counter(const std::string& name) {
  return counters("")[name];
}

// ---- Look-ups ----

Result<std::optional<Hit>> FakeStore::lookup(const ActionKey& key) {
  std::function<void()> then;
  std::optional<Hit> hit;
  {
    MutexLock lock(mutex_);
    ++lookups_;
    if (lookup_error_) return *lookup_error_;
    if (auto it = manifests_.find(key); it != manifests_.end()) {
      hit.emplace();
      hit->manifest = it->second;
      hit->json = it->second.to_json();
      hit->generation = 1;
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

bool FakeStore::reuse(const ActionKey& key, std::uint64_t generation) {
  MutexLock lock(mutex_);
  return generation == 1 && manifests_.contains(key);
}

Result<std::optional<Manifest>> FakeStore::peek(const ActionKey& key) {
  MutexLock lock(mutex_);
  auto it = manifests_.find(key);
  return it == manifests_.end() ? std::optional<Manifest>() : it->second;
}

Result<std::optional<Failure>> FakeStore::failure(const ActionKey& key) {
  MutexLock lock(mutex_);
  auto it = failures_.find(key);
  if (it == failures_.end() || it->second.expires_ms <= clock_.wall_ms()) {
    return std::optional<Failure>();
  }
  return std::optional<Failure>(it->second);
}

Result<Miss> FakeStore::explain_miss(const Request& request) {
  MutexLock lock(mutex_);
  misses_.push_back("{\"key\":\"" + request.key.hex() + "\",\"cause\":\"never_built\"}");
  return Miss{"never_built", std::nullopt};
}

// ---- Blobs ----

Result<bool> FakeStore::has_blob(const Digest& digest) {
  MutexLock lock(mutex_);
  return blobs_.contains(digest);
}

Result<std::unique_ptr<Upload>> FakeStore::begin_upload(const Digest& digest, std::uint64_t size,
                                                        bool) {
  MutexLock lock(mutex_);
  if (upload_error_) return *upload_error_;
  if (size > max_blob_) return Error{Code::kTooLarge, "the blob is too large", ""};
  reserved_ += size;
  return std::unique_ptr<Upload>(std::make_unique<FakeUpload>(*this, digest, size));
}

Result<std::string> FakeStore::read_blob(const Digest& digest, std::uint64_t) {
  MutexLock lock(mutex_);
  auto it = blobs_.find(digest);
  if (it == blobs_.end()) return no_blob();
  return it->second;
}

Result<std::unique_ptr<Mapping>> FakeStore::map_blob(const Digest& digest) {
  NC_ASSIGN(const bool there, has_blob(digest));
  if (!there) return no_blob();
  return Error{Code::kConflict, "not a file", ""};
}

Result<BlobRef> FakeStore::blob_ref(const Digest& digest) {
  MutexLock lock(mutex_);
  auto it = blobs_.find(digest);
  if (it == blobs_.end()) return no_blob();
  return BlobRef{{"", digest, it->second.size(), 0644}, "", it->second};
}

// ---- Entries ----

Result<bool> FakeStore::publish(const Manifest& manifest) {
  MutexLock lock(mutex_);
  for (const Output& output : manifest.outputs) {
    if (!blobs_.contains(output.digest)) return no_blob();
  }
  failures_.erase(manifest.key);
  return manifests_.emplace(manifest.key, manifest).second;
}

Status FakeStore::remember_failure(const Failure& failure) {
  MutexLock lock(mutex_);
  failures_[failure.key] = failure;
  return {};
}

Result<std::vector<EntryInfo>> FakeStore::entries(const EntryFilter&, const std::string& after,
                                                  std::size_t limit) {
  MutexLock lock(mutex_);
  std::vector<EntryInfo> all;
  for (const auto& [key, manifest] : manifests_) {
    if (key.hex() > after && all.size() < limit) all.push_back(info_of(manifest));
  }
  return all;
}

Result<EntryInfo> FakeStore::entry(std::string_view prefix) {
  MutexLock lock(mutex_);
  for (const auto& [key, manifest] : manifests_) {
    if (key.hex().starts_with(prefix)) return info_of(manifest);
  }
  return Error{Code::kNotFound, "no such entry", ""};
}

Status FakeStore::pin(const ActionKey& key, bool) {
  MutexLock lock(mutex_);
  if (!manifests_.contains(key)) return Error{Code::kNotFound, "no such entry", ""};
  return {};
}

Result<PruneResult> FakeStore::prune(const PruneRequest& request) {
  MutexLock lock(mutex_);
  PruneResult result;
  for (const auto& [key, manifest] : manifests_) result.removed.push_back(info_of(manifest));
  if (!request.dry_run) manifests_.clear();
  return result;
}

Result<VerifyPage> FakeStore::verify(const std::string&, std::size_t, bool) {
  return VerifyPage{};
}

std::shared_ptr<void> FakeStore::hold(const ActionKey& key) {
  MutexLock lock(mutex_);
  ++holds_[key];
  return {this, [this, key](void*) {
            MutexLock release(mutex_);
            --holds_[key];
          }};
}

// ---- Counters and records ----

void FakeStore::count(std::string_view name_space, std::string_view counter, double by) {
  MutexLock lock(mutex_);
  counters_[std::string(name_space)][std::string(counter)] += by;
}

void FakeStore::count_bypass(std::string_view name_space, std::string_view reason, double by) {
  MutexLock lock(mutex_);
  counters_[std::string(name_space)]["bypasses"] += by;
  reasons_[std::string(reason)] += by;
}

Counters FakeStore::counters(std::string_view name_space) {
  MutexLock lock(mutex_);
  Counters sum;
  for (const auto& [name, values] : counters_) {
    if (!name_space.empty() && name != name_space) continue;
    for (const auto& [counter, value] : values) sum[counter] += value;
  }
  return sum;
}

std::map<std::string, Counters> FakeStore::namespaces() {
  MutexLock lock(mutex_);
  return counters_;
}

std::map<std::string, double> FakeStore::bypass_reasons() {
  MutexLock lock(mutex_);
  return reasons_;
}

Result<std::vector<std::string>> FakeStore::misses(std::size_t limit) {
  MutexLock lock(mutex_);
  std::vector<std::string> newest(misses_.rbegin(), misses_.rend());
  newest.resize(std::min(limit, newest.size()));
  return newest;
}

StoreSize FakeStore::size() {
  MutexLock lock(mutex_);
  StoreSize size;
  size.entries = manifests_.size();
  size.blobs = blobs_.size();
  size.reserved = reserved_;
  return size;
}

Status FakeStore::put_record(std::string_view table, std::string_view key, std::string_view value) {
  MutexLock lock(mutex_);
  if (record_error_) return *record_error_;
  records_[std::string(table)][std::string(key)] = value;
  return {};
}

Status FakeStore::erase_record(std::string_view table, std::string_view key) {
  MutexLock lock(mutex_);
  if (record_error_) return *record_error_;
  records_[std::string(table)].erase(std::string(key));
  return {};
}

Result<std::map<std::string, std::string>> FakeStore::records(std::string_view table) {
  MutexLock lock(mutex_);
  return records_[std::string(table)];
}

Status FakeStore::change_records(std::string_view table, std::vector<RecordChange> changes) {
  MutexLock lock(mutex_);
  if (record_error_) return *record_error_;
  auto& records = records_[std::string(table)];
  for (RecordChange& change : changes) {
    if (change.value) {
      records[change.key] = *std::move(change.value);
    } else {
      records.erase(change.key);
    }
  }
  return {};
}

void FakeStore::set_limits(const StoreOptions& options) {
  MutexLock lock(mutex_);
  max_blob_ = options.max_blob;
}

}  // namespace nc::daemon
