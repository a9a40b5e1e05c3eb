// The cluster's queue of builds, as two daemons see it: through the router, over a tier in memory.
#include "daemon/cluster_jobs.hpp"

#include "cache/tier/layout.hpp"
#include "cache/tier/memory_engine.hpp"
#include "daemon/cluster_door.hpp"
#include "tests/unit/daemon/harness.hpp"

namespace nc::daemon {
namespace {

// A daemon, and a client that queues or works.
struct Host {
  Host(const std::shared_ptr<tier::MemoryObjects>& objects, const std::string& name) {
    auto made = std::make_unique<tier::MemoryEngine>(objects);
    engine = made.get();
    std::vector<std::unique_ptr<tier::Link>> links;
    links.push_back(std::make_unique<tier::Link>(tier::parse_tier_url("file:///shared").value(),
                                                 std::move(made), h.clock, h.random));
    tier::Link& link = *links.front();
    const std::string good = R"({"by":"good"})";
    tier::Trust trust{
        [good](const Manifest& m, std::string_view) {
          return m.signature == good ? Status() : Status(Error{Code::kDenied, "unsigned", ""});
        },
        [good](Manifest& m) {
          m.signature = good;
          return Status();
        }};
    tier::TransferDeps transfer{h.store, fs, h.random, trust, "/store/staging", [](Millis) {}};
    h.service.tiers.open(
        std::make_unique<tier::Chain>(std::move(links), tier::Chain::Deps{h.clock, transfer, {}}),
        {}, {{}, name});
    EXPECT_TRUE(h.service.tiers.restore().ok());
    h.service.tiers.start();
    ClusterJobs::Options options;
    options.host = name;
    options.look_ms = 0;
    h.service.jobs = std::make_unique<ClusterJobs>(
        ClusterJobs::Deps{h.service.tiers.chain(), link, h.store, h.clock, h.random}, options);
    h.keeper.add_follower(*h.service.jobs);
  }
  ~Host() { h.service.tiers.stop(); }

  void record(const std::string& name) {
    const std::string input = "input of " + name;
    h.call(client, Method::kPut, "/v1/blobs/" + h.digest(input), input);
    EXPECT_EQ(h.call(client, Method::kPut, "/v1/recordings/run/actions/" + h.key(name),
                     h.record(name, input).to_json())
                  .status,
              201);
  }
  Harness::Reply put(const std::string& name) {
    return h.call(client, Method::kPost, "/v1/queue/cluster", R"({"key":")" + h.key(name) + "\"}");
  }
  Harness::Reply take(const std::string& more = "") {
    return h.call(client, Method::kPost, "/v1/queue/take", R"({"cluster":true)" + more + "}");
  }
  Harness::Reply list() { return h.call(client, Method::kGet, "/v1/queue/cluster"); }
  std::string counts() { return boost::json::serialize(list().json.at("counts")); }
  LeaseOf taken(const std::string& name) {
    const auto reply = take();
    EXPECT_EQ(reply.state(), "job") << boost::json::serialize(reply.json);
    if (reply.state() != "job") return {};
    EXPECT_EQ(reply.text("key"), h.key(name));
    const auto& lease = reply.json.at("lease").as_object();
    return {std::string(lease.at("id").as_string()), lease.at("fence").to_number<std::uint64_t>()};
  }
  void fail(const std::string& name, const LeaseOf& lease, const std::string& failure_class) {
    EXPECT_EQ(h.call(client, Method::kPost, "/v1/leases/" + lease.id + "/fail",
                     R"({"key":")" + h.key(name) + R"(","message":"m","log":"l","class":")" +
                         failure_class + "\"}")
                  .status,
              200);
  }

  FakeFileSystem fs;
  Harness h;
  tier::MemoryEngine* engine = nullptr;
  std::shared_ptr<FakeConnection> client = h.connect(100);
};

struct ClusterJobsTest : testing::Test {
  std::size_t left() { return objects->list("v1/queue/", "", 100).objects.size(); }

  FakeClock server;
  std::shared_ptr<tier::MemoryObjects> objects = std::make_shared<tier::MemoryObjects>(server);
  std::unique_ptr<ClusterJobs> kept;
  Host a{objects, "host-a"}, b{objects, "host-b"};
};

