// The other requests, through the router.
#include <gtest/gtest.h>

#include "tests/unit/daemon/harness.hpp"

namespace nc::daemon {
namespace {

class Requests : public testing::Test {
 protected:
  // An entry named `name`.
  void publish(const std::string& name) {
    const LeaseOf lease = lease_of(h.acquire(client, h.key(name)));
    ASSERT_EQ(h.publish(client, name, lease.id, lease.fence).status, 201);
  }
  Harness::Reply get(const std::string& target) { return h.call(client, Method::kGet, target); }
  Harness::Reply post(const std::string& target, const std::string& body) {
    return h.call(client, Method::kPost, target, body);
  }

  Harness h;
  std::shared_ptr<FakeConnection> client = h.connect(100);
};

TEST_F(Requests, Hello) {
  auto reply = get("/v1/hello");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.json.at("protocol").at("min"), 1);
  EXPECT_EQ(reply.json.at("version"), NC_VERSION);
  EXPECT_EQ(reply.json.at("store").at("path"), "/store");
  EXPECT_EQ(reply.json.at("store").at("read_only"), false);
}

TEST_F(Requests, BlobsAreStoredOnceAndChecked) {
  const std::string digest = h.digest("bytes");
  auto stored = h.call(client, Method::kPut, "/v1/blobs/" + digest + "?compress=never", "bytes");
  EXPECT_EQ(stored.status, 201);
  EXPECT_EQ(stored.json.at("existed"), false);
  EXPECT_EQ(stored.json.at("size"), 5);
  auto again = h.call(client, Method::kPut, "/v1/blobs/" + digest, "bytes");
  EXPECT_EQ(again.status, 200);
  EXPECT_EQ(again.json.at("existed"), true);
  auto wrong = h.call(client, Method::kPut, "/v1/blobs/" + h.digest("x"), "y");
  EXPECT_EQ(wrong.status, 422);
  EXPECT_EQ(wrong.code(), "digest_mismatch");
  EXPECT_EQ(h.store.reserved(), 0U);
  EXPECT_EQ(
      h.call(client, Method::kPut, "/v1/blobs/" + h.digest("x") + "?compress=maybe", "x").status,
      400);
  EXPECT_EQ(h.counter("uploads"), 1);
  EXPECT_EQ(h.counter("upload_bytes"), 5);
}

TEST_F(Requests, BlobsAreReadAndAsked) {
  h.store.add_blob("bytes");
  auto read = h.send(client, Method::kGet, "/v1/blobs/" + h.digest("bytes")).get();
  EXPECT_EQ(read.body, "bytes");
  EXPECT_EQ(read.content_type, "application/octet-stream");
  auto head = h.send(client, Method::kHead, "/v1/blobs/" + h.digest("bytes")).get();
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.head_length, 5U);
  EXPECT_EQ(head.body, "");
  EXPECT_EQ(get("/v1/blobs/" + h.digest("other")).status, 404);
  EXPECT_EQ(h.send(client, Method::kHead, "/v1/blobs/" + h.digest("other")).get().status, 404);
  EXPECT_EQ(h.counter("downloads"), 1);
}

TEST_F(Requests, ACommitNeedsItsBlobsItsKeyAndItsLease) {
  const std::string target = "/v1/actions/" + h.key("a") + "?lease=x&fence=1";
  EXPECT_EQ(h.call(client, Method::kPut, target, h.manifest("a", "not there")).status, 404);
  EXPECT_EQ(h.call(client, Method::kPut, target, h.manifest("b", "x")).code(), "key_mismatch");
  EXPECT_EQ(h.call(client, Method::kPut, target, "{}").status, 400);
  EXPECT_EQ(h.call(client, Method::kPut, "/v1/actions/" + h.key("a"), h.manifest("a", "x")).status,
            400);

  const LeaseOf lease = lease_of(h.acquire(client, h.key("a")));
  EXPECT_EQ(h.publish(client, "a", std::string(32, '0'), 1).code(), "lease_lost");
  EXPECT_EQ(h.publish(client, "a", lease.id, lease.fence).json.at("published"), true);
  auto second = h.publish(client, "a", lease.id, lease.fence);
  EXPECT_EQ(second.status, 200);
  EXPECT_EQ(second.json.at("published"), false);
  EXPECT_EQ(h.counter("compile_seconds_spent"), 3);
}

