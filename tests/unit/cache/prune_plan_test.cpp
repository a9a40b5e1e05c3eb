#include "cache/prune_plan.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "cache/eviction.hpp"
#include "tests/unit/cache/policy_helpers.hpp"

namespace nc {
namespace {

using test::Dice;
using test::key_of;

constexpr Millis kNow = 1'700'000'000'000;
constexpr Millis kDay = 86'400'000;

EntryInfo entry(std::uint64_t i) {
  EntryInfo e;
  e.key = key_of(i);
  e.kind = "graph";
  e.name_space = "default";
  e.compiler = "inductor 2.13.0";
  e.model = "Llama-3";
  e.bytes = 1000;
  e.build_ms = 1000 * (i + 1);
  e.created_ms = kNow - static_cast<Millis>(i) * kDay;
  e.used_ms = e.created_ms;
  e.uses = 1;
  return e;
}

std::vector<ActionKey> keys(const std::vector<EntryInfo>& entries) {
  std::vector<ActionKey> out;
  for (const EntryInfo& e : entries) out.push_back(e.key);
  return out;
}

EntryFilter older_than(double seconds) {
  EntryFilter f;
  f.older_than_s = seconds;
  return f;
}

EntryFilter unused_since(double seconds) {
  EntryFilter f;
  f.unused_since_s = seconds;
  return f;
}

TEST(Prune, EachFilterMatchesWhatItSays) {
  const EntryInfo e = entry(3);  // three days old
  const auto with = [&](auto set) {
    EntryFilter f;
    set(f);
    return matches(f, e, kNow);
  };
  EXPECT_TRUE(matches({}, e, kNow));
  EXPECT_TRUE(with([](auto& f) { f.name_space = "default"; }));
  EXPECT_FALSE(with([](auto& f) { f.name_space = "def"; }));
  EXPECT_TRUE(with([](auto& f) { f.compiler = "INDUCTOR 2.1"; }));
  EXPECT_FALSE(with([](auto& f) { f.compiler = "neuronx"; }));
  EXPECT_TRUE(with([](auto& f) { f.model = "llama"; }));
  EXPECT_TRUE(with([](auto& f) { f.model = ""; }));
  EXPECT_FALSE(with([](auto& f) { f.kind = "grap"; }));
  EXPECT_TRUE(with([](auto& f) { f.older_than_s = 3 * 86400; }));
  EXPECT_FALSE(with([](auto& f) { f.older_than_s = 3 * 86400 + 1; }));
  EXPECT_TRUE(with([](auto& f) { f.unused_since_s = 86400; }));
  EXPECT_TRUE(with([](auto& f) { f.failed = false; }));
  EXPECT_FALSE(with([](auto& f) { f.failed = true; }));
  EntryInfo used = e;
  used.used_ms = kNow - 10;
  EXPECT_FALSE(matches(unused_since(1), used, kNow));
  used.used_ms = 0;  // never: counts from when it was made
  EXPECT_FALSE(matches(unused_since(4 * 86400), used, kNow));
  used.created_ms = kNow + kDay;  // the clock went back
  EXPECT_FALSE(matches(older_than(1), used, kNow));
  EXPECT_TRUE(matches(older_than(0), used, kNow));
}

TEST(Prune, DurationsAreChecked) {
  EXPECT_TRUE(check_filter({}).ok());
  EXPECT_TRUE(check_filter(older_than(0)).ok());
  EXPECT_TRUE(check_filter(older_than(-1)).is(Code::kInvalid));
  EXPECT_TRUE(check_filter(unused_since(std::nan(""))).is(Code::kInvalid));
}

TEST(Prune, BoundsKeepTheDearest) {
  std::vector<EntryInfo> entries;
  for (std::uint64_t i = 0; i < 10; ++i) entries.push_back(entry(i));
  PruneRequest request;
  request.max_entries = 7;
  PruneResult result = plan_prune(entries, request, kNow);
  EXPECT_EQ(keys(result.removed), (std::vector{key_of(0), key_of(1), key_of(2)}));
  EXPECT_EQ(result.bytes, 3000u);
  EXPECT_DOUBLE_EQ(result.rebuild_seconds, 1 + 2 + 3);

  request.max_bytes = 2500;  // the tighter of both
  result = plan_prune(entries, request, kNow);
  EXPECT_EQ(result.removed.size(), 8u);
  request.max_bytes = 10'000;
  request.max_entries = 10;
  EXPECT_TRUE(plan_prune(entries, request, kNow).removed.empty());
  EXPECT_EQ(plan_prune(entries, {}, kNow).removed.size(), 10u);
  EXPECT_TRUE(plan_prune({}, {}, kNow).removed.empty());
}

TEST(Prune, PinnedAndUsedEntriesStayAndAreNamed) {
  std::vector<EntryInfo> entries{entry(0), entry(1), entry(2), entry(3)};
  entries[0].pinned = true;
  entries[1].in_use = true;
  entries[3].pinned = true;  // the dearest: its turn does not come
  PruneRequest request;
  request.max_entries = 3;
  const PruneResult result = plan_prune(entries, request, kNow);
  EXPECT_EQ(keys(result.removed), (std::vector{key_of(2)}));
  ASSERT_EQ(result.kept.size(), 2u);
  EXPECT_EQ(result.kept[0].why, "pinned");
  EXPECT_EQ(result.kept[1].why, "in_use");
  EXPECT_EQ(result.kept[1].key, key_of(1));
}

TEST(Prune, SharedBlobsCountOnceAndOnlyWhenTheLastOneGoes) {
  const std::vector<EntryInfo> entries{entry(0), entry(1), entry(2)};
  const Digest shared = key_of(100);   // of 0 and 1
  const Digest foreign = key_of(101);  // of 0 and of something that does not match
  const BlobsOf blobs_of = [&](const ActionKey& key) -> std::vector<BlobUse> {
    if (key == key_of(0)) return {{shared, 500, 2}, {foreign, 90, 2}};
    if (key == key_of(1)) return {{shared, 500, 2}, {key_of(102), 7, 1}};
    return {{key_of(103), 30, 1}};
  };
  PruneRequest request;
  request.max_entries = 2;
  EXPECT_EQ(plan_prune(entries, request, kNow, blobs_of).bytes, 0u);
  request.max_entries = 1;
  EXPECT_EQ(plan_prune(entries, request, kNow, blobs_of).bytes, 507u);
  // 627 bytes are held; without entry 0 it is 537, without entry 1 as well 30.
  request = {};
  request.max_bytes = 537;
  EXPECT_EQ(plan_prune(entries, request, kNow, blobs_of).removed.size(), 1u);
  request.max_bytes = 536;
  EXPECT_EQ(plan_prune(entries, request, kNow, blobs_of).removed.size(), 2u);
}

// ---- Against a reference that tries every step from scratch ----

struct World {
  std::vector<EntryInfo> entries;
  std::map<ActionKey, std::vector<Digest>> blobs;
  std::map<Digest, std::uint64_t> sizes;