constexpr const char* kNone = R"({"queued":0,"building":0,"failed":0})";
constexpr const char* kQueued = R"({"queued":1,"building":0,"failed":0})";
constexpr const char* kBuilding = R"({"queued":0,"building":1,"failed":0})";
constexpr const char* kFailed = R"({"queued":0,"building":0,"failed":1})";

TEST_F(ClusterJobsTest, AnotherHostBuildsAndTheJobGoesWhenTheEntryCanBeSeen) {
  a.record("m");
  EXPECT_EQ(a.put("m").json.at("queued"), 1);
  EXPECT_EQ(a.put("m").json.at("already"), 1);
  EXPECT_EQ(b.counts(), kQueued);
  EXPECT_EQ(b.h.call(b.client, Method::kPost, "/v1/queue/take", "{}").state(), "empty")
      << "the daemon's own queue";
  EXPECT_EQ(b.take(R"(,"compiler":"cc 2")").state(), "empty");
  EXPECT_EQ(b.take(R"(,"parts":[["compiler.package","other"]])").state(), "empty");
  const LeaseOf lease = b.taken("m");
  EXPECT_EQ(a.counts(), kBuilding);
  EXPECT_EQ(b.h.call(b.client, Method::kHead, "/v1/blobs/" + Harness::digest("input of m")).status,
            200);
  const auto busy = b.take();
  EXPECT_EQ(busy.state(), "empty");
  EXPECT_EQ(busy.json.at("pending"), 1) << "it may come back";
  EXPECT_EQ(b.h.publish(b.client, "m", lease.id, lease.fence).status, 201);
  EXPECT_TRUE(b.h.service.jobs->unsettled());
  EXPECT_TRUE(Harness::eventually([&] {
    b.h.service.jobs->settle();
    return left() == 0;
  }));
  EXPECT_FALSE(b.h.service.jobs->unsettled());
  EXPECT_EQ(a.counts(), kNone);
  EXPECT_EQ(a.put("m").json.at("built"), 1);
  EXPECT_EQ(b.h.service.jobs->counters().removed, 1U);
}

TEST_F(ClusterJobsTest, TheEndOfABuildIsToldBeforeItsLeaseEnds) {
  a.record("m");
  a.put("m");
  LeaseOf lease = b.taken("m");
  EXPECT_EQ(
      b.h.call(b.client, Method::kDelete, "/v1/leases/" + lease.id + "?key=" + Harness::key("m"))
          .status,
      200);
  EXPECT_EQ(a.counts(), kQueued) << "given back";
  lease = b.taken("m");
  b.fail("m", lease, "disk_full");
  auto job = a.list().json.at("jobs").at(0);
  EXPECT_EQ(job.at("state").as_string(), "queued");
  EXPECT_EQ(job.at("class").as_string(), "disk_full");
  lease = b.taken("m");
  b.fail("m", lease, "deterministic");
  EXPECT_EQ(a.counts(), kFailed);
  job = a.list().json.at("jobs").at(0);
  EXPECT_EQ(job.at("host").as_string(), "host-b");
  EXPECT_EQ(job.at("log").as_string(), "l");
  EXPECT_EQ(job.at("attempts"), 2);
  EXPECT_EQ(a.take().state(), "empty");
  EXPECT_EQ(a.h.call(a.client, Method::kDelete, "/v1/queue/cluster").json.at("removed"), 0);
  EXPECT_EQ(a.h.call(a.client, Method::kDelete, "/v1/queue/cluster?failed=1&dry_run=1")
                .json.at("removed"),
            1);
  EXPECT_EQ(a.counts(), kFailed);
  EXPECT_EQ(a.h.call(a.client, Method::kDelete, "/v1/queue/cluster?failed=1").json.at("removed"),
            1);
  EXPECT_EQ(left(), 0U);
}

TEST_F(ClusterJobsTest, AFailureThatAHostRemembersEndsTheJobWithoutABuild) {
  a.record("m");
  const LeaseOf lease = lease_of(b.h.read(b.h.acquire_later(b.client, Harness::key("m"))));
  b.fail("m", lease, "deterministic");
  a.put("m");
  EXPECT_EQ(b.take().state(), "empty");
  EXPECT_EQ(a.counts(), kFailed);
}

