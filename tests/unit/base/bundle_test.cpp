#include "base/bundle.hpp"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/fake_filesystem.hpp"

namespace nc {
namespace {

using ::testing::HasSubstr;

constexpr char kPath[] = "/out/cache.nce";
constexpr char kPartial[] = "/out/cache.nce.partial";

class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(std::string bytes, std::size_t step = 1 << 20)
      : bytes_(std::move(bytes)), step_(step) {}
  Result<std::size_t> read(std::span<std::byte> out) override {
    const std::size_t n = std::min({out.size(), bytes_.size() - at_, step_});
    std::copy_n(as_bytes(bytes_).data() + at_, n, out.data());
    at_ += n;
    return n;
  }

 private:
  std::string bytes_;
  std::size_t step_;
  std::size_t at_ = 0;
};

// What a bundle holds, read through to its end or to the first error.
struct Contents {
  std::map<std::string, std::string> manifests;          // by key
  std::map<std::string, std::vector<BundleBlob>> blobs;  // by key
  std::map<std::string, std::string> bytes;              // by digest; whole ones only
  std::optional<BundleHeader> header;
  std::optional<BundleTotals> end;
  std::optional<Error> error;
  std::uint64_t good = 0;
};

Contents read_all(std::string file, BundleLimits limits = {}, std::size_t step = 1 << 20) {
  Contents c;
  BundleReader reader(std::make_unique<MemorySource>(std::move(file), step), limits);
  auto header = reader.header();
  if (!header.ok()) {
    c.error = header.error();
    return c;
  }
  c.header = *header;
  std::string blob;
  while (!c.end) {
    auto item = reader.next();
    if (!item.ok()) {
      c.error = item.error();
      break;
    }
    if (item->entry) {
      c.manifests[item->entry->key.hex()] = item->entry->manifest;
      c.blobs[item->entry->key.hex()] = item->entry->blobs;
    } else if (item->chunk) {
      EXPECT_EQ(item->chunk->offset, blob.size());
      blob += item->chunk->bytes;
      if (item->chunk->last) {
        EXPECT_EQ(Sha256::of(as_bytes(blob)), item->chunk->blob.digest);
        c.bytes[item->chunk->blob.digest.hex()] = std::exchange(blob, {});
      }
    }
    c.end = item->end;
  }
  c.good = reader.good_prefix();
  return c;
}

Sha256 key_of(int i) {
  const std::string text = "key " + std::to_string(i);
  return Sha256::of(as_bytes(text));
}

BundleBlob blob_of(const std::string& bytes) {
  return {Sha256::of(as_bytes(bytes)), bytes.size()};
}

std::string noise(std::size_t size, std::uint64_t seed) {  // does not compress
  std::string out;
  while (out.size() < size)
    put_u64(out, seed = seed * 6364136223846793005ULL + 1442695040888963407ULL);
  out.resize(size);
  return out;
}

class BundleTest : public ::testing::Test {
 protected:
  BundleTest() {
    EXPECT_TRUE(fs_.make_dirs("/out").ok());
    EXPECT_TRUE(fs_.sync_dir("/").ok());
  }

  BundleHeader header() const { return {"neuroncache 0.1.0", "host-a", 1234, 3, 4567}; }

  Result<BundleWriter> open(BundleWriter::Options options = {}) {
    return BundleWriter::open(fs_, kPath, header(), options);
  }

  // Adds an entry whose blobs are `texts`; counts how often bytes were asked for.
  Status add(BundleWriter& writer, int i, const std::vector<std::string>& texts) {
    std::vector<BundleBlob> blobs;
    std::map<std::string, std::string> by_digest;
    for (const auto& text : texts) {
      blobs.push_back(blob_of(text));
      by_digest[blobs.back().digest.hex()] = text;
    }
    return writer.add(key_of(i), "{\"entry\":" + std::to_string(i) + "}", blobs,
                      [&](const BundleBlob& blob, const BundleWriter::Sink& sink) -> Status {
                        ++asked_;
                        const std::string& text = by_digest.at(blob.digest.hex());
                        // In uneven pieces.
                        for (std::size_t at = 0, step = 1; at < text.size();
                             at += step, step *= 7) {
                          NC_TRY(sink(as_bytes(text.substr(at, step))));
                        }
                        return {};
                      });
  }

  std::string file(const std::string& path = kPath) {
    auto bytes = fs_.read_all(path, 1ULL << 30);
    EXPECT_TRUE(bytes.ok()) << bytes.error().text();
    return bytes.ok() ? *bytes : std::string();
  }

