// Verification, a page at a time: manifests, then entry records, then blobs, then files nobody
// names. The cursor is a letter for the part and the hex of the last key done in it.
#include "base/envelope.hpp"
#include "cache/store_impl.hpp"

namespace nc {
namespace {

constexpr char kManifestPart = 'm';
constexpr char kRecordPart = 'r';
constexpr char kBlobPart = 'b';
constexpr char kFilePart = 'f';
constexpr unsigned kShards = 256;
constexpr unsigned kShardsPerPage = 32;

struct Row {
  Sha256 id;
  std::string value;
};

// The next `limit` rows with keys of 32 bytes after `cursor` (hex); moves it, or empties it at the
// end.
Result<std::vector<Row>> next_rows(KeyValueDb& index, Family family, std::string& cursor,
                                   std::size_t limit) {
  const auto from = from_hex(cursor).value_or("");
  std::vector<Row> rows;
  bool more = false;
  NC_TRY(index.scan(family, from, [&](std::string_view key, std::string_view value) {
    if (!from.empty() && key == from) return true;
    const auto id = sha256_of_raw(key);
    if (!id) return true;
    if (rows.size() == limit) {
      more = true;
      return false;
    }
    rows.push_back({*id, std::string(value)});
    return true;
  }));
  cursor = more ? rows.back().id.hex() : std::string();
  return rows;
}

std::string_view action(bool repair, std::string_view done) {
  return repair ? done : "run `neuroncache verify --repair`";
}

}  // namespace

// "" when the manifest is right and all its blobs are there.
std::string StoreImpl::manifest_problem(const ActionKey& key, std::string_view sealed) {
  const auto envelope = Envelope::unseal(as_bytes(sealed), 16 << 20);
  if (!envelope.ok()) return "the manifest is damaged: " + envelope.error().message;
  if (envelope->kind == Envelope::Kind::kFailure) {
    const auto failure = Failure::parse(envelope->payload);
    if (!failure.ok()) return "the failure record is damaged: " + failure.error().message;
    return failure->key == key ? "" : "the failure record belongs to another key";
  }
  const auto manifest = Manifest::parse(envelope->payload);
  if (!manifest.ok()) return "the manifest is damaged: " + manifest.error().message;
  if (manifest->key != key) return "the manifest belongs to another key";
  for (const auto& output : manifest->outputs) {
    const auto blob = know_blob(output.digest);
    if (!blob.ok()) return "blob of output " + output.name + ": " + blob.error().message;
    if (!blob->has_value()) return "the blob of output " + output.name + " is missing";
    if ((*blob)->size != output.size)
      return "the blob of output " + output.name + " has another size";
  }
  return {};
}

Status StoreImpl::verify_manifests(std::string& cursor, std::size_t limit, bool repair,
                                   VerifyPage& page) {
  NC_ASSIGN(const auto rows, next_rows(*index_, Family::kManifests, cursor, limit));
  for (const auto& row : rows) {
    const auto& key = row.id;
    const auto& sealed = row.value;
    ++page.checked;
    page.bytes += sealed.size();
    std::uint64_t generation = 0;
    const auto look = [&] {
      MutexLock lock(mutex_);
      const auto* entry = table_.find(key);
      generation = entry == nullptr ? 0 : entry->generation;
    };
    look();
    auto problem = manifest_problem(key, sealed);
    if (problem.empty() && generation != 0) continue;
    {
      // Again, with the key to ourselves: what is being published or removed is half there and
      // right.
      const Busy busy(*this, key);
      NC_ASSIGN(const auto still, index_->get(Family::kManifests, key.view()));
      if (!still) continue;
      problem = manifest_problem(key, *still);
      look();
      if (problem.empty() && generation != 0) continue;
      if (repair && generation == 0) NC_TRY(restore(key));  // drops what it cannot make again
    }
    if (problem.empty()) {
      page.bad.push_back({key.hex(), "the entry record is missing",
                          std::string(action(repair, "made again from the manifest"))});
      continue;
    }
    if (repair && generation != 0) NC_TRY(drop(key, generation, RemovalCause::kCorrupt));
    page.bad.push_back({key.hex(), std::move(problem), std::string(action(repair, "dropped"))});
  }
  return {};
}

Status StoreImpl::verify_records(std::string& cursor, std::size_t limit, bool repair,
                                 VerifyPage& page) {
  NC_ASSIGN(const auto rows, next_rows(*index_, Family::kEntries, cursor, limit));
  for (const auto& [key, value] : rows) {
    NC_ASSIGN(const auto manifest, index_->get(Family::kManifests, key.view()));
    if (manifest && EntryRecord::decode(value)) continue;
    const Busy busy(*this, key);
    NC_ASSIGN(const auto still, index_->get(Family::kEntries, key.view()));
    NC_ASSIGN(const auto now, index_->get(Family::kManifests, key.view()));
    if (!still || (now && EntryRecord::decode(*still))) continue;
    if (repair) {
      KvBatch batch;
      batch.erase(Family::kEntries, key.view());
      if (!now) batch.erase(Family::kEntries, access_key(key));
      NC_TRY(noted(index_->commit(batch, false)));
      if (!now) {
        MutexLock lock(mutex_);
        table_.erase(key);
      } else {
        {
          MutexLock lock(mutex_);
          table_.erase(key);
        }
        NC_TRY(restore(key));
      }
    }
    page.bad.push_back({key.hex(), now ? "the entry record is damaged" : "the manifest is missing",
                        std::string(action(repair, now ? "made again" : "dropped"))});
  }
  return {};
}

// "" when the blob's bytes are what its name says.
Result<std::string> StoreImpl::blob_problem(const Digest& digest,
                                            const std::optional<BlobRecord>& record,
                                            VerifyPage& page) {
  if (!record) return std::string("the blob's record is damaged");
  if (!record->file) {
    auto bytes = raw_bytes({digest}, *record, kFileBlobSize);
    if (!bytes.ok()) return bytes.error().message;
    page.bytes += bytes->size();
    if (Sha256::of(as_bytes(*bytes)) != digest) return std::string("wrong SHA-256");
    return std::string();
  }
  const auto info = files_.stat(digest, record->compressed);
  if (info.is(Code::kNotFound)) return std::string("the blob's file is missing");
  if (!info.ok()) return info.error();
  auto actual = files_.examine({digest, record->compressed, *info});
  page.bytes += info->size;
  if (actual.is(Code::kDigestMismatch) || actual.is(Code::kNotFound)) return actual.error().message;
  if (!actual.ok()) return std::move(actual).error();
  if (actual->size != record->size || actual->check != record->check ||
      actual->stored != record->stored) {
    return std::string("the blob's record does not fit its file");
  }
  return std::string();
}

Status StoreImpl::verify_blobs(std::string& cursor, std::size_t limit, bool repair,
                               VerifyPage& page) {
  NC_ASSIGN(const auto rows, next_rows(*index_, Family::kBlobs, cursor, limit));
  for (const auto& [digest, value] : rows) {
    ++page.checked;
    NC_ASSIGN(auto problem, blob_problem(digest, BlobRecord::decode(value), page));
    if (problem.empty()) continue;
    NC_ASSIGN(const auto still, index_->get(Family::kBlobs, digest.view()));
    if (!still || *still != value) continue;  // removed or replaced since
    if (repair) {
      // Into the table, so that quarantine() finds it; what cannot be known is only a record.
      NC_ASSIGN(const auto known, know_blob(digest));
      if (known) {
        NC_ASSIGN(const auto record, blob_record(digest));
        NC_ASSIGN(const auto again, blob_problem(digest, record, page));
        if (!again.empty()) NC_TRY(quarantine(digest, again));
      } else {
        const Busy busy(*this, digest);
        KvBatch batch;
        batch.erase(Family::kBlobs, digest.view());
        NC_TRY(noted(index_->commit(batch, false)));
      }
    }
    page.bad.push_back({digest.hex(), std::move(problem),
                        std::string(action(repair, "set aside; its entries are dropped"))});
  }
  return {};
}

Status StoreImpl::verify_files(std::string& cursor, std::size_t limit, bool repair,
                               VerifyPage& page) {
  // The cursor is the number of the next shard, two hex digits.
  const auto raw = from_hex(cursor).value_or("");
  unsigned shard = raw.empty() ? 0 : static_cast<unsigned char>(raw[0]);
  const auto in_table = [&](const Digest& digest) {
    MutexLock lock(mutex_);
    return table_.find_blob(digest) != nullptr;
  };
  for (unsigned done = 0; shard < kShards; ++shard, ++done) {
    if (done == kShardsPerPage || page.checked >= limit) {
      const std::byte next{static_cast<unsigned char>(shard)};
      cursor = to_hex(Bytes(&next, 1));
      return {};
    }
    NC_ASSIGN(const auto files, files_.list(shard));
    page.checked += files.size();
    for (const auto& file : files) {
      NC_ASSIGN(const auto record, blob_record(file.digest));
      if (record) continue;
      bool spoilt = false;
      {
        // Again, with the blob to ourselves: it may be on its way in or out.
        const Busy busy(*this, file.digest);
        NC_ASSIGN(const auto again, blob_record(file.digest));
        if (again || !in_table(file.digest)) continue;
        if (repair) {
          NC_ASSIGN(const auto adopted, adopt(file.digest));
          spoilt = !adopted.has_value();
        }
      }
      if (spoilt) NC_TRY(quarantine(file.digest, "it is not what its name says"));
      page.bad.push_back({file.digest.hex(), "the blob's record is missing",
                          std::string(action(repair, "made again from the file"))});
    }
    NC_ASSIGN(const auto swept, sweep_shard(shard, !repair || read_only_));
    page.orphans += swept.files;
  }
  cursor.clear();
  return {};
}

Result<VerifyPage> StoreImpl::verify(const std::string& after, std::size_t limit, bool repair) {
  if (repair && read_only_) return read_only_error();
  char part = kManifestPart;
  std::string cursor;
  if (!after.empty()) {
    part = after[0];
    cursor = after.substr(1);
    if (std::string_view("mrbf").find(part) == std::string_view::npos ||
        (!cursor.empty() && !from_hex(cursor))) {
      return Error{Code::kInvalid, "\"" + after + "\" is not a cursor",
                   "give the `next` of the page before"};
    }
  }
  if (limit == 0) limit = 1;
  VerifyPage page;
  switch (part) {
    case kManifestPart:
      NC_TRY(verify_manifests(cursor, limit, repair, page));
      if (cursor.empty()) part = kRecordPart;
      break;
    case kRecordPart:
      NC_TRY(verify_records(cursor, limit, repair, page));
      if (cursor.empty()) part = kBlobPart;
      break;
    case kBlobPart:
      NC_TRY(verify_blobs(cursor, limit, repair, page));
      if (cursor.empty()) part = kFilePart;
      break;
    default:
      NC_TRY(verify_files(cursor, limit, repair, page));
      if (cursor.empty()) return page;
  }
  page.next = part + cursor;
  return page;
}

}  // namespace nc
