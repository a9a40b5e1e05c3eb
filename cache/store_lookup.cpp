// Look-ups. A hit is given only when every blob is there and right; whatever is found broken goes
// at once.
#include "base/envelope.hpp"
#include "base/log.hpp"
#include "cache/failure_policy.hpp"
#include "cache/store_impl.hpp"

namespace nc {
namespace {

constexpr std::uint64_t kMaxStored = 16 << 20;  // of a manifest or failure, decoded

struct Opened {
  std::string json;
  bool failed = false;
};

Result<Opened> open_sealed(std::string_view sealed) {
  NC_ASSIGN(auto envelope, Envelope::unseal(as_bytes(sealed), kMaxStored));
  if (envelope.kind != Envelope::Kind::kManifest && envelope.kind != Envelope::Kind::kFailure) {
    return Error{Code::kCorrupt, "the stored manifest is of the wrong kind", ""};
  }
  return Opened{std::move(envelope.payload), envelope.kind == Envelope::Kind::kFailure};
}

}  // namespace

Result<std::optional<Found>> StoreImpl::find(const ActionKey& key) {
  std::uint64_t generation = 0;
  {
    MutexLock lock(mutex_);
    if (const auto* entry = table_.find(key)) generation = entry->generation;
  }
  auto sealed = index_->get(Family::kManifests, key.view());
  if (!sealed.ok() && !sealed.is(Code::kCorrupt)) return std::move(sealed).error();
  const bool present = sealed.ok() && sealed->has_value();
  if (generation == 0) {
    if (sealed.ok() && !present) return std::optional<Found>();
    // The entry is being published or removed right now, or its record was lost.
    const Busy busy(*this, key);
    NC_ASSIGN(const bool restored, restore(key));
    if (!restored) return std::optional<Found>();
    sealed = index_->get(Family::kManifests, key.view());
    if (!sealed.ok()) return std::move(sealed).error();
    MutexLock lock(mutex_);
    const auto* entry = table_.find(key);
    if (entry == nullptr || !sealed->has_value()) return std::optional<Found>();
    generation = entry->generation;
  } else if (!present) {
    NC_TRY(drop(key, generation, RemovalCause::kCorrupt));
    return std::optional<Found>();
  }
  auto opened = open_sealed(**sealed);
  if (!opened.ok()) {
    NC_TRY(drop(key, generation, RemovalCause::kCorrupt));
    return std::optional<Found>();
  }
  return std::optional(Found{std::move(opened->json), opened->failed, generation});
}

Result<bool> StoreImpl::restore(const ActionKey& key) {
  {
    MutexLock lock(mutex_);
    if (table_.find(key) != nullptr) return true;
  }
  auto sealed = index_->get(Family::kManifests, key.view());
  if (!sealed.ok() && !sealed.is(Code::kCorrupt)) return std::move(sealed).error();
  if (sealed.ok() && !sealed->has_value()) return false;

  // A record that cannot be made again must go, or every publish of this key would meet it.
  const auto forget = [&](const std::string& why) -> Result<bool> {
    log::warn("store", "manifest {} is dropped: {}", key.hex(), why);
    if (read_only_) return false;
    KvBatch batch;
    batch.erase(Family::kManifests, key.view());
    batch.erase(Family::kEntries, key.view());
    batch.erase(Family::kEntries, access_key(key));
    {
      MutexLock lock(mutex_);
      put_tombstone(key, RemovalCause::kCorrupt, batch);
    }
    NC_TRY(noted(index_->commit(batch, false)));
    MutexLock lock(explain_mutex_);
    explainer_.removed(key, RemovalCause::kCorrupt);
    return false;
  };
  if (!sealed.ok()) return forget(sealed.error().message);
  auto opened = open_sealed(**sealed);
  if (!opened.ok()) return forget(opened.error().message);
  EntryRecord record;
  if (opened->failed) {
    auto failure = Failure::parse(opened->json);
    if (!failure.ok()) return forget(failure.error().message);
    if (failure->key != key) return forget("it belongs to another key");
    record = describe(*failure, (*sealed)->size());
  } else {
    auto manifest = Manifest::parse(opened->json);
    if (!manifest.ok()) return forget(manifest.error().message);
    if (manifest->key != key) return forget("it belongs to another key");
    auto described = describe(*manifest, (*sealed)->size());
    if (described.is(Code::kNotFound) || described.is(Code::kInvalid)) {
      return forget(described.error().message);
    }
    if (!described.ok()) return std::move(described).error();
    record = *std::move(described);
    learn(key, *manifest);
  }
  AccessRecord access;
  const auto stored = index_->get(Family::kEntries, access_key(key));
  if (stored.ok() && stored->has_value()) access = AccessRecord::decode(**stored).value_or(access);
  if (access.used_ms == 0) access.used_ms = record.created_ms;
  if (!read_only_) {
    KvBatch batch;
    batch.put(Family::kEntries, key.view(), record.encode());
    NC_TRY(noted(index_->commit(batch, false)));
  }
  {
    MutexLock lock(mutex_);
    table_.insert(key, record, access, expiry(record));
  }
  book_.add(record.name_space, Counter::kRepaired);
  log::info("store", "entry {} was made again from its manifest", key.hex());
  return true;
}

std::optional<Manifest> StoreImpl::parse_sealed(std::string_view sealed) {
  const auto opened = open_sealed(sealed);
  if (!opened.ok() || opened->failed) return std::nullopt;
  auto manifest = Manifest::parse(opened->json);
  if (!manifest.ok()) return std::nullopt;
  return *std::move(manifest);
}

void StoreImpl::learn(const ActionKey& key, const Manifest& manifest) {
  MutexLock lock(explain_mutex_);
  explainer_.remember(key, manifest.kind, manifest.label, manifest.parts);
}

Result<std::optional<Hit>> StoreImpl::lookup(const ActionKey& key) {
  NC_ASSIGN(auto found, find(key));
  if (!found || found->failed) return std::optional<Hit>();
  auto manifest = Manifest::parse(found->json);
  if (!manifest.ok() || manifest->key != key) {
    NC_TRY(drop(key, found->generation, RemovalCause::kCorrupt));
    return std::optional<Hit>();
  }
  Hit hit;
  hit.manifest = *std::move(manifest);
  std::vector<EntryBlob> blobs;
  {
    MutexLock lock(mutex_);
    const auto* entry = table_.find(key);
    const auto& outputs = hit.manifest.outputs;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      // The entry's own list has them in this order, unless one occurs twice.
      const auto* blob = entry != nullptr && i < entry->blobs.size() ? entry->blobs[i] : nullptr;
      if (blob == nullptr || blob->digest != outputs[i].digest) {
        blob = table_.find_blob(outputs[i].digest);
      }
      if (blob == nullptr) break;
      blobs.push_back({blob->digest, blob->size, blob->disk_bytes, blob->file, blob->compressed});
    }
  }
  if (blobs.size() != hit.manifest.outputs.size()) {
    NC_TRY(drop(key, found->generation, RemovalCause::kCorrupt));
    return std::optional<Hit>();
  }
  hit.blobs.reserve(blobs.size());
  for (std::size_t i = 0; i < blobs.size(); ++i) {
    auto ref = serve(blobs[i]);
    if (ref.is(Code::kNotFound) || ref.is(Code::kCorrupt)) {
      NC_TRY(drop(key, found->generation, RemovalCause::kCorrupt));
      return std::optional<Hit>();
    }
    if (!ref.ok()) return std::move(ref).error();
    ref->output = hit.manifest.outputs[i];
    hit.blobs.push_back(*std::move(ref));
  }
  hit.json = std::move(found->json);
  hit.generation = found->generation;
  reuse(key, hit.generation);  // counts the use
  return std::optional(std::move(hit));
}

