#include "cache/counters.hpp"

#include <atomic>
#include <cmath>
#include <limits>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/filesystem.hpp"
#include "tests/unit/cache/policy_helpers.hpp"

namespace nc {
namespace {

double outcomes(const CounterBook::Values& v) {
  return v.at("hits") + v.at("waits") + v.at("builds") + v.at("failures") + v.at("bypasses");
}

TEST(Counters, TableIsSound) {
  std::set<std::string_view> names;
  std::uint16_t last = 0;
  for (const CounterSpec& spec : counter_table()) {
    EXPECT_GT(static_cast<std::uint16_t>(spec.id), last);
    last = static_cast<std::uint16_t>(spec.id);
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
    EXPECT_FALSE(spec.meaning.empty());
    EXPECT_EQ(find_counter(spec.name), spec.id);
    EXPECT_EQ(&counter_spec(spec.id), &spec);
    EXPECT_FALSE(counter_class_name(spec.counter_class).empty());
  }
  EXPECT_FALSE(find_counter("nonsense"));
}

TEST(Counters, DocumentedWithTheirMeanings) {
  const auto doc = real_filesystem().read_all(NC_SOURCE_DIR "/docs/counters.md", 1 << 20);
  ASSERT_TRUE(doc.ok()) << doc.error().text();
  for (const CounterSpec& spec : counter_table()) {
    const std::string_view units[] = {"count", "bytes", "seconds"};
    const auto row =
        fmt::format("| `{}` | {} | {} | {} |\n", spec.name, counter_class_name(spec.counter_class),
                    units[static_cast<std::size_t>(spec.unit)], spec.meaning);
    EXPECT_NE(doc->find(row), std::string::npos) << "docs/counters.md lacks " << row;
  }
}

// The numbers are in users' stores.
TEST(Counters, IdsAreFrozen) {
  EXPECT_EQ(static_cast<int>(*find_counter("hits")), 2);
  EXPECT_EQ(static_cast<int>(*find_counter("bypasses")), 6);
  EXPECT_EQ(static_cast<int>(*find_counter("compile_seconds_saved")), 7);
  EXPECT_EQ(static_cast<int>(*find_counter("evictions")), 15);
  EXPECT_EQ(static_cast<int>(*find_counter("lease_takeovers")), 26);
}

TEST(Counters, CountsByNamespaceAndAllTogether) {
  CounterBook book;
  book.add("a", Counter::kHits, 2);
  book.add("b", Counter::kHits);
  EXPECT_TRUE(book.add("b", "compile_seconds_saved", 1.5));
  EXPECT_FALSE(book.add("b", "lookups", 1));
  EXPECT_FALSE(book.add("b", "nonsense", 1));
  book.add("b", Counter::kLookups, 5);  // derived: not added to
  EXPECT_EQ(book.value("a", Counter::kHits), 2);
  EXPECT_EQ(book.snapshot("").at("hits"), 3);
  EXPECT_EQ(book.snapshot("").at("lookups"), 3);
  EXPECT_EQ(book.snapshot("nobody").at("hits"), 0);
  EXPECT_EQ(book.snapshot("nobody").size(), counter_table().size());
  EXPECT_EQ(book.namespaces().size(), 2u);
  EXPECT_EQ(book.namespaces().at("b").at("compile_seconds_saved"), 1.5);
}

TEST(Counters, NonsenseAmountsDoNothing) {
  CounterBook book;
  for (const double by : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    book.add("a", Counter::kHits, by);
    book.add_bypass("a", "x", by);
  }
  EXPECT_FALSE(book.dirty());
  EXPECT_TRUE(book.namespaces().empty());
}

TEST(Counters, BypassReasonsAddUpToBypasses) {
  CounterBook book;
  book.add_bypass("a", "uncacheable_op");
  book.add_bypass("b", "uncacheable_op", 2);
  book.add_bypass("b", "not a reason!");
  for (int i = 0; i < 1000; ++i) book.add_bypass("c", "r" + std::to_string(i));
  const auto reasons = book.bypass_reasons();
  EXPECT_EQ(reasons.at("uncacheable_op"), 3);
  EXPECT_LE(reasons.size(), CounterBook::kMaxReasons + 1);
  double sum = 0;
  for (const auto& [name, value] : reasons) sum += value;
  EXPECT_EQ(sum, book.snapshot("").at("bypasses"));
}

TEST(Counters, NamespacesAreBoundedAndNothingIsLost) {
  CounterBook book;
  for (std::size_t i = 0; i < CounterBook::kMaxNamespaces + 500; ++i) {
    book.add("n" + std::to_string(i), Counter::kHits);
  }
  EXPECT_LE(book.namespaces().size(), CounterBook::kMaxNamespaces + 1);
  EXPECT_EQ(book.snapshot("").at("hits"), CounterBook::kMaxNamespaces + 500);
}

using Stored = std::map<std::string, std::string>;

void persist(CounterBook& book, Stored& stored) {
  for (auto& [key, value] : book.take_dirty()) stored[key] = value;
}

TEST(Counters, SurviveRestartsWithFailedAndRepeatedWrites) {
  test::Dice dice(3);
  Stored stored;
  auto book = std::make_unique<CounterBook>();
  std::map<std::string, double> hits;
  const std::string names[] = {"default", "a", "team.x"};
  for (int step = 0; step < 2000; ++step) {
    const std::string& name = dice.pick(names);
    book->add(name, Counter::kHits);
    hits[name] += 1;
    book->add(name, Counter::kCompileSecondsSaved, 0.1 * static_cast<double>(dice.below(100)));
    book->add_bypass(name, "reason" + std::to_string(dice.below(3)));
    if (dice.one_in(20)) {  // a write that fails, now and then half of it done
      const auto records = book->take_dirty();
      if (dice.one_in(2) && !records.empty()) stored[records[0].first] = records[0].second;
      book->give_back(records);
      EXPECT_TRUE(book->dirty());
    }
    if (dice.one_in(50)) {
      persist(*book, stored);
      EXPECT_FALSE(book->dirty());
      EXPECT_TRUE(book->take_dirty().empty());
      const auto before = book->namespaces();
      const auto reasons = book->bypass_reasons();
      book = std::make_unique<CounterBook>();
      for (const auto& [key, value] : stored) ASSERT_TRUE(book->load(key, value));
      EXPECT_FALSE(book->dirty());
      EXPECT_EQ(book->namespaces(), before);
      EXPECT_EQ(book->bypass_reasons(), reasons);
    }
  }
  for (const auto& [name, count] : hits) EXPECT_EQ(book->value(name, Counter::kHits), count);
}

TEST(Counters, WhatCannotBeReadIsLeftOut) {
  CounterBook book;
  book.add("a", Counter::kHits);
  const auto record = book.take_dirty().at(0);
  CounterBook other;
  const std::string lookups = std::string("c\0a\0", 4) + "1";
  const std::string retired = std::string("c\0a\0", 4) + "999";
  for (const auto& key : {std::string(), std::string("c"), std::string("x\0y", 3), lookups, retired,
                          std::string("c\0a\0", 4), record.first + "x"}) {
    EXPECT_FALSE(other.load(key, "1"));
  }
  for (const char* value : {"", "x", "1x", "-1", "nan", "inf"}) {
    EXPECT_FALSE(other.load(record.first, value)) << value;
  }
  EXPECT_TRUE(other.namespaces().empty());
  EXPECT_TRUE(other.load(record.first, record.second));
}

TEST(Counters, TheSumHoldsInEverySnapshotUnderThreads) {
  CounterBook book;
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&book, t] {
      const Counter ids[] = {Counter::kHits, Counter::kWaits, Counter::kBuilds, Counter::kFailures};
      for (int i = 0; i < 5000; ++i) {
        book.add(t == 0 ? "a" : "b", ids[i % 4]);
        book.add_bypass("a", "r");
      }
    });
  }
  std::thread reader([&] {
    while (!stop) {
      const auto all = book.snapshot("");
      EXPECT_EQ(all.at("lookups"), outcomes(all));
      book.give_back(book.take_dirty());
    }
  });
  for (auto& thread : threads) thread.join();
  stop = true;
  reader.join();
  EXPECT_EQ(book.snapshot("").at("lookups"), 30000);
  EXPECT_EQ(book.bypass_reasons().at("r"), 15000);
}

}  // namespace
}  // namespace nc
