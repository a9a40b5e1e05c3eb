// Damage: found at the next read, set aside, never served; everything else is untouched.
#include <gtest/gtest.h>

#include "base/envelope.hpp"
#include "cache/index_records.hpp"
#include "cache/key_value.hpp"
#include "tests/unit/cache/store_box.hpp"

namespace nc {
namespace {

const TestEntry kOther = make_entry("other", {noise(80'000, 50), "small"});

class StoreDamageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(box.open().ok());
    ASSERT_TRUE(box.put(kOther));
  }
  // The index while the store is closed.
  std::unique_ptr<KeyValueDb> index() {
    box.store.reset();
    auto db = KeyValueDb::open(box.fs, {"/data/store/index", false, false});
    EXPECT_TRUE(db.ok());
    return *std::move(db);
  }
  std::string cause(const TestEntry& entry) {
    Request request;
    request.key = entry.manifest.key;
    return box.store->explain_miss(request)->cause;
  }
  void expect_well() {
    EXPECT_EQ(box.get(kOther), "hit");
    const auto page = verify_all(*box.store);
    ASSERT_TRUE(page.ok()) << page.error().text();
    for (const auto& bad : page->bad) ADD_FAILURE() << bad.what << ": " << bad.problem;
  }

  StoreBox box;
};

TEST_F(StoreDamageTest, FlippedBitInAFile) {
  const auto entry = make_entry("a", {noise(100'000, 1)});
  ASSERT_TRUE(box.put(entry));
  const auto path = box.blob_path(entry.contents[0]);
  box.fs.flip_bit(path, 50'000);
  EXPECT_EQ(box.get(entry), "miss");
  EXPECT_EQ(cause(entry), "corrupt");
  EXPECT_EQ(box.fs.list("/data/store/quarantine")->size(), 1);
  EXPECT_EQ(box.store->health().quarantined, 1);
  EXPECT_GE(box.store->size().bytes, 100'000);
  ASSERT_TRUE(box.put(entry));  // built again
  EXPECT_EQ(box.get(entry), "hit");
  expect_well();
  PruneRequest none;
  none.filter.name_space = "none";
  EXPECT_GE(box.store->prune(none)->swept_bytes, 100'000);
  EXPECT_TRUE(box.fs.list("/data/store/quarantine")->empty());
  expect_well();
}

TEST_F(StoreDamageTest, FlippedBitInACompressedFile) {
  const auto entry = make_entry("a", {std::string(100'000, 'x')});
  ASSERT_TRUE(box.put(entry));
  box.fs.flip_bit(box.blob_path(entry.contents[0], true), 30);
  const auto bytes = box.store->read_blob(entry.manifest.outputs[0].digest, 1 << 20);
  EXPECT_TRUE(bytes.is(Code::kCorrupt));
  EXPECT_EQ(box.get(entry), "miss");
  expect_well();
}

TEST_F(StoreDamageTest, AFileIsReadWholeOncePerIdentity) {
  const auto entry = make_entry("a", {noise(100'000, 1)});
  ASSERT_TRUE(box.put(entry));
  ASSERT_EQ(box.get(entry), "hit");
  const auto maps = box.fs.calls(FakeFileSystem::Call::kMap);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(box.store->lookup(entry.manifest.key)->has_value());
  EXPECT_EQ(box.fs.calls(FakeFileSystem::Call::kMap), maps);
  // Another file under the name, even of the same size, is not trusted.
  box.clock.advance(1000);
  ASSERT_TRUE(
      box.fs.write_atomically(box.blob_path(entry.contents[0]), as_bytes(noise(100'000, 2))).ok());
  EXPECT_EQ(box.get(entry), "miss");
  expect_well();
}

TEST_F(StoreDamageTest, TruncatedToNothing) {
  const auto entry = make_entry("a", {noise(100'000, 1)});
  ASSERT_TRUE(box.put(entry));
  auto file = box.fs.open(box.blob_path(entry.contents[0]), FileSystem::Open::kCreateOrTruncate);
  ASSERT_TRUE(file.ok());
  file->reset();
  ASSERT_TRUE(box.open().ok());
  EXPECT_EQ(box.get(entry), "miss");
  EXPECT_EQ(cause(entry), "corrupt");
  expect_well();
}

TEST_F(StoreDamageTest, MissingFileDropsAllEntriesThatNameIt) {
  const auto shared = noise(100'000, 1);
  const auto a = make_entry("a", {shared});
  const auto b = make_entry("b", {"b", shared});
  ASSERT_TRUE(box.put(a));
  ASSERT_TRUE(box.put(b));
  ASSERT_TRUE(box.fs.remove(box.blob_path(shared)).ok());
  EXPECT_FALSE(*box.store->has_blob(Sha256::of(as_bytes(shared))));
  EXPECT_EQ(box.get(a), "miss");
  EXPECT_EQ(box.get(b), "miss");
  ASSERT_TRUE(box.put(b));
  EXPECT_EQ(box.get(b), "hit");
  expect_well();
}

TEST_F(StoreDamageTest, VerifyFindsAndRepairs) {
  const auto a = make_entry("a", {noise(100'000, 1)});
  const auto b = make_entry("b", {noise(100'000, 2)});
  const auto c = make_entry("c", {std::string(100'000, 'c')});
  for (const auto& entry : {a, b, c}) ASSERT_TRUE(box.put(entry));
  box.fs.flip_bit(box.blob_path(a.contents[0]), 99'999);
  ASSERT_TRUE(box.fs.remove(box.blob_path(b.contents[0])).ok());
  box.fs.flip_bit(box.blob_path(c.contents[0], true), 40);
  auto page = verify_all(*box.store);
  ASSERT_TRUE(page.ok()) << page.error().text();
  EXPECT_GE(page->bad.size(), 2);
  page = verify_all(*box.store, true);
  ASSERT_TRUE(page.ok()) << page.error().text();
  for (const auto& entry : {a, b, c}) EXPECT_EQ(box.get(entry), "miss");
  expect_well();
  for (const auto& entry : {a, b, c}) {
    ASSERT_TRUE(box.put(entry));
    EXPECT_EQ(box.get(entry), "hit");
  }
}

TEST_F(StoreDamageTest, LostEntryRecordsAreMadeAgain) {
  std::vector<TestEntry> entries;
  for (int i = 0; i < 20; ++i) {
    entries.push_back(make_entry("e" + std::to_string(i), {noise(70'000, i), "s"}));
    ASSERT_TRUE(box.put(entries.back()));
  }
  {
    const auto db = index();
    KvBatch batch;
    for (int i = 0; i < 20; i += 3) {
      const auto& key = entries[i].manifest.key;
      if (i % 2 == 0) batch.erase(Family::kEntries, key.view());
      if (i % 2 == 1) batch.put(Family::kEntries, key.view(), "damaged");
      if (i % 4 == 0) batch.erase(Family::kEntries, access_key(key));
      if (i % 4 == 1) batch.put(Family::kEntries, access_key(key), "damaged");
    }
    ASSERT_TRUE(db->commit(batch, true).ok());
  }
  ASSERT_TRUE(box.open().ok());
  EXPECT_EQ(box.store->size().entries, 21);
  EXPECT_EQ(box.store->health().repaired, 7);
  for (const auto& entry : entries) EXPECT_EQ(box.get(entry), "hit");
  expect_well();
  box.options.max_entries = 5;
  box.store->set_limits(box.options);
  box.settle();
  EXPECT_EQ(box.store->size().entries, 5);
  EXPECT_EQ(verify_all(*box.store)->bad.size(), 0);
}

TEST_F(StoreDamageTest, DamagedManifestIsDropped) {
  const auto a = make_entry("a", {"a"});
  const auto b = make_entry("b", {"b"});
  ASSERT_TRUE(box.put(a));
  ASSERT_TRUE(box.put(b));
  {
    const auto db = index();
    auto sealed = **db->get(Family::kManifests, a.manifest.key.view());
    sealed[sealed.size() / 2] ^= 1;
    KvBatch batch;
    batch.put(Family::kManifests, a.manifest.key.view(), sealed);
    // b: another entry's manifest under its key.
    batch.put(Family::kManifests, b.manifest.key.view(),
              **db->get(Family::kManifests, kOther.manifest.key.view()));
    ASSERT_TRUE(db->commit(batch, true).ok());
  }
  ASSERT_TRUE(box.open().ok());
  EXPECT_EQ(box.get(a), "miss");
  EXPECT_EQ(box.get(b), "miss");
  EXPECT_EQ(cause(a), "corrupt");
  expect_well();
  ASSERT_TRUE(box.put(a));
  EXPECT_EQ(box.get(a), "hit");
}

TEST_F(StoreDamageTest, LostManifestDropsTheEntry) {
  const auto a = make_entry("a", {"a", noise(70'000, 1)});
  ASSERT_TRUE(box.put(a));
  {
    const auto db = index();
    KvBatch batch;
    batch.erase(Family::kManifests, a.manifest.key.view());
    ASSERT_TRUE(db->commit(batch, true).ok());
  }
  ASSERT_TRUE(box.open().ok());
  EXPECT_EQ(verify_all(*box.store)->bad.size(), 1);
  EXPECT_EQ(box.get(a), "miss");
  expect_well();
  ASSERT_TRUE(box.put(a));
  EXPECT_EQ(box.get(a), "hit");
}

TEST_F(StoreDamageTest, LostAndDamagedBlobRecords) {
  const auto file = make_entry("file", {noise(100'000, 1)});
  const auto inlined = make_entry("inline", {"bytes"});
  const auto mangled = make_entry("mangled", {"other bytes"});
  for (const auto& entry : {file, inlined, mangled}) ASSERT_TRUE(box.put(entry));
  {
    const auto db = index();
    KvBatch batch;
    batch.erase(Family::kBlobs, file.manifest.outputs[0].digest.view());
    batch.erase(Family::kBlobs, inlined.manifest.outputs[0].digest.view());
    batch.put(Family::kBlobs, mangled.manifest.outputs[0].digest.view(), "x");
    ASSERT_TRUE(db->commit(batch, true).ok());
  }
  ASSERT_TRUE(box.open().ok());
  EXPECT_EQ(box.get(file), "hit");  // the file tells everything
  EXPECT_EQ(box.get(inlined), "miss");
  EXPECT_EQ(box.get(mangled), "miss");
  for (const auto& entry : {inlined, mangled}) {
    ASSERT_TRUE(box.put(entry));
    EXPECT_EQ(box.get(entry), "hit");
  }
  expect_well();
}

// Any byte of a manifest, entry or blob record: an answer, never wrong bytes.
TEST_F(StoreDamageTest, ManyMutationsOfRecords) {
  const auto a = make_entry("a", {"some bytes", noise(66'000, 1)});
  ASSERT_TRUE(box.put(a));
  std::map<Family, std::vector<std::pair<std::string, std::string>>> originals;
  {
    const auto db = index();
    for (const auto family : {Family::kManifests, Family::kEntries, Family::kBlobs}) {
      ASSERT_TRUE(db->scan(family, {}, [&](std::string_view key, std::string_view value) {
                      originals[family].emplace_back(key, value);
                      return true;
                    }).ok());
    }
  }
  std::uint64_t dice = 12345;
  for (int round = 0; round < 25; ++round) {
    {
      const auto db = index();
      KvBatch batch;
      for (const auto& [family, rows] : originals) {
        for (const auto& [key, value] : rows) {
          dice = dice * 6364136223846793005ULL + 1442695040888963407ULL;
          auto changed = value;
          const auto at = (dice >> 33) % changed.size();
          if (round % 3 == 0) changed.resize(at);
          if (round % 3 == 1)
            changed[at] = static_cast<char>(changed[at] ^ (1 << (dice >> 20) % 8));
          batch.put(family, key, (dice >> 13) % 3 == 0 ? changed : value);
        }
      }
      ASSERT_TRUE(db->commit(batch, false).ok());
    }
    ASSERT_TRUE(box.open().ok());
    for (const auto& entry : {a, kOther}) {
      const auto got = box.get(entry);
      EXPECT_TRUE(got == "hit" || got == "miss") << got;
      if (got == "miss") {
        EXPECT_TRUE(put(*box.store, entry).ok());
      }
      EXPECT_EQ(box.get(entry), "hit");
    }
  }
  ASSERT_TRUE(verify_all(*box.store, true).ok());
  expect_well();
}

}  // namespace
}  // namespace nc
