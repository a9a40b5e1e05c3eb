// Daemons of several hosts that share one tier.
#include "daemon/cluster.hpp"

#include <chrono>
#include <mutex>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "cache/tier/layout.hpp"
#include "cache/tier/lease_record.hpp"
#include "cache/tier/memory_engine.hpp"
#include "tests/unit/daemon/harness.hpp"

namespace nc::daemon {
namespace {

constexpr Millis kPeriod = 1'000;

// The tier: leases, and which entries can be seen in it.
struct Tier {
  explicit Tier(Clock& clock) : objects(std::make_shared<tier::MemoryObjects>(clock)) {}
  void show(const std::string& name) {
    std::lock_guard lock(mutex);
    entries.insert(name);
  }
  bool shows(const std::string& name) {
    std::lock_guard lock(mutex);
    return entries.contains(name);
  }
  std::shared_ptr<tier::MemoryObjects> objects;
  std::mutex mutex;
  std::set<std::string> entries;
};

class FakeDoor final : public ClusterDoor {
 public:
  FakeDoor(Tier& tier, Store& store) : tier_(tier), store_(store), engine_(tier.objects) {}
  tier::Engine& engine() override { return engine_; }
  bool well() override { return well_; }
  Result<bool> bring(const ActionKey& key) override {
    while (slow_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (const char* name : {"model", "other"}) {
      if (Harness::key(name) != key.hex() || !tier_.shows(name)) continue;
      const std::string blob = std::string("bytes of ") + name;
      auto upload = store_.begin_upload(Sha256::of(as_bytes(blob)), blob.size(), false);
      if (upload.ok()) {
        ignore_error((*upload)->write(as_bytes(blob)), "");
        ignore_error((*upload)->finish(), "");
      }
      auto manifest = Manifest::parse(Harness::manifest(name, blob));
      ignore_error(store_.publish(*manifest), "");
      return true;
    }
    return false;
  }
  std::optional<bool> sent(const ActionKey& key) override {
    if (unsendable_) return false;
    for (const char* name : {"model", "other"}) {
      if (Harness::key(name) == key.hex() && tier_.shows(name)) return true;
    }
    return std::nullopt;
  }
  tier::MemoryEngine& memory() { return engine_; }
  std::atomic<bool> well_{true};
  std::atomic<bool> unsendable_{false};
  std::atomic<bool> slow_{false};  // the tier does not answer before this ends

 private:
  Tier& tier_;
  Store& store_;
  tier::MemoryEngine engine_;
};

class Host {
 public:
  Host(Tier& tier, const std::string& name) {
    auto made = std::make_unique<FakeDoor>(tier, harness.store);
    door = made.get();
    Cluster::Options options;
    options.lease = {kPeriod, 500};
    options.host = name;
    harness.service.host = name;
    harness.service.cluster =
        std::make_unique<Cluster>(Cluster::Deps{harness.table, harness.keeper, harness.store,
                                                system_clock(), system_random()},
                                  std::move(made), options);
    harness.keeper.add_follower(cluster());
  }
  ~Host() {
    cluster().stop();
    harness.keeper.apply(harness.table.drain());
    harness.pool.stop();
  }
  Cluster& cluster() { return *harness.service.cluster; }

  Harness harness;
  FakeDoor* door = nullptr;
  std::shared_ptr<FakeConnection> client = harness.connect(100);
};

class ClusterTest : public ::testing::Test {
 protected:
  Host& add(const std::string& name) {
    hosts.push_back(std::make_unique<Host>(tier, name));
    hosts.back()->cluster().start();
    return *hosts.back();
  }
  static std::string object_of(const std::string& name, std::uint64_t fence) {
    return tier::lease_name(*ActionKey::from_hex(Harness::key(name)), fence);
  }

