#include <gtest/gtest.h>

#include "tests/unit/daemon/harness.hpp"

namespace nc::daemon {
namespace {

class Acquire : public testing::Test {
 protected:
  void expect_sum() {
    EXPECT_EQ(h.counter("hits") + h.counter("waits") + h.counter("builds") + h.counter("failures") +
                  h.counter("bypasses"),
              looked_up);
  }
  // The lease of a fresh key, held by `builder`.
  LeaseOf build(const std::string& name) {
    ++looked_up;
    return lease_of(h.acquire(builder, h.key(name)));
  }
  void wait_for_waiters(std::size_t count) {
    ASSERT_TRUE(h.eventually([&] { return h.table.tickets() == count; }));
  }

  Harness h;
  std::shared_ptr<FakeConnection> builder = h.connect(100);
  std::shared_ptr<FakeConnection> other = h.connect(200);
  double looked_up = 0;
};

TEST_F(Acquire, ColdBuildThenHit) {
  const std::string key = h.key("a");
  auto cold = h.acquire(builder, key, R"(,"parts":[["graph","a"]])");
  const LeaseOf lease = lease_of(cold);
  EXPECT_EQ(cold.json.at("lease").at("ttl_ms"), 15000);
  EXPECT_EQ(cold.json.at("lease").at("heartbeat_ms"), 3000);
  EXPECT_EQ(cold.json.at("miss").at("cause"), "never_built");
  EXPECT_EQ(h.store.records("leases").value().count(lease.id), 1U) << "known after a restart";

  EXPECT_EQ(h.publish(builder, "a", lease.id, lease.fence).status, 201);
  EXPECT_TRUE(h.store.records("leases").value().empty());
  EXPECT_EQ(h.table.leases(), 0U);

  auto hit = h.acquire(other, key);
  EXPECT_EQ(hit.state(), "hit");
  EXPECT_EQ(hit.json.at("waited"), false);
  EXPECT_EQ(hit.json.at("blobs").at("out").at("inline").as_string(),
            to_base64(as_bytes("bytes of a")));
  EXPECT_EQ(hit.json.at("manifest").at("key").as_string(), key);
  EXPECT_EQ(h.counter("compile_seconds_saved"), 3);
  EXPECT_EQ(h.store.held(*ActionKey::from_hex(key)), 1U) << "in use while the client is there";
  other->holds.clear();
  EXPECT_EQ(h.store.held(*ActionKey::from_hex(key)), 0U);
  looked_up = 2;
  expect_sum();
}

TEST_F(Acquire, ARepeatedHitIsAnsweredFromMemoryWhileItHolds) {
  const std::string key = h.key("a");
  const LeaseOf lease = build("a");
  h.publish(builder, "a", lease.id, lease.fence);
  auto first = h.acquire(other, key);
  const std::size_t before = h.store.lookups();
  auto now = [&](const std::string& body) {
    HttpRequest request;
    request.arg = key;
    request.body = body;
    request.connection = other;
    return acquire_now(h.service, request);
  };
  auto again = now(R"({"intent":"build","namespace":"ns"})");
  ASSERT_TRUE(again);
  EXPECT_EQ(boost::json::parse(again->body), boost::json::value(first.json));
  EXPECT_EQ(h.acquire(other, key).json, first.json);
  EXPECT_EQ(h.store.lookups(), before);
  EXPECT_EQ(h.counter("hits"), 3);
  EXPECT_EQ(h.counter("compile_seconds_saved"), 9);
  EXPECT_FALSE(now(R"({"intent":"build","ticket":"0"})")) << "a ticket has to be ended";
  EXPECT_FALSE(now(R"({"intent":"?"})")) << "errors take the usual way";
  h.clock.advance(HitMemo::kFreshMs);
  EXPECT_FALSE(now(R"({"intent":"build"})")) << "time to look at the files again";
  h.acquire(other, key);
  h.store.remove(*ActionKey::from_hex(key));
  EXPECT_FALSE(now(R"({"intent":"build"})")) << "evicted";
  lease_of(h.acquire(other, key));
  looked_up += 5;
  expect_sum();
}

TEST(HitMemo, KeepsLittleAndForgetsTheOldest) {
  FakeClock clock;
  HitMemo memo(clock);
  const auto key = [](int i) { return Sha256::of(as_bytes(std::to_string(i))); };
  memo.put(key(0), {std::string(HitMemo::kMaxAnswer + 1, 'x'), 1, 0});
  EXPECT_EQ(memo.get(key(0)), nullptr);
  for (int i = 0; i < 200; ++i) memo.put(key(i), {std::string(HitMemo::kMaxAnswer, 'x'), 1, 0});
  EXPECT_LE(memo.bytes(), HitMemo::kMaxTotal);
  EXPECT_EQ(memo.get(key(0)), nullptr);
  EXPECT_NE(memo.get(key(199)), nullptr);
  memo.put(key(199), {"short", 2, 0});
  EXPECT_EQ(memo.get(key(199))->generation, 2U);
  clock.advance(HitMemo::kFreshMs);
  EXPECT_EQ(memo.get(key(198)), nullptr);
  memo.put(key(1), {"short", 1, 0});
  EXPECT_EQ(memo.bytes(), 5U);
}

TEST_F(Acquire, SixtyFourAskOneBuilds) {
  const LeaseOf lease = build("a");
  std::vector<std::future<HttpResponse>> waiting;
  for (int i = 0; i < 63; ++i) waiting.push_back(h.acquire_later(h.connect(1000 + i), h.key("a")));
  wait_for_waiters(63);
  EXPECT_EQ(h.publish(builder, "a", lease.id, lease.fence).status, 201);
  for (auto& one : waiting) {
    auto reply = h.read(std::move(one));
    EXPECT_EQ(reply.state(), "hit");
    EXPECT_EQ(reply.json.at("waited"), true);
  }
  EXPECT_EQ(h.counter("builds"), 1);
  EXPECT_EQ(h.counter("waits"), 63);
  looked_up += 63;
  expect_sum();
}

TEST_F(Acquire, LookupNeverBuildsAndCountsOnlyHits) {
  const std::string target = "/v1/actions/" + h.key("a") + "/acquire";
  auto miss = h.call(other, Method::kPost, target, R"({"intent":"lookup","wait_ms":1000})");
  EXPECT_EQ(miss.state(), "miss");
  EXPECT_EQ(miss.json.at("miss").at("cause"), "never_built");
  EXPECT_EQ(h.table.leases(), 0U);
  const LeaseOf lease = build("a");
  EXPECT_EQ(h.call(other, Method::kPost, target, R"({"intent":"lookup"})").state(), "miss");
  h.publish(builder, "a", lease.id, lease.fence);
  EXPECT_EQ(h.call(other, Method::kPost, target, R"({"intent":"lookup"})").state(), "hit");
  ++looked_up;
  expect_sum();
}

TEST_F(Acquire, BuildingTellsWhoAndGivesATicket) {
  build("a");
  auto reply = h.acquire(other, h.key("a"));
  EXPECT_EQ(reply.state(), "building");
  EXPECT_EQ(reply.json.at("builder").at("pid"), 100);
  EXPECT_EQ(reply.json.at("builder").at("host"), "host-a");
  EXPECT_EQ(reply.json.at("waiters"), 1);
  auto again = h.acquire(other, h.key("a"), R"(,"ticket":")" + reply.text("ticket") + "\"");
  EXPECT_EQ(again.text("ticket"), reply.text("ticket"));
  EXPECT_EQ(h.table.tickets(), 1U);
  expect_sum();
}

TEST_F(Acquire, ATicketThatEndsInAHitIsOneWait) {
  const LeaseOf lease = build("a");
  const std::string ticket = h.acquire(other, h.key("a")).text("ticket");
  h.publish(builder, "a", lease.id, lease.fence);
  auto hit = h.acquire(other, h.key("a"), R"(,"ticket":")" + ticket + "\"");
  EXPECT_EQ(hit.json.at("waited"), true);
  EXPECT_EQ(h.counter("waits"), 1);
  EXPECT_EQ(h.table.tickets(), 0U);
  ++looked_up;
  expect_sum();
}

