#include "daemon/bucket_book.hpp"

#include <gtest/gtest.h>

#include "daemon/bucket_request.hpp"
#include "tests/unit/daemon/harness.hpp"

namespace nc::daemon {
namespace {

constexpr Millis kDay = 24 * 3'600'000;

Sha256 program(int number) {
  return Sha256::of(as_bytes(std::to_string(number)));
}

Observation sizes(int number, buckets::SizeCounts counts) {
  Observation seen;
  seen.program = program(number);
  seen.job = "job";
  seen.families.emplace_back("seq", std::move(counts));
  return seen;
}

PlanRequest request(int number, const std::string& job) {
  PlanRequest wanted;
  wanted.program = program(number);
  wanted.job = job;
  wanted.families.push_back({"seq", {8, 8, 0}, {}});
  return wanted;
}

struct Box {
  FakeClock clock;
  FakeStore store{clock};
  BucketBook book{store, clock};

  // A daemon that starts on the same store.
  std::unique_ptr<BucketBook> reopened() {
    auto out = std::make_unique<BucketBook>(store, clock);
    EXPECT_TRUE(out->restore().ok());
    return out;
  }
};

TEST(BucketBook, IsTheSameAfterARestart) {
  Box box;
  for (int day = 0; day < 12; ++day) {
    Observation seen = sizes(1, {{static_cast<buckets::Size>(10 + day), 5}, {100, 1}});
    seen.pairs.push_back({"batch", "seq", {{{2, 100}, 3}}});
    seen.label = "train";
    seen.compile_ms = 100 + day;
    seen.calls = 1ULL << 19;
    seen.calls_us = seen.calls * 300;
    box.book.observe(seen);
    ASSERT_TRUE(box.book.write().ok());
    box.clock.advance(kDay);
  }
  const Pin pin = box.book.plan(request(1, "a"));
  ASSERT_TRUE(box.book.write().ok());
  const auto again = box.reopened();
  const auto before = box.book.programs({}).at(0);
  const auto after = again->programs({}).at(0);
  EXPECT_EQ(after.head.encode(), before.head.encode());
  EXPECT_EQ(after.head.usual_call_us(), 300U);
  EXPECT_LE(after.head.calls, 1ULL << 20);
  EXPECT_EQ(after.plan, before.plan);
  ASSERT_EQ(after.families.size(), 1U);
  EXPECT_EQ(after.families[0].calls, before.families[0].calls);
  EXPECT_EQ(after.families[0].calls, 8U * 6);  // the newest generations
  EXPECT_EQ(after.families[0].smallest, 10U);  // over all time
  EXPECT_EQ(again->plan(request(1, "a")).plan, pin.plan);
  EXPECT_EQ(again->plan(request(1, "b")).plan, box.book.plan(request(1, "b")).plan);
}

TEST(BucketBook, OldGenerationsLeaveTheStore) {
  Box box;
  std::size_t most = 0;
  for (int day = 0; day < 30; ++day) {
    box.book.observe(sizes(1, {{10, 1}}));
    ASSERT_TRUE(box.book.write().ok());
    most = std::max(most, box.store.records(kHistogramTable)->size());
    box.clock.advance(kDay);
  }
  EXPECT_EQ(most, 1 + buckets::SizeHistogram::kGenerations);
}

TEST(BucketBook, AFailedWriteIsTriedAgain) {
  Box box;
  box.book.observe(sizes(1, {{10, 1}}));
  box.store.fail_records(Error{Code::kNoSpace, "full", ""});
  EXPECT_FALSE(box.book.write().ok());
  const Pin pin = box.book.plan(request(1, "a"));  // answered all the same
  EXPECT_EQ(pin.plan.families.size(), 1U);
  box.book.observe(sizes(1, {{20, 2}}));
  box.store.fail_records(std::nullopt);
  ASSERT_TRUE(box.book.write().ok());
  EXPECT_EQ(box.reopened()->programs({}).at(0).families[0].calls, 3U);
  EXPECT_EQ(box.book.plan(request(1, "a")).plan, pin.plan);
}

TEST(BucketBook, TheLeastRecentlySeenProgramsGo) {
  Box box;
  const auto most = static_cast<int>(BucketBook::kMaxPrograms);
  for (int i = 0; i < most + 10; ++i) {
    box.book.observe(sizes(i, {{10, 1}}));
    box.clock.advance(1000);
    if (i == 5) {
      ASSERT_TRUE(box.book.write().ok());
    }
  }
  EXPECT_EQ(box.book.programs({}).size(), BucketBook::kMaxPrograms);
  EXPECT_TRUE(box.book.programs(program(9)).empty());
  EXPECT_EQ(box.book.programs(program(10)).size(), 1U);
  ASSERT_TRUE(box.book.write().ok());
  EXPECT_EQ(box.reopened()->programs({}).size(), BucketBook::kMaxPrograms);
  EXPECT_EQ(box.store.records(kHistogramTable)->size(), 2 * BucketBook::kMaxPrograms);
}

TEST(BucketBook, AForgottenProgramMayComeAgainAtOnce) {
  Box box;
  box.book.observe(sizes(0, {{10, 1}}));
  const auto first = box.book.plan(request(0, "a"));
  box.clock.advance(1000);
  for (int i = 1; i <= static_cast<int>(BucketBook::kMaxPrograms); ++i) {
    box.book.observe(sizes(i, {{10, 1}}));
  }
  ASSERT_TRUE(box.book.programs(program(0)).empty());
  PlanRequest wanted = request(0, "a");
  wanted.families[0].seen = {{77, 1}};
  const auto second = box.book.plan(wanted);
  EXPECT_NE(second.plan.families, first.plan.families);
  ASSERT_TRUE(box.book.write().ok());
  EXPECT_EQ(box.reopened()->plan(request(0, "a")).plan, second.plan);
}

TEST(BucketBook, CellsOfAllProgramsAreBounded) {
  Box box;
  for (int i = 0; i < 260; ++i) {
    buckets::SizeCounts counts;
    for (buckets::Size n = 1; n <= 2000; ++n) counts.push_back({n * 3, 1});
    box.book.observe(sizes(i, std::move(counts)));
    box.clock.advance(1);
  }
  const auto left = box.book.programs({});
  EXPECT_LE(left.size() * 2000, BucketBook::kMaxCells);
  EXPECT_GT(left.size() * 2000, BucketBook::kMaxCells / 2);
  EXPECT_EQ(left.front().program, program(259));
}

TEST(BucketBook, TheLeastRecentlyUsedPinsGo) {
  Box box;
  box.book.observe(sizes(1, {{10, 1}, {20, 1}}));
  const Pin first = box.book.plan(request(1, "first"));
  for (std::size_t i = 0; i < BucketBook::kMaxPins; ++i) {
    box.clock.advance(1);
    box.book.plan(request(1, "job " + std::to_string(i)));
    if (i % 500 == 0) {
      box.clock.advance(1);
      Observation alive = sizes(1, {{10, 1}});
      alive.job = "first";
      box.book.observe(alive);  // its job still runs
    }
  }
  EXPECT_EQ(box.book.programs({}).at(0).jobs, BucketBook::kMaxPins);
  box.book.observe(sizes(1, {{5000, 1'000'000}}));
  EXPECT_EQ(box.book.plan(request(1, "first")).plan, first.plan);
  EXPECT_NE(box.book.plan(request(1, "job 0")).plan.families, first.plan.families);
}

TEST(BucketBook, OnlyTheLastPlansAreKept) {
  Box box;
  for (int i = 1; i <= 40; ++i) {
    PlanRequest wanted = request(1, std::to_string(i));
    wanted.families[0].seen = {{static_cast<buckets::Size>(i), 1}};
    EXPECT_EQ(box.book.plan(wanted).plan.epoch, static_cast<std::uint64_t>(i));
  }
  std::size_t epochs = 0;
  const auto records = *box.store.records(kPlanTable);
  for (const auto& [key, value] : records) {
    if (read_name(key)->kind == 'e') ++epochs;
  }
  EXPECT_EQ(epochs, BucketBook::kMaxEpochs);
  EXPECT_EQ(box.reopened()->programs({}).at(0).plan->epoch, 40U);
}

TEST(BucketBook, DamagedRecordsAreLeftOut) {
  Box box;
  box.book.observe(sizes(1, {{10, 1}}));
  box.book.plan(request(1, "a"));
  ASSERT_TRUE(box.book.write().ok());
  for (const auto table : {kHistogramTable, kPlanTable}) {
    const auto records = *box.store.records(table);
    for (const auto& [key, value] : records) {
      ASSERT_TRUE(box.store.put_record(table, key, value.substr(0, value.size() - 1)).ok());
    }
    ASSERT_TRUE(box.store.put_record(table, "short", "x").ok());
  }
  const auto again = box.reopened();
  EXPECT_EQ(again->plan(request(1, "a")).plan.epoch, 1U);
}

TEST(BucketRecords, NamesReadBack) {
  const Sha256 id = program(1);
  EXPECT_EQ(read_name(head_key(id))->kind, 'h');
  const auto sizes_name = read_name(sizes_key(id, 77, "seq"));
  ASSERT_TRUE(sizes_name && sizes_name->program == id);
  EXPECT_EQ(sizes_name->number, 77U);
  EXPECT_EQ(sizes_name->first, "seq");
  const auto pairs_name = read_name(pairs_key(id, 8, "a", "b"));
  ASSERT_TRUE(pairs_name);
  EXPECT_EQ(pairs_name->first + pairs_name->second, "ab");
  EXPECT_EQ(read_name(epoch_key(id, 1ULL << 40))->number, 1ULL << 40);
  EXPECT_EQ(read_name(pin_key(id, program(2)))->pin, program(2));
  EXPECT_FALSE(read_name(""));
  EXPECT_FALSE(read_name(std::string(id.view()) + "z"));
  EXPECT_FALSE(read_name(std::string(id.view()) + "f"));
  EXPECT_FALSE(read_name(std::string(id.view()) + "e123"));
}

TEST(BucketRequests, AReadOnlyStoreStillPlans) {
  Harness harness(true);
  const auto connection = harness.connect(1);
  const std::string who = R"({"program":")" + program(1).hex() + R"(","job":"j","families":[)";
  const auto seen = harness.call(connection, Method::kPost, "/v1/buckets/observe",
                                 who + R"({"family":"seq","sizes":[[5,1]]}]})");
  EXPECT_EQ(seen.status, 403);
  EXPECT_EQ(seen.code(), "read_only");
  const auto planned = harness.call(connection, Method::kPost, "/v1/buckets/plan",
                                    who + R"({"family":"seq","tile":8,"seen":[[5,1],[9,1]]}]})");
  EXPECT_EQ(planned.status, 200);
  EXPECT_EQ(planned.json.at("epoch").to_number<int>(), 1);
}

TEST(BucketRequests, FamiliesMayComeInAnyOrder) {
  const std::string head = R"({"program":")" + program(1).hex() + R"(","job":"j",)";
  const auto plan = read_plan_request(head + R"("families":[{"family":"b","max":100},{"family":"a",
      "tile":4,"seen":[[9,1],[3,2],[9,4]]}],"joint":[["b","a"]],"max_waste":0.25})");
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->families[0].name, "a");
  EXPECT_EQ(plan->families[0].axis, (buckets::Axis{4, 4, 0}));
  EXPECT_EQ(plan->families[0].seen, (buckets::SizeCounts{{3, 2}, {9, 5}}));
  EXPECT_EQ(plan->families[1].axis, (buckets::Axis{1, 1, 100}));
  EXPECT_EQ(plan->joints.at(0).first, "a");
  EXPECT_EQ(plan->limits.max_waste_ppm, 250'000U);
  const auto seen = read_observation(
      head + R"("families":[],"joint":[{"families":["b","a"],"sizes":[[1,2,3]]}]})");
  ASSERT_TRUE(seen.ok());
  EXPECT_EQ(seen->pairs.at(0).first, "a");
  EXPECT_EQ(seen->pairs.at(0).cells.at(0).key, (buckets::Pair{2, 1}));
}

}  // namespace
}  // namespace nc::daemon
