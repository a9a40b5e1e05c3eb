#include "cache/eviction.hpp"

#include <algorithm>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/cache/policy_helpers.hpp"

namespace nc {
namespace {

using test::Dice;
using test::key_of;
using ::testing::HasSubstr;

EvictionEntry entry(std::uint64_t i, std::uint64_t bytes, std::uint64_t build_ms,
                    std::string name_space = "default") {
  EvictionEntry e;
  e.key = key_of(i);
  e.name_space = std::move(name_space);
  e.bytes = bytes;
  e.build_ms = build_ms;
  e.uses = 1;
  return e;
}

// The same policy, written to be read: every question looks at everything.
class Reference {
 public:
  struct Item {
    EvictionEntry e;
    double priority = 0;
    std::uint64_t turn = 0;
  };

  double ns_age(const std::string& name) { return age_ + extra_[name]; }

  void insert(EvictionEntry e) {
    erase(e.key);
    if (count(e.name_space) == 0 && quotas_.count(e.name_space) == 0) extra_.erase(e.name_space);
    if (e.age > ns_age(e.name_space)) extra_[e.name_space] = e.age - age_;
    if (e.age <= 0) e.age = ns_age(e.name_space);
    items_.push_back({e, e.age + rebuild_value(e.build_ms, e.uses, e.bytes), ++turn_});
  }
  bool erase(const ActionKey& key) {
    return std::erase_if(items_, [&](const Item& i) { return i.e.key == key; }) > 0;
  }
  void touch(const ActionKey& key) {
    for (Item& i : items_) {
      if (i.e.key != key) continue;
      i.e.uses += 1;
      i.e.age = ns_age(i.e.name_space);
      i.priority = i.e.age + rebuild_value(i.e.build_ms, i.e.uses, i.e.bytes);
      i.turn = ++turn_;
    }
  }
  void set_pinned(const ActionKey& key, bool pinned) {
    for (Item& i : items_) {
      if (i.e.key == key) i.e.pinned = pinned;
    }
  }
  void set_bytes(const ActionKey& key, std::uint64_t bytes) {
    for (Item& i : items_) {
      if (i.e.key != key) continue;
      i.e.bytes = bytes;
      i.priority = i.e.age + rebuild_value(i.e.build_ms, i.e.uses, bytes);
    }
  }
  void hold(const ActionKey& key) { ++holds_[key]; }
  void release(const ActionKey& key) {
    if (holds_.count(key) != 0 && --holds_[key] == 0) holds_.erase(key);
  }
  void set_quotas(std::map<std::string, std::uint64_t> quotas) { quotas_ = std::move(quotas); }

  std::uint64_t bytes(const std::string& name) {
    std::uint64_t sum = 0;
    for (const Item& i : items_) sum += i.e.name_space == name ? i.e.bytes : 0;
    return sum;
  }
  std::size_t count(const std::string& name) {
    return static_cast<std::size_t>(std::count_if(
        items_.begin(), items_.end(), [&](const Item& i) { return i.e.name_space == name; }));
  }

  // What may go of one namespace, or of all, cheapest first.
  const Item* cheapest(const std::string* name) {
    const Item* best = nullptr;
    const auto rank = [&](const Item& i) {
      return std::pair(name != nullptr ? i.priority : i.priority - extra_[i.e.name_space], i.turn);
    };
    for (const Item& i : items_) {
      if (i.e.pinned || holds_.count(i.e.key) != 0) continue;
      if (name != nullptr && i.e.name_space != *name) continue;
      if (best == nullptr || rank(i) < rank(*best)) best = &i;
    }
    return best;
  }

  struct Choice {
    const Item* item = nullptr;
    bool quota = false;
  };
  Choice victim() {
    Choice worst;
    std::uint64_t most = 0;
    for (const auto& [name, quota] : quotas_) {
      const std::uint64_t used = bytes(name);
      const Item* own = cheapest(&name);
      if (own == nullptr || used <= quota || used - quota <= most) continue;
      most = used - quota;
      worst = {own, true};
    }
    if (worst.item != nullptr) return worst;
    return {cheapest(nullptr), false};
  }
  void evicted(const Choice& choice) {
    const Item gone = *choice.item;
    double& extra = extra_[gone.e.name_space];
    if (choice.quota) {
      extra = std::max(extra, gone.priority - age_);
    } else {
      age_ = std::max(age_, gone.priority - extra);
    }
    erase(gone.e.key);
    if (count(gone.e.name_space) == 0 && quotas_.count(gone.e.name_space) == 0) {
      extra_.erase(gone.e.name_space);
    }
  }

