#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/bundle.hpp"
#include "base/bundle_records.hpp"

namespace nc {
namespace {

class FileSource final : public ByteSource {
 public:
  explicit FileSource(std::unique_ptr<File> file) : file_(std::move(file)) {}
  Result<std::size_t> read(std::span<std::byte> out) override {
    auto got = file_->read_at(offset_, out);
    if (got.ok()) offset_ += *got;
    return got;
  }

 private:
  std::unique_ptr<File> file_;
  std::uint64_t offset_ = 0;
};

Error corrupt(std::string message) {
  return {Code::kCorrupt, std::move(message), ""};
}

std::string short_hex(const Sha256& sha) {
  return sha.hex().substr(0, 12);
}

}  // namespace

std::unique_ptr<ByteSource> file_source(std::unique_ptr<File> file) {
  return std::make_unique<FileSource>(std::move(file));
}

struct BundleReader::State {
  enum class Phase { kHeader, kEntry, kManifest, kChunks, kOver };

  std::unique_ptr<ByteSource> source;
  BundleLimits limits;
  Phase phase = Phase::kHeader;
  std::uint64_t offset = 0;    // bytes read
  std::uint64_t position = 0;  // where the last record starts
  std::uint64_t good = 0;
  bundle::Sections sections;
  bundle::Contents contents;
  bundle::List list;          // of the entry under way
  std::size_t next_blob = 0;  // in list.blobs
  std::uint64_t chunk_offset = 0;
  std::uint64_t blob_position = 0;
  Sha256Hasher blob_hash;

  // Reads exactly `out`, or less at the end of the file.
  Result<std::size_t> fill(std::span<std::byte> out) {
    std::size_t have = 0;
    while (have < out.size()) {
      NC_ASSIGN(const std::size_t got, source->read(out.subspan(have)));
      if (got == 0) break;
      have += got;
      offset += got;
    }
    return have;
  }

  // The next record; nullopt at the end of the file. Its kind must be one of `kinds`.
  Result<std::optional<Envelope>> record(std::uint64_t limit) {
    position = offset;
    std::string bytes(Envelope::kHeaderSize, '\0');
    NC_ASSIGN(const std::size_t head, fill(writable(bytes, 0)));
    if (head == 0) return std::optional<Envelope>();
    if (head < bytes.size()) return corrupt("the file is cut off in the head of a record");
    NC_ASSIGN(const std::uint64_t size, Envelope::sealed_size(as_bytes(bytes), limit));
    bytes.resize(size);
    NC_ASSIGN(const std::size_t rest, fill(writable(bytes, Envelope::kHeaderSize)));
    if (rest < size - Envelope::kHeaderSize) return corrupt("the file is cut off in a record");
    NC_ASSIGN(Envelope envelope, Envelope::unseal(as_bytes(bytes), limit));
    if (envelope.kind != Envelope::Kind::kTrailer) sections.bytes(as_bytes(bytes));
    return std::optional<Envelope>(std::move(envelope));
  }

  static std::span<std::byte> writable(std::string& bytes, std::size_t from) {
    return std::as_writable_bytes(std::span(bytes)).subspan(from);
  }

  Result<BundleHeader> header() {
    NC_ASSIGN(auto envelope, record(bundle::kMaxHeader));
    if (!envelope) return corrupt("the file is empty");
    if (envelope->kind != Envelope::Kind::kHeader) {
      return corrupt("not an export file of neuroncache: it starts with another record");
    }
    NC_ASSIGN(BundleHeader header, bundle::decode_header(as_bytes(envelope->payload)));
    sections.commit();
    good = offset;
    phase = Phase::kEntry;
    return header;
  }

  Result<Item> next() {
    if (phase == Phase::kChunks) return chunk();
    NC_ASSIGN(auto envelope, record(bundle::kMaxList));
    if (!envelope) return corrupt("the file ends without its trailer: it is cut off");
    if (envelope->kind == Envelope::Kind::kTrailer) return trailer(envelope->payload);
    if (envelope->kind != Envelope::Kind::kEntry) {
      return corrupt("a record that is neither an entry nor the trailer");
    }
    return entry(envelope->payload);
  }

  Result<Item> entry(const std::string& payload) {
    NC_ASSIGN(list, bundle::decode_list(as_bytes(payload)));
    if (contents.keys.count(list.key) != 0) {
      return corrupt(fmt::format("entry {} comes twice", short_hex(list.key)));
    }
    for (const BundleBlob& blob : list.blobs) {
      if (blob.size > limits.max_blob) {
        return Error{Code::kTooLarge,
                     fmt::format("blob {} has {}, the limit is {}", short_hex(blob.digest),
                                 format_size(blob.size), format_size(limits.max_blob)),
                     "raise max_blob"};
      }
      const auto known = contents.blobs.find(blob.digest);
      if (known != contents.blobs.end() && known->second != blob.size) {
        return corrupt(fmt::format("blob {} is listed with two sizes", short_hex(blob.digest)));
      }
    }
    phase = Phase::kManifest;
    NC_ASSIGN(auto envelope, record(BundleLimits::kMaxManifest));
    if (!envelope) return corrupt("the file is cut off before the manifest of an entry");
    if (envelope->kind != Envelope::Kind::kManifest) {
      return corrupt("a record that is not the manifest of its entry");
    }
    Item item;
    item.entry = Entry{list.key, std::move(envelope->payload), list.blobs};
    next_blob = 0;
    go_to_missing_blob();
    return item;
  }