TEST_F(ClusterJobsTest, ABuilderThatDiesLeavesTheJobToOthersThreeTimesInAll) {
  a.record("m");
  a.put("m");
  for (int i = 0; i < 3; ++i) {
    Host& host = i % 2 == 0 ? b : a;
    const LeaseOf lease = host.taken("m");
    host.h.keeper.apply(host.h.table.end(lease.id, LeaseTable::End::kDied));
    EXPECT_EQ(a.counts(), kBuilding);
  }
  EXPECT_EQ(b.take().state(), "empty");
  EXPECT_EQ(a.counts(), kFailed);
  EXPECT_EQ(a.list().json.at("jobs").at(0).at("class").as_string(), "killed");
  EXPECT_EQ(a.put("m").json.at("queued"), 1) << "anew";
  b.taken("m");
}

TEST_F(ClusterJobsTest, WhatIsNotBelievedIsNotTakenAndMasksNothing) {
  a.record("m");
  a.record("n");
  const auto name = tier::queue_name(Harness::key("m"));
  for (const char* text : {"garbage", "{}"}) {
    objects->put(name, text);
    EXPECT_EQ(b.take().state(), "empty");
    EXPECT_NE(b.list().json.at("jobs").at(0).at("problem").as_string(), "");
  }
  // A good job, under the name of another action.
  a.put("n");
  const auto other = tier::queue_name(Harness::key("n"));
  objects->put(name, objects->get(other)->bytes);
  objects->remove(other);
  b.h.clock.advance(3'600'000);
  EXPECT_EQ(b.take().state(), "empty");
  EXPECT_GE(b.h.service.jobs->counters().refused, 2U);
  a.put("m");
  b.h.clock.advance(3'600'000);
  b.taken("m");
}

TEST_F(ClusterJobsTest, ASickTierStopsTheQueueAndNothingElse) {
  a.record("m");
  a.put("m");
  b.engine->set_down(Code::kUnavailable);
  const auto reply = b.take();
  EXPECT_EQ(reply.state(), "empty");
  EXPECT_NE(reply.text("problem"), "");
  EXPECT_EQ(b.list().status, 503);
  b.record("own");
  b.h.call(b.client, Method::kPost, "/v1/queue", R"({"recording":"run"})");
  EXPECT_EQ(b.take().text("key"), Harness::key("own"));
  b.engine->set_down(std::nullopt);
  // What breaks while a job is taken leaves no lease behind.
  b.engine->script(tier::Call::kPut, {.code = Code::kNoSpace});
  EXPECT_EQ(b.take().state(), "empty");
  EXPECT_EQ(b.h.table.leases(), 1U) << "that of its own job";
  EXPECT_EQ(a.counts(), kQueued);
  // An input that does not come is an attempt, so that nobody tries for ever.
  objects->remove(tier::blob_name(Sha256::of(as_bytes("input of m")), false));
  EXPECT_EQ(b.take().state(), "empty");
  EXPECT_EQ(a.list().json.at("jobs").at(0).at("attempts"), 1);
}

TEST_F(ClusterJobsTest, OnlyTheDaemonsOwnUserHasAPartInIt) {
  a.record("m");
  const auto ask = [&](Method method, const std::string& target, const std::string& body) {
    HttpRequest request;
    request.head.method = method;
    request.head.path = target;
    const Match match = route(request.head);
    request.body = body;
    request.connection = a.client;
    Rights rights;
    rights.scope = Scope::kAdmin;
    rights.namespaces = trust::NamespaceSet::all();
    rights.who = "token 1";
    request.rights = std::make_shared<Rights>(rights);
    auto promise = std::make_shared<std::promise<HttpResponse>>();
    run_handler(*match.route, a.h.service, {std::move(request), [promise](HttpResponse response) {
                                              promise->set_value(std::move(response));
                                            }});
    return Harness::read(promise->get_future());
  };
  const std::string key = R"({"key":")" + Harness::key("m") + "\"}";
  EXPECT_EQ(ask(Method::kPost, "/v1/queue/cluster", key).code(), "denied");
  EXPECT_EQ(ask(Method::kPost, "/v1/queue/take", R"({"cluster":true})").code(), "denied");
  EXPECT_EQ(ask(Method::kDelete, "/v1/queue/cluster", "").code(), "denied");
  EXPECT_EQ(ask(Method::kGet, "/v1/queue/cluster", "").status, 200);
  kept = std::move(a.h.service.jobs);
  EXPECT_EQ(a.put("m").code(), "not_found");
  EXPECT_EQ(a.take().code(), "not_found");
}

}  // namespace
}  // namespace nc::daemon
