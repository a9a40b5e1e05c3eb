#include "base/thread_pool.hpp"

#include <atomic>
#include <future>
#include <memory>

#include <gtest/gtest.h>

namespace nc {
namespace {

TEST(ThreadPool, RunsEverythingBeforeItEnds) {
  std::atomic<int> done = 0;
  {
    ThreadPool pool(3, 1000);
    for (int i = 0; i < 500; ++i) ASSERT_TRUE(pool.submit([&] { ++done; }).ok());
  }
  EXPECT_EQ(done, 500);
}

TEST(ThreadPool, FullQueueIsBusy) {
  std::promise<void> started;
  std::promise<void> go;
  auto gate = go.get_future().share();
  std::atomic<int> done = 0;
  ThreadPool pool(1, 2);
  ASSERT_TRUE(pool.submit([&] {
                    started.set_value();
                    gate.wait();
                    ++done;
                  })
                  .ok());
  started.get_future().wait();
  ASSERT_TRUE(pool.submit([&] { ++done; }).ok());
  ASSERT_TRUE(pool.submit([&] { ++done; }).ok());
  EXPECT_EQ(pool.queued(), 2U);
  EXPECT_TRUE(pool.submit([&] { ++done; }).is(Code::kBusy));
  go.set_value();
  pool.drain();
  EXPECT_EQ(done, 3);
}

TEST(ThreadPool, KeepsTheOrderOfOneThread) {
  std::vector<int> order;
  {
    ThreadPool pool(1, 100);
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(pool.submit([&, i] { order.push_back(i); }).ok());
  }
  ASSERT_EQ(order.size(), 50U);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(ThreadPool, TakesNothingAfterDrain) {
  ThreadPool pool(2, 4);
  pool.drain();
  EXPECT_TRUE(pool.submit([] {}).is(Code::kDraining));
}

TEST(ThreadPool, DropsWhatAJobHoldsBeforeDrainReturns) {
  ThreadPool pool(1, 4);
  auto held = std::make_shared<int>(1);
  ASSERT_TRUE(pool.submit([held] {}).ok());
  pool.drain();
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace nc