  Tier tier{system_clock()};
  const std::string key = Harness::key("model");
  std::vector<std::unique_ptr<Host>> hosts;
};

TEST_F(ClusterTest, OneHostBuildsAndTheOtherGetsItsEntry) {
  Host& a = add("host-a");
  Host& b = add("host-b");
  const auto lease = lease_of(a.harness.read(a.harness.acquire_later(a.client, key)));
  auto waiting = b.harness.acquire_later(b.client, key);
  EXPECT_TRUE(Harness::eventually([&] { return b.cluster().view().waiting == 1; }));
  EXPECT_EQ(a.harness.publish(a.client, "model", lease.id, lease.fence).status, 201);
  EXPECT_EQ(a.cluster().view().publishing, 1U);
  // Released only now that the others can see the entry.
  EXPECT_TRUE(tier.objects->get(object_of("model", 1)).has_value());
  tier.show("model");
  const auto reply = b.harness.read(std::move(waiting));
  EXPECT_EQ(reply.state(), "hit");
  EXPECT_TRUE(reply.json.at("waited").as_bool());
  EXPECT_TRUE(Harness::eventually([&] { return tier.objects->names().empty(); }));
  EXPECT_EQ(a.harness.counter("builds"), 1);
  EXPECT_EQ(b.harness.counter("builds"), 0);
  EXPECT_EQ(b.harness.counter("waits"), 1);
  EXPECT_EQ(b.harness.counter("lease_takeovers"), 0);
  EXPECT_EQ(a.cluster().counters().taken, 1U);
  EXPECT_EQ(b.cluster().counters().settled, 1U);
}

TEST_F(ClusterTest, WaitersSeeTheHostThatBuildsAndItsProgress) {
  Host& a = add("host-a");
  Host& b = add("host-b");
  const auto lease = lease_of(a.harness.read(a.harness.acquire_later(a.client, key)));
  a.harness.call(a.client, Method::kPost, "/v1/leases/" + lease.id + "/heartbeat",
                 R"({"key":")" + key + R"(","fence":)" + std::to_string(lease.fence) +
                     R"(,"progress":"pass 3 of 9"})");
  EXPECT_TRUE(Harness::eventually([&] {
    const auto reply = b.harness.acquire(b.client, key);
    return reply.state() == "building" && reply.text("progress") == "pass 3 of 9" &&
           reply.json.at("builder").at("host").as_string() == "host-a";
  }));
}

TEST_F(ClusterTest, AReleasedBuildGoesToAWaiterOnAnotherHost) {
  Host& a = add("host-a");
  Host& b = add("host-b");
  const auto lease = lease_of(a.harness.read(a.harness.acquire_later(a.client, key)));
  auto waiting = b.harness.acquire_later(b.client, key);
  a.harness.call(
      a.client, Method::kDelete,
      "/v1/leases/" + lease.id + "?key=" + key + "&fence=" + std::to_string(lease.fence));
  EXPECT_EQ(b.harness.read(std::move(waiting)).state(), "lease");
  EXPECT_EQ(b.cluster().counters().takeovers, 0U);
}

TEST_F(ClusterTest, ALocalWaiterGoesOnUnderTheSameLeaseOfTheCluster) {
  Host& a = add("host-a");
  const auto other = a.harness.connect(101);
  const auto lease = lease_of(a.harness.read(a.harness.acquire_later(a.client, key)));
  auto waiting = a.harness.acquire_later(other, key);
  EXPECT_TRUE(Harness::eventually([&] { return a.harness.table.tickets() == 1; }));
  a.harness.call(
      a.client, Method::kDelete,
      "/v1/leases/" + lease.id + "?key=" + key + "&fence=" + std::to_string(lease.fence));
  EXPECT_EQ(a.harness.read(std::move(waiting)).state(), "lease");
  EXPECT_EQ(a.cluster().counters().taken, 1U);
  EXPECT_FALSE(tier.objects->get(object_of("model", 2)).has_value());
}

TEST_F(ClusterTest, ASilentHostIsSucceeded) {
  Host& a = add("host-a");
  Host& b = add("host-b");
  lease_of(a.harness.read(a.harness.acquire_later(a.client, key)));
  auto waiting = b.harness.acquire_later(b.client, key);
  EXPECT_TRUE(Harness::eventually([&] { return b.cluster().view().waiting == 1; }));
  a.door->memory().set_down(Code::kTimeout);
  EXPECT_EQ(b.harness.read(std::move(waiting)).state(), "lease");
  EXPECT_EQ(b.cluster().counters().takeovers, 1U);
  a.door->memory().set_down(std::nullopt);
  EXPECT_TRUE(Harness::eventually([&] { return a.cluster().counters().lost == 1; }));
  // What a built meanwhile stays with it.
  const auto leases = a.harness.table.list();
  ASSERT_EQ(leases.size(), 1U);
  EXPECT_FALSE(a.cluster().published(leases[0].lease.id));
  EXPECT_EQ(a.harness.publish(a.client, "model", leases[0].lease.id, leases[0].lease.fence).status,
            201);
}

TEST_F(ClusterTest, WithALostLeaseTheNextLocalBuilderAsksTheClusterFirst) {
  Host& a = add("host-a");
  Host& b = add("host-b");
  const auto lease = lease_of(a.harness.read(a.harness.acquire_later(a.client, key)));
  const auto other = a.harness.connect(101);
  auto local = a.harness.acquire_later(other, key);
  auto remote = b.harness.acquire_later(b.client, key);
  EXPECT_TRUE(Harness::eventually([&] { return b.cluster().view().waiting == 1; }));
  a.door->memory().set_down(Code::kTimeout);
  EXPECT_EQ(b.harness.read(std::move(remote)).state(), "lease");
  a.door->memory().set_down(std::nullopt);
  EXPECT_TRUE(Harness::eventually([&] { return a.cluster().counters().lost == 1; }));
  a.harness.call(
      a.client, Method::kDelete,
      "/v1/leases/" + lease.id + "?key=" + key + "&fence=" + std::to_string(lease.fence));
  EXPECT_TRUE(Harness::eventually([&] { return a.cluster().view().waiting == 1; }));
  tier.show("model");
  b.cluster().stop();  // the host dies after its entry became visible
  EXPECT_EQ(a.harness.read(std::move(local)).state(), "hit");
}

TEST_F(ClusterTest, WhatIsHeldIsKeptWhileOthersWaitForALongFetch) {
  Host& a = add("host-a");
  lease_of(a.harness.read(a.harness.acquire_later(a.client, key)));
  a.door->slow_ = true;
  std::vector<std::shared_ptr<FakeConnection>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(a.harness.connect(200 + i));
    a.harness.acquire_later(clients.back(), Harness::key("fetched " + std::to_string(i)));
  }
  const auto beat = [&] {
    const auto object = tier.objects->get(object_of("model", 1));
    const auto record = object ? tier::LeaseRecord::parse(object->bytes) : Error{Code::kIo, "", ""};
    return record.ok() ? record->beat : 0;
  };
  EXPECT_TRUE(Harness::eventually([&] { return a.cluster().view().waiting == 8; }));
  const auto before = beat();
  EXPECT_TRUE(Harness::eventually([&] { return beat() > before + 4; }));
  EXPECT_EQ(a.cluster().counters().lost, 0U);
  a.door->slow_ = false;
}

TEST_F(ClusterTest, ASickTierCostsNoWait) {
  Host& a = add("host-a");
  a.door->well_ = false;
  EXPECT_EQ(a.harness.acquire(a.client, key).state(), "lease");
  EXPECT_EQ(a.cluster().counters().alone, 1U);
  EXPECT_EQ(a.cluster().counters().requests, 0U);
}

TEST_F(ClusterTest, ATierThatFailsCostsABoundedWait) {
  Host& a = add("host-a");
  a.door->memory().set_down(Code::kUnavailable);
  EXPECT_EQ(a.harness.read(a.harness.acquire_later(a.client, key)).state(), "lease");
  EXPECT_EQ(a.cluster().counters().alone, 1U);
}

TEST_F(ClusterTest, AWaitIsBoundedByTheSetting) {
  Host& a = add("host-a");
  Host& b = add("host-b");
  b.cluster().set_wait(200);
  lease_of(a.harness.read(a.harness.acquire_later(a.client, key)));
  EXPECT_EQ(b.harness.read(b.harness.acquire_later(b.client, key)).state(), "lease");
  EXPECT_EQ(b.cluster().counters().alone, 1U);
}

TEST_F(ClusterTest, AFailureThatIsRememberedSetsTheOthersFree) {
  Host& a = add("host-a");
  Host& b = add("host-b");
  Host& c = add("host-c");
  const auto lease = lease_of(a.harness.read(a.harness.acquire_later(a.client, key)));
  auto first = b.harness.acquire_later(b.client, key);
  auto second = c.harness.acquire_later(c.client, key);
  EXPECT_TRUE(Harness::eventually(
      [&] { return b.cluster().counters().requests > 2 && c.cluster().counters().requests > 2; }));
  a.harness.call(a.client, Method::kPost, "/v1/leases/" + lease.id + "/fail",
                 R"({"key":")" + key + R"(","fence":)" + std::to_string(lease.fence) +
                     R"(,"class":"deterministic","message":"no such operator"})");
  EXPECT_EQ(b.harness.read(std::move(first)).state(), "lease");
  EXPECT_EQ(c.harness.read(std::move(second)).state(), "lease");
}

TEST_F(ClusterTest, WhatTheTierDoesNotTakeSetsTheOthersFree) {
  Host& a = add("host-a");
  Host& b = add("host-b");
  a.door->unsendable_ = true;
  const auto lease = lease_of(a.harness.read(a.harness.acquire_later(a.client, key)));
  auto waiting = b.harness.acquire_later(b.client, key);
  EXPECT_TRUE(Harness::eventually([&] { return b.cluster().counters().requests > 2; }));
  EXPECT_EQ(a.harness.publish(a.client, "model", lease.id, lease.fence).status, 201);
  EXPECT_EQ(b.harness.read(std::move(waiting)).state(), "lease");
}

TEST_F(ClusterTest, ARestartGoesOnWithItsLeases) {
  Host& a = add("host-a");
  const auto lease = lease_of(a.harness.read(a.harness.acquire_later(a.client, key)));
  a.cluster().stop();
  const auto before = tier::LeaseRecord::parse(tier.objects->get(object_of("model", 1))->bytes);
  ASSERT_TRUE(before.ok());

  auto door = std::make_unique<FakeDoor>(tier, a.harness.store);
  Cluster::Options options;
  options.lease = {kPeriod, 500};
  Cluster again(
      {a.harness.table, a.harness.keeper, a.harness.store, system_clock(), system_random()},
      std::move(door), options);
  ASSERT_TRUE(again.restore().ok());
  again.start();
  EXPECT_TRUE(Harness::eventually([&] {
    const auto now = tier::LeaseRecord::parse(tier.objects->get(object_of("model", 1))->bytes);
    return now.ok() && now->beat > before->beat && now->holder == before->holder;
  }));
  again.stop();

  // The builder died with the daemon: the next start gives it back.
  a.harness.table.end(lease.id, LeaseTable::End::kDied);
  Cluster third(
      {a.harness.table, a.harness.keeper, a.harness.store, system_clock(), system_random()},
      std::make_unique<FakeDoor>(tier, a.harness.store), options);
  ASSERT_TRUE(third.restore().ok());
  third.start();
  EXPECT_TRUE(Harness::eventually([&] {
    const auto now = tier::LeaseRecord::parse(tier.objects->get(object_of("model", 1))->bytes);
    return now.ok() && now->state == tier::LeaseRecord::State::kReleased;
  }));
  third.stop();
  EXPECT_TRUE(a.harness.store.records("cluster_leases")->empty());
}

TEST_F(ClusterTest, ALeaseThatNobodyClaimsStaysWithTheHostForAWhile) {
  Host& a = add("host-a");
  a.door->slow_ = true;
  EXPECT_EQ(a.harness.acquire(a.client, key).state(), "building");  // does not wait
  a.door->slow_ = false;
  EXPECT_TRUE(Harness::eventually([&] { return a.cluster().view().held == 1; }));
  EXPECT_EQ(a.harness.acquire(a.client, key).state(), "lease");
}

}  // namespace
}  // namespace nc::daemon
