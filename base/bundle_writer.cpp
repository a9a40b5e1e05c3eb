#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/bundle.hpp"
#include "base/bundle_records.hpp"

namespace nc {
namespace {

constexpr std::string_view kPartial = ".partial";

std::string short_hex(const Sha256& sha) {
  return sha.hex().substr(0, 12);
}

Result<bool> exists(FileSystem& fs, const std::string& path) {
  const auto info = fs.stat(path);
  if (info.ok()) return true;
  if (info.is(Code::kNotFound)) return false;
  return info.error();
}

}  // namespace

struct BundleWriter::State {
  FileSystem& fs;
  std::string path;
  Options options;
  std::unique_ptr<FileLock> lock;
  std::unique_ptr<File> file;
  std::uint64_t size = 0;
  bundle::Sections sections;
  bundle::Contents contents;
  bool resumed = false;
  bool finished = false;
  bool broken = false;

  State(FileSystem& f, std::string p, Options o) : fs(f), path(std::move(p)), options(o) {}

  std::string partial() const { return path + std::string(kPartial); }

  Status emit(Envelope::Kind kind, const std::string& payload) {
    const std::string sealed = Envelope::seal(kind, as_bytes(payload), options.compress);
    NC_TRY(file->write(as_bytes(sealed)));
    size += sealed.size();
    if (kind != Envelope::Kind::kTrailer) sections.bytes(as_bytes(sealed));
    return {};
  }

  // Takes back everything after `end`.
  void take_back(std::uint64_t end) {
    sections.drop();
    broken = !file->truncate(end).ok();  // told by the next call
    size = end;
  }

  Status usable() const {
    if (finished) return Error{Code::kConflict, path + " is finished", ""};
    if (broken) {
      return Error{Code::kIo, partial() + " could not be cut back after a failed write",
                   "run the export again; it goes on where it can"};
    }
    return {};
  }

  Status start(const BundleHeader& header) {
    NC_ASSIGN(file, fs.open(partial(), FileSystem::Open::kCreateOrTruncate));
    NC_TRY(emit(Envelope::Kind::kHeader, bundle::encode(header)));
    sections.commit();
    return {};
  }

  // Keeps what is whole in the .partial file. False: not even its header is, but it is ours.
  Result<bool> resume() {
    NC_ASSIGN(auto old, fs.open(partial(), FileSystem::Open::kRead));
    NC_ASSIGN(const std::uint64_t old_size, old->size());
    std::string head(std::min<std::uint64_t>(old_size, 6), '\0');
    NC_ASSIGN(const std::size_t got, old->read_at(0, std::as_writable_bytes(std::span(head))));
    head.resize(got);
    // An envelope, of version 1, of kind header: cut off or still zero where the bytes did not get
    // to the disk.
    const std::string start = Envelope::seal(Envelope::Kind::kHeader, {}, false).substr(0, got);
    const bool ours = head == start || head.find_first_not_of('\0') == std::string::npos;
    BundleLimits limits;
    limits.max_blob = ~0ULL;
    BundleReader reader(file_source(std::move(old)), limits);
    if (auto header = reader.header(); !header.ok()) {
      if (header.is(Code::kIo)) return std::move(header).error();
      if (ours && !header.is(Code::kUnsupported)) return false;
      return Error{Code::kConflict,
                   partial() + " is no unfinished export: " + header.error().message,
                   "remove it, or choose another name"};
    }
    while (true) {
      const auto item = reader.next();
      if (item.is(Code::kIo)) return item.error();
      if (!item.ok() || item->end) break;
    }
    bundle::Progress progress = bundle::Access::take(reader);
    NC_ASSIGN(file, fs.open(partial(), FileSystem::Open::kAppend));
    NC_TRY(file->truncate(progress.good));
    size = progress.good;
    sections = std::move(progress.sections);
    contents = std::move(progress.contents);
    resumed = true;
    return true;
  }

  Status write_blob(const BundleBlob& blob, const BlobSource& source) {
    std::string buffer;  // head and data of the chunk under way
    std::uint64_t sent = 0;
    std::uint64_t got = 0;
    Sha256Hasher hash;
    const auto begin = [&] { buffer = bundle::encode(bundle::ChunkHead{blob, sent}); };
    const auto flush = [&]() -> Status {
      NC_TRY(emit(Envelope::Kind::kBlob, buffer));
      sent += buffer.size() - bundle::kChunkHead;
      begin();
      return {};
    };
    const Sink sink = [&](Bytes bytes) -> Status {
      if (bytes.size() > blob.size - got) {
        return Error{Code::kDigestMismatch,
                     fmt::format("blob {} has more bytes than the {} it should have",
                                 short_hex(blob.digest), blob.size),
                     ""};
      }
      got += bytes.size();
      hash.update(bytes);
      while (!bytes.empty()) {
        const std::size_t room = bundle::kMaxChunkRecord - buffer.size();
        const Bytes piece = bytes.first(std::min<std::size_t>(bytes.size(), room));
        buffer.append(as_text(piece));
        bytes = bytes.subspan(piece.size());
        if (buffer.size() == bundle::kMaxChunkRecord) NC_TRY(flush());
      }
      return {};
    };
    begin();
    NC_TRY(source(blob, sink));
    if (sent < blob.size || blob.size == 0) NC_TRY(flush());
    if (got == blob.size && hash.finish() == blob.digest) return {};
    return Error{Code::kDigestMismatch,
                 fmt::format("the {} bytes given for blob {} are not what its digest says", got,
                             short_hex(blob.digest)),
                 "run `neuroncache verify --repair`"};
  }