  std::vector<Item> items_;
  std::map<ActionKey, int> holds_;
  std::map<std::string, double> extra_;
  std::map<std::string, std::uint64_t> quotas_;
  std::uint64_t turn_ = 0;
  double age_ = EvictionQueue().age();
};

class EvictionProperty : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(EvictionProperty, ChoosesWhatTheSlowReferenceChooses) {
  Dice dice(GetParam());
  EvictionQueue queue;
  Reference reference;
  const std::string names[] = {"default", "a", "b", "c"};
  const std::uint64_t costs[] = {0, 1, 100, 100, 5000, 3'600'000};
  const std::uint64_t sizes[] = {0, 100, 100'000, 100'000, 50'000'000};
  for (int step = 0; step < 1500; ++step) {
    const ActionKey key = key_of(dice.below(60));
    switch (dice.below(12)) {
      case 0:
      case 1:
      case 2: {
        EvictionEntry e = entry(0, dice.pick(sizes), dice.pick(costs), dice.pick(names));
        e.key = key;
        e.uses = dice.below(4);
        e.pinned = dice.one_in(10);
        if (dice.one_in(5)) e.age = static_cast<double>(dice.below(1000)) / 250;
        queue.insert(e);
        reference.insert(e);
        break;
      }
      case 3:
      case 4:
        queue.touch(key, step);
        reference.touch(key);
        if (dice.one_in(3)) queue.settle(key_of(dice.below(60)));
        break;
      case 5:
        EXPECT_EQ(queue.erase(key), reference.erase(key));
        for (const auto& name : names) {
          if (reference.count(name) == 0 && reference.quotas_.count(name) == 0) {
            reference.extra_.erase(name);
          }
        }
        break;
      case 6: {
        const bool pinned = dice.one_in(3);
        queue.set_pinned(key, pinned);
        reference.set_pinned(key, pinned);
        break;
      }
      case 7:
        queue.hold(key);
        reference.hold(key);
        break;
      case 8:
        queue.release(key);
        reference.release(key);
        break;
      case 9: {
        const std::uint64_t bytes = dice.pick(sizes);
        queue.set_bytes(key, bytes);
        reference.set_bytes(key, bytes);
        break;
      }
      case 10:
        if (dice.one_in(10)) {
          std::map<std::string, std::uint64_t> quotas;
          if (dice.one_in(2)) quotas["a"] = 200'000;
          if (dice.one_in(2)) quotas["b"] = 40'000'000;
          queue.set_quotas(quotas);
          reference.set_quotas(quotas);
          break;
        }
        [[fallthrough]];
      default: {
        const auto victim = queue.victim();
        const auto expected = reference.victim();
        ASSERT_EQ(victim.has_value(), expected.item != nullptr) << step;
        if (!victim) break;
        ASSERT_EQ(victim->key, expected.item->e.key) << step;
        ASSERT_EQ(victim->why == Victim::Why::kQuota, expected.quota) << step;
        ASSERT_EQ(victim->bytes, expected.item->e.bytes);
        queue.evicted(*victim);
        reference.evicted(expected);
        ASSERT_DOUBLE_EQ(queue.age(), reference.age_);
      }
    }
    ASSERT_EQ(queue.size(), reference.items_.size());
    ASSERT_EQ(queue.namespace_bytes("a"), reference.bytes("a"));
    ASSERT_EQ(queue.held(key), reference.holds_.count(key) != 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, EvictionProperty, ::testing::Range<std::uint64_t>(1, 13));

TEST(Eviction, KeepsWhatIsDearToRebuildForItsSize) {
  EvictionQueue queue;
  queue.insert(entry(1, 1 << 20, 600'000));  // ten minutes for a MiB
  queue.insert(entry(2, 1 << 20, 1'000));
  queue.insert(entry(3, 1 << 30, 600'000));  // ten minutes for a GiB
  std::vector<ActionKey> order;
  while (auto v = queue.victim()) {
    order.push_back(v->key);
    queue.evicted(*v);
  }
  EXPECT_EQ(order, (std::vector{key_of(3), key_of(2), key_of(1)}));
  EXPECT_EQ(queue.size(), 0u);
  EXPECT_EQ(queue.bytes(), 0u);
}

TEST(Eviction, WhatIsNotUsedAnyMoreGetsItsTurn) {
  EvictionQueue queue;
  EvictionEntry old = entry(0, 4096, 100'000);  // dear, once
  queue.insert(old);
  bool gone = false;
  for (std::uint64_t i = 1; i < 2000 && !gone; ++i) {
    queue.insert(entry(i, 4096, 1'000));
    queue.touch(key_of(i), 0);
    const auto v = queue.victim();
    ASSERT_TRUE(v);
    gone = v->key == old.key;
    queue.evicted(*v);
    if (i == 20) {
      EXPECT_TRUE(queue.find(old.key));  // but it is not the first to go
    }
  }
  EXPECT_TRUE(gone);
}

TEST(Eviction, EqualEntriesGoLeastRecentlyUsedFirst) {
  EvictionQueue queue;
  for (std::uint64_t i = 0; i < 4; ++i) queue.insert(entry(i, 4096, 1000));
  for (const std::uint64_t i : {2u, 0u, 3u, 1u}) queue.touch(key_of(i), 0);
  for (const std::uint64_t i : {2u, 0u, 3u, 1u}) {
    const auto v = queue.victim();
    ASSERT_TRUE(v);
    EXPECT_EQ(v->key, key_of(i));
    queue.erase(v->key);
  }
}

TEST(Eviction, ZeroCostAndZeroBytesAreOrdinary) {
  EXPECT_GT(rebuild_value(0, 0, 0), 0);
  EXPECT_EQ(rebuild_value(0, 0, 0), rebuild_value(1, 1, 4096));
  EXPECT_GT(rebuild_value(1000, 1, 0), rebuild_value(1000, 1, 1 << 20));
  EXPECT_GT(rebuild_value(~0ULL, ~0ULL, 0), 0);
}

TEST(Eviction, PinnedAndHeldEntriesAreNeverChosen) {
  EvictionQueue queue;
  queue.hold(key_of(1));  // before there is an entry: a build under way
  queue.insert(entry(1, 4096, 1));
  EvictionEntry pinned = entry(2, 4096, 1);
  pinned.pinned = true;
  queue.insert(pinned);
  EXPECT_FALSE(queue.victim());
  queue.hold(key_of(1));
  queue.release(key_of(1));
  EXPECT_FALSE(queue.victim());  // held twice
  queue.release(key_of(1));
  ASSERT_TRUE(queue.victim());
  EXPECT_EQ(queue.victim()->key, key_of(1));
  queue.erase(key_of(1));
  queue.set_pinned(key_of(2), false);
  EXPECT_EQ(queue.victim()->key, key_of(2));
  queue.release(key_of(77));  // nobody held it
}

TEST(Eviction, ANamespaceOverItsQuotaPaysItself) {
  EvictionQueue queue;
  queue.set_quotas({{"team", 10'000}});
  queue.insert(entry(1, 8'000, 1, "other"));  // by far the cheapest
  queue.insert(entry(2, 6'000, 3'600'000, "team"));
  EXPECT_FALSE(queue.over_quota());
  const auto room = queue.over_quota("team", 5'000);  // about to be added
  ASSERT_TRUE(room);
  EXPECT_EQ(room->key, key_of(2));
  queue.insert(entry(3, 5'000, 7'200'000, "team"));
  const auto v = queue.victim();
  ASSERT_TRUE(v);
  EXPECT_EQ(v->key, key_of(2));
  EXPECT_EQ(v->why, Victim::Why::kQuota);
  EXPECT_THAT(v->text(), HasSubstr("quota"));
  EXPECT_THAT(v->text(), HasSubstr("team"));
  queue.evicted(*v);
  EXPECT_FALSE(queue.over_quota());
  EXPECT_EQ(queue.victim()->key, key_of(1));  // the others were not aged by it
  EXPECT_EQ(queue.age(), EvictionQueue().age());
  EXPECT_EQ(queue.quota("team"), 10'000u);
  EXPECT_FALSE(queue.quota("other"));
}

TEST(Eviction, ARestartKeepsTheOrder) {
  Dice dice(9);
  EvictionQueue queue;
  for (std::uint64_t i = 0; i < 200; ++i) {
    queue.insert(entry(i, 4096 + dice.below(1 << 20), dice.below(100'000)));
    if (i > 50 && dice.one_in(2)) queue.evicted(*queue.victim());
    queue.touch(key_of(dice.below(i + 1)), static_cast<Millis>(i));
  }
  EvictionQueue again;
  again.set_age(queue.age());
  for (std::uint64_t i = 0; i < 200; ++i) {
    if (auto e = queue.find(key_of(i))) again.insert(*e);
  }
  ASSERT_EQ(again.size(), queue.size());
  while (auto v = queue.victim()) {
    ASSERT_EQ(again.victim()->key, v->key);
    queue.evicted(*v);
    again.evicted(*v);
  }
}

}  // namespace
}  // namespace nc
