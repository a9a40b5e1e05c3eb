// Leases that other hosts keep at this daemon, and this host's own builds beside them.
#include "daemon/guest_leases.hpp"

#include <gtest/gtest.h>

#include "cache/tier/layout.hpp"
#include "cache/tier/lease_record.hpp"
#include "daemon/cluster_door.hpp"
#include "tests/unit/daemon/harness.hpp"

namespace nc::daemon {
namespace {

class GuestLeasesTest : public ::testing::Test {
 protected:
  static std::string name(const std::string& key, std::uint64_t fence) {
    return tier::lease_name(*ActionKey::from_hex(Harness::key(key)), fence);
  }
  static std::string target(const std::string& key, const std::string& rest) {
    return "/v1/cluster/leases/" + Harness::key(key) + rest;
  }
  HttpResponse call(Method method, const std::string& target, std::string body = "") {
    return h.send(client, method, target, std::move(body)).get();
  }

  Harness h;
  std::shared_ptr<FakeConnection> client = h.connect(100);
  GuestLeases& leases = h.service.guest_leases;
};

TEST_F(GuestLeasesTest, OneOfAllWhoCreateGetsIt) {
  EXPECT_EQ(call(Method::kGet, target("a", ".1")).status, 404);
  EXPECT_EQ(call(Method::kPut, target("a", ".1?create=1"), "first").status, 201);
  EXPECT_EQ(call(Method::kPut, target("a", ".1?create=1"), "second").status, 409);
  EXPECT_EQ(call(Method::kPut, target("a", ".2?create=1"), "next").status, 201);
  EXPECT_EQ(call(Method::kGet, target("a", ".1")).body, "first");
  EXPECT_EQ(call(Method::kPut, target("a", ".1"), "beat").status, 200);
  EXPECT_EQ(call(Method::kGet, target("a", ".1")).body, "beat");
  EXPECT_EQ(leases.size(), 2U);
  EXPECT_EQ(call(Method::kDelete, target("a", ".1")).status, 200);
  EXPECT_EQ(call(Method::kDelete, target("a", ".1")).status, 200);
  EXPECT_EQ(call(Method::kGet, target("a", ".1")).status, 404);
  EXPECT_EQ(call(Method::kGet, target("a", ".2")).body, "next");
}

TEST_F(GuestLeasesTest, OnlyLeasesAreKept) {
  for (const char* rest : {"", ".", ".0", ".x", ".-1", ".1.2", ".18446744073709551616"}) {
    EXPECT_EQ(call(Method::kPut, target("a", rest), "x").status, 400) << rest;
  }
  EXPECT_EQ(call(Method::kPut, "/v1/cluster/leases/abc.1", "x").status, 400);
  EXPECT_TRUE(leases.put("v1/queue/x", {}).is(Code::kUnsupported));
  EXPECT_TRUE(leases.get("v1/marks/x", 1).is(Code::kUnsupported));
  EXPECT_TRUE(leases.list("", "", 1).is(Code::kUnsupported));
  const std::string large(tier::LeaseRecord::kMaxBytes + 1, 'x');
  EXPECT_TRUE(leases.put(name("a", 1), as_bytes(large)).is(Code::kTooLarge));
  EXPECT_EQ(leases.size(), 0U);
}

TEST_F(GuestLeasesTest, TheyOutliveTheProcess) {
  ASSERT_TRUE(leases.create(name("a", 3), as_bytes("held"), 0).value());
  ASSERT_TRUE(leases.create(name("b", 1), as_bytes("over"), 0).value());
  ASSERT_TRUE(leases.remove(name("b", 1)).ok());
  ASSERT_TRUE(h.store.put_record("guest_leases", "what else", "x").ok());
  GuestLeases next(h.store, h.clock);
  ASSERT_TRUE(next.restore().ok());
  EXPECT_EQ(next.size(), 1U);
  EXPECT_EQ(next.get(name("a", 3), 10).value(), "held");
  EXPECT_FALSE(next.create(name("a", 3), as_bytes("stolen"), 0).value());
}

TEST_F(GuestLeasesTest, RowsOfTheDeadAreForgotten) {
  ASSERT_TRUE(leases.create(name("dead", 1), as_bytes("x"), 0).value());
  ASSERT_TRUE(leases.create(name("dead", 2), as_bytes("x"), 0).value());
  ASSERT_TRUE(leases.create(name("alive", 1), as_bytes("x"), 0).value());
  ASSERT_TRUE(leases.create(name("alive", 2), as_bytes("x"), 0).value());
  h.clock.advance(GuestLeases::kForgetMs - 1);
  leases.forget_old();
  EXPECT_EQ(leases.size(), 4U);
  ASSERT_TRUE(leases.put(name("alive", 2), as_bytes("beat")).ok());
  h.clock.advance(1);
  leases.forget_old();
  EXPECT_EQ(leases.size(), 2U);  // a row goes whole or not at all
  EXPECT_TRUE(leases.get(name("dead", 2), 10).is(Code::kNotFound));
  EXPECT_EQ(h.store.records("guest_leases")->size(), 2U);
}

TEST_F(GuestLeasesTest, ThereAreNotTooMany) {
  const std::string record(tier::LeaseRecord::kMaxBytes, 'x');
  const auto each = record.size() + name("a", 1).size();
  std::uint64_t fence = 1;
  for (; fence <= GuestLeases::kMaxBytes / each; ++fence) {
    ASSERT_TRUE(leases.create(name("a", fence), as_bytes(record), 0).ok());
  }
  EXPECT_TRUE(leases.create(name("a", fence), as_bytes(record), 0).is(Code::kNoSpace));
  EXPECT_TRUE(leases.put(name("a", 1), as_bytes(record)).ok());  // takes no more room
  ASSERT_TRUE(leases.remove(name("a", 1)).ok());
  EXPECT_TRUE(leases.create(name("a", fence), as_bytes(record), 0).value());
}

// A daemon that other hosts have for a tier.
class HostOfGuests : public GuestLeasesTest {
 protected:
  HostOfGuests() {
    FakeFileSystem fs;
    const auto settings = Settings::load(
        fs, std::vector<std::string>{"HOME=/h", "NEURONCACHE_LISTEN=127.0.0.1:0"}, {});
    h.service.cluster = open_cluster(h.service, settings.value());
    h.service.cluster->start();
  }
  ~HostOfGuests() override { h.service.cluster->stop(); }
};

TEST_F(HostOfGuests, ItsOwnBuildsAreUnderTheSameLeases) {
  const auto lease = h.read(h.acquire_later(client, h.key("model")));
  EXPECT_EQ(lease.state(), "lease");
  EXPECT_EQ(call(Method::kPut, target("model", ".1?create=1"), "guest").status, 409);
  const auto& granted = lease.json.at("lease").as_object();
  EXPECT_EQ(h.publish(client, "model", std::string(granted.at("id").as_string()),
                      granted.at("fence").to_number<std::uint64_t>())
                .status,
            201);
  EXPECT_TRUE(Harness::eventually([&] { return leases.size() == 0; }));
}

TEST_F(HostOfGuests, WhatAGuestBuildsIsWaitedFor) {
  tier::LeaseRecord record;
  record.host = "guest";
  record.holder = std::string(32, '0');
  record.period_ms = 600'000;
  ASSERT_TRUE(leases.create(name("model", 1), as_bytes(record.to_text()), 0).value());
  auto waiting = h.acquire_later(client, h.key("model"));
  EXPECT_TRUE(Harness::eventually([&] { return h.service.cluster->view().waiting == 1; }));
  const std::string blob = "bytes of model";
  EXPECT_EQ(call(Method::kPut, "/v1/blobs/" + Harness::digest(blob), blob).status, 201);
  EXPECT_EQ(call(Method::kPut, "/v1/actions/" + h.key("model") + "?import=1",
                 Harness::manifest("model", blob))
                .status,
            201);
  EXPECT_EQ(h.read(std::move(waiting)).state(), "hit");
}

}  // namespace
}  // namespace nc::daemon