  // Three entries, one blob shared, one empty, small enough to try every byte.
  std::string small_bundle() {
    auto writer = open({.restart = true, .replace = true});
    EXPECT_TRUE(writer.ok());
    EXPECT_TRUE(add(*writer, 1, {"shared", std::string(300, 'a')}).ok());
    EXPECT_TRUE(add(*writer, 2, {"", "shared", noise(80, 1)}).ok());
    EXPECT_TRUE(add(*writer, 3, {}).ok());
    EXPECT_TRUE(writer->finish().ok());
    return file();
  }

  FakeFileSystem fs_;
  int asked_ = 0;
};

TEST_F(BundleTest, RoundTrip) {
  const std::string big = noise((2 << 20) + 12345, 7);
  const std::string exact(1 << 20, 'z');
  auto writer = open();
  ASSERT_TRUE(writer.ok());
  EXPECT_FALSE(writer->resumed());
  ASSERT_TRUE(add(*writer, 1, {"one", big}).ok());
  ASSERT_TRUE(add(*writer, 2, {big, exact, "one", ""}).ok());
  EXPECT_TRUE(writer->has(key_of(1)));
  EXPECT_FALSE(writer->has(key_of(3)));
  auto totals = writer->finish();
  ASSERT_TRUE(totals.ok());
  EXPECT_EQ(*totals, (BundleTotals{2, 4, 3 + big.size() + exact.size()}));
  EXPECT_EQ(asked_, 4);  // each blob once
  EXPECT_TRUE(fs_.stat(kPartial).is(Code::kNotFound));

  for (const std::size_t step : {1u << 20, 4097u}) {
    const Contents c = read_all(file(), {}, step);
    ASSERT_FALSE(c.error) << c.error->text();
    EXPECT_EQ(c.header, header());
    EXPECT_EQ(c.end, *totals);
    EXPECT_EQ(c.manifests.at(key_of(2).hex()), "{\"entry\":2}");
    EXPECT_EQ(c.blobs.at(key_of(2).hex()).size(), 4u);
    EXPECT_EQ(c.bytes.at(blob_of(big).digest.hex()), big);
    EXPECT_EQ(c.bytes.at(blob_of(exact).digest.hex()), exact);
    EXPECT_EQ(c.bytes.at(blob_of("").digest.hex()), "");
  }
}

TEST_F(BundleTest, BytesOneByOneFromAPipeReadTheSame) {
  const std::string bundle = small_bundle();
  const Contents c = read_all(bundle, {}, 1);
  ASSERT_FALSE(c.error);
  EXPECT_EQ(c.end->entries, 3u);
}

TEST_F(BundleTest, AnEmptyExportIsAGoodFile) {
  auto writer = open();
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->finish().ok());
  const Contents c = read_all(file());
  ASSERT_FALSE(c.error);
  EXPECT_EQ(*c.end, BundleTotals{});
}

TEST_F(BundleTest, EveryTruncationIsFoundAndTheEntriesBeforeItAreGood) {
  const std::string bundle = small_bundle();
  const Contents whole = read_all(bundle);
  for (std::size_t size = 0; size < bundle.size(); ++size) {
    const Contents c = read_all(bundle.substr(0, size));
    ASSERT_TRUE(c.error) << size;
    ASSERT_EQ(c.error->code, Code::kCorrupt) << size << c.error->text();
    ASSERT_THAT(c.error->message, HasSubstr("export file, byte ")) << size;
    ASSERT_LE(c.good, size);
    for (const auto& [key, manifest] : c.manifests) ASSERT_EQ(manifest, whole.manifests.at(key));
    for (const auto& [digest, bytes] : c.bytes) ASSERT_EQ(bytes, whole.bytes.at(digest));
  }
}

TEST_F(BundleTest, EveryFlippedBitIsFound) {
  const std::string bundle = small_bundle();
  for (std::size_t i = 0; i < bundle.size(); ++i) {
    std::string bad = bundle;
    bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
    const Contents c = read_all(bad);
    ASSERT_TRUE(c.error) << "byte " << i;
    ASSERT_FALSE(c.end) << "byte " << i;
  }
}

TEST_F(BundleTest, DamageIsToldWithThePlaceOfTheRecord) {
  std::string bundle = small_bundle();
  const auto manifest = bundle.find("{\"entry\":2}");
  ASSERT_NE(manifest, std::string::npos);
  const std::uint64_t record = manifest - Envelope::kHeaderSize;
  bundle[manifest] ^= 1;
  const Contents c = read_all(bundle);
  ASSERT_TRUE(c.error);
  EXPECT_THAT(c.error->message, HasSubstr("byte " + std::to_string(record)));
  EXPECT_EQ(c.manifests.size(), 1u);
}

