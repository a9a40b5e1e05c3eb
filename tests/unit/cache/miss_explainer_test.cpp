#include "cache/miss_explainer.hpp"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/cache/policy_helpers.hpp"

namespace nc {
namespace {

using test::key_of;
using ::testing::HasSubstr;
using ::testing::SizeIs;

KeyParts base_parts() {
  return {{"compiler", "inductor 2.13.0"}, {"flags", "-O1"}, {"graph", "g1"}, {"isa", "avx2"}};
}

KeyParts with(KeyParts parts, const std::string& name, const std::string& value) {
  for (auto& part : parts) {
    if (part.first == name) part.second = value;
  }
  return parts;
}

class MissExplainerTest : public ::testing::Test {
 protected:
  void store(std::uint64_t i, const KeyParts& parts, const std::string& label = "llama fw") {
    explainer_.remember(key_of(i), "graph", label, parts);
    stored_[key_of(i)] = {parts, static_cast<Millis>(1000 + i), "host-" + std::to_string(i)};
  }
  Miss ask(const KeyParts& parts, std::uint64_t key = 999, const std::string& kind = "graph") {
    Request request;
    request.key = key_of(key);
    request.kind = kind;
    request.label = "llama fw";
    request.parts = parts;
    return explainer_.explain(request, [this](const ActionKey& k) {
      const auto it = stored_.find(k);
      return it == stored_.end() ? std::nullopt : std::optional(it->second);
    });
  }

  MissExplainer explainer_;
  std::map<ActionKey, MissExplainer::Known> stored_;
};

TEST_F(MissExplainerTest, NothingKnown) {
  const Miss miss = ask(base_parts());
  EXPECT_EQ(miss.cause, "never_built");
  EXPECT_FALSE(miss.nearest);
  EXPECT_EQ(ask({}).cause, "never_built");
}

TEST_F(MissExplainerTest, NamesTheOnePartThatDiffers) {
  store(1, base_parts());
  store(2, with(with(base_parts(), "graph", "g2"), "isa", "avx512"));
  const Miss miss = ask(with(base_parts(), "flags", "-O2"));
  EXPECT_EQ(miss.cause, "parts_differ");
  ASSERT_TRUE(miss.nearest);
  EXPECT_EQ(miss.nearest->key, key_of(1));
  EXPECT_EQ(miss.nearest->created_ms, 1001);
  EXPECT_EQ(miss.nearest->host, "host-1");
  ASSERT_THAT(miss.nearest->differs, SizeIs(1));
  EXPECT_EQ(miss.nearest->differs[0].name, "flags");
  EXPECT_EQ(miss.nearest->differs[0].wanted, "-O2");
  EXPECT_EQ(miss.nearest->differs[0].have, "-O1");
}

TEST_F(MissExplainerTest, FarEntriesAndOtherKindsExplainNothing) {
  store(1, {{"compiler", "inductor 2.13.0"}, {"flags", "x"}, {"graph", "y"}, {"isa", "z"}});
  EXPECT_EQ(ask(base_parts()).cause, "never_built");
  store(2, with(base_parts(), "flags", "-O3"));
  EXPECT_EQ(ask(base_parts(), 999, "neff").cause, "never_built");
  EXPECT_EQ(ask(base_parts()).cause, "parts_differ");
}

TEST_F(MissExplainerTest, BetweenEqualsSameLabelThenSeenLast) {
  store(1, with(base_parts(), "flags", "a"), "llama fw");
  store(2, with(base_parts(), "flags", "b"), "llama fw");
  store(3, with(base_parts(), "flags", "c"), "bert");
  EXPECT_EQ(ask(base_parts()).nearest->key, key_of(2));
  explainer_.seen(key_of(1));
  EXPECT_EQ(ask(base_parts()).nearest->key, key_of(1));
}

TEST_F(MissExplainerTest, TellsWhatBecameOfAKey) {
  store(1, base_parts());
  for (const auto& [cause, name] : {std::pair{RemovalCause::kEvicted, "evicted"},
                                    {RemovalCause::kPruned, "pruned"},
                                    {RemovalCause::kCorrupt, "corrupt"},
                                    {RemovalCause::kFailureExpired, "failure_expired"}}) {
    explainer_.removed(key_of(1), cause);
    EXPECT_EQ(ask(base_parts(), 1).cause, name);
    EXPECT_EQ(explainer_.removal(key_of(1)), cause);
  }
  EXPECT_EQ(explainer_.size(), 0u);
  store(1, base_parts());  // built again
  EXPECT_FALSE(explainer_.removal(key_of(1)));
}

TEST_F(MissExplainerTest, AnEntryThatIsGoneIsForgottenAndTheNextIsTold) {
  store(1, with(base_parts(), "flags", "a"));
  store(2, with(base_parts(), "flags", "b"));
  stored_.erase(key_of(2));
  EXPECT_EQ(ask(base_parts()).nearest->key, key_of(1));
  EXPECT_EQ(explainer_.size(), 1u);
}

TEST_F(MissExplainerTest, MemoryIsBounded) {
  explainer_ = MissExplainer({.max_part_hashes = 40, .max_entries = 8, .max_removed = 5});
  for (std::uint64_t i = 0; i < 100; ++i) {
    store(i, with(base_parts(), "flags", std::to_string(i)));
    EXPECT_LE(explainer_.size(), 8u);
    EXPECT_LE(explainer_.part_hashes(), 40u);
  }
  EXPECT_EQ(ask(base_parts()).nearest->key, key_of(99));
  store(1, {{"a", ""}, {"b", ""}, {"c", ""}});
  EXPECT_LE(explainer_.part_hashes(), 40u);
  for (std::uint64_t i = 0; i < 100; ++i) explainer_.removed(key_of(i), RemovalCause::kEvicted);
  EXPECT_FALSE(explainer_.removal(key_of(94)));
  EXPECT_TRUE(explainer_.removal(key_of(95)));
  EXPECT_EQ(explainer_.size(), 0u);
  EXPECT_EQ(explainer_.part_hashes(), 0u);
}

TEST_F(MissExplainerTest, RememberingTwiceCountsOnce) {
  store(1, base_parts());
  store(1, base_parts());
  EXPECT_EQ(explainer_.size(), 1u);
  EXPECT_EQ(explainer_.part_hashes(), 4u);
}

TEST(CompareParts, BothSidesAndLongValues) {
  const auto rows = compare_parts({{"a", "1"}, {"b", "2"}, {"long", std::string(5000, 'x')}},
                                  {{"b", "2"}, {"c", ""}, {"long", std::string(5000, 'y')}});
  ASSERT_THAT(rows, SizeIs(3));
  EXPECT_EQ(rows[0].have, "(absent)");
  EXPECT_LE(rows[1].wanted.size(), 200u);
  EXPECT_THAT(rows[1].wanted, HasSubstr("bytes left out"));
  EXPECT_EQ(rows[2].name, "c");
  EXPECT_EQ(rows[2].wanted, "(absent)");
  EXPECT_EQ(rows[2].have, "");
  EXPECT_TRUE(compare_parts({{"a", "1"}}, {{"a", "1"}}).empty());
}

TEST(CompareParts, ManyRowsAreCut) {
  KeyParts wanted;
  for (int i = 0; i < 40; ++i) wanted.emplace_back("p" + std::to_string(i), "x");
  const auto rows = compare_parts(wanted, {});
  ASSERT_THAT(rows, SizeIs(17));
  EXPECT_EQ(rows.back().name, "(more)");
  EXPECT_THAT(rows.back().wanted, HasSubstr("24"));
}

}  // namespace
}  // namespace nc
