// Opening in every condition a directory can be in.
#include <cerrno>

#include <gtest/gtest.h>

#include "tests/unit/cache/store_box.hpp"

namespace nc {
namespace {

const TestEntry kSmall = make_entry("small", {"hello"});
const TestEntry kLarge = make_entry("large", {noise(100'000, 1), std::string(90'000, 'z')});

TEST(StoreOpenTest, MakesAPrivateStoreWithAMark) {
  StoreBox box;
  ASSERT_TRUE(box.open().ok());
  EXPECT_EQ(box.fs.stat("/data/store")->mode, 0700u);
  EXPECT_EQ(*box.fs.read_all("/data/store/STORE", 100),
            "neuroncache-store 1 " + box.store->id() + "\n");
  const auto id = box.store->id();
  ASSERT_TRUE(box.open().ok());
  EXPECT_EQ(box.store->id(), id);
}

TEST(StoreOpenTest, TwoStoresOnOneDirectory) {
  StoreBox box;
  ASSERT_TRUE(box.open().ok());
  const auto second = Store::open(box.options, {box.fs, box.clock, box.random});
  ASSERT_TRUE(second.is(Code::kBusy));
  EXPECT_NE(second.error().action.find("neuroncache daemon stop"), std::string::npos);
  ASSERT_TRUE(box.put(kSmall));
}

TEST(StoreOpenTest, AnotherVersionIsLeftAlone) {
  for (const char* mark :
       {"neuroncache-store 2 abc\n", "something else\n", "", "neuroncache-store 1"}) {
    StoreBox box;
    ASSERT_TRUE(box.fs.make_dirs("/data/store").ok());
    ASSERT_TRUE(box.fs.write_atomically("/data/store/STORE", as_bytes(mark)).ok());
    const auto changes = box.fs.changes();
    const auto opened = box.open();
    ASSERT_TRUE(opened.is(Code::kUnsupported)) << mark;
    EXPECT_FALSE(opened.error().action.empty());
    EXPECT_EQ(box.fs.changes(), changes) << mark;
    EXPECT_EQ(*box.fs.read_all("/data/store/STORE", 100), mark);
  }
}

TEST(StoreOpenTest, OthersMustNotWrite) {
  StoreBox box;
  ASSERT_TRUE(box.fs.make_dirs("/data").ok());
  ASSERT_TRUE(box.fs.make_dirs("/data/store", 0770).ok());
  const auto opened = box.open();
  ASSERT_TRUE(opened.is(Code::kDenied));
  EXPECT_EQ(opened.error().action, "run: chmod go-w /data/store");
  EXPECT_TRUE(box.fs.list("/data/store")->empty());
}

TEST(StoreOpenTest, AnotherOwnerIsRefused) {
  StoreBox box;
  ASSERT_TRUE(box.open().ok());
  box.store.reset();
  box.fs.set_owner("/data/store", 4242);
  const auto opened = box.open();
  ASSERT_TRUE(opened.is(Code::kDenied));
  EXPECT_NE(opened.error().message.find("4242"), std::string::npos);
}

TEST(StoreOpenTest, ReadOnlyNeedsAStore) {
  StoreBox box;
  box.options.read_only = true;
  EXPECT_TRUE(box.open().is(Code::kNotFound));
  EXPECT_TRUE(box.fs.stat("/data").is(Code::kNotFound));
}

TEST(StoreOpenTest, ReadOnlyBesideAWriter) {
  StoreBox box;
  ASSERT_TRUE(box.open().ok());
  ASSERT_TRUE(box.put(kSmall));
  ASSERT_TRUE(box.put(kLarge));
  auto options = box.options;
  options.read_only = true;
  const auto changes = box.fs.changes();
  auto reader = Store::open(options, {box.fs, box.clock, box.random});
  ASSERT_TRUE(reader.ok()) << reader.error().text();
  EXPECT_EQ(get(box.fs, **reader, kSmall), "hit");
  EXPECT_EQ(get(box.fs, **reader, kLarge), "hit");
  EXPECT_EQ((*reader)->entries({}, "", 10)->size(), 2);
  EXPECT_TRUE((*reader)->begin_upload(Digest{}, 1, true).is(Code::kReadOnly));
  EXPECT_TRUE((*reader)->pin(kSmall.manifest.key, true).is(Code::kReadOnly));
  EXPECT_TRUE((*reader)->prune({}).is(Code::kReadOnly));
  PruneRequest dry;
  dry.dry_run = true;
  EXPECT_EQ((*reader)->prune(dry)->removed.size(), 2);
  EXPECT_EQ(verify_all(**reader)->bad.size(), 0);
  (*reader)->maintain();
  EXPECT_TRUE((*reader)->flush().ok());
  EXPECT_FALSE((*reader)->health().writable);
  EXPECT_EQ(box.fs.changes(), changes);
}

TEST(StoreOpenTest, ReadOnlyAfterACrash) {
  StoreBox box;
  ASSERT_TRUE(box.open().ok());
  ASSERT_TRUE(box.put(kSmall));
  ASSERT_TRUE(box.put(kLarge));
  box.store.reset();
  box.fs.power_cut();
  box.options.read_only = true;
  const auto opened = box.open();
  ASSERT_TRUE(opened.ok()) << opened.error().text();
  EXPECT_EQ(box.get(kSmall), "hit");
  EXPECT_EQ(box.get(kLarge), "hit");
}

TEST(StoreOpenTest, ReadOnlyDiskStillServes) {
  StoreBox box;
  ASSERT_TRUE(box.open().ok());
  ASSERT_TRUE(box.put(kSmall));
  ASSERT_TRUE(box.put(kLarge));
  box.store.reset();
  box.fs.set_read_only(true);
  const auto opened = box.open();
  ASSERT_TRUE(opened.ok()) << opened.error().text();
  EXPECT_EQ(box.get(kSmall), "hit");
  EXPECT_EQ(box.get(kLarge), "hit");
  EXPECT_FALSE(box.store->health().writable);
  EXPECT_FALSE(box.store->health().problem.empty());
  EXPECT_TRUE(box.store->publish(kSmall.manifest).is(Code::kReadOnly));
}

TEST(StoreOpenTest, ReadOnlyDiskWithoutAStoreIsRefused) {
  StoreBox box;
  box.fs.set_read_only(true);
  EXPECT_TRUE(box.open().is(Code::kReadOnly));
}

TEST(StoreOpenTest, StagingIsEmptied) {
  StoreBox box;
  ASSERT_TRUE(box.open().ok());
  auto half = box.store->begin_upload(Sha256::of(as_bytes(kLarge.contents[0])), 100'000, true);
  ASSERT_TRUE(half.ok());
  ASSERT_TRUE((*half)->write(as_bytes(noise(1000, 1))).ok());
  EXPECT_EQ(box.fs.list("/data/store/staging")->size(), 1);
  box.fs.power_cut(PowerCut::process_killed());
  half->reset();
  ASSERT_TRUE(box.open().ok());
  EXPECT_TRUE(box.fs.list("/data/store/staging")->empty());
}

// Every file of the index, damaged in turn: it opens, serves what it has, and takes new entries.
TEST(StoreOpenTest, DamagedIndexIsSetAside) {
  for (const std::string victim : {"CURRENT", "MANIFEST"}) {
    StoreBox box;
    ASSERT_TRUE(box.open().ok());
    ASSERT_TRUE(box.put(kSmall));
    ASSERT_TRUE(box.put(kLarge));
    box.store.reset();
    bool damaged = false;
    const auto names = box.fs.list("/data/store/index");
    for (const auto& name : *names) {
      if (!name.starts_with(victim)) continue;
      auto file = box.fs.open("/data/store/index/" + name, FileSystem::Open::kCreateOrTruncate);
      ASSERT_TRUE(file.ok());
      ASSERT_TRUE((*file)->write(as_bytes("garbage\n")).ok());
      damaged = true;
    }
    ASSERT_TRUE(damaged);
    const auto opened = box.open();
    ASSERT_TRUE(opened.ok()) << victim << ": " << opened.error().text();
    EXPECT_NE(box.store->health().problem.find("index.broken-"), std::string::npos);
    EXPECT_TRUE(box.store->health().writable);
    // Its tables are whole: what they hold is saved.
    EXPECT_EQ(box.get(kSmall), "hit") << victim;
    EXPECT_EQ(box.get(kLarge), "hit") << victim;
    EXPECT_TRUE(box.put(make_entry("new", {"new"})));
    EXPECT_TRUE(verify_all(*box.store)->bad.empty());
  }
}

TEST(StoreOpenTest, TooManyOpenFilesIsNotTheDisksFault) {
  StoreBox box;
  ASSERT_TRUE(box.open().ok());
  box.store.reset();
  FakeFileSystem::Failure failure;
  failure.call = FakeFileSystem::Call::kOpen;
  failure.error = errno_error(EMFILE, "cannot open", "/data/store/index/x");
  failure.times = 1000;
  failure.path_part = "/index/";
  box.fs.fail(failure);
  const auto opened = box.open();
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.error().action.find("ulimit -n"), std::string::npos) << opened.error().text();
  box.fs.clear_failures();
  EXPECT_TRUE(box.open().ok());
}

TEST(StoreOpenTest, BlobsOfALostIndexAreAdopted) {
  StoreBox box;
  ASSERT_TRUE(box.open().ok());
  ASSERT_TRUE(box.put(kLarge));
  box.store.reset();
  box.clock.advance(100 * 3'600'000);
  const auto names = box.fs.list("/data/store/index");
  for (const auto& name : *names) {
    const auto path = "/data/store/index/" + name;
    auto file = box.fs.open(path, FileSystem::Open::kCreateOrTruncate);
    ASSERT_TRUE((*file)->write(as_bytes("garbage\n")).ok());
  }
  ASSERT_TRUE(box.open().ok());
  EXPECT_EQ(box.get(kLarge), "miss");
  // Old as they are, they have their grace from now on, and need no second upload.
  EXPECT_EQ(box.store->prune({})->removed.size(), 0);
  for (const auto& bytes : kLarge.contents) {
    EXPECT_TRUE(*box.store->has_blob(Sha256::of(as_bytes(bytes))));
  }
  EXPECT_TRUE(*box.store->publish(kLarge.manifest));
  EXPECT_EQ(box.get(kLarge), "hit");
}

}  // namespace
}  // namespace nc