bool StoreImpl::reuse(const ActionKey& key, std::uint64_t generation) {
  MutexLock lock(mutex_);
  auto* entry = table_.find(key);
  if (entry == nullptr || entry->failed || entry->generation != generation) return false;
  table_.queue().touch(key, clock_.wall_ms());
  if (!entry->dirty) {
    entry->dirty = true;
    dirty_.push_back(key);
  }
  return true;
}

Result<std::optional<Manifest>> StoreImpl::peek(const ActionKey& key) {
  NC_ASSIGN(const auto found, find(key));
  if (!found || found->failed) return std::optional<Manifest>();
  auto manifest = Manifest::parse(found->json);
  if (!manifest.ok() || manifest->key != key) {
    NC_TRY(drop(key, found->generation, RemovalCause::kCorrupt));
    return std::optional<Manifest>();
  }
  return std::optional(*std::move(manifest));
}

Result<std::optional<Failure>> StoreImpl::failure(const ActionKey& key) {
  {
    // The usual case: there is none.
    MutexLock lock(mutex_);
    const auto* entry = table_.find(key);
    if (entry != nullptr && (!entry->failed || entry->expires_mono <= clock_.monotonic_ms())) {
      return std::optional<Failure>();
    }
  }
  NC_ASSIGN(const auto found, find(key));
  if (!found || !found->failed) return std::optional<Failure>();
  auto failure = Failure::parse(found->json);
  if (!failure.ok() || failure->key != key) {
    NC_TRY(drop(key, found->generation, RemovalCause::kCorrupt));
    return std::optional<Failure>();
  }
  MutexLock lock(mutex_);
  const auto* entry = table_.find(key);
  if (entry == nullptr || entry->expires_mono <= clock_.monotonic_ms()) {
    return std::optional<Failure>();
  }
  return std::optional(*std::move(failure));
}

}  // namespace nc
