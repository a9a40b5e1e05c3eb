// The small records that the daemon keeps in the store.
#include <gtest/gtest.h>
#include <rocksdb/db.h>

#include "cache/rocks_env.hpp"
#include "cache/rocks_options.hpp"
#include "tests/unit/cache/store_box.hpp"

namespace nc {
namespace {

using Records = std::map<std::string, std::string>;

TEST(StoreRecordsTest, TablesAreApartAndSurviveAReopen) {
  StoreBox box;
  ASSERT_TRUE(box.open().ok());
  const std::string binary("\0\xff\n", 3);
  for (const char* table : {"leases", "histograms", "plans"}) {
    ASSERT_TRUE(box.store->put_record(table, "a", table).ok());
    ASSERT_TRUE(box.store->put_record(table, binary, binary).ok());
  }
  ASSERT_TRUE(box.open().ok());
  for (const char* table : {"leases", "histograms", "plans"}) {
    EXPECT_EQ(*box.store->records(table), (Records{{"a", table}, {binary, binary}}));
  }
  EXPECT_TRUE(box.store->records("other")->empty());
  ASSERT_TRUE(box.store->erase_record("plans", "a").ok());
  EXPECT_EQ(*box.store->records("plans"), (Records{{binary, binary}}));
  EXPECT_EQ(box.store->records("leases")->size(), 2U);
}

TEST(StoreRecordsTest, ManyChangesAtOnce) {
  StoreBox box;
  ASSERT_TRUE(box.open().ok());
  ASSERT_TRUE(box.store->put_record("plans", "old", "1").ok());
  ASSERT_TRUE(
      box.store->change_records("plans", {{"old", std::nullopt}, {"a", "2"}, {"b", ""}}).ok());
  EXPECT_EQ(*box.store->records("plans"), (Records{{"a", "2"}, {"b", ""}}));
}

TEST(StoreRecordsTest, ReadOnlyKeepsNothing) {
  StoreBox box;
  ASSERT_TRUE(box.open().ok());
  box.options.read_only = true;
  ASSERT_TRUE(box.open().ok());
  EXPECT_TRUE(box.store->put_record("plans", "a", "b").is(Code::kReadOnly));
  EXPECT_TRUE(box.store->change_records("plans", {{"a", "b"}}).is(Code::kReadOnly));
}

// A store of a program that did not have these tables: read as it is, completed when written.
TEST(StoreRecordsTest, AnOlderStoreIsReadAndCompleted) {
  StoreBox box;
  ASSERT_TRUE(box.open().ok());
  const TestEntry entry = make_entry("one", {"hello"});
  ASSERT_TRUE(box.put(entry));
  box.store.reset();
  {
    const auto env = make_rocks_env(box.fs);
    RocksOptions options = make_rocks_options(false);
    options.db.env = env.get();
    std::vector<rocksdb::ColumnFamilyDescriptor> families;
    for (std::size_t i = 0; i < kFamilies; ++i) {
      families.emplace_back(family_name(static_cast<Family>(i)), options.families[i]);
    }
    std::vector<rocksdb::ColumnFamilyHandle*> handles;
    rocksdb::DB* opened = nullptr;
    ASSERT_TRUE(
        rocksdb::DB::Open(options.db, "/data/store/index", families, &handles, &opened).ok());
    const std::unique_ptr<rocksdb::DB> db(opened);
    ASSERT_TRUE(db->DropColumnFamily(handles[static_cast<std::size_t>(Family::kHistograms)]).ok());
    ASSERT_TRUE(db->DropColumnFamily(handles[static_cast<std::size_t>(Family::kPlans)]).ok());
    for (auto* handle : handles) ASSERT_TRUE(db->DestroyColumnFamilyHandle(handle).ok());
    ASSERT_TRUE(db->Close().ok());
  }
  box.options.read_only = true;
  ASSERT_TRUE(box.open().ok());
  EXPECT_TRUE(box.store->lookup(entry.manifest.key)->has_value());
  EXPECT_TRUE(box.store->records("plans")->empty());
  box.options.read_only = false;
  ASSERT_TRUE(box.open().ok());
  ASSERT_TRUE(box.store->put_record("plans", "a", "b").ok());
  EXPECT_EQ(*box.store->records("plans"), (Records{{"a", "b"}}));
  EXPECT_TRUE(box.store->lookup(entry.manifest.key)->has_value());
}

}  // namespace
}  // namespace nc