TEST_F(Requests, AnImportNeedsNoLeaseAndEndsAWait) {
  lease_of(h.acquire(client, h.key("a")));
  auto parked = h.acquire_later(h.connect(200), h.key("a"));
  ASSERT_TRUE(h.eventually([&] { return h.table.tickets() == 1; }));
  h.store.add_blob("b");
  auto imported =
      h.call(client, Method::kPut, "/v1/actions/" + h.key("a") + "?import=1", h.manifest("a", "b"));
  EXPECT_EQ(imported.status, 201);
  EXPECT_EQ(h.read(std::move(parked)).state(), "hit");
}

TEST_F(Requests, AnActionIsReadWithoutEffects) {
  publish("a");
  EXPECT_EQ(get("/v1/actions/" + h.key("a")).json.at("key").as_string(), h.key("a"));
  EXPECT_EQ(get("/v1/actions/" + h.key("b")).status, 404);
  EXPECT_EQ(h.counter("hits"), 0);
}

TEST_F(Requests, AReleasedLeaseIsFreeAtOnce) {
  const LeaseOf lease = lease_of(h.acquire(client, h.key("a")));
  EXPECT_EQ(h.call(client, Method::kDelete, "/v1/leases/" + lease.id + "?key=" + h.key("b")).status,
            409);
  EXPECT_EQ(h.call(client, Method::kDelete, "/v1/leases/" + lease.id + "?key=" + h.key("a")).status,
            200);
  EXPECT_EQ(h.call(client, Method::kDelete, "/v1/leases/" + lease.id + "?key=" + h.key("a")).status,
            409);
  EXPECT_EQ(h.table.leases(), 0U);
}

TEST_F(Requests, LeasesAreListed) {
  const LeaseOf lease = lease_of(h.acquire(client, h.key("a")));
  h.clock.advance(2500);
  auto reply = get("/v1/leases");
  const auto& one = reply.json.at("leases").at(0);
  EXPECT_EQ(one.at("id").as_string(), lease.id);
  EXPECT_EQ(one.at("key").as_string(), h.key("a"));
  EXPECT_EQ(one.at("builder").at("pid"), 100);
  EXPECT_EQ(one.at("elapsed_s"), 2.5);
}

TEST_F(Requests, StatsAddUp) {
  publish("a");
  h.acquire(client, h.key("a"));
  post("/v1/bypass", R"({"namespace":"other","reason":"off","count":3})");
  auto all = get("/v1/stats").json.at("counters").as_object();
  EXPECT_EQ(all.at("lookups"), 5);
  EXPECT_EQ(all.at("hits"), 1);
  EXPECT_EQ(all.at("builds"), 1);
  EXPECT_EQ(all.at("bypasses"), 3);
  EXPECT_EQ(all.at("waits"), 0);
  EXPECT_EQ(all.at("entries"), 1);
  auto narrow = get("/v1/stats?namespace=other").json;
  EXPECT_EQ(narrow.at("counters").at("lookups"), 3);
  EXPECT_EQ(narrow.at("namespaces").at("ns").at("lookups"), 2);
  EXPECT_EQ(narrow.at("bypass_reasons").at("off"), 3);
  EXPECT_EQ(get("/v1/stats").json.at("kinds").at("graph").at("entries"), 1);
  EXPECT_EQ(get("/v1/stats").json.at("health").at("ok"), true);
}