  std::uint64_t disk(const std::set<ActionKey>& of) const {
    std::set<Digest> distinct;
    for (const ActionKey& key : of) {
      const auto& list = blobs.at(key);
      distinct.insert(list.begin(), list.end());
    }
    std::uint64_t sum = 0;
    for (const Digest& d : distinct) sum += sizes.at(d);
    return sum;
  }
};

World make_world(Dice& dice) {
  const char* const compilers[] = {"inductor 2.13.0", "inductor 2.12.1", "neuronx-cc 2.20"};
  const char* const spaces[] = {"default", "a", "b"};
  World w;
  for (std::uint64_t i = 0; i < 30; ++i) w.sizes[key_of(1000 + i)] = dice.below(100'000);
  for (std::uint64_t i = 0; i < dice.below(40); ++i) {
    EntryInfo e = entry(i);
    e.compiler = dice.pick(compilers);
    e.name_space = dice.pick(spaces);
    e.model = dice.one_in(2) ? "llama" : "";
    e.bytes = dice.below(4) * 50'000;
    e.build_ms = dice.below(5) * 1000;
    e.uses = dice.below(3);
    e.created_ms = kNow - static_cast<Millis>(dice.below(10)) * kDay;
    e.used_ms = e.created_ms + static_cast<Millis>(dice.below(3)) * kDay;
    e.pinned = dice.one_in(8);
    e.in_use = dice.one_in(8);
    e.failed = dice.one_in(5);
    auto& blobs = w.blobs[e.key];
    for (std::uint64_t b = 0; b < 30; ++b) {
      if (dice.one_in(10)) blobs.push_back(key_of(1000 + b));
    }
    w.entries.push_back(e);
  }
  return w;
}

PruneRequest make_request(Dice& dice) {
  PruneRequest r;
  if (dice.one_in(4)) r.filter.name_space = "a";
  if (dice.one_in(4)) r.filter.compiler = "2.13";
  if (dice.one_in(4)) r.filter.model = "LLAMA";
  if (dice.one_in(6)) r.filter.failed = dice.one_in(2);
  if (dice.one_in(4)) r.filter.older_than_s = static_cast<double>(dice.below(10)) * 86400;
  if (dice.one_in(4)) r.filter.unused_since_s = static_cast<double>(dice.below(10)) * 86400;
  if (dice.one_in(2)) r.max_bytes = dice.below(2'000'000);
  if (dice.one_in(3)) r.max_entries = dice.below(30);
  return r;
}

TEST(Prune, AgreesWithASlowReference) {
  Dice dice(11);
  for (int round = 0; round < 400; ++round) {
    const World w = make_world(dice);
    const PruneRequest request = make_request(dice);
    std::set<ActionKey> all, matching;
    std::vector<EntryInfo> candidates;
    for (const EntryInfo& e : w.entries) {
      all.insert(e.key);
      if (!matches(request.filter, e, kNow)) continue;
      matching.insert(e.key);
      candidates.push_back(e);
    }
    // One at a time: the cheapest of what is left, while a bound does not hold.
    std::set<ActionKey> removed, kept;
    double seconds = 0;
    while (!candidates.empty()) {
      const bool bounded = request.max_bytes || request.max_entries;
      const bool over = (request.max_bytes && w.disk(matching) > *request.max_bytes) ||
                        (request.max_entries && matching.size() > *request.max_entries);
      if (bounded && !over) break;
      const auto cheapest = std::min_element(
          candidates.begin(), candidates.end(), [](const EntryInfo& a, const EntryInfo& b) {
            const auto rank = [](const EntryInfo& e) {
              return std::tuple(rebuild_value(e.build_ms, e.uses, e.bytes), e.used_ms, e.key);
            };
            return rank(a) < rank(b);
          });
      if (cheapest->pinned || cheapest->in_use) {
        kept.insert(cheapest->key);
      } else {
        removed.insert(cheapest->key);
        matching.erase(cheapest->key);
        if (!cheapest->failed) seconds += static_cast<double>(cheapest->build_ms) / 1000;
      }
      candidates.erase(cheapest);
    }
    std::set<ActionKey> survivors = all;
    for (const ActionKey& key : removed) survivors.erase(key);

    const auto blobs_of = [&](const ActionKey& key) {
      std::vector<BlobUse> uses;
      for (const Digest& d : w.blobs.at(key)) {
        std::uint64_t refs = 0;
        for (const auto& [other, list] : w.blobs) {
          refs += static_cast<std::uint64_t>(std::count(list.begin(), list.end(), d));
        }
        uses.push_back({d, w.sizes.at(d), refs});
      }
      return uses;
    };
    const PruneResult result = plan_prune(w.entries, request, kNow, blobs_of);
    const auto removed_keys = keys(result.removed);
    ASSERT_EQ(std::set(removed_keys.begin(), removed_keys.end()), removed) << round;
    std::set<ActionKey> kept_keys;
    for (const auto& k : result.kept) kept_keys.insert(k.key);
    ASSERT_EQ(kept_keys, kept);
    ASSERT_EQ(result.bytes, w.disk(all) - w.disk(survivors));
    ASSERT_DOUBLE_EQ(result.rebuild_seconds, seconds);
  }
}

}  // namespace
}  // namespace nc
