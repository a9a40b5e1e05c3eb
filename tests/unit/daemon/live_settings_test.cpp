#include "daemon/live_settings.hpp"

#include <gtest/gtest.h>

#include "base/fake_filesystem.hpp"

namespace nc::daemon {
namespace {

Settings load(std::vector<std::string> env) {
  FakeFileSystem fs;
  env.push_back("HOME=/h");
  return std::move(Settings::load(fs, env, {})).value();
}

TEST(LiveSettings, SubscribersHearOfEveryChange) {
  LiveSettings settings(load({}));
  std::vector<double> heard;
  settings.subscribe([&](const Settings& now) { heard.push_back(now.seconds("lease_ttl")); });
  ASSERT_TRUE(settings.change("lease_ttl", "20s").ok());
  EXPECT_TRUE(settings.change("lease_ttl", "0s").is(Code::kInvalid));
  EXPECT_TRUE(settings.change("io_threads", "3").is(Code::kConflict));
  EXPECT_EQ(heard, (std::vector<double>{15, 20}));
  EXPECT_EQ(settings.copy().origin("lease_ttl"), Origin::kLive);
}

TEST(LiveSettings, ReloadTakesLiveOnesAndNamesTheRest) {
  LiveSettings settings(load({}));
  ASSERT_TRUE(settings.change("idle_exit", "1h").ok());
  const auto fresh =
      load({"NEURONCACHE_LEASE_TTL=30s", "NEURONCACHE_IO_THREADS=5", "NEURONCACHE_IDLE_EXIT=2h"});
  EXPECT_EQ(settings.reload(fresh), std::vector<std::string>{"io_threads"});
  EXPECT_EQ(settings.copy().seconds("lease_ttl"), 30);
  EXPECT_EQ(settings.copy().integer("io_threads"), 2);
  EXPECT_EQ(settings.copy().seconds("idle_exit"), 3600) << "changed over the socket: stays";
}

TEST(LiveSettings, BecomeTheStoresOptions) {
  const auto options = store_options(load(
      {"NEURONCACHE_DIR=/d", "NEURONCACHE_MAX_BYTES=1GiB", "NEURONCACHE_NAMESPACE_QUOTA=a=1MiB",
       "NEURONCACHE_FAILURE_TTL=2m", "NEURONCACHE_COMPRESSION=false"}));
  EXPECT_EQ(options.dir, "/d");
  EXPECT_EQ(options.max_bytes, 1ULL << 30);
  EXPECT_EQ(options.namespace_quota.at("a"), 1ULL << 20);
  EXPECT_EQ(options.failure_ttl_ms, 120'000);
  EXPECT_FALSE(options.compression);
  EXPECT_EQ(store_options(load({})).max_bytes, 0U);
}

}  // namespace
}  // namespace nc::daemon
