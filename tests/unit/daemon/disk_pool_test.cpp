#include "daemon/disk_pool.hpp"

#include <atomic>
#include <future>
#include <stdexcept>

#include <gtest/gtest.h>

namespace nc::daemon {
namespace {

TEST(DiskPool, OneThreadIsAlwaysFreeOfSlowWork) {
  DiskPool pool(3);
  std::promise<void> gate;
  std::shared_future<void> open = gate.get_future().share();
  std::atomic<int> started{0};
  for (int i = 0; i < 5; ++i) {
    pool.post(Lane::kSlow, [&started, open] {
      ++started;
      open.wait();
    });
  }
  std::promise<void> quick;
  pool.post(Lane::kQuick, [&quick] { quick.set_value(); });
  quick.get_future().wait();  // hangs when slow work has all threads
  EXPECT_LE(started, 2);
  gate.set_value();
  pool.stop();
  EXPECT_EQ(started, 5);
}

TEST(DiskPool, OneThreadDoesBothKinds) {
  DiskPool pool(1);
  std::promise<void> slow;
  std::promise<void> quick;
  pool.post(Lane::kSlow, [&] { slow.set_value(); });
  pool.post(Lane::kQuick, [&] { quick.set_value(); });
  slow.get_future().wait();
  quick.get_future().wait();
}

TEST(DiskPool, AnExceptionStaysInside) {
  DiskPool pool(1);
  pool.post(Lane::kQuick, [] { throw std::runtime_error("oops"); });
  pool.post(Lane::kQuick, [] { throw 7; });
  std::promise<void> after;
  pool.post(Lane::kQuick, [&] { after.set_value(); });
  after.get_future().wait();
}

TEST(DiskPool, OnlySoMuchWaits) {
  DiskPool pool(1, 2);
  std::promise<void> begun;
  std::promise<void> gate;
  std::shared_future<void> open = gate.get_future().share();
  std::atomic<int> ran{0};
  EXPECT_TRUE(pool.post(Lane::kSlow, [&begun, open] {
    begun.set_value();
    open.wait();
  }));
  begun.get_future().wait();
  EXPECT_TRUE(pool.post(Lane::kSlow, [&ran] { ++ran; }));
  EXPECT_TRUE(pool.post(Lane::kQuick, [&ran] { ++ran; }));
  EXPECT_FALSE(pool.post(Lane::kQuick, [&ran] { ++ran; }));
  EXPECT_FALSE(pool.post(Lane::kSlow, [&ran] { ++ran; }));
  gate.set_value();
  pool.stop();
  EXPECT_EQ(ran, 2);
  EXPECT_FALSE(pool.post(Lane::kQuick, [&ran] { ++ran; }));
}

TEST(DiskPool, StopRunsWhatIsQueuedAndDropsTheRest) {
  std::atomic<int> ran{0};
  DiskPool pool(2);
  for (int i = 0; i < 100; ++i) pool.post(i % 2 ? Lane::kQuick : Lane::kSlow, [&] { ++ran; });
  pool.stop();
  EXPECT_EQ(ran, 100);
  pool.post(Lane::kQuick, [&] { ++ran; });
  EXPECT_EQ(ran, 100);
}

}  // namespace
}  // namespace nc::daemon
