// Put and get, on the real disk and on the one in memory.
#include "cache/store.hpp"

#include <gtest/gtest.h>

#include "tests/unit/base/temp_dir.hpp"
#include "tests/unit/cache/store_box.hpp"

namespace nc {
namespace {

TEST(StoreOnRealDisk, PutGetReopen) {
  TempDir dir;
  StoreOptions options;
  options.dir = join(dir.path(), "store");
  const Store::Deps deps{real_filesystem(), system_clock(), system_random()};
  const auto small = make_entry("small", {"hello", noise(5000, 1)});
  const auto large = make_entry("large", {noise(300'000, 2), std::string(200'000, 'x')});
  std::string id;
  {
    auto store = Store::open(options, deps);
    ASSERT_TRUE(store.ok()) << store.error().text();
    id = (*store)->id();
    EXPECT_EQ(get(deps.fs, **store, small), "miss");
    auto published = put(**store, small);
    ASSERT_TRUE(published.ok()) << published.error().text();
    EXPECT_TRUE(*published);
    published = put(**store, large);
    ASSERT_TRUE(published.ok()) << published.error().text();
    EXPECT_EQ(get(deps.fs, **store, small), "hit");
    EXPECT_EQ(get(deps.fs, **store, large), "hit");
    const auto again = put(**store, small);
    ASSERT_TRUE(again.ok());
    EXPECT_FALSE(*again);
    const auto second = Store::open(options, deps);
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().code, Code::kBusy);
    auto reader_options = options;
    reader_options.read_only = true;
    const auto reader = Store::open(reader_options, deps);
    ASSERT_TRUE(reader.ok()) << reader.error().text();
    EXPECT_EQ(get(deps.fs, **reader, large), "hit");
    EXPECT_TRUE((*reader)->publish(small.manifest).is(Code::kReadOnly));
  }
  auto store = Store::open(options, deps);
  ASSERT_TRUE(store.ok()) << store.error().text();
  EXPECT_EQ((*store)->id(), id);
  EXPECT_EQ(get(deps.fs, **store, small), "hit");
  EXPECT_EQ(get(deps.fs, **store, large), "hit");
  const auto page = verify_all(**store);
  ASSERT_TRUE(page.ok()) << page.error().text();
  EXPECT_TRUE(page->bad.empty()) << page->bad[0].what << " " << page->bad[0].problem;
  EXPECT_EQ(page->orphans, 0);
}

TEST(StoreTest, ASmallEntryIsSyncedOnce) {
  StoreBox box;
  ASSERT_TRUE(box.open().ok());
  const auto entry = make_entry("small", {"one", noise(5000, 1), noise(6000, 2)});
  const auto before = box.fs.calls(FakeFileSystem::Call::kSync);
  ASSERT_TRUE(box.put(entry));
  EXPECT_EQ(box.fs.calls(FakeFileSystem::Call::kSync), before + 1);
  box.fs.power_cut();
  ASSERT_TRUE(box.open().ok());
  EXPECT_EQ(box.get(entry), "hit");
}

TEST(StoreTest, AReplacedEntryLeavesItsBlobsToTheNewOneOrToTheSweep) {
  StoreBox box;
  ASSERT_TRUE(box.open().ok());
  const auto old = make_entry("one", {noise(5000, 1), noise(6000, 2)});
  const auto fresh = make_entry("one", {noise(6000, 2), noise(7000, 3)});
  ASSERT_TRUE(box.put(old));
  EXPECT_FALSE(box.put(fresh));  // the first one stays
  EXPECT_EQ(box.get(old), "hit");
  ASSERT_TRUE(box.store->replace(fresh.manifest).ok());
  EXPECT_EQ(box.get(fresh), "hit");
  EXPECT_EQ(box.store->size().entries, 1U);
  box.clock.advance(24 * 3'600'000);
  box.settle();
  EXPECT_EQ(box.get(fresh), "hit");
  EXPECT_FALSE(*box.store->has_blob(Sha256::of(as_bytes(old.contents[0]))));
  EXPECT_EQ(verify_all(*box.store)->orphans, 0U);
  ASSERT_TRUE(box.open().ok());
  EXPECT_EQ(box.get(fresh), "hit");
  EXPECT_TRUE(verify_all(*box.store)->bad.empty());
}

TEST(StoreTest, APowerCutMayTakeABlobWithoutAnEntry) {
  StoreBox box;
  ASSERT_TRUE(box.open().ok());
  const auto entry = make_entry("small", {noise(5000, 1)});
  ASSERT_TRUE(upload(*box.store, entry.contents[0]).ok());
  box.fs.power_cut();
  ASSERT_TRUE(box.open().ok());
  EXPECT_TRUE(verify_all(*box.store)->bad.empty());
  EXPECT_TRUE(box.store->publish(entry.manifest).is(Code::kNotFound));
  ASSERT_TRUE(box.put(entry));
  EXPECT_EQ(box.get(entry), "hit");
}

TEST(StoreTest, APowerCutMayTakeABlobThatCanBeHadAgain) {
  StoreBox box;
  ASSERT_TRUE(box.open().ok());
  const auto entry = make_entry("copy", {noise(2'000'000, 7), "small"});
  const auto copy = [&] {
    const auto syncs = box.fs.calls(FakeFileSystem::Call::kSync);
    for (const auto& bytes : entry.contents) {
      auto upload = box.store->begin_upload(Sha256::of(as_bytes(bytes)), bytes.size(), false);
      ASSERT_TRUE(upload.ok());
      (*upload)->may_be_lost();
      ASSERT_TRUE((*upload)->write(as_bytes(bytes)).ok());
      ASSERT_TRUE((*upload)->finish().ok());
    }
    ASSERT_TRUE(box.store->publish(entry.manifest).ok());
    EXPECT_EQ(box.fs.calls(FakeFileSystem::Call::kSync), syncs + 1);  // the entry
    EXPECT_EQ(box.get(entry), "hit");
  };
  copy();
  box.fs.power_cut();
  ASSERT_TRUE(box.open().ok());
  EXPECT_EQ(box.get(entry), "miss");
  copy();
  EXPECT_TRUE(verify_all(*box.store)->bad.empty());
}

TEST(StoreTest, HandsOutEachFormOfBlob) {
  StoreBox box;
  ASSERT_TRUE(box.open().ok());
  const std::string plain = noise(100'000, 3);
  const std::string dull(100'000, 'a');
  const auto entry = make_entry("forms", {"tiny", plain, dull});
  ASSERT_TRUE(box.put(entry));
  auto hit = box.store->lookup(entry.manifest.key);
  ASSERT_TRUE(hit.ok() && hit->has_value());
  const auto& blobs = (*hit)->blobs;
  EXPECT_EQ(blobs[0].inline_bytes, "tiny");
  EXPECT_TRUE(blobs[0].path.empty());
  EXPECT_EQ(blobs[1].path, box.blob_path(plain));
  EXPECT_FALSE(blobs[1].inline_bytes.has_value());
  EXPECT_TRUE(blobs[2].path.empty());
  EXPECT_FALSE(blobs[2].inline_bytes.has_value());
  EXPECT_TRUE(box.fs.stat(box.blob_path(dull, true)).ok());
  EXPECT_EQ(*box.store->read_blob(blobs[2].output.digest, 1 << 20), dull);
  EXPECT_TRUE(box.store->read_blob(blobs[2].output.digest, 1000).is(Code::kTooLarge));
  EXPECT_TRUE(box.store->map_blob(blobs[2].output.digest).is(Code::kConflict));
  const auto mapping = box.store->map_blob(blobs[1].output.digest);
  ASSERT_TRUE(mapping.ok());
  EXPECT_EQ(as_text((*mapping)->bytes()), plain);
}

TEST(StoreTest, KeepsUncompressedWhatMustBe) {
  StoreBox box;
  ASSERT_TRUE(box.open().ok());
  const std::string dull(100'000, 'a');
  ASSERT_TRUE(box.put(make_entry("never", {dull}), false));
  EXPECT_TRUE(box.fs.stat(box.blob_path(dull)).ok());
  box.options.compression = false;
  box.store->set_limits(box.options);
  const std::string other(100'000, 'b');
  ASSERT_TRUE(box.put(make_entry("off", {other})));
  EXPECT_TRUE(box.fs.stat(box.blob_path(other)).ok());
}

TEST(StoreTest, PublishNeedsItsBlobs) {
  StoreBox box;
  ASSERT_TRUE(box.open().ok());
  const auto entry = make_entry("missing", {"one", noise(70'000, 4)});
  ASSERT_TRUE(upload(*box.store, "one").ok());
  const auto published = box.store->publish(entry.manifest);
  ASSERT_TRUE(published.is(Code::kNotFound));
  EXPECT_NE(published.error().message.find("out1"), std::string::npos);
  EXPECT_EQ(box.get(entry), "miss");
  auto wrong_size = make_entry("size", {"one"});
  wrong_size.manifest.outputs[0].size = 4;
  EXPECT_TRUE(box.store->publish(wrong_size.manifest).is(Code::kInvalid));
  auto wrong_key = make_entry("key", {"one"});
  wrong_key.manifest.key = entry.manifest.key;
  EXPECT_TRUE(box.store->publish(wrong_key.manifest).is(Code::kKeyMismatch));
}

TEST(StoreTest, UploadChecksWhatComes) {
  StoreBox box;
  ASSERT_TRUE(box.open().ok());
  for (const std::size_t size : {std::size_t{10}, std::size_t{100'000}}) {
    const auto bytes = noise(size, size);
    const auto digest = Sha256::of(as_bytes(bytes));
    {
      auto upload = box.store->begin_upload(digest, size, true);
      ASSERT_TRUE(upload.ok());
      EXPECT_EQ(box.store->size().reserved, size);
      EXPECT_TRUE((*upload)->write(as_bytes(bytes + "x")).is(Code::kTooLarge));
      ASSERT_TRUE((*upload)->write(as_bytes(bytes).first(size - 1)).ok());
      EXPECT_TRUE((*upload)->finish().is(Code::kDigestMismatch));
    }
    {
      auto upload = box.store->begin_upload(digest, size, true);
      ASSERT_TRUE(upload.ok());
      ASSERT_TRUE((*upload)->write(as_bytes(noise(size, 99))).ok());
      EXPECT_TRUE((*upload)->finish().is(Code::kDigestMismatch));
      EXPECT_TRUE((*upload)->finish().is(Code::kConflict));
    }
    EXPECT_FALSE(*box.store->has_blob(digest));
    EXPECT_EQ(box.store->size().reserved, 0);
    EXPECT_TRUE(box.fs.list("/data/store/staging")->empty());
    ASSERT_TRUE(upload(*box.store, bytes).ok());
    EXPECT_TRUE(*box.store->has_blob(digest));
    ASSERT_TRUE(upload(*box.store, bytes).ok());  // known: dropped
    EXPECT_TRUE(box.fs.list("/data/store/staging")->empty());
  }
}

TEST(StoreTest, PeekCountsNoUse) {
  StoreBox box;
  ASSERT_TRUE(box.open().ok());
  const auto entry = make_entry("peek", {"bytes"});
  ASSERT_TRUE(box.put(entry));
  ASSERT_TRUE(box.store->peek(entry.manifest.key)->has_value());
  EXPECT_EQ(box.store->entry(entry.manifest.key.hex())->uses, 0);
  box.clock.advance(5000);
  EXPECT_EQ(box.get(entry), "hit");
  auto info = box.store->entry(entry.manifest.key.hex().substr(0, 10));
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->uses, 1);
  EXPECT_EQ(info->used_ms, box.clock.wall_ms());
  EXPECT_EQ(info->label, "label of peek");
  EXPECT_EQ(info->bytes, 5);
  box.store->maintain();
  ASSERT_TRUE(box.open().ok());
  info = box.store->entry(entry.manifest.key.hex());
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->uses, 1);
}

TEST(StoreTest, RecordsAreKept) {
  StoreBox box;
  ASSERT_TRUE(box.open().ok());
  ASSERT_TRUE(box.store->put_record("leases", "a", "1").ok());
  ASSERT_TRUE(box.store->put_record("leases", "b", "2").ok());
  ASSERT_TRUE(box.store->put_record("leases2", "c", "3").ok());
  ASSERT_TRUE(box.store->erase_record("leases", "a").ok());
  ASSERT_TRUE(box.open().ok());
  const std::map<std::string, std::string> expected{{"b", "2"}};
  EXPECT_EQ(*box.store->records("leases"), expected);
  EXPECT_TRUE(box.store->records("none")->empty());
}

}  // namespace
}  // namespace nc