TEST_F(Acquire, AParkedRequestEndsInTime) {
  build("a");
  auto parked = h.acquire_later(other, h.key("a"), 1000);
  wait_for_waiters(1);
  EXPECT_EQ(other->watched, 1);
  h.clock.advance(1000);
  h.keeper.apply(h.table.tick());
  EXPECT_EQ(h.read(std::move(parked)).state(), "building");
}

TEST_F(Acquire, TheDeathOfTheBuilderGivesTheLeaseToTheNextAtOnce) {
  ASSERT_TRUE(h.keeper.start().ok());
  const LeaseOf lease = build("a");
  auto parked = h.acquire_later(other, h.key("a"));
  wait_for_waiters(1);
  h.processes.kill(100);
  const LeaseOf next = lease_of(h.read(std::move(parked)));
  EXPECT_NE(next.id, lease.id);
  EXPECT_GT(next.fence, lease.fence);
  EXPECT_EQ(h.counter("lease_takeovers"), 1);
  EXPECT_EQ(h.store.records("leases").value().size(), 1U);
  ++looked_up;
  expect_sum();
}

TEST_F(Acquire, ADeadWaiterDoesNotKeepTheLease) {
  ASSERT_TRUE(h.keeper.start().ok());
  build("a");
  auto dead = h.acquire_later(other, h.key("a"));
  wait_for_waiters(1);
  auto living = h.acquire_later(h.connect(300), h.key("a"));
  wait_for_waiters(2);
  h.processes.kill(200);
  h.processes.kill(100);
  lease_of(h.read(std::move(living)));
}

