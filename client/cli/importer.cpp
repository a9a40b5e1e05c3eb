#include "client/cli/importer.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "client/connection.hpp"

namespace nc::cli {

// The chunks of one blob, pulled from the file as the upload wants them.
class Importer::ChunkBody final : public client::BodySource {
 public:
  ChunkBody(Importer& importer, BundleReader::Chunk first)
      : importer_(importer), chunk_(std::move(first)) {}

  std::uint64_t size() const override { return chunk_.blob.size; }

  Result<std::size_t> read(std::uint64_t offset, std::span<std::byte> out) override {
    while (offset >= chunk_.offset + chunk_.bytes.size()) {
      if (chunk_.last) return std::size_t{0};
      NC_TRY(advance());
    }
    if (offset < chunk_.offset) {
      return Error{Code::kUnavailable,
                   "the daemon closed the connection in the middle of an upload",
                   "run the import again"};
    }
    const std::size_t start = offset - chunk_.offset;
    const std::size_t n = std::min(out.size(), chunk_.bytes.size() - start);
    std::memcpy(out.data(), chunk_.bytes.data() + start, n);
    return n;
  }

  // To the end of the blob, when nobody wants the rest.
  Status drain() {
    while (!chunk_.last) NC_TRY(advance());
    return {};
  }

 private:
  Status advance() {
    NC_ASSIGN(BundleReader::Item item, importer_.reader_.next());
    if (!item.chunk)
      return Error{Code::kCorrupt, "the export file breaks off inside a blob", "export it again"};
    chunk_ = std::move(*item.chunk);
    importer_.moved_(importer_.reader_.position());
    return {};
  }

  Importer& importer_;
  BundleReader::Chunk chunk_;
};

Status Importer::run() {
  for (;;) {
    NC_ASSIGN(BundleReader::Item item, reader_.next());
    moved_(reader_.position());
    if (item.end) return {};
    if (item.entry) {
      NC_TRY(begin_entry(std::move(*item.entry)));
    } else if (item.chunk) {
      NC_TRY(take_blob(std::move(*item.chunk)));
    }
  }
}

Status Importer::begin_entry(BundleReader::Entry entry) {
  ++totals_.entries;
  entry_ = std::move(entry);
  missing_ = static_cast<std::size_t>(
      std::count_if(entry_.blobs.begin(), entry_.blobs.end(),
                    [&](const BundleBlob& blob) { return !brought_.contains(blob.digest); }));
  return missing_ == 0 ? finish_entry() : Status();
}

Status Importer::take_blob(BundleReader::Chunk first) {
  const BundleBlob blob = first.blob;
  NC_ASSIGN(const bool there, client_.has_blob(blob.digest));
  ChunkBody body(*this, std::move(first));
  if (!there) {
    NC_TRY(client_.upload_from(blob.digest, body, {}));
    ++totals_.blobs;
    totals_.bytes += blob.size;
  }
  NC_TRY(body.drain());
  brought_.insert(blob.digest);
  --missing_;
  return missing_ == 0 ? finish_entry() : Status();
}

Status Importer::finish_entry() {
  auto published = client_.commit_import(entry_.key, entry_.manifest);
  if (!published.ok())
    return std::move(published).error().context(fmt::format("entry {}", entry_.key.hex()));
  ++(*published ? totals_.imported : totals_.present);
  return {};
}

}  // namespace nc::cli
