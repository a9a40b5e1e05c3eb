// Blobs as files: <store>/cas/ab/cd/<sha256>[.zst], <store>/staging, <store>/quarantine. Knows
// nothing of entries; who may touch which digest when is the store's business. Thread-safe for
// different digests.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/filesystem.hpp"
#include "base/hash.hpp"
#include "base/result.hpp"
#include "cache/index_records.hpp"

namespace nc {

// A blob as it lies on disk.
struct BlobFile {
  Digest digest;
  bool compressed = false;
  FileInfo info;
};

// Bytes that a file takes on the disk, whole blocks.
std::uint64_t disk_bytes(const FileInfo& info);

class BlobFiles {
 public:
  BlobFiles(FileSystem& fs, const std::string& store_dir);

  Status make_dirs();
  Status empty_staging();
  std::string staging_path(const std::string& id) const { return join(staging_, id); }
  std::string path(const Digest& digest, bool compressed) const;

  // Moves a synced staging file to its name; durable when it returns.
  Status place(const std::string& staged, const Digest& digest, bool compressed);
  Result<FileInfo> stat(const Digest& digest, bool compressed) const;
  // The blob in whichever form it is there, raw first; nullopt: neither.
  Result<std::optional<BlobFile>> find(const Digest& digest) const;
  // kNotFound when it is gone already.
  Status remove(const Digest& digest, bool compressed);

  // Raw bytes of a file, checked against the record. kCorrupt when damaged, kNotFound, kTooLarge.
  Result<std::string> read(const Digest& digest, const BlobRecord& record,
                           std::uint64_t limit) const;
  Result<std::unique_ptr<Mapping>> map(const Digest& digest) const;
  // Reads a file of any origin whole: kDigestMismatch unless its raw bytes have this SHA-256. The
  // record is filled but for created_ms.
  Result<BlobRecord> examine(const BlobFile& file) const;

  // Out of the way, for a look. The name says when.
  Status quarantine(const Digest& digest, bool compressed, Millis now);
  std::uint64_t quarantine_bytes() const;
  Result<std::uint64_t> empty_quarantine();  // bytes freed

  // All blob files whose digest starts with the byte `shard`; files that are none are given to
  // `stray`.
  Result<std::vector<BlobFile>> list(
      unsigned shard, const std::function<void(const std::string&)>& stray = {}) const;

 private:
  Status make_dir_for(const Digest& digest);

  FileSystem& fs_;
  const std::string cas_;
  const std::string staging_;
  const std::string quarantine_;
  std::array<std::atomic<std::uint64_t>, 1024>
      made_{};  // one bit per directory known to be durable
};

}  // namespace nc
