// A full disk: said clearly, survived, and over by itself when there is space again.
#include <gtest/gtest.h>

#include "tests/fault/store_script.hpp"

namespace nc {
namespace {

class FullDiskTest : public ::testing::Test {
 protected:
  void SetUp() override {
    box.options.max_bytes = 1ULL << 30;
    box.options.min_free = 0;  // the floor is what usually keeps it from coming to this
    ASSERT_TRUE(box.open().ok());
    for (int i = 0; i < 4; ++i) {
      kept.push_back(script_entry("kept" + std::to_string(i)));
      ASSERT_TRUE(box.put(kept.back()));
      ASSERT_TRUE(box.store->pin(kept.back().manifest.key, true).ok());
    }
  }
  void fill() { box.fs.set_capacity(box.fs.used()); }
  void free_space() { box.fs.set_capacity(1ULL << 40); }
  void expect_kept() {
    for (const auto& entry : kept) EXPECT_EQ(box.get(entry), "hit") << entry.manifest.label;
  }

  StoreBox box;
  std::vector<TestEntry> kept;
};

TEST_F(FullDiskTest, WritesAreRefusedReadsGoOn) {
  fill();
  const auto entry = make_entry("no room", {"tiny"});
  const auto done = put(*box.store, entry);
  ASSERT_TRUE(done.is(Code::kNoSpace)) << done.error().text();
  EXPECT_NE(done.error().action.find("free space"), std::string::npos);
  EXPECT_TRUE(upload(*box.store, noise(100'000, 1)).is(Code::kNoSpace));
  expect_kept();
  EXPECT_FALSE(box.store->health().writable);
  EXPECT_NE(box.store->health().problem, "");
  EXPECT_GE(box.store->health().failed_writes, 2);
  EXPECT_TRUE(box.store->put_record("leases", "a", "b").is(Code::kNoSpace));
  EXPECT_FALSE(box.store->flush().ok());
  EXPECT_EQ(box.get(entry), "miss");
}

TEST_F(FullDiskTest, GetsWellByItself) {
  for (int round = 0; round < 3; ++round) {
    fill();
    const auto entry = script_entry("after " + std::to_string(round));
    EXPECT_TRUE(put(*box.store, entry).is(Code::kNoSpace));
    box.settle(2);
    EXPECT_FALSE(box.store->health().writable);
    free_space();
    box.settle(1);
    EXPECT_TRUE(box.store->health().writable) << box.store->health().problem;
    EXPECT_EQ(box.store->health().problem, "");
    EXPECT_TRUE(box.put(entry));
    EXPECT_EQ(box.get(entry), "hit");
    expect_kept();
  }
  box.fs.power_cut();
  ASSERT_TRUE(box.open().ok());
  expect_kept();
  EXPECT_EQ(box.get(script_entry("after 2")), "hit");
  EXPECT_TRUE(verify_all(*box.store)->bad.empty());
}

TEST_F(FullDiskTest, OpensOnAFullDisk) {
  box.store.reset();
  fill();
  const auto opened = box.open();
  ASSERT_TRUE(opened.ok()) << opened.error().text();
  expect_kept();
  EXPECT_FALSE(box.store->health().writable);
  EXPECT_FALSE(put(*box.store, make_entry("no room", {"tiny"})).ok());
  free_space();
  box.settle(1);
  EXPECT_TRUE(box.store->health().writable) << box.store->health().problem;
  ASSERT_TRUE(box.put(make_entry("room", {"tiny"})));
  expect_kept();
  ASSERT_TRUE(box.open().ok());
  EXPECT_EQ(box.get(make_entry("room", {"tiny"})), "hit");
}

TEST_F(FullDiskTest, KilledWhileItIsFull) {
  for (std::uint64_t space = 0; space < 3000; space += 150) {
    box.fs.set_capacity(box.fs.used() + space);
    const auto entry = script_entry("full " + std::to_string(space));
    const auto done = put(*box.store, entry);
    box.fs.power_cut(PowerCut::process_killed());
    free_space();
    const auto opened = box.open();
    ASSERT_TRUE(opened.ok()) << space << ": " << opened.error().text();
    if (done.ok()) {
      EXPECT_EQ(box.get(entry), "hit") << space;
    }
    expect_kept();
    EXPECT_TRUE(verify_all(*box.store)->bad.empty()) << space;
  }
}

TEST_F(FullDiskTest, EveryWriteMayFail) {
  // Each changing call fails once with "no space", or with an I/O error: nothing acknowledged is
  // lost, and it gets well.
  std::vector<TestEntry> acknowledged;
  for (int i = 0; i < 60; ++i) {
    FakeFileSystem::Failure failure;
    constexpr FakeFileSystem::Call kCalls[] = {
        FakeFileSystem::Call::kWrite, FakeFileSystem::Call::kSync, FakeFileSystem::Call::kRename,
        FakeFileSystem::Call::kSyncDir, FakeFileSystem::Call::kOpen};
    failure.call = kCalls[i % 5];
    failure.nth = 1 + static_cast<std::uint64_t>(i / 5 % 6);
    failure.partial = static_cast<std::uint64_t>(i * 7 % 50);
    failure.error = i % 2 == 0 ? Error{Code::kNoSpace, "No space left on device", "free space"}
                               : Error{Code::kIo, "Input/output error", "check the disk"};
    box.fs.fail(failure);
    const auto entry = script_entry("failing " + std::to_string(i));
    const auto done = put(*box.store, entry);
    box.fs.clear_failures();
    if (done.ok()) acknowledged.push_back(entry);
    const auto got = box.get(entry);
    EXPECT_TRUE(got == "hit" || got == "miss") << i << ": " << got;
    box.settle(1);
    EXPECT_TRUE(box.store->health().writable) << i << ": " << box.store->health().problem;
    if (got == "miss") {
      // A commit whose sync failed may still have come through.
      EXPECT_TRUE(put(*box.store, entry).ok()) << i;
      EXPECT_EQ(box.get(entry), "hit") << i;
      acknowledged.push_back(entry);
    }
    if (i % 10 == 9) {
      box.fs.power_cut();
      ASSERT_TRUE(box.open().ok());
      for (const auto& there : acknowledged) EXPECT_EQ(box.get(there), "hit") << i;
      EXPECT_TRUE(verify_all(*box.store)->bad.empty()) << i;
    }
    if (::testing::Test::HasFailure()) return;
  }
  expect_kept();
}

}  // namespace
}  // namespace nc