TEST_F(Acquire, AnEntryPublishedBetweenLookAndGrantIsAHit) {
  const std::string key = h.key("a");
  h.store.add_blob("bytes of a");
  h.store.on_next_miss([&] {
    ASSERT_TRUE(*h.store.publish(Manifest::parse(h.manifest("a", "bytes of a")).value()));
  });
  EXPECT_EQ(h.acquire(other, key).state(), "hit");
  EXPECT_EQ(h.table.leases(), 0U);
  EXPECT_EQ(h.counter("builds"), 0);
}

TEST_F(Acquire, ARememberedFailureIsReplayedUntilItExpiresOrIsSkipped) {
  const LeaseOf lease = build("a");
  auto parked = h.acquire_later(other, h.key("a"));
  wait_for_waiters(1);
  auto failed =
      h.call(builder, Method::kPost, "/v1/leases/" + lease.id + "/fail",
             R"({"key":")" + h.key("a") + R"(","fence":)" + std::to_string(lease.fence) +
                 R"(,"class":"deterministic","message":"no","log":"l1\nl2","exit_code":70})");
  EXPECT_EQ(failed.json.at("remembered"), true);
  auto replay = h.read(std::move(parked));
  EXPECT_EQ(replay.state(), "failed");
  EXPECT_EQ(replay.json.at("failure").at("message"), "no");
  EXPECT_EQ(replay.json.at("failure").at("log"), "l1\nl2");
  EXPECT_EQ(replay.json.at("failure").at("exit_code"), 70);
  EXPECT_EQ(h.acquire(other, h.key("a")).state(), "failed");
  looked_up += 2;
  expect_sum();
  auto retry = h.acquire(other, h.key("a"), R"(,"retry":true)");
  h.call(other, Method::kDelete, "/v1/leases/" + lease_of(retry).id + "?key=" + h.key("a"));
  h.clock.advance(3'600'001);
  lease_of(h.acquire(other, h.key("a")));
  looked_up += 2;
  expect_sum();
}

TEST_F(Acquire, AFailureThatIsNotRememberedLetsTheNextTry) {
  const LeaseOf lease = build("a");
  auto parked = h.acquire_later(other, h.key("a"));
  wait_for_waiters(1);
  auto failed = h.call(builder, Method::kPost, "/v1/leases/" + lease.id + "/fail",
                       R"({"key":")" + h.key("a") + R"(","fence":1,"class":"out_of_memory"})");
  EXPECT_EQ(failed.json.at("remembered"), false);
  EXPECT_EQ(failed.json.at("expires_ms"), 0);
  lease_of(h.read(std::move(parked)));
  auto late = h.call(builder, Method::kPost, "/v1/leases/" + lease.id + "/fail",
                     R"({"key":")" + h.key("a") + R"(","fence":1,"class":"deterministic"})");
  EXPECT_EQ(late.status, 409);
  EXPECT_EQ(late.code(), "lease_lost");
}

