#include "cache/tier/survey.hpp"

#include <map>

#include <gtest/gtest.h>

#include "cache/tier/layout.hpp"
#include "tests/unit/tier/tier_box.hpp"

namespace nc::tier {
namespace {

using Repair = Survey::Repair;

constexpr Millis kGrace = 24 * 3'600'000;

struct SurveyTest : testing::Test {
  SurveyTest() {
    engine = &a.add(objects, "file:///shared");
    a.connect();
    b.add(objects, "file:///shared");
    b.connect();
    send(one);
    send(two);
  }
  void send(const TestEntry& e) {
    ASSERT_TRUE(a.put(e));
    a.chain->published(e.manifest.key);
    a.deliver();
  }
  Survey survey(TierBox& box) {
    Link* link = box.chain->link("").value();
    return Survey({*link, box.chain->transfer(), *box.store, box.clock, box.random});
  }
  std::string blob(const TestEntry& e) {
    const auto& digest = e.manifest.outputs[0].digest;
    for (const bool compressed : {true, false}) {
      if (objects->get(blob_name(digest, compressed))) return blob_name(digest, compressed);
    }
    return "";
  }

  FakeClock server;
  std::shared_ptr<MemoryObjects> objects = std::make_shared<MemoryObjects>(server);
  TierBox a, b;
  MemoryEngine* engine = nullptr;
  TestEntry one = make_entry("one", {noise(9000, 1)});
  TestEntry two = make_entry("two", {words(9000, 2)});
};

TEST_F(SurveyTest, PullBringsWhatFits) {
  auto page = survey(b).pull({.model = "tiny"}, "", 10, true).value();
  ASSERT_EQ(page.rows.size(), 2U);
  EXPECT_EQ(page.rows[0].state, "found");
  EXPECT_EQ(b.get(one), "miss");
  EXPECT_TRUE(survey(b).pull({.model = "huge"}, "", 10, false).value().rows.empty());
  EXPECT_TRUE(survey(b).pull({.name_space = "other"}, "", 10, false).value().rows.empty());
  const double age = static_cast<double>(b.clock.wall_ms() - one.manifest.created_ms) / 1000;
  EXPECT_TRUE(survey(b).pull({.older_than_s = age + 60}, "", 10, false).value().rows.empty());
  page = survey(b).pull({.compiler = "test", .newer_than_s = age + 60}, "", 10, false).value();
  EXPECT_EQ(page.rows.size(), 2U);
  EXPECT_EQ(page.rows[0].state, "pulled");
  EXPECT_EQ(b.get(one), "hit");
  EXPECT_EQ(b.get(two), "hit");
  EXPECT_EQ(survey(b).pull({}, "", 10, false).value().rows[0].state, "here");
  // In pages.
  page = survey(b).pull({}, "", 1, false).value();
  EXPECT_EQ(page.rows.size(), 1U);
  EXPECT_EQ(survey(b).pull({}, page.next, 1, false).value().rows.size(), 1U);
}

TEST_F(SurveyTest, VerifyFindsWhatCannotBeUsed) {
  EXPECT_TRUE(survey(a).verify("", 10, true, Repair::kNo).value().bad.empty());
  EXPECT_EQ(survey(a).verify("", 10, true, Repair::kNo).value().checked, 4U);
  // Damage of the same size is only seen by a deep look.
  auto bytes = objects->get(blob(one))->bytes;
  bytes[100] = static_cast<char>(bytes[100] ^ 1);
  objects->put(blob(one), bytes);
  EXPECT_TRUE(survey(a).verify("", 10, false, Repair::kNo).value().bad.empty());
  EXPECT_EQ(survey(a).verify("", 10, true, Repair::kNo).value().bad.size(), 1U);
  objects->remove(blob(two));
  EXPECT_EQ(survey(a).verify("", 10, false, Repair::kNo).value().bad.size(), 1U);
  // An entry of another key under this one's name, and one that no reader takes for its size.
  const auto three = make_entry("three", {"x"});
  objects->put(entry_name(three.manifest.key), one.manifest.to_json());
  const auto four = make_entry("four", {"x"});
  objects->put(entry_name(four.manifest.key), std::string(Manifest::kMaxBytes + 1, ' '));
  EXPECT_EQ(survey(a).collect(kGrace, true).value().damaged, 1U);
  EXPECT_EQ(survey(a).prune({.model = "tiny"}, "", 10, true).value().rows.size(), 2U);
  EXPECT_EQ(survey(a).verify("", 10, true, Repair::kDamaged).value().bad.size(), 4U);
  // Repaired: nothing is left that promises what it does not hold.
  EXPECT_TRUE(survey(a).verify("", 10, true, Repair::kNo).value().bad.empty());
  EXPECT_FALSE(objects->get(entry_name(two.manifest.key)));
}

TEST_F(SurveyTest, WhatIsNotTrustedHereIsLeftAloneUnlessToldOtherwise) {
  const auto name = entry_name(one.manifest.key);
  const auto ours = objects->get(name)->bytes;
  const auto three = make_entry("three", {"x"});
  objects->put(entry_name(three.manifest.key), three.manifest.to_json());  // unsigned
  objects->put(name, one.manifest.to_json());                              // so is this ...
  objects->put(entry_name(one.manifest.key, 1), ours);                     // ... before ours
  auto check = survey(a).verify("", 10, true, Repair::kDamaged).value();
  EXPECT_TRUE(check.bad.empty());
  EXPECT_EQ(check.untrusted.size(), 2U);
  EXPECT_TRUE(objects->get(entry_name(three.manifest.key)));
  EXPECT_EQ(objects->get(name)->bytes, one.manifest.to_json());
  // Nor does it make a pull fail, or go with what is pruned.
  std::map<std::string, int> states;
  const auto pulled = survey(b).pull({}, "", 10, false).value();
  for (const auto& row : pulled.rows) ++states[row.state];
  EXPECT_EQ(states, (std::map<std::string, int>{{"pulled", 2}, {"refused", 2}}));
  EXPECT_EQ(survey(a).prune({.model = "tiny"}, "", 10, false).value().rows.size(), 2U);
  EXPECT_EQ(objects->get(name)->bytes, one.manifest.to_json());
  EXPECT_FALSE(objects->get(entry_name(one.manifest.key, 1)));
  check = survey(a).verify("", 10, true, Repair::kUntrusted).value();
  EXPECT_EQ(check.untrusted.size(), 2U);
  EXPECT_TRUE(objects->list(std::string(kEntries), "", 10).objects.empty());
}

TEST_F(SurveyTest, NoHoleIsLeftBeforeAnEntryThatIsGood) {
  const auto name = entry_name(one.manifest.key);
  const auto ours = objects->get(name)->bytes;
  objects->put(name, "garbage");
  objects->put(entry_name(one.manifest.key, 1), one.manifest.to_json());  // unsigned
  objects->put(entry_name(one.manifest.key, 2), ours);
  objects->put(entry_name(one.manifest.key, 3), std::string(Manifest::kMaxBytes + 1, ' '));
  const auto check = survey(a).verify("", 10, true, Repair::kDamaged).value();
  EXPECT_EQ(check.bad.size(), 2U);
  EXPECT_EQ(check.untrusted.size(), 1U);
  EXPECT_EQ(objects->get(name)->bytes, ours);
  EXPECT_TRUE(objects->get(entry_name(one.manifest.key, 1)));
  EXPECT_FALSE(objects->get(entry_name(one.manifest.key, 2)));
  EXPECT_FALSE(objects->get(entry_name(one.manifest.key, 3)));
  EXPECT_TRUE(b.chain->find(one.manifest.key, {}).found);
}

TEST_F(SurveyTest, UnusedBlobsGoAfterTheirGraceAndNoOthers) {
  EXPECT_EQ(survey(a).prune({.model = "tiny"}, "", 1, true).value().rows.size(), 1U);
  objects->remove(entry_name(one.manifest.key));
  auto got = survey(a).collect(kGrace, true).value();
  EXPECT_EQ(got.unused, 1U);
  EXPECT_FALSE(objects->get(mark_name(one.manifest.outputs[0].digest)));
  got = survey(a).collect(kGrace, false).value();
  EXPECT_EQ(got.marked, 1U);
  EXPECT_EQ(got.removed, 0U);
  a.clock.advance(kGrace - 1);
  EXPECT_EQ(survey(a).collect(kGrace, false).value().removed, 0U);
  a.clock.advance(1);
  EXPECT_EQ(survey(a).collect(kGrace, true).value().removed, 1U);
  EXPECT_NE(blob(one), "");
  got = survey(a).collect(kGrace, false).value();
  EXPECT_EQ(got.removed, 1U);
  EXPECT_GE(got.removed_bytes, 9000U);
  EXPECT_EQ(blob(one), "");
  EXPECT_NE(blob(two), "");
  EXPECT_EQ(objects->list(std::string(kMarks), "", 10).objects.size(), 0U);
}

TEST_F(SurveyTest, AWriterAnnouncesWhatItNeedsAgain) {
  objects->remove(entry_name(one.manifest.key));
  ASSERT_EQ(survey(a).collect(kGrace, false).value().marked, 1U);
  a.clock.advance(kGrace);
  // Another host sends the same entry now: its blob is there, and marked.
  ASSERT_TRUE(b.put(one));
  b.chain->published(one.manifest.key);
  b.deliver();
  EXPECT_FALSE(objects->get(mark_name(one.manifest.outputs[0].digest)));
  EXPECT_EQ(survey(a).collect(kGrace, false).value().removed, 0U);
  EXPECT_NE(blob(one), "");
}

TEST_F(SurveyTest, PruneRemovesEntriesThatFit) {
  auto page = survey(a).prune({.model = "tiny"}, "", 10, false).value();
  ASSERT_EQ(page.rows.size(), 2U);
  EXPECT_EQ(page.rows[0].state, "removed");
  EXPECT_TRUE(objects->list(std::string(kEntries), "", 10).objects.empty());
  EXPECT_EQ(survey(a).collect(kGrace, false).value().marked, 2U);
}

TEST_F(SurveyTest, RowsOfLeasesGoWhenNothingChangesInThem) {
  const ActionKey dead = Sha256::of(as_bytes("dead"));
  const ActionKey live = Sha256::of(as_bytes("live"));
  const ActionKey ended = Sha256::of(as_bytes("ended"));
  for (const std::uint64_t fence : {1, 2}) objects->put(lease_name(dead, fence), "whatever");
  objects->put(lease_name(live, 1), "beat 1");
  objects->put(lease_seen_name(ended), "1 1 x");
  auto got = survey(a).collect(kGrace, true).value();
  EXPECT_EQ(got.leases, 2U);
  EXPECT_FALSE(objects->get(lease_seen_name(dead)));
  EXPECT_TRUE(objects->get(lease_seen_name(ended)));
  EXPECT_EQ(survey(a).collect(kGrace, false).value().leases_removed, 0U);
  EXPECT_FALSE(objects->get(lease_seen_name(ended)));
  a.clock.advance(kGrace - 1);
  objects->put(lease_name(live, 1), "beat 2");
  EXPECT_EQ(survey(a).collect(kGrace, false).value().leases_removed, 0U);
  a.clock.advance(1);
  EXPECT_EQ(survey(a).collect(kGrace, true).value().leases_removed, 1U);
  EXPECT_TRUE(objects->get(lease_name(dead, 1)));
  got = survey(a).collect(kGrace, false).value();
  EXPECT_EQ(got.leases, 2U);
  EXPECT_EQ(got.leases_removed, 1U);
  for (const std::uint64_t fence : {1, 2}) EXPECT_FALSE(objects->get(lease_name(dead, fence)));
  EXPECT_TRUE(objects->get(lease_name(live, 1)));
  // A successor begins anew, whatever the wall clock of whoever looks.
  objects->put(lease_name(live, 2), "beat 1");
  objects->put(lease_seen_name(live), "99999999999999 1 x");
  a.clock.advance(kGrace);
  EXPECT_EQ(survey(a).collect(kGrace, false).value().leases_removed, 0U);
  a.clock.advance(kGrace);
  EXPECT_EQ(survey(a).collect(kGrace, false).value().leases_removed, 1U);
  EXPECT_EQ(objects->list(std::string(kLeases), "", 10).objects.size(), 0U);
}

TEST_F(SurveyTest, ATierThatFailsSaysSo) {
  engine->script(Call::kList, {.code = Code::kUnavailable});
  EXPECT_TRUE(survey(a).verify("", 10, false, Repair::kNo).is(Code::kUnavailable));
  engine->script(Call::kGet, {.code = Code::kTimeout});
  EXPECT_TRUE(survey(a).collect(kGrace, false).is(Code::kTimeout));
  EXPECT_NE(blob(one), "");
}

}  // namespace
}  // namespace nc::tier
