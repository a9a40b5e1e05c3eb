// Limits: bytes, entries, quotas, free space; what goes and what never does.
#include <gtest/gtest.h>

#include "tests/unit/cache/store_box.hpp"

namespace nc {
namespace {

std::size_t count_hits(StoreBox& box, const std::vector<TestEntry>& entries) {
  std::size_t hits = 0;
  for (const auto& entry : entries) hits += box.get(entry) == "hit" ? 1 : 0;
  return hits;
}

TEST(StoreEvictTest, CheapEntriesMakeRoom) {
  StoreBox box;
  box.options.max_bytes = 2 << 20;
  ASSERT_TRUE(box.open().ok());
  const auto dear = make_entry("dear", {noise(100'000, 1000)}, 3'600'000);
  ASSERT_TRUE(box.put(dear));
  std::vector<TestEntry> entries;
  for (int i = 0; i < 50; ++i) {
    entries.push_back(make_entry("e" + std::to_string(i), {noise(100'000, i)}, 100));
    ASSERT_TRUE(box.put(entries.back()));
    EXPECT_LE(box.store->counters("")["bytes"], 2 << 20);
  }
  EXPECT_EQ(box.get(dear), "hit");
  EXPECT_EQ(box.get(entries.back()), "hit");
  const auto hits = count_hits(box, entries);
  EXPECT_GE(hits, 15);
  EXPECT_LE(hits, 19);
  EXPECT_EQ(box.store->counters("")["evictions"], 50.0 - static_cast<double>(hits));
  Request request;
  request.key = entries.front().manifest.key;
  EXPECT_EQ(box.store->explain_miss(request)->cause, "evicted");
  EXPECT_EQ(box.store->counters("")["missed_after_eviction"], 1);
  // The files are gone once the delay is over, and every byte on the disk is accounted for.
  box.settle();
  EXPECT_TRUE(box.fs.stat(box.blob_path(entries.front().contents[0])).is(Code::kNotFound));
  EXPECT_LE(box.fs.used(), 3 << 20);
  EXPECT_TRUE(verify_all(*box.store)->bad.empty());
}

TEST(StoreEvictTest, EntriesAreBounded) {
  StoreBox box;
  box.options.max_entries = 10;
  ASSERT_TRUE(box.open().ok());
  std::vector<TestEntry> entries;
  for (int i = 0; i < 30; ++i) {
    entries.push_back(make_entry("e" + std::to_string(i), {"x" + std::to_string(i)}));
    ASSERT_TRUE(box.put(entries.back()));
    EXPECT_LE(box.store->size().entries, 10);
  }
  EXPECT_EQ(count_hits(box, entries), 10);
}

TEST(StoreEvictTest, PinnedAndHeldStay) {
  StoreBox box;
  box.options.max_entries = 3;
  ASSERT_TRUE(box.open().ok());
  const auto pinned = make_entry("pinned", {"p"}, 1);
  const auto held = make_entry("held", {"h"}, 1);
  ASSERT_TRUE(box.put(pinned));
  ASSERT_TRUE(box.put(held));
  ASSERT_TRUE(box.store->pin(pinned.manifest.key, true).ok());
  auto hold = box.store->hold(held.manifest.key);
  EXPECT_TRUE(box.store->entry(held.manifest.key.hex())->in_use);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(box.put(make_entry(std::to_string(i), {"x"}, 5000)));
  EXPECT_EQ(box.get(pinned), "hit");
  EXPECT_EQ(box.get(held), "hit");
  hold.reset();
  for (int i = 5; i < 9; ++i) ASSERT_TRUE(box.put(make_entry(std::to_string(i), {"x"}, 500'000)));
  EXPECT_EQ(box.get(held), "miss");
  // Pins are kept across a restart, and a hold may outlive the store.
  hold = box.store->hold(pinned.manifest.key);
  ASSERT_TRUE(box.open().ok());
  hold.reset();
  EXPECT_TRUE(box.store->entry(pinned.manifest.key.hex())->pinned);
  for (int i = 9; i < 15; ++i) ASSERT_TRUE(box.put(make_entry(std::to_string(i), {"x"}, 500'000)));
  EXPECT_EQ(box.get(pinned), "hit");
  ASSERT_TRUE(box.store->pin(pinned.manifest.key, false).ok());
  EXPECT_TRUE(box.store->pin(Sha256::of(as_bytes("none")), true).is(Code::kNotFound));
}

TEST(StoreEvictTest, WhatCannotFitEvictsNothing) {
  StoreBox box;
  box.options.max_bytes = 1 << 20;
  box.options.max_blob = 4 << 20;
  ASSERT_TRUE(box.open().ok());
  const auto entry = make_entry("a", {noise(500'000, 1)});
  ASSERT_TRUE(box.put(entry));
  ASSERT_TRUE(box.store->pin(entry.manifest.key, true).ok());
  const auto other = make_entry("b", {noise(200'000, 2)});
  ASSERT_TRUE(box.put(other));
  EXPECT_TRUE(upload(*box.store, noise(2 << 20, 3)).is(Code::kNoSpace));
  EXPECT_TRUE(upload(*box.store, noise(600'000, 3)).is(Code::kNoSpace));
  EXPECT_TRUE(upload(*box.store, noise(5 << 20, 3)).is(Code::kTooLarge));
  EXPECT_EQ(box.get(entry), "hit");
  EXPECT_EQ(box.get(other), "hit");
  EXPECT_EQ(box.store->health().failed_writes, 2);
  EXPECT_TRUE(box.store->health().writable);
  EXPECT_EQ(box.store->size().reserved, 0);
}

TEST(StoreEvictTest, ReservationsCount) {
  StoreBox box;
  box.options.max_bytes = 1 << 20;
  ASSERT_TRUE(box.open().ok());
  auto first = box.store->begin_upload(Sha256::of(as_bytes(noise(600'000, 1))), 600'000, false);
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(box.store->begin_upload(Sha256::of(as_bytes(noise(600'000, 2))), 600'000, false)
                  .is(Code::kNoSpace));
  first->reset();
  EXPECT_TRUE(
      box.store->begin_upload(Sha256::of(as_bytes(noise(600'000, 2))), 600'000, false).ok());
}

TEST(StoreEvictTest, ANamespaceOverItsQuotaEvictsItsOwn) {
  StoreBox box;
  box.options.namespace_quota["team"] = 300'000;
  ASSERT_TRUE(box.open().ok());
  const auto other = make_entry("other", {noise(100'000, 100)}, 1);
  ASSERT_TRUE(box.put(other));
  std::vector<TestEntry> team;
  for (int i = 0; i < 6; ++i) {
    team.push_back(make_entry("t" + std::to_string(i), {noise(100'000, i)}));
    team.back().manifest.name_space = "team";
    ASSERT_TRUE(box.put(team.back()));
  }
  EXPECT_EQ(box.get(other), "hit");
  EXPECT_EQ(count_hits(box, team), 2);
  EXPECT_EQ(box.store->counters("team")["entries"], 2);
  auto huge = make_entry("huge", {noise(400'000, 9)});
  huge.manifest.name_space = "team";
  EXPECT_TRUE(put(*box.store, huge).is(Code::kNoSpace));
  EXPECT_EQ(count_hits(box, team), 2);
  box.options.namespace_quota["team"] = 150'000;
  box.store->set_limits(box.options);
  box.settle(1);
  EXPECT_EQ(count_hits(box, team), 1);
}

TEST(StoreEvictTest, LoweredLimitsAreEnforced) {
  StoreBox box;
  ASSERT_TRUE(box.open().ok());
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(box.put(make_entry("e" + std::to_string(i), {noise(100'000, i)})));
  }
  box.options.max_bytes = 500'000;
  box.store->set_limits(box.options);
  box.settle();
  EXPECT_LE(box.store->counters("")["bytes"], 500'000);
  EXPECT_GE(box.store->size().entries, 3);
}

TEST(StoreEvictTest, SharedBlobsAreCountedOnceAndStayWhileNamed) {
  StoreBox box;
  ASSERT_TRUE(box.open().ok());
  const auto shared = noise(200'000, 7);
  const auto a = make_entry("a", {shared, "a"});
  const auto b = make_entry("b", {shared, "b"});
  ASSERT_TRUE(box.put(a));
  const auto before = box.store->counters("")["bytes"];
  ASSERT_TRUE(box.put(b));
  EXPECT_LT(box.store->counters("")["bytes"], before + 10'000);
  PruneRequest request;
  request.max_entries = 1;
  request.dry_run = true;
  EXPECT_LT(box.store->prune(request)->bytes, 10'000);
  request.dry_run = false;
  const auto pruned = box.store->prune(request);
  ASSERT_EQ(pruned->removed.size(), 1);
  const auto& left = pruned->removed[0].key == a.manifest.key ? b : a;
  EXPECT_EQ(box.get(left), "hit");
  EXPECT_EQ(box.store->prune({})->removed.size(), 1);
  EXPECT_TRUE(box.fs.stat(box.blob_path(shared)).is(Code::kNotFound));
  EXPECT_EQ(box.store->size().blobs, 0);
}

TEST(StoreEvictTest, FreeSpaceOfTheDiskIsLeft) {
  StoreBox box;
  box.options.max_bytes = 1 << 30;
  box.options.min_free = 8 << 20;
  box.fs.set_capacity(16 << 20);
  ASSERT_TRUE(box.open().ok());
  std::vector<TestEntry> entries;
  for (int i = 0; i < 20; ++i) {
    entries.push_back(make_entry("e" + std::to_string(i), {noise(1 << 20, i)}));
    ASSERT_TRUE(box.put(entries.back()));
    EXPECT_GE(box.fs.space("/data/store")->available, (8 << 20) - 200'000);
  }
  EXPECT_EQ(box.get(entries.back()), "hit");
  EXPECT_GE(count_hits(box, entries), 4);
  const auto too_much = upload(*box.store, noise(9 << 20, 99));
  ASSERT_TRUE(too_much.is(Code::kNoSpace));
  EXPECT_NE(too_much.error().action.find("min_free"), std::string::npos);
  EXPECT_GE(count_hits(box, entries), 4);
}

TEST(StoreEvictTest, AnUploadOfWhatIsBeingUnlinkedCallsItOff) {
  StoreBox box;
  ASSERT_TRUE(box.open().ok());
  const auto entry = make_entry("a", {noise(100'000, 1)});
  ASSERT_TRUE(box.put(entry));
  box.options.max_bytes = 1000;
  box.store->set_limits(box.options);
  box.store->maintain();  // evicted, not yet unlinked
  EXPECT_EQ(box.get(entry), "miss");
  EXPECT_TRUE(box.fs.stat(box.blob_path(entry.contents[0])).ok());
  box.options.max_bytes = 1 << 20;
  box.store->set_limits(box.options);
  ASSERT_TRUE(box.put(entry));
  box.settle();
  EXPECT_EQ(box.get(entry), "hit");
  EXPECT_TRUE(box.open().ok());
  EXPECT_EQ(box.get(entry), "hit");
}

}  // namespace
}  // namespace nc