TEST_F(Acquire, AnAnswerThatNobodyTookGivesTheLeaseBack) {
  auto answer = h.send(other, Method::kPost, "/v1/actions/" + h.key("a") + "/acquire",
                       R"({"intent":"build"})")
                    .get();
  ASSERT_TRUE(answer.undelivered);
  EXPECT_EQ(h.table.leases(), 1U);
  answer.undelivered();
  EXPECT_TRUE(h.eventually([&] { return h.table.leases() == 0; }));
}

TEST_F(Acquire, AClientThatHangsUpWhileWaitingIsABypass) {
  build("a");
  auto parked = h.acquire_later(other, h.key("a"));
  wait_for_waiters(1);
  h.keeper.apply(h.table.connection_closed(other->id()));
  EXPECT_EQ(h.read(std::move(parked)).code(), "unavailable");
  EXPECT_EQ(h.store.bypass_reasons().at("abandoned"), 1);
  ++looked_up;
  expect_sum();
}

TEST_F(Acquire, ABypassWithATicketEndsThatLookUp) {
  build("a");
  const std::string ticket = h.acquire(other, h.key("a")).text("ticket");
  auto reply = h.call(other, Method::kPost, "/v1/bypass",
                      R"({"namespace":"ns","reason":"timeout","ticket":")" + ticket + "\"}");
  EXPECT_EQ(reply.json.at("counted"), 1);
  h.keeper.apply(h.table.connection_closed(other->id()));
  EXPECT_EQ(h.store.bypass_reasons().at("timeout"), 1);
  ++looked_up;
  expect_sum();
}

TEST_F(Acquire, PartsMustHashToTheKey) {
  auto reply = h.acquire(other, h.key("a"), R"(,"parts":[["graph","b"]])");
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.code(), "key_mismatch");
}

TEST_F(Acquire, ABadBodyIsNamed) {
  for (const char* body :
       {"", "[]", "{", "{}", R"({"intent":"steal"})", R"({"intent":"build","wait_ms":-1})",
        R"({"intent":"build","wait_ms":"x"})", R"({"intent":"build","namespace":"a/b"})",
        R"({"intent":"build","retry":1})", R"({"intent":"build","parts":[["a"]]})",
        R"({"intent":"build","ticket":7})"}) {
    auto reply = h.call(other, Method::kPost, "/v1/actions/" + h.key("a") + "/acquire", body);
    EXPECT_EQ(reply.status, 400) << body;
    EXPECT_EQ(reply.code(), "invalid") << body;
  }
  EXPECT_EQ(h.table.leases(), 0U);
}

TEST_F(Acquire, UnknownFieldsAreIgnored) {
  lease_of(h.acquire(other, h.key("a"), R"(,"from_the_future":{"x":[1]},"ticket":null)"));
}

TEST_F(Acquire, AStoreThatCannotBeReadIsAnErrorNotAMiss) {
  h.store.fail_lookups(Error{Code::kIo, "the disk is gone", ""});
  auto reply = h.acquire(other, h.key("a"));
  EXPECT_EQ(reply.status, 500);
  EXPECT_EQ(reply.code(), "io");
  EXPECT_EQ(h.table.leases(), 0U);
  expect_sum();
}

TEST_F(Acquire, AStoreThatCannotBeWrittenStillGivesLeases) {
  h.store.fail_records(Error{Code::kNoSpace, "the disk is full", ""});
  h.store.fail_uploads(Error{Code::kNoSpace, "the disk is full", "free some"});
  lease_of(h.acquire(other, h.key("a")));
  auto upload = h.call(other, Method::kPut, "/v1/blobs/" + h.digest("x"), "x");
  EXPECT_EQ(upload.status, 507);
  EXPECT_EQ(upload.code(), "no_space");
}

TEST_F(Acquire, WhileDrainingThereAreHitsButNoLeases) {
  const LeaseOf lease = build("a");
  h.publish(builder, "a", lease.id, lease.fence);
  h.keeper.apply(h.table.drain());
  EXPECT_EQ(h.acquire(other, h.key("a")).state(), "hit");
  auto refused = h.acquire(other, h.key("b"));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.code(), "draining");
}

TEST(AcquireReadOnly, AMissIsAMissAlsoForWhoWouldBuild) {
  Harness h(true);
  auto client = h.connect(100);
  EXPECT_EQ(h.acquire(client, h.key("a")).state(), "miss");
  EXPECT_EQ(h.table.leases(), 0U);
}

}  // namespace
}  // namespace nc::daemon
