// The export file: a portable, verified stream of entries (docs/formats.md, "Export file").
//
//   file   = header entry* trailer                       each record is an Envelope
//   entry  = list manifest chunk*                        chunks of the listed blobs that came in no
//   earlier entry, in order
//
// Blobs travel in chunks of at most 1 MiB, so nothing here ever holds more than one record. What a
// manifest says is not looked at: the list names the entry's key and its blobs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "base/envelope.hpp"
#include "base/filesystem.hpp"
#include "base/hash.hpp"
#include "base/result.hpp"

namespace nc {
namespace bundle {
struct Access;
}

struct BundleHeader {
  static constexpr std::uint32_t kVersion = 1;
  std::string creator;  // "neuroncache 0.1.0"; <= 255 bytes
  std::string host;     // <= 255 bytes
  Millis created_ms = 0;
  std::uint64_t entries_guess = 0;  // for progress; not checked
  std::uint64_t bytes_guess = 0;
  bool operator==(const BundleHeader&) const = default;
};

struct BundleBlob {
  Digest digest;
  std::uint64_t size = 0;
  bool operator==(const BundleBlob&) const = default;
};

struct BundleTotals {
  std::uint64_t entries = 0;
  std::uint64_t blobs = 0;  // distinct
  std::uint64_t bytes = 0;  // of the distinct blobs, raw
  bool operator==(const BundleTotals&) const = default;
};

struct BundleLimits {
  static constexpr std::uint64_t kMaxManifest = 1 << 20;
  static constexpr std::size_t kMaxBlobs = 256;     // of one entry
  static constexpr std::uint64_t kChunk = 1 << 20;  // raw bytes
  std::uint64_t max_blob = 16ULL << 30;
};

// Bytes in order; 0 at the end.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual Result<std::size_t> read(std::span<std::byte> out) = 0;
};
std::unique_ptr<ByteSource> file_source(std::unique_ptr<File> file);

// Reads and checks a bundle. Every error says at which byte, and in what, the damage is; what
// next() gave before it is good.
class BundleReader {
 public:
  struct Entry {
    ActionKey key;
    std::string manifest;
    std::vector<BundleBlob> blobs;  // all; chunks follow for those that no earlier entry brought
  };
  struct Chunk {
    BundleBlob blob;
    std::uint64_t offset = 0;
    std::string bytes;
    bool last = false;  // the whole blob has been checked against its digest
  };
  struct Item {  // exactly one is set
    std::optional<Entry> entry;
    std::optional<Chunk> chunk;
    std::optional<BundleTotals> end;  // the trailer was right and nothing follows it
  };

  explicit BundleReader(std::unique_ptr<ByteSource> source, BundleLimits limits = {});
  ~BundleReader();
  BundleReader(BundleReader&&) noexcept;
  BundleReader& operator=(BundleReader&&) noexcept;

  Result<BundleHeader> header();  // first, once
  // kCorrupt: damaged or cut off. kUnsupported: a newer format. kTooLarge: over a limit. After an
  // error or `end`: kConflict.
  Result<Item> next();

  std::uint64_t position() const;  // of the record read last: where the damage is, after an error
  std::uint64_t good_prefix()
      const;  // bytes up to the end of the last complete entry (or of the header)
  const BundleTotals& totals() const;  // in the good prefix

 private:
  friend struct bundle::Access;
  struct State;
  std::unique_ptr<State> state_;
};

// Writes `path`.partial and renames it when done. Left unfinished, the .partial file can be
// resumed.
class BundleWriter {
 public:
  // Pushes the raw bytes of `blob` into `sink`, in pieces of any size.
  using Sink = std::function<Status(Bytes)>;
  using BlobSource = std::function<Status(const BundleBlob& blob, const Sink& sink)>;

  // A .partial file is gone on with: what is whole in it is kept, the rest cut off (resumed()
  // tells). One that is no bundle is kConflict; with `restart` it is overwritten. kConflict when
  // `path` itself exists and `replace` is false.
  struct Options {
    bool restart = false;
    bool replace = false;
    bool compress = true;
  };
  static Result<BundleWriter> open(FileSystem& fs, std::string path, const BundleHeader& header,
                                   Options options);
  ~BundleWriter();
  BundleWriter(BundleWriter&&) noexcept;
  BundleWriter& operator=(BundleWriter&&) noexcept;

  bool has(const ActionKey& key) const;
  // Asks `source` for each blob that is not in the file yet. On an error (also kDigestMismatch: the
  // bytes are not what their digest says) the file is as before and more entries may follow.
  // kConflict: the key is in the file.
  Status add(const ActionKey& key, std::string_view manifest, std::span<const BundleBlob> blobs,
             const BlobSource& source);
  // Trailer, sync, rename, sync of the directory.
  Result<BundleTotals> finish();

  bool resumed() const;
  const BundleTotals& totals() const;
  std::uint64_t file_bytes() const;
  std::string partial_path() const;

 private:
  struct State;
  explicit BundleWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace nc