  // The next blob of the list that no earlier entry brought, or the end of the entry.
  void go_to_missing_blob() {
    while (next_blob < list.blobs.size() &&
           contents.blobs.count(list.blobs[next_blob].digest) != 0) {
      ++next_blob;
    }
    chunk_offset = 0;
    blob_hash = Sha256Hasher();
    phase = Phase::kChunks;
    if (next_blob < list.blobs.size()) return;
    phase = Phase::kEntry;
    sections.commit();
    contents.commit(list);
    good = offset;
  }

  Result<Item> chunk() {
    const BundleBlob blob = list.blobs[next_blob];
    NC_ASSIGN(auto envelope, record(bundle::kMaxChunkRecord));
    const std::string name = short_hex(blob.digest);
    if (!envelope) return corrupt(fmt::format("the file is cut off in blob {}", name));
    if (envelope->kind != Envelope::Kind::kBlob) {
      return corrupt(fmt::format("a record that is not the next chunk of blob {}", name));
    }
    if (chunk_offset == 0) blob_position = position;
    NC_ASSIGN(const bundle::ChunkHead head, bundle::decode_chunk(as_bytes(envelope->payload)));
    const std::uint64_t size = envelope->payload.size() - bundle::kChunkHead;
    if (head.blob != blob || head.offset != chunk_offset ||
        size != std::min(BundleLimits::kChunk, blob.size - chunk_offset)) {
      return corrupt(fmt::format("not the next chunk of blob {}", name));
    }
    envelope->payload.erase(0, bundle::kChunkHead);
    blob_hash.update(as_bytes(envelope->payload));
    chunk_offset += size;
    Item item;
    item.chunk = Chunk{blob, head.offset, std::move(envelope->payload), chunk_offset == blob.size};
    if (item.chunk->last) {
      if (blob_hash.finish() != blob.digest) {
        position = blob_position;
        return corrupt(fmt::format("the bytes of blob {} are not what its digest says", name));
      }
      ++next_blob;
      go_to_missing_blob();
    }
    return item;
  }

  Result<Item> trailer(const std::string& payload) {
    NC_ASSIGN(const bundle::Trailer trailer, bundle::decode_trailer(as_bytes(payload)));
    if (trailer.totals != contents.totals) {
      return corrupt(fmt::format("the trailer counts {} entries and {} blobs, there are {} and {}",
                                 trailer.totals.entries, trailer.totals.blobs,
                                 contents.totals.entries, contents.totals.blobs));
    }
    if (trailer.sum != sections.sum()) return corrupt("the sum over the whole file is wrong");
    std::byte more{};
    NC_ASSIGN(const std::size_t extra, fill({&more, 1}));
    if (extra != 0) {
      position = offset - 1;
      return corrupt("bytes follow the trailer");
    }
    phase = Phase::kOver;
    Item item;
    item.end = contents.totals;
    return item;
  }

  // Says where; what the disk refused stays what it is.
  Error located(Error error) {
    const bool first = position == 0;
    phase = Phase::kOver;
    // A record that claims to be larger or newer than this place allows is damage, unless it is the
    // first one.
    const bool wrong_record = error.code == Code::kTooLarge && error.action.empty();
    if (wrong_record || (error.code == Code::kUnsupported && !first)) error.code = Code::kCorrupt;
    if (error.code == Code::kCorrupt) {
      error.action = first ? "give a file made by `neuroncache export`"
                           : "entries before the damage can be imported; export the rest again";
    }
    return std::move(error).context(fmt::format("export file, byte {}", position));
  }
};

bundle::Progress bundle::Access::take(BundleReader& reader) {
  BundleReader::State& state = *reader.state_;
  state.phase = BundleReader::State::Phase::kOver;
  state.sections.drop();
  return {std::move(state.sections), std::move(state.contents), state.good};
}

BundleReader::BundleReader(std::unique_ptr<ByteSource> source, BundleLimits limits)
    : state_(std::make_unique<State>()) {
  state_->source = std::move(source);
  state_->limits = limits;
}
BundleReader::~BundleReader() = default;
BundleReader::BundleReader(BundleReader&&) noexcept = default;
BundleReader& BundleReader::operator=(BundleReader&&) noexcept = default;

Result<BundleHeader> BundleReader::header() {
  if (state_->phase != State::Phase::kHeader) {
    return Error{Code::kConflict, "the header of the export file has been read", ""};
  }
  auto header = state_->header();
  if (!header.ok()) return state_->located(std::move(header).error());
  return header;
}

Result<BundleReader::Item> BundleReader::next() {
  if (state_->phase == State::Phase::kHeader || state_->phase == State::Phase::kOver) {
    return Error{Code::kConflict, "the export file cannot be read on here", ""};
  }
  auto item = state_->next();
  if (!item.ok()) return state_->located(std::move(item).error());
  return item;
}

std::uint64_t BundleReader::position() const {
  return state_->position;
}
std::uint64_t BundleReader::good_prefix() const {
  return state_->good;
}
const BundleTotals& BundleReader::totals() const {
  return state_->contents.totals;
}

}  // namespace nc
