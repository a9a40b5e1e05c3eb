// The power goes at any moment, and what was not synced is lost in every way the disk may choose.
// RocksDB runs on the same fake disk.
#include <gtest/gtest.h>

#include "base/log.hpp"
#include "tests/fault/store_script.hpp"

namespace nc {
namespace {

using State = Acknowledged::State;

#ifdef NC_SANITIZED
constexpr int kCuts = 60;
#else
constexpr int kCuts = 260;
#endif

// Opens, puts, evicts, prunes, reopens. Stops when the power is gone.
void run_script(StoreBox& box, Acknowledged& told) {
  const auto off = [&] { return !box.fs.has_power(); };
  const auto try_put = [&](const std::string& name) {
    told.entries.emplace(name, State::kMaybe);
    const auto done = put(*box.store, script_entry(name));
    if (done.ok() && *done) told.entries[name] = State::kThere;
  };
  if (!box.open().ok() || off()) return;
  for (int i = 0; i < 5 && !off(); ++i) try_put("a" + std::to_string(i));
  for (int i = 0; i < 3 && !off(); ++i) try_put("temp" + std::to_string(i));
  if (off()) return;
  Failure failure;
  failure.key = script_entry("failed").manifest.key;
  failure.kind = "graph";
  failure.message = "no";
  ignore_error(box.store->remember_failure(failure), "the power may be gone");
  ignore_error(box.store->pin(script_entry("a0").manifest.key, true), "the power may be gone");
  ignore_error(upload(*box.store, noise(90'000, 4242)), "the power may be gone");
  for (const auto& name : {"a1", "a2"}) {
    ignore_error(box.store->lookup(script_entry(name).manifest.key), "the power may be gone");
  }
  box.settle(1);
  if (off()) return;

  PruneRequest prune;
  prune.filter.name_space = "temp";
  for (auto& [name, state] : told.entries) {
    if (name.starts_with("temp")) state = State::kMaybe;
  }
  const bool pruned = box.store->prune(prune).ok() && !off();
  for (auto& [name, state] : told.entries) {
    if (pruned && name.starts_with("temp")) state = State::kRemoved;
  }
  if (off()) return;

  // Closed and opened: RocksDB turns its log into tables.
  if (!box.open().ok() || off()) return;
  for (int i = 5; i < 8 && !off(); ++i) try_put("a" + std::to_string(i));
  if (off()) return;
  // Eviction of all but the pinned one.
  for (auto& [name, state] : told.entries) {
    if (name != "a0" && state == State::kThere) state = State::kMaybe;
  }
  auto tight = box.options;
  tight.max_entries = 2;
  box.store->set_limits(tight);
  box.settle(2);
  box.store->set_limits(box.options);
  for (int i = 8; i < 10 && !off(); ++i) try_put("a" + std::to_string(i));
  if (!off()) ignore_error(box.store->flush(), "the power may be gone");
  box.store.reset();
}

PowerCut cut_of(std::uint64_t number) {
  PowerCut cut;
  cut.seed = number;
  constexpr PowerCut::Data kData[] = {PowerCut::Data::kDropAll,    PowerCut::Data::kFirstBytes,
                                      PowerCut::Data::kRandom,     PowerCut::Data::kKeepAll,
                                      PowerCut::Data::kFirstBytes, PowerCut::Data::kZeroed};
  constexpr PowerCut::Names kNames[] = {PowerCut::Names::kDropAll, PowerCut::Names::kRandom,
                                        PowerCut::Names::kKeepAll};
  cut.data = kData[number % 6];
  cut.names = kNames[number / 6 % 3];
  cut.bytes = number * 2654435761U % 3000;
  return cut;
}

void prepare(StoreBox& box) {
  box.options.max_bytes = 64 << 20;
  box.options.orphan_grace_ms = 3'600'000;
}

TEST(PowerCutTest, AtAnyWrite) {
  log::set_level(log::Level::kOff);
  std::uint64_t changes = 0;
  {
    StoreBox box;
    prepare(box);
    Acknowledged told;
    run_script(box, told);
    ASSERT_TRUE(box.fs.has_power());
    changes = box.fs.changes();
    ASSERT_TRUE(box.open().ok());
    check_after_crash(box.fs, *box.store, box.options.dir, told, "no cut");
    EXPECT_EQ(told.entries["a9"], State::kThere);
    EXPECT_EQ(told.entries["temp1"], State::kRemoved);
  }
  ASSERT_GT(changes, 200);
  for (int i = 0; i < kCuts; ++i) {
    const auto at = 1 + static_cast<std::uint64_t>(i) * changes / kCuts;
    const auto where = "cut " + std::to_string(i) + " before change " + std::to_string(at);
    StoreBox box;
    prepare(box);
    Acknowledged told;
    box.fs.power_cut_at(at, cut_of(static_cast<std::uint64_t>(i)));
    run_script(box, told);
    box.store.reset();
    box.fs.power_on();
    box.fs.power_cut(cut_of(static_cast<std::uint64_t>(i)));  // of a script that came to its end
    const auto opened = box.open();
    ASSERT_TRUE(opened.ok()) << where << ": " << opened.error().text();
    EXPECT_EQ(box.store->health().problem, "") << where;
    check_after_crash(box.fs, *box.store, box.options.dir, told, where);
    if (::testing::Test::HasFailure()) return;
  }
}

// The writes of one publish, cut at every byte that is not yet synced.
TEST(PowerCutTest, AtEveryByteOfAPublish) {
  log::set_level(log::Level::kOff);
  const auto entry = script_entry("a1");
  const auto before = script_entry("a4");
  // The call that syncs the log for the publish: the last sync of it.
  const auto run = [&](StoreBox& box, std::uint64_t syncs) {
    prepare(box);
    ASSERT_TRUE(box.open().ok());
    ASSERT_TRUE(box.put(before));
    for (const auto& bytes : entry.contents) ASSERT_TRUE(upload(*box.store, bytes).ok());
    if (syncs != 0) {
      FakeFileSystem::Failure failure;
      failure.call = FakeFileSystem::Call::kSync;
      failure.error = Error{Code::kIo, "the power goes here", ""};
      failure.times = 1000;
      box.fs.fail(failure);
    }
    const auto published = box.store->publish(entry.manifest);
    EXPECT_EQ(published.ok(), syncs == 0);
  };
  std::uint64_t bytes = 0;
  {
    StoreBox box;
    run(box, 1);
    bytes = box.fs.unsynced_bytes();
    box.fs.clear_failures();
    box.fs.power_cut();
  }
  ASSERT_GT(bytes, 500);
  // The record of the publish comes last; what is before it is cut at fewer places.
#ifdef NC_SANITIZED
  constexpr std::uint64_t kStep = 61;
#else
  constexpr std::uint64_t kStep = 9;
#endif
  std::set<std::uint64_t> places{bytes, bytes + 1};
  const auto fine = bytes - std::min<std::uint64_t>(bytes, 1600);
  for (std::uint64_t i = fine; i < bytes; i += kStep) places.insert(i);
  for (std::uint64_t i = 0; i < fine; i += fine / 20 + 1) places.insert(i);
  int kept = 0;
  for (const auto i : places) {
    const auto where = "after " + std::to_string(i) + " of " + std::to_string(bytes) + " bytes";
    StoreBox box;
    run(box, 1);
    box.fs.clear_failures();
    PowerCut cut;
    cut.data = PowerCut::Data::kFirstBytes;
    cut.bytes = i;
    box.fs.power_cut(cut);
    box.store.reset();
    const auto opened = box.open();
    ASSERT_TRUE(opened.ok()) << where << ": " << opened.error().text();
    EXPECT_EQ(box.get(before), "hit") << where;
    const auto got = box.get(entry);
    EXPECT_TRUE(got == "hit" || got == "miss") << where << ": " << got;
    kept += got == "hit" ? 1 : 0;
    EXPECT_TRUE(verify_all(*box.store)->bad.empty()) << where;
    if (got == "miss") {
      EXPECT_TRUE(box.put(entry));
    }
    EXPECT_EQ(box.get(entry), "hit") << where;
    if (::testing::Test::HasFailure()) return;
  }
  // The last cuts lose nothing; the first ones must.
  EXPECT_GE(kept, 1);
  EXPECT_LT(kept, 20);
}

}  // namespace
}  // namespace nc