// Records that are well formed one by one but do not belong there.
TEST_F(BundleTest, ForgedFilesAreRefused) {
  const std::string bundle = small_bundle();
  EXPECT_EQ(read_all(bundle + "x").error->code, Code::kCorrupt);
  EXPECT_EQ(read_all(bundle + bundle).error->code, Code::kCorrupt);
  EXPECT_EQ(read_all(Envelope::seal(Envelope::Kind::kBlob, as_bytes("x"), false)).error->code,
            Code::kCorrupt);

  // The records of the file, taken apart.
  std::vector<std::string> records;
  for (std::size_t at = 0; at < bundle.size();) {
    auto size = Envelope::sealed_size(as_bytes(bundle).subspan(at), 1 << 21);
    ASSERT_TRUE(size.ok());
    records.push_back(bundle.substr(at, *size));
    at += *size;
  }
  ASSERT_GT(records.size(), 8u);
  for (std::size_t drop = 0; drop < records.size(); ++drop) {
    std::string without, twice, swapped;
    for (std::size_t i = 0; i < records.size(); ++i) {
      if (i != drop) without += records[i];
      twice += records[i];
      if (i == drop) twice += records[i];
      const std::size_t other = i == drop ? i + 1 : i == drop + 1 ? drop : i;
      if (other < records.size()) swapped += records[other];
    }
    EXPECT_TRUE(read_all(without).error) << "without record " << drop;
    EXPECT_TRUE(read_all(twice).error) << "record twice " << drop;
    if (drop + 1 == records.size()) break;
    EXPECT_TRUE(read_all(swapped).error) << "swapped " << drop;
  }
}

TEST_F(BundleTest, ADeclaredSizeIsNotBelieved) {
  std::string bundle = small_bundle();
  // The first record claims 2^60 bytes: refused from the head alone.
  for (int i = 0; i < 8; ++i) bundle[8 + i] = bundle[16 + i] = static_cast<char>(i == 7 ? 0x10 : 0);
  const Contents c = read_all(bundle);
  ASSERT_TRUE(c.error);
  EXPECT_EQ(c.error->code, Code::kCorrupt);
}

TEST_F(BundleTest, BlobsOverTheLimitAreRefusedBeforeTheirBytes) {
  const Contents c = read_all(small_bundle(), {.max_blob = 299});
  ASSERT_TRUE(c.error);
  EXPECT_EQ(c.error->code, Code::kTooLarge);
  EXPECT_TRUE(c.bytes.empty());
}

TEST_F(BundleTest, ANewerFormatIsUnsupported) {
  std::string payload = "neuroncache-export";
  put_u32(payload, 2);
  const Contents c = read_all(Envelope::seal(Envelope::Kind::kHeader, as_bytes(payload), false));
  ASSERT_TRUE(c.error);
  EXPECT_EQ(c.error->code, Code::kUnsupported);
}

TEST_F(BundleTest, AfterAnErrorNothingIsRead) {
  BundleReader reader(std::make_unique<MemorySource>("NCE1 but no more"));
  EXPECT_TRUE(reader.next().is(Code::kConflict));
  EXPECT_TRUE(reader.header().is(Code::kCorrupt));
  EXPECT_TRUE(reader.header().is(Code::kConflict));
  EXPECT_TRUE(reader.next().is(Code::kConflict));
}

TEST_F(BundleTest, AFailedEntryLeavesNoTrace) {
  const auto bad_source = [](std::string bytes) {
    return [bytes](const BundleBlob&, const BundleWriter::Sink& sink) {
      return sink(as_bytes(bytes));
    };
  };
  auto writer = open();
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(add(*writer, 1, {"one"}).ok());
  const std::uint64_t before = writer->file_bytes();
  const std::vector<BundleBlob> blobs{blob_of("right")};
  for (const std::string wrong : {"wrong", "too long", "cut", ""}) {
    EXPECT_TRUE(writer->add(key_of(2), "{}", blobs, bad_source(wrong)).is(Code::kDigestMismatch));
    EXPECT_EQ(writer->file_bytes(), before);
  }
  const auto refuse = [](const BundleBlob&, const BundleWriter::Sink&) -> Status {
    return Error{Code::kCorrupt, "the blob is damaged", ""};
  };
  EXPECT_TRUE(writer->add(key_of(2), "{}", blobs, refuse).is(Code::kCorrupt));
  EXPECT_TRUE(add(*writer, 1, {}).is(Code::kConflict));
  EXPECT_TRUE(
      writer->add(key_of(9), std::string((1 << 20) + 1, 'x'), {}, refuse).is(Code::kTooLarge));
  ASSERT_TRUE(add(*writer, 2, {"right", "right"}).ok());  // two outputs, the same bytes
  ASSERT_TRUE(writer->finish().ok());
  EXPECT_TRUE(add(*writer, 3, {}).is(Code::kConflict));
  EXPECT_TRUE(writer->finish().is(Code::kConflict));
  const Contents c = read_all(file());
  ASSERT_FALSE(c.error) << c.error->text();
  EXPECT_EQ(c.end->entries, 2u);
  EXPECT_EQ(c.bytes.size(), 2u);
}

