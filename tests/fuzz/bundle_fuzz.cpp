// The export file: bytes as they come, the same bytes as well-formed records in any order, and as
// an unfinished export that a writer goes on with.
#include <algorithm>
#include <map>

#include "base/bundle.hpp"
#include "base/fake_filesystem.hpp"
#include "tests/fuzz/fuzz_input.hpp"

using nc::BundleReader;
using nc::Bytes;
using nc::Code;
using nc::Envelope;

namespace {

class MemorySource final : public nc::ByteSource {
 public:
  explicit MemorySource(Bytes bytes) : bytes_(bytes) {}
  nc::Result<std::size_t> read(std::span<std::byte> out) override {
    const std::size_t n = std::min(out.size(), bytes_.size());
    std::copy_n(bytes_.data(), n, out.data());
    bytes_ = bytes_.subspan(n);
    return n;
  }

 private:
  Bytes bytes_;
};

// Reads to the end or the first error; true when the whole file is good.
bool try_read(Bytes bytes) {
  BundleReader reader(std::make_unique<MemorySource>(bytes));
  if (!reader.header().ok()) return false;
  std::map<nc::Digest, std::string> blobs;
  std::uint64_t entries = 0;
  std::uint64_t raw = 0;
  while (true) {
    auto item = reader.next();
    FUZZ_REQUIRE(reader.good_prefix() <= bytes.size());
    FUZZ_REQUIRE(reader.position() <= bytes.size());
    if (!item.ok()) {
      FUZZ_REQUIRE(item.error().message.find("byte ") != std::string::npos);
      FUZZ_REQUIRE(reader.next().is(Code::kConflict));
      return false;
    }
    if (item->entry) ++entries;
    if (item->chunk) {
      std::string& blob = blobs[item->chunk->blob.digest];
      FUZZ_REQUIRE(blob.size() == item->chunk->offset);
      blob += item->chunk->bytes;
      if (item->chunk->last) {
        FUZZ_REQUIRE(blob.size() == item->chunk->blob.size);
        FUZZ_REQUIRE(nc::Sha256::of(nc::as_bytes(blob)) == item->chunk->blob.digest);
        raw += blob.size();
      }
    }
    if (!item->end) continue;
    FUZZ_REQUIRE(*item->end == (nc::BundleTotals{entries, blobs.size(), raw}));
    return true;
  }
}

// Whatever was left, a writer refuses it or finishes a good file with it.
void try_resume(Bytes bytes) {
  nc::FakeFileSystem fs;
  FUZZ_REQUIRE(fs.write_atomically("/x.partial", bytes).ok());
  auto writer = nc::BundleWriter::open(fs, "/x", {}, {});
  if (!writer.ok()) {
    FUZZ_REQUIRE(writer.is(Code::kConflict));
    return;
  }
  const std::string blob = "a blob";
  const nc::BundleBlob named{nc::Sha256::of(nc::as_bytes(blob)), blob.size()};
  const auto source = [&](const nc::BundleBlob&, const nc::BundleWriter::Sink& sink) {
    return sink(nc::as_bytes(blob));
  };
  if (!writer->has({})) FUZZ_REQUIRE(writer->add({}, "{}", {&named, 1}, source).ok());
  FUZZ_REQUIRE(writer->finish().ok());
  const auto file = fs.read_all("/x", 1 << 26);
  FUZZ_REQUIRE(file.ok() && try_read(nc::as_bytes(*file)));
}

// kind u8, length u16, payload: sealed, so that the checksums are right.
std::string as_records(Bytes bytes) {
  std::string out;
  while (bytes.size() >= 3) {
    const auto kind = std::to_integer<unsigned>(bytes[0]) % 6 + 1;
    std::size_t size =
        std::to_integer<std::size_t>(bytes[1]) | std::to_integer<std::size_t>(bytes[2]) << 8;
    bytes = bytes.subspan(3);
    size = std::min(size, bytes.size());
    out += Envelope::seal(static_cast<Envelope::Kind>(kind), bytes.first(size), false);
    bytes = bytes.subspan(size);
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Bytes bytes = nc::fuzz_bytes(data, size);
  try_read(bytes);
  try_resume(bytes);
  const std::string records = as_records(bytes);
  try_read(nc::as_bytes(records));
  try_resume(nc::as_bytes(records));
  return 0;
}