TEST_F(Requests, EntriesComeInPages) {
  for (const char* name : {"a", "b", "c"}) publish(name);
  auto first = get("/v1/entries?limit=2");
  EXPECT_EQ(first.json.at("entries").as_array().size(), 2U);
  auto second = get("/v1/entries?limit=2&after=" + first.text("next"));
  EXPECT_EQ(second.json.at("entries").as_array().size(), 1U);
  EXPECT_TRUE(second.json.at("next").is_null());
  for (const char* query : {"limit=x", "older_than_s=-1", "failed=yes", "unused_since_s=nan"}) {
    EXPECT_EQ(get(std::string("/v1/entries?") + query).status, 400) << query;
  }
}

TEST_F(Requests, AnEntryIsShownByPrefix) {
  publish("a");
  auto shown = get("/v1/entries/" + h.key("a").substr(0, 8));
  EXPECT_EQ(shown.json.at("manifest").at("key").as_string(), h.key("a"));
  EXPECT_EQ(get("/v1/entries/zz").status, 400);
  EXPECT_EQ(get("/v1/entries/" + std::string(65, 'a')).status, 400);
}

TEST_F(Requests, PruneAndVerify) {
  publish("a");
  EXPECT_EQ(post("/v1/prune", R"({"dry_run":true})").json.at("count"), 1);
  EXPECT_EQ(post("/v1/prune", R"({"max_bytes":-5})").status, 400);
  EXPECT_EQ(post("/v1/prune", R"({"older_than_s":"1"})").status, 400);
  EXPECT_EQ(post("/v1/prune", "").status, 400) << "an empty body must not empty the store";
  EXPECT_EQ(get("/v1/entries").json.at("entries").as_array().size(), 1U);
  EXPECT_EQ(post("/v1/prune", "{}").json.at("count"), 1);
  EXPECT_EQ(get("/v1/entries").json.at("entries").as_array().size(), 0U);
  EXPECT_EQ(post("/v1/verify", R"({"after":null})").status, 200);
}

TEST_F(Requests, Pins) {
  publish("a");
  EXPECT_EQ(post("/v1/pins", R"({"key":")" + h.key("a") + R"(","pinned":true})").json.at("pinned"),
            true);
  EXPECT_EQ(post("/v1/pins", R"({"key":")" + h.key("b") + R"(","pinned":true})").status, 404);
  EXPECT_EQ(post("/v1/pins", R"({"key":"x","pinned":true})").status, 400);
  EXPECT_EQ(post("/v1/pins", R"({"key":")" + h.key("a") + R"("})").status, 400);
}

TEST_F(Requests, MissesAreListed) {
  publish("a");
  EXPECT_EQ(get("/v1/misses?limit=5").json.at("misses").at(0).at("key").as_string(), h.key("a"));
  EXPECT_EQ(get("/v1/misses?limit=x").status, 400);
}

TEST_F(Requests, ConfigIsShownAndChanged) {
  std::string ttl;
  const auto config = get("/v1/config");
  for (const auto& row : config.json.at("settings").as_array()) {
    if (row.at("name") == "lease_ttl") ttl = row.at("value").as_string();
  }
  EXPECT_EQ(ttl, "15s");
  EXPECT_EQ(post("/v1/config", R"({"name":"lease_ttl","value":"20s"})").json.at("value"), "20s");
  EXPECT_EQ(post("/v1/config", R"({"name":"lease_ttl","value":"soon"})").status, 400);
  EXPECT_EQ(post("/v1/config", R"({"name":"dir","value":"/x"})").status, 409);
  auto wrong = post("/v1/config", R"({"name":"leese_ttl","value":"1s"})");
  EXPECT_EQ(wrong.status, 400);
  EXPECT_NE(boost::json::serialize(wrong.json).find("lease_ttl"), std::string::npos);
}

TEST_F(Requests, ShutdownIsAskedFor) {
  EXPECT_EQ(post("/v1/shutdown", "").json.at("draining"), true);
  EXPECT_EQ(h.shut_down_with, 30'000);
  post("/v1/shutdown", R"({"drain_ms":5})");
  EXPECT_EQ(h.shut_down_with, 5);
}

}  // namespace
}  // namespace nc::daemon