TEST_F(BundleTest, AFullDiskFailsOneEntryAndTheRestGoesOn) {
  auto writer = open();
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(add(*writer, 1, {"one"}).ok());
  fs_.set_capacity(fs_.used() + 2000);
  EXPECT_TRUE(add(*writer, 2, {noise(5000, 3)}).is(Code::kNoSpace));
  ASSERT_TRUE(add(*writer, 3, {"three"}).ok());
  ASSERT_TRUE(writer->finish().ok());
  const Contents c = read_all(file());
  ASSERT_FALSE(c.error) << c.error->text();
  EXPECT_EQ(c.manifests.count(key_of(3).hex()), 1u);
}

TEST_F(BundleTest, ExistingFilesAndOtherWritersAreRespected) {
  ASSERT_TRUE(fs_.write_atomically(kPath, as_bytes("precious")).ok());
  EXPECT_TRUE(open().is(Code::kConflict));
  EXPECT_EQ(file(), "precious");
  auto writer = open({.replace = true});
  ASSERT_TRUE(writer.ok());
  EXPECT_TRUE(open({.replace = true}).is(Code::kBusy));
  EXPECT_EQ(file(), "precious");
  ASSERT_TRUE(writer->finish().ok());
  EXPECT_NE(file(), "precious");
}

TEST_F(BundleTest, AForeignPartialFileIsKept) {
  ASSERT_TRUE(fs_.write_atomically(kPartial, as_bytes("my thesis")).ok());
  EXPECT_TRUE(open().is(Code::kConflict));
  EXPECT_EQ(file(kPartial), "my thesis");
  EXPECT_TRUE(open({.restart = true}).ok());
}

TEST_F(BundleTest, ResumesAtEveryTruncation) {
  const std::string bundle = small_bundle();
  for (std::size_t size = 0; size <= bundle.size(); ++size) {
    FakeFileSystem fs;
    ASSERT_TRUE(fs.make_dirs("/out").ok());
    ASSERT_TRUE(fs.write_atomically(kPartial, as_bytes(bundle.substr(0, size))).ok());
    auto writer = BundleWriter::open(fs, kPath, header(), {});
    ASSERT_TRUE(writer.ok()) << size << writer.error().text();
    const std::map<int, std::vector<std::string>> entries{
        {1, {"shared", std::string(300, 'a')}}, {2, {"", "shared", noise(80, 1)}}, {3, {}}};
    for (const auto& [i, texts] : entries) {
      if (writer->has(key_of(i))) continue;
      ASSERT_TRUE(add(*writer, i, texts).ok()) << size;
    }
    ASSERT_TRUE(writer->finish().ok());
    auto bytes = fs.read_all(kPath, 1 << 20);
    ASSERT_TRUE(bytes.ok());
    ASSERT_TRUE(*bytes == bundle) << "resumed at " << size;
  }
}

TEST_F(BundleTest, ResumesBehindDamageLeftByAPowerCut) {
  const std::string bundle = small_bundle();
  std::string zeroed = bundle.substr(0, bundle.size() / 2) + std::string(bundle.size() / 2, '\0');
  for (const std::string& left : {zeroed, std::string(500, '\0')}) {
    ASSERT_TRUE(fs_.write_atomically(kPartial, as_bytes(left)).ok());
    auto writer = open({.replace = true});
    ASSERT_TRUE(writer.ok());
    EXPECT_EQ(writer->resumed(), left == zeroed);
    EXPECT_EQ(writer->has(key_of(1)), left == zeroed);
    ASSERT_TRUE(writer->finish().ok());
    EXPECT_FALSE(read_all(file()).error);
  }
}

TEST_F(BundleTest, AFinishedFileSurvivesAPowerCut) {
  const std::string bundle = small_bundle();
  fs_.power_cut();
  EXPECT_TRUE(file() == bundle);
}

}  // namespace
}  // namespace nc
