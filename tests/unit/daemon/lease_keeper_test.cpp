#include <gtest/gtest.h>

#include "tests/unit/daemon/harness.hpp"

namespace nc::daemon {
namespace {

// What a daemon that is started anew has: the same store and processes, a table of its own.
struct Restarted {
  explicit Restarted(Harness& h) : keeper({table, h.store, h.processes, h.clock}, true) {
    EXPECT_TRUE(keeper.restore().ok());
  }
  FakeClock clock;
  FakeRandom random;
  LeaseTable table{clock, random, {}};
  LeaseKeeper keeper;
};

TEST(LeaseKeeper, ARecordHoldsTheLease) {
  Lease lease;
  lease.id = std::string(32, 'a');
  lease.fence = 7;
  lease.request = {
      Sha256::of(as_bytes("k")), "ns", "graph", "la\"bel", "prog", "comp", "model", {}};
  lease.builder = {{123, 456}, "host"};
  lease.granted_ms = 99;
  auto read = lease_from_record(lease_to_record(lease));
  ASSERT_TRUE(read.ok()) << read.error().text();
  EXPECT_EQ(read->id, lease.id);
  EXPECT_EQ(read->fence, 7U);
  EXPECT_EQ(read->request.key, lease.request.key);
  EXPECT_EQ(read->request.name_space, "ns");
  EXPECT_EQ(read->request.label, "la\"bel");
  EXPECT_EQ(read->builder.process, lease.builder.process);
  EXPECT_EQ(read->granted_ms, 99);
  EXPECT_FALSE(lease_from_record("{}").ok());
  EXPECT_FALSE(lease_from_record("garbage").ok());
}

TEST(LeaseKeeper, ARestartKnowsTheLeasesOfTheLiving) {
  Harness h;
  auto living = h.connect(100);
  auto dead = h.connect(200);
  auto reused = h.connect(300);
  const LeaseOf lease = lease_of(h.acquire(living, h.key("a")));
  lease_of(h.acquire(dead, h.key("b")));
  lease_of(h.acquire(reused, h.key("c")));
  h.processes.kill(200);
  h.processes.start(300);  // another process with the same pid
  Restarted again(h);
  EXPECT_EQ(again.table.leases(), 1U);
  ASSERT_TRUE(again.table.find(lease.id));
  EXPECT_EQ(again.table.heartbeat(lease.id, *ActionKey::from_hex(h.key("a")), lease.fence, ""),
            LeaseTable::Beat::kExtended);
  EXPECT_EQ(h.store.records("leases").value().size(), 1U) << "the others are forgotten";
}

TEST(LeaseKeeper, FencesGrowOverARestart) {
  Harness h;
  const LeaseOf before = lease_of(h.acquire(h.connect(100), h.key("a")));
  Restarted again(h);
  EXPECT_GT(again.table.next_fence(), before.fence);
  Restarted third(h);
  EXPECT_GE(third.table.next_fence(), again.table.next_fence());
}

TEST(LeaseKeeper, DamagedRecordsAreDropped) {
  Harness h;
  ASSERT_TRUE(h.store.put_record("leases", "x", "{\"id\":").ok());
  Restarted again(h);
  EXPECT_EQ(again.table.leases(), 0U);
  EXPECT_TRUE(h.store.records("leases").value().empty());
}

TEST(LeaseKeeper, AnUnknownLeaseIsAdoptedByItsHeartbeat) {
  Harness h;
  auto builder = h.connect(100);
  const std::string id(32, 'b');
  const std::string body = R"({"key":")" + h.key("a") + R"(","fence":9,"progress":"half"})";
  auto reply = h.call(builder, Method::kPost, "/v1/leases/" + id + "/heartbeat", body);
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.json.at("ttl_ms"), 15000);
  EXPECT_EQ(h.table.list().at(0).lease.progress, "half");
  EXPECT_EQ(h.store.records("leases").value().count(id), 1U);
  auto other = h.acquire(h.connect(200), h.key("a"));
  EXPECT_EQ(other.state(), "building");
  EXPECT_EQ(other.json.at("progress"), "half");
}

TEST(LeaseKeeper, AnUnknownLeaseOfABuiltKeyIsLost) {
  Harness h;
  auto builder = h.connect(100);
  const LeaseOf lease = lease_of(h.acquire(builder, h.key("a")));
  h.publish(builder, "a", lease.id, lease.fence);
  const std::string body = R"({"key":")" + h.key("a") + R"(","fence":9})";
  auto reply =
      h.call(builder, Method::kPost, "/v1/leases/" + std::string(32, 'b') + "/heartbeat", body);
  EXPECT_EQ(reply.status, 409);
  EXPECT_EQ(reply.code(), "lease_lost");
}

TEST(LeaseKeeper, WithoutPidfdsABuilderIsAskedForOnceASecond) {
  Harness h;
  h.processes.set_exit_fd_supported(false);
  ASSERT_TRUE(h.keeper.start().ok());
  lease_of(h.acquire(h.connect(100), h.key("a")));
  h.processes.kill(100);
  h.keeper.nudge();
  EXPECT_TRUE(h.eventually([&] { return h.table.leases() == 0; }));
}

TEST(LeaseKeeper, ABuilderThatIsGoneAlreadyLosesTheLeaseAtOnce) {
  Harness h;
  ASSERT_TRUE(h.keeper.start().ok());
  auto ghost = std::make_shared<FakeConnection>(777);
  lease_of(h.acquire(ghost, h.key("a")));
  EXPECT_EQ(h.table.leases(), 0U);
}

}  // namespace
}  // namespace nc::daemon
