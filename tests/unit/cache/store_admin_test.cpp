// Listing, prune, pins, failures, misses, counters.
#include <algorithm>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "tests/unit/cache/store_box.hpp"

namespace nc {
namespace {

class StoreAdminTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(box.open().ok()); }

  TestEntry add(const std::string& name, const std::string& name_space, std::uint64_t build_ms) {
    auto entry = make_entry(name, {noise(80'000, build_ms), name}, build_ms);
    entry.manifest.name_space = name_space;
    entry.manifest.created_ms = box.clock.wall_ms();
    EXPECT_TRUE(box.put(entry));
    return entry;
  }
  Failure failure_of(const std::string& name) {
    Failure failure;
    failure.key = make_entry(name, {}).manifest.key;
    failure.kind = "graph";
    failure.compiler = "test 1.0";
    failure.message = "unsupported operator";
    failure.log = "line 1\nline 2";
    failure.exit_code = 70;
    return failure;
  }
  std::string cause(const ActionKey& key) {
    Request request;
    request.key = key;
    return box.store->explain_miss(request)->cause;
  }

  StoreBox box;
};

TEST_F(StoreAdminTest, ListsByKeyInPages) {
  std::vector<std::string> keys;
  for (int i = 0; i < 25; ++i) {
    keys.push_back(
        add("e" + std::to_string(i), i % 2 == 0 ? "even" : "odd", 100).manifest.key.hex());
  }
  std::sort(keys.begin(), keys.end());
  std::vector<std::string> seen;
  std::string after;
  while (true) {
    const auto page = box.store->entries({}, after, 10);
    ASSERT_TRUE(page.ok());
    if (page->empty()) break;
    for (const auto& entry : *page) seen.push_back(entry.key.hex());
    after = seen.back();
  }
  EXPECT_EQ(seen, keys);
  EntryFilter odd;
  odd.name_space = "odd";
  const auto page = box.store->entries(odd, "", 100);
  EXPECT_EQ(page->size(), 12);
  EXPECT_EQ(page->front().name_space, "odd");
  EXPECT_TRUE(page->front().label.starts_with("label of e"));
  EXPECT_TRUE(box.store->entries({}, "zz", 10).is(Code::kInvalid));
  EXPECT_TRUE(box.store->entry("").is(Code::kInvalid));
  EXPECT_TRUE(box.store->entry("XYZ").is(Code::kInvalid));
  EXPECT_EQ(box.store->entry(keys[3].substr(0, 20))->key.hex(), keys[3]);
  // Twenty-five keys and sixteen first digits: one of them is shared.
  bool ambiguous = false;
  for (const char digit : std::string("0123456789abcdef")) {
    ambiguous = ambiguous || box.store->entry(std::string(1, digit)).is(Code::kConflict);
  }
  EXPECT_TRUE(ambiguous);
}

TEST_F(StoreAdminTest, DryRunShowsExactlyWhatPruneDoes) {
  for (int i = 0; i < 10; ++i) {
    add("e" + std::to_string(i), i < 5 ? "a" : "b", 1000 * (static_cast<std::uint64_t>(i) + 1));
  }
  PruneRequest request;
  request.filter.name_space = "b";
  request.max_entries = 2;
  request.dry_run = true;
  const auto before = box.fs.changes();
  const auto plan = box.store->prune(request);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(box.fs.changes(), before);
  ASSERT_EQ(plan->removed.size(), 3);
  EXPECT_DOUBLE_EQ(plan->rebuild_seconds, 6 + 7 + 8);
  EXPECT_GE(plan->bytes, 3 * 80'000);
  EXPECT_TRUE(plan->removed[0].label.starts_with("label of"));
  const auto used = box.fs.used();
  request.dry_run = false;
  const auto done = box.store->prune(request);
  ASSERT_TRUE(done.ok());
  EXPECT_EQ(done->bytes, plan->bytes);
  ASSERT_EQ(done->removed.size(), plan->removed.size());
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(done->removed[i].key, plan->removed[i].key);
    EXPECT_EQ(cause(done->removed[i].key), "pruned");
  }
  EXPECT_LE(box.fs.used() + 3 * 79'000, used);  // at once, on the disk; the log grew a little
  EXPECT_EQ(box.store->size().entries, 7);
  EXPECT_EQ(box.store->counters("b")["pruned"], 3);
  ASSERT_TRUE(box.open().ok());
  EXPECT_EQ(box.store->size().entries, 7);
  EXPECT_EQ(cause(done->removed[0].key), "pruned");
}

TEST_F(StoreAdminTest, PruneKeepsPinnedAndUsedAndSaysSo) {
  const auto pinned = add("pinned", "a", 1);
  const auto used = add("used", "a", 2);
  const auto other = add("other", "a", 3);
  ASSERT_TRUE(box.store->pin(pinned.manifest.key, true).ok());
  const auto hold = box.store->hold(used.manifest.key);
  const auto pruned = box.store->prune({});
  ASSERT_TRUE(pruned.ok());
  ASSERT_EQ(pruned->removed.size(), 1);
  EXPECT_EQ(pruned->removed[0].key, other.manifest.key);
  ASSERT_EQ(pruned->kept.size(), 2);
  std::map<std::string, std::string> why;
  for (const auto& kept : pruned->kept) why[kept.key.hex()] = kept.why;
  EXPECT_EQ(why[pinned.manifest.key.hex()], "pinned");
  EXPECT_EQ(why[used.manifest.key.hex()], "in_use");
}

TEST_F(StoreAdminTest, OrphansHaveTheirGrace) {
  const auto big = noise(100'000, 1);
  ASSERT_TRUE(upload(*box.store, big).ok());
  ASSERT_TRUE(upload(*box.store, "small orphan").ok());
  EXPECT_EQ(box.store->prune({})->swept_bytes, 0);
  EXPECT_TRUE(*box.store->has_blob(Sha256::of(as_bytes(big))));
  box.clock.advance(box.options.orphan_grace_ms + 1);
  PruneRequest dry;
  dry.dry_run = true;
  const auto plan = box.store->prune(dry);
  EXPECT_GE(plan->swept_bytes, 100'000);
  const auto pruned = box.store->prune({});
  EXPECT_EQ(pruned->swept_bytes, plan->swept_bytes);
  EXPECT_FALSE(*box.store->has_blob(Sha256::of(as_bytes(big))));
  EXPECT_FALSE(*box.store->has_blob(Sha256::of(as_bytes("small orphan"))));
  EXPECT_EQ(box.store->size().blobs, 0);
}

TEST_F(StoreAdminTest, OrphansOfAnEarlierProcessAreSwept) {
  const auto big = noise(100'000, 1);
  ASSERT_TRUE(upload(*box.store, big).ok());
  ASSERT_TRUE(upload(*box.store, "small orphan").ok());
  // Behind our back: a stray file, and a blob that nobody recorded.
  ASSERT_TRUE(
      box.fs.write_atomically("/data/store/cas/00/00/junk", as_bytes("x")).is(Code::kNotFound));
  ASSERT_TRUE(box.fs.make_dirs("/data/store/cas/00/00").ok());
  ASSERT_TRUE(box.fs.write_atomically("/data/store/cas/00/00/junk", as_bytes("x")).ok());
  const auto stray = noise(70'000, 2);
  ASSERT_TRUE(box.fs.make_dirs(parent_dir(box.blob_path(stray))).ok());
  ASSERT_TRUE(box.fs.write_atomically(box.blob_path(stray), as_bytes(stray)).ok());
  ASSERT_TRUE(box.open().ok());
  EXPECT_EQ(verify_all(*box.store)->orphans, 0);
  EXPECT_EQ(box.store->prune({})->swept_bytes, 0);
  // A clock that went back makes nothing older.
  box.clock.jump_wall(-10 * box.options.orphan_grace_ms);
  EXPECT_EQ(box.store->prune({})->swept_bytes, 0);
  box.clock.jump_wall(11 * box.options.orphan_grace_ms + 1);
  EXPECT_EQ(verify_all(*box.store)->orphans, 4);
  // The background sweep finds them, too: one shard at a call.
  box.settle(320);
  EXPECT_EQ(verify_all(*box.store)->orphans, 0);
  EXPECT_TRUE(box.fs.stat(box.blob_path(stray)).is(Code::kNotFound));
  EXPECT_TRUE(box.fs.stat("/data/store/cas/00/00/junk").is(Code::kNotFound));
}

TEST_F(StoreAdminTest, FailuresAreRememberedForTheirTime) {
  const auto failure = failure_of("bad");
  ASSERT_TRUE(box.store->remember_failure(failure).ok());
  auto found = box.store->failure(failure.key);
  ASSERT_TRUE(found.ok() && found->has_value());
  EXPECT_EQ((*found)->message, "unsupported operator");
  EXPECT_EQ((*found)->log, "line 1\nline 2");
  EXPECT_EQ((*found)->expires_ms, box.clock.wall_ms() + box.options.failure_ttl_ms);
  EXPECT_FALSE(box.store->lookup(failure.key)->has_value());
  EXPECT_FALSE(box.store->peek(failure.key)->has_value());
  EXPECT_TRUE(box.store->entry(failure.key.hex())->failed);
  ASSERT_TRUE(box.open().ok());
  EXPECT_TRUE(box.store->failure(failure.key)->has_value());
  // Only time that really passed ends it.
  box.clock.jump_wall(10 * box.options.failure_ttl_ms);
  EXPECT_TRUE(box.store->failure(failure.key)->has_value());
  box.clock.jump_wall(-20 * box.options.failure_ttl_ms);
  box.clock.advance(box.options.failure_ttl_ms - 1);
  EXPECT_TRUE(box.store->failure(failure.key)->has_value());
  box.clock.advance(1);
  EXPECT_FALSE(box.store->failure(failure.key)->has_value());
  box.store->maintain();
  EXPECT_EQ(box.store->size().entries, 0);
  EXPECT_EQ(cause(failure.key), "failure_expired");
}

TEST_F(StoreAdminTest, AFailureOfAnEarlierProcessNeverLastsLongerThanItsTime) {
  const auto failure = failure_of("bad");
  ASSERT_TRUE(box.store->remember_failure(failure).ok());
  box.store.reset();
  box.clock.jump_wall(-100 * box.options.failure_ttl_ms);  // the clock went back meanwhile
  ASSERT_TRUE(box.open().ok());
  box.clock.advance(box.options.failure_ttl_ms);
  EXPECT_FALSE(box.store->failure(failure.key)->has_value());
}

TEST_F(StoreAdminTest, SuccessReplacesFailureAndNotTheOtherWayRound) {
  const auto entry = make_entry("flaky", {"bytes"});
  auto failure = failure_of("flaky");
  ASSERT_EQ(failure.key, entry.manifest.key);
  ASSERT_TRUE(box.store->remember_failure(failure).ok());
  ASSERT_TRUE(box.put(entry));
  EXPECT_EQ(box.get(entry), "hit");
  EXPECT_FALSE(box.store->failure(failure.key)->has_value());
  ASSERT_TRUE(box.store->remember_failure(failure).ok());
  EXPECT_EQ(box.get(entry), "hit");
  ASSERT_TRUE(box.open().ok());
  EXPECT_EQ(box.get(entry), "hit");
  EXPECT_EQ(box.store->size().entries, 1);
}

TEST_F(StoreAdminTest, PassingFailuresAreForgotten) {
  auto failure = failure_of("oom");
  failure.failure_class = FailureClass::kOutOfMemory;
  ASSERT_TRUE(box.store->remember_failure(failure).ok());
  EXPECT_FALSE(box.store->failure(failure.key)->has_value());
  EXPECT_EQ(box.store->size().entries, 0);
}

TEST_F(StoreAdminTest, MissesAreExplainedAndJournaled) {
  auto known = make_entry("known", {"bytes"});
  known.manifest.parts = {{"compiler", "test 1"}, {"flags", "-O2"}, {"input", "abc"}};
  known.manifest.key = *action_key(known.manifest.parts);
  ASSERT_TRUE(box.put(known));
  for (int round = 0; round < 2; ++round) {
    Request request;
    request.parts = {{"compiler", "test 1"}, {"flags", "-O3"}, {"input", "abc"}};
    request.key = *action_key(request.parts);
    request.kind = "graph";
    request.label = "round " + std::to_string(round);
    const auto miss = box.store->explain_miss(request);
    ASSERT_TRUE(miss.ok());
    EXPECT_EQ(miss->cause, "parts_differ");
    ASSERT_TRUE(miss->nearest.has_value());
    EXPECT_EQ(miss->nearest->key, known.manifest.key);
    EXPECT_EQ(miss->nearest->host, "host");
    ASSERT_EQ(miss->nearest->differs.size(), 1);
    EXPECT_EQ(miss->nearest->differs[0].name, "flags");
    EXPECT_EQ(miss->nearest->differs[0].have, "-O2");
    ASSERT_TRUE(box.open().ok());  // and after a restart
  }
  const auto lines = box.store->misses(10);
  ASSERT_TRUE(lines.ok());
  ASSERT_EQ(lines->size(), 2);
  const auto newest = boost::json::parse(lines->front()).as_object();
  EXPECT_EQ(newest.at("label").as_string(), "round 1");
  EXPECT_EQ(newest.at("cause").as_string(), "parts_differ");
  EXPECT_EQ(newest.at("nearest").as_object().at("differs").as_array().size(), 1);
  EXPECT_EQ(box.store->misses(1)->size(), 1);
}

TEST_F(StoreAdminTest, CountersSurviveAKill) {
  box.store->count("a", "hits", 2);
  box.store->count("b", "hits", 1);
  box.store->count_bypass("b", "no_daemon", 3);
  box.store->maintain();
  box.store->count("a", "hits", 100);  // after the last write: lost with the process
  box.fs.power_cut(PowerCut::process_killed());
  ASSERT_TRUE(box.open().ok());
  EXPECT_EQ(box.store->counters("a")["hits"], 2);
  EXPECT_EQ(box.store->counters("")["hits"], 3);
  EXPECT_EQ(box.store->counters("")["lookups"], 6);
  EXPECT_EQ(box.store->bypass_reasons()["no_daemon"], 3);
  EXPECT_EQ(box.store->namespaces().size(), 2);
  box.store->count("a", "hits", 1);
  ASSERT_TRUE(box.store->flush().ok());
  box.fs.power_cut();
  ASSERT_TRUE(box.open().ok());
  EXPECT_EQ(box.store->counters("a")["hits"], 3);
}

TEST_F(StoreAdminTest, ManyHitsFewWrites) {
  const auto entry = add("hot", "default", 100);
  const auto before = box.fs.calls(FakeFileSystem::Call::kWrite);
  for (int i = 0; i < 2000; ++i) ASSERT_TRUE(box.store->lookup(entry.manifest.key)->has_value());
  EXPECT_EQ(box.fs.calls(FakeFileSystem::Call::kWrite), before);
  box.store->maintain();
  EXPECT_LE(box.fs.calls(FakeFileSystem::Call::kWrite), before + 3);
  ASSERT_TRUE(box.open().ok());
  EXPECT_EQ(box.store->entry(entry.manifest.key.hex())->uses, 2000);
}

TEST_F(StoreAdminTest, KnowsUsualBuildTimes) {
  EXPECT_FALSE(box.store->usual_build_seconds("graph", "label of a").has_value());
  add("a", "default", 4000);
  EXPECT_DOUBLE_EQ(*box.store->usual_build_seconds("graph", "label of a"), 4.0);
  ASSERT_TRUE(box.open().ok());
  EXPECT_DOUBLE_EQ(*box.store->usual_build_seconds("graph", "label of a"), 4.0);
  EXPECT_FALSE(box.store->usual_build_seconds("aot", "label of a").has_value());
}

TEST_F(StoreAdminTest, SizeIsWhatLiesOnTheDisk) {
  for (int i = 0; i < 20; ++i) {
    add("e" + std::to_string(i), "default", 100 + static_cast<std::uint64_t>(i));
  }
  const auto first = box.store->entries({}, "", 1);
  box.fs.flip_bit(box.blob_path(noise(80'000, 100)), 5);
  EXPECT_EQ(box.get(make_entry("e0", {noise(80'000, 100), "e0"}, 100)), "miss");
  PruneRequest half;
  half.max_entries = 10;
  ASSERT_TRUE(box.store->prune(half).ok());
  box.settle();
  // Whole blocks of every file but the lock and the mark.
  std::uint64_t counted = 0;
  const auto add_up = [&](const auto& self, const std::string& dir) -> void {
    const auto names = box.fs.list(dir);
    for (const auto& name : *names) {
      const auto info = box.fs.stat(join(dir, name));
      if (info->is_dir) {
        self(self, join(dir, name));
      } else if (name != "lock" && name != "STORE") {
        counted += (std::max(info->allocated, info->size) + 4095) / 4096 * 4096;
      }
    }
  };
  add_up(add_up, "/data/store");
  EXPECT_NEAR(static_cast<double>(box.store->size().bytes), static_cast<double>(counted), 64'000);
}

}  // namespace
}  // namespace nc