  Status write_entry(const bundle::List& list, std::string_view manifest,
                     const BlobSource& source) {
    NC_TRY(emit(Envelope::Kind::kEntry, bundle::encode(list)));
    NC_TRY(emit(Envelope::Kind::kManifest, std::string(manifest)));
    for (const BundleBlob& blob : list.blobs) {
      if (contents.blobs.count(blob.digest) == 0) NC_TRY(write_blob(blob, source));
    }
    return {};
  }

  Status check(const bundle::List& list, std::string_view manifest) const {
    if (contents.keys.count(list.key) != 0) {
      return Error{Code::kConflict, "the entry is in the export file already", ""};
    }
    if (manifest.size() > BundleLimits::kMaxManifest ||
        list.blobs.size() > BundleLimits::kMaxBlobs) {
      return Error{
          Code::kTooLarge,
          fmt::format("a manifest of {} with {} blobs is over the limits of an export file",
                      format_size(manifest.size()), list.blobs.size()),
          ""};
    }
    for (const BundleBlob& blob : list.blobs) {
      const auto known = contents.blobs.find(blob.digest);
      if (known != contents.blobs.end() && known->second != blob.size) {
        return Error{Code::kInvalid,
                     fmt::format("blob {} is in the file with {} bytes, not {}",
                                 short_hex(blob.digest), known->second, blob.size),
                     ""};
      }
    }
    return {};
  }
};

BundleWriter::BundleWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
BundleWriter::~BundleWriter() = default;
BundleWriter::BundleWriter(BundleWriter&&) noexcept = default;
BundleWriter& BundleWriter::operator=(BundleWriter&&) noexcept = default;

Result<BundleWriter> BundleWriter::open(FileSystem& fs, std::string path,
                                        const BundleHeader& header, Options options) {
  auto state = std::make_unique<State>(fs, std::move(path), options);
  NC_ASSIGN(const bool there, exists(fs, state->path));
  if (there && !options.replace) {
    return Error{Code::kConflict, state->path + " exists", "choose another name, or --force"};
  }
  NC_ASSIGN(const bool partial, exists(fs, state->partial()));
  // Two exports to one name would mix their entries. Locking makes the file.
  NC_ASSIGN(state->lock, fs.lock(state->partial()));
  bool whole = false;
  if (partial && !options.restart) {
    NC_ASSIGN(whole, state->resume());
  }
  if (!whole) NC_TRY(state->start(header));
  return BundleWriter(std::move(state));
}

bool BundleWriter::has(const ActionKey& key) const {
  return state_->contents.keys.count(key) != 0;
}

Status BundleWriter::add(const ActionKey& key, std::string_view manifest,
                         std::span<const BundleBlob> blobs, const BlobSource& source) {
  NC_TRY(state_->usable());
  bundle::List list{key, {}};
  for (const BundleBlob& blob : blobs) {  // two outputs may be the same bytes
    if (std::find(list.blobs.begin(), list.blobs.end(), blob) == list.blobs.end()) {
      list.blobs.push_back(blob);
    }
  }
  NC_TRY(state_->check(list, manifest));
  const std::uint64_t before = state_->size;
  if (auto written = state_->write_entry(list, manifest, source); !written.ok()) {
    state_->take_back(before);
    return std::move(written).error().context("exporting entry " + short_hex(key));
  }
  state_->sections.commit();
  state_->contents.commit(list);
  return {};
}

Result<BundleTotals> BundleWriter::finish() {
  NC_TRY(state_->usable());
  const std::uint64_t before = state_->size;
  const bundle::Trailer trailer{state_->contents.totals, state_->sections.sum()};
  Status done = state_->emit(Envelope::Kind::kTrailer, bundle::encode(trailer));
  if (done.ok()) done = state_->file->sync();
  if (!done.ok()) {
    state_->take_back(before);
    return std::move(done).error().context("finishing " + state_->path);
  }
  NC_TRY(state_->fs.rename(state_->partial(), state_->path));
  state_->finished = true;
  state_->file.reset();
  state_->lock.reset();
  NC_TRY(state_->fs.sync_dir(parent_dir(state_->path)));
  return state_->contents.totals;
}

bool BundleWriter::resumed() const {
  return state_->resumed;
}
const BundleTotals& BundleWriter::totals() const {
  return state_->contents.totals;
}
std::uint64_t BundleWriter::file_bytes() const {
  return state_->size;
}
std::string BundleWriter::partial_path() const {
  return state_->partial();
}

}  // namespace nc
