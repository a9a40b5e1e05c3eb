// Recorded actions and their queue, through the router.
#include <gtest/gtest.h>

#include "daemon/action_record.hpp"
#include "tests/unit/daemon/harness.hpp"

namespace nc::daemon {
namespace {

class WorkRequests : public testing::Test {
 protected:
  ActionRecord record_of(const std::string& name, const std::string& input) {
    ActionRecord record = h.record(name, input);
    record.env = {{"NEURON_CC_FLAGS", "-O1"}};
    return record;
  }
  Harness::Reply record(const std::string& name, const std::string& recording = "run") {
    const std::string input = "input of " + name;
    h.call(client, Method::kPut, "/v1/blobs/" + h.digest(input), input);
    return h.call(client, Method::kPut, "/v1/recordings/" + recording + "/actions/" + h.key(name),
                  record_of(name, input).to_json());
  }
  Harness::Reply post(const std::string& target, const std::string& body) {
    return h.call(client, Method::kPost, target, body);
  }
  Harness::Reply get(const std::string& target) { return h.call(client, Method::kGet, target); }
  Harness::Reply take(const std::shared_ptr<FakeConnection>& by) {
    return h.call(by, Method::kPost, "/v1/queue/take", "{}");
  }
  LeaseOf lease_in(const Harness::Reply& reply) {
    EXPECT_EQ(reply.state(), "job");
    const auto& lease = reply.json.at("lease").as_object();
    return {std::string(lease.at("id").as_string()), lease.at("fence").to_number<std::uint64_t>()};
  }
  std::uint64_t count(const std::string& state) {
    return get("/v1/queue").json.at("counts").at(state).to_number<std::uint64_t>();
  }
  void fail(const std::shared_ptr<FakeConnection>& by, const std::string& name,
            const LeaseOf& lease, const std::string& failure_class) {
    EXPECT_EQ(
        h.call(by, Method::kPost, "/v1/leases/" + lease.id + "/fail",
               R"({"key":")" + h.key(name) + R"(","message":"m","class":")" + failure_class + "\"}")
            .status,
        200);
  }

  Harness h;
  std::shared_ptr<FakeConnection> client = h.connect(100);
  std::shared_ptr<FakeConnection> worker = h.connect(200);
};

TEST_F(WorkRequests, ARecordComesBackAsItWent) {
  auto reply = record("a");
  EXPECT_EQ(reply.status, 201);
  EXPECT_EQ(record("a").status, 200) << "the second time it is there";
  reply = get("/v1/recordings/run/actions/" + h.key("a"));
  ASSERT_EQ(reply.status, 200);
  const auto read = ActionRecord::parse(boost::json::serialize(reply.json));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->to_json(), record_of("a", "input of a").to_json());
  record("b");
  record("a", "other");
  reply = get("/v1/recordings");
  ASSERT_EQ(reply.json.at("recordings").as_array().size(), 2U);
  EXPECT_EQ(reply.json.at("recordings").at(1).at("name").as_string(), "run");
  EXPECT_EQ(reply.json.at("recordings").at(1).at("actions"), 2);
  reply = get("/v1/recordings/run?limit=1");
  EXPECT_EQ(reply.json.at("actions").as_array().size(), 1U);
  EXPECT_EQ(get("/v1/recordings/run?after=" + std::string(reply.json.at("next").as_string()))
                .json.at("actions")
                .as_array()
                .size(),
            1U);
}

TEST_F(WorkRequests, BadRecordsAreRefused) {
  const std::string path = "/v1/recordings/run/actions/" + h.key("a");
  const ActionRecord good = record_of("a", "x");
  auto reply = h.call(client, Method::kPut, path, good.to_json());
  EXPECT_EQ(reply.code(), "not_found") << "its input was not uploaded";
  EXPECT_EQ(h.call(client, Method::kPut, "/v1/recordings/a b/actions/" + h.key("a"), good.to_json())
                .status,
            400);
  EXPECT_EQ(h.call(client, Method::kPut, "/v1/recordings/run/actions/" + h.key("b"), good.to_json())
                .code(),
            "key_mismatch");
  EXPECT_EQ(h.call(client, Method::kPut, path, "{}").status, 400);
  EXPECT_EQ(get(path).status, 404);
  EXPECT_EQ(get("/v1/recordings/none").status, 404);
  EXPECT_EQ(h.call(client, Method::kDelete, "/v1/recordings/none").status, 404);
  EXPECT_EQ(post("/v1/queue", "{}").status, 400);
  EXPECT_EQ(post("/v1/queue", R"({"key":")" + h.key("a") + "\"}").status, 404);
  EXPECT_EQ(post("/v1/queue", R"({"recording":"none"})").status, 404);
}

TEST_F(WorkRequests, AWorkerBuildsWhatIsQueued) {
  record("a");
  EXPECT_EQ(take(worker).state(), "empty");
  EXPECT_EQ(post("/v1/queue", R"({"recording":"run"})").json.at("queued"), 1);
  EXPECT_EQ(post("/v1/queue", R"({"key":")" + h.key("a") + "\"}").json.at("already"), 1);
  const auto job = take(worker);
  const LeaseOf lease = lease_in(job);
  EXPECT_EQ(job.json.at("record").at("argv").as_array().size(), 4U);
  EXPECT_EQ(count("building"), 1U);
  EXPECT_EQ(take(worker).state(), "empty");
  EXPECT_EQ(h.publish(worker, "a", lease.id, lease.fence).status, 201);
  EXPECT_EQ(count("built"), 1U);
  EXPECT_EQ(post("/v1/queue", R"({"recording":"run"})").json.at("built"), 1);
  EXPECT_EQ(get("/v1/recordings/run").json.at("actions").at(0).at("built"), true);
  EXPECT_EQ(get("/v1/queue?state=built").json.at("jobs").as_array().size(), 1U);
  EXPECT_EQ(get("/v1/queue?state=none").status, 400);
}

TEST_F(WorkRequests, AWorkerTakesWhatHasItsParts) {
  record("a");
  post("/v1/queue", R"({"recording":"run"})");
  const auto take_with = [&](const std::string& name, const std::string& value) {
    return h.call(worker, Method::kPost, "/v1/queue/take",
                  R"({"parts":[[")" + name + R"(",")" + value + "\"]]}");
  };
  const auto [name, value] = h.parts("a").front();
  EXPECT_EQ(take_with(name, value + "x").state(), "empty");
  EXPECT_EQ(take_with("none", "").state(), "empty");
  EXPECT_EQ(h.call(worker, Method::kPost, "/v1/queue/take", R"({"parts":1})").status, 400);
  EXPECT_EQ(count("queued"), 1U);
  const LeaseOf lease = lease_in(take_with(name, value));
  EXPECT_EQ(h.call(worker, Method::kDelete, "/v1/leases/" + lease.id + "?key=" + h.key("a")).status,
            200);
  EXPECT_EQ(get("/v1/queue").json.at("jobs").at(0).at("attempts"), 0) << "it was given back";
}

TEST_F(WorkRequests, ARecordingKnowsHowLongItsBuildsTook) {
  record("a");
  EXPECT_EQ(get("/v1/recordings/run").json.at("actions").at(0).at("build_ms"), 0);
  const LeaseOf lease = lease_of(h.acquire(client, h.key("a")));
  EXPECT_EQ(h.publish(client, "a", lease.id, lease.fence).status, 201);
  record("a");
  const auto told = get("/v1/recordings/run").json.at("actions").at(0).at("build_ms");
  EXPECT_GT(told.to_number<std::uint64_t>(), 0U);
  // Though the entry is gone.
  h.store.remove(*ActionKey::from_hex(h.key("a")));
  record("a");
  EXPECT_EQ(get("/v1/recordings/run").json.at("actions").at(0).at("build_ms"), told);
}

TEST_F(WorkRequests, ARecordIsQueuedAsItCame) {
  const std::string input = "input of a";
  h.store.add_blob(input);
  const auto reply = post("/v1/queue", R"({"record":)" + record_of("a", input).to_json() + "}");
  EXPECT_EQ(reply.json.at("queued"), 1);
  EXPECT_EQ(take(worker).state(), "job");
}

TEST_F(WorkRequests, WorkersThatDieOrGiveUpLeaveTheJobToOthers) {
  ASSERT_TRUE(h.keeper.start().ok());
  record("a");
  post("/v1/queue", R"({"recording":"run"})");
  lease_in(take(worker));
  h.processes.kill(200);
  EXPECT_TRUE(Harness::eventually([&] { return count("queued") == 1; }));
  auto second = h.connect(201);
  fail(second, "a", lease_in(take(second)), "out_of_memory");
  EXPECT_EQ(count("queued"), 1U);
  fail(second, "a", lease_in(take(second)), "deterministic");
  EXPECT_EQ(count("failed"), 1U);
  post("/v1/queue", R"({"recording":"run"})");
  EXPECT_EQ(take(second).state(), "empty") << "the failure is remembered";
  EXPECT_EQ(count("failed"), 1U);
}

TEST_F(WorkRequests, WhatOthersBuildIsNotBuiltTwice) {
  record("a");
  record("b");
  post("/v1/queue", R"({"recording":"run"})");
  const LeaseOf other = lease_of(h.acquire(client, h.key("a")));
  const auto job = take(worker);
  EXPECT_EQ(job.text("key"), h.key("b"));
  EXPECT_EQ(h.table.tickets(), 0U);
  h.publish(client, "a", other.id, other.fence);
  EXPECT_EQ(count("built"), 1U);
  EXPECT_EQ(h.call(client, Method::kDelete, "/v1/queue").json.at("removed"), 0);
}

TEST_F(WorkRequests, ARestartKnowsRecordingsAndJobs) {
  record("a");
  record("b");
  post("/v1/queue", R"({"recording":"run"})");
  const LeaseOf lease = lease_in(take(worker));
  FakeRandom random;
  LeaseTable table{h.clock, random, {}};
  LeaseKeeper keeper({table, h.store, h.processes, h.clock}, true);
  ASSERT_TRUE(h.store.put_record("queue", "x", "damaged").ok());
  ASSERT_TRUE(h.store.put_record("recordings", "y", "damaged").ok());
  Work again(h.store, h.clock);
  ASSERT_TRUE(keeper.restore().ok());
  ASSERT_TRUE(again.restore(table, true).ok());
  EXPECT_EQ(again.recordings().at(0).actions, 2U);
  EXPECT_EQ(again.queue().counts().building, 1U);
  EXPECT_EQ(again.queue().counts().queued, 1U);
  again.lease_ended(lease.id);
  EXPECT_EQ(again.queue().counts().queued, 2U);
  EXPECT_EQ(h.store.records("queue").value().size(), 2U) << "the damaged one is dropped";
}

TEST_F(WorkRequests, RecordingsKeepTheirInputsAndAreBounded) {
  record("a");
  const ActionKey entry = ActionRecord::entry_key(*ActionKey::from_hex(h.key("a")));
  EXPECT_EQ(h.store.held(entry), 1U);
  record("a", "other");
  EXPECT_EQ(h.call(client, Method::kDelete, "/v1/recordings/run").status, 200);
  EXPECT_EQ(h.store.held(entry), 1U) << "the other one needs it";
  h.clock.advance(1000);
  record("b");
  ASSERT_TRUE(h.settings.change("recordings_bytes", "15").ok());
  h.service.work.configure(h.settings.copy());
  EXPECT_EQ(h.store.held(entry), 0U) << "the older one goes";
  const auto lost = get("/v1/recordings/other");
  ASSERT_EQ(lost.status, 200) << "but its name stays";
  EXPECT_NE(lost.json.at("actions").at(0).at("lost").as_string(), "");
  EXPECT_EQ(get("/v1/recordings/run").json.at("actions").at(0).at("lost").as_string(), "");
  EXPECT_EQ(post("/v1/queue", R"({"recording":"other"})").json.at("lost").as_int64(), 1);
  Work again(h.store, h.clock);
  FakeRandom random;
  ASSERT_TRUE(again.restore(LeaseTable{h.clock, random, {}}, true).ok());
  EXPECT_NE(again.actions("other", std::nullopt, 10).value().at(0).lost, "");
  ASSERT_TRUE(h.settings.change("recordings_bytes", "1000").ok());
  h.service.work.configure(h.settings.copy());
  record("a", "other");
  EXPECT_EQ(h.store.held(entry), 1U) << "recorded again, it is whole";
  EXPECT_EQ(get("/v1/recordings/other").json.at("actions").at(0).at("lost").as_string(), "");
  h.clock.advance(Millis{31} * 24 * 3'600'000);
  h.service.work.maintain();
  EXPECT_EQ(get("/v1/recordings").json.at("recordings").as_array().size(), 0U);
  EXPECT_TRUE(h.store.records("recordings").value().empty());
}

TEST_F(WorkRequests, WhatCannotBeRecordedIsNoted) {
  const std::string place = "/v1/recordings/run/actions/" + h.key("a");
  EXPECT_EQ(post(place, R"({"label":"a"})").status, 400) << "a reason is wanted";
  const auto noted = post(place, R"({"label":"a","compiler":"c 1","lost":"it names a directory"})");
  ASSERT_EQ(noted.status, 200);
  EXPECT_TRUE(noted.json.at("noted").as_bool());
  const auto row = get("/v1/recordings/run").json.at("actions").at(0);
  EXPECT_EQ(row.at("lost").as_string(), "it names a directory");
  EXPECT_EQ(row.at("compiler").as_string(), "c 1");
  record("b");
  const auto late = post("/v1/recordings/run/actions/" + h.key("b"), R"({"lost":"late"})");
  EXPECT_FALSE(late.json.at("noted").as_bool()) << "what is recorded stays so";
}

TEST(ActionRecord, LimitsAreChecked) {
  ActionRecord record;
  record.key = action_key(Harness::parts("a")).value();
  record.kind = "neff";
  record.parts = Harness::parts("a");
  record.argv = {"compile"};
  ASSERT_TRUE(ActionRecord::parse(record.to_json()).ok());
  EXPECT_TRUE(ActionRecord::from_entry(record.to_entry(1)).ok());
  EXPECT_TRUE(Manifest::parse(record.to_entry(1).to_json()).ok());
  ActionRecord bad = record;
  bad.argv.clear();
  EXPECT_FALSE(ActionRecord::parse(bad.to_json()).ok());
  bad = record;
  bad.argv.resize(ActionRecord::kMaxArguments + 1, "x");
  EXPECT_FALSE(ActionRecord::parse(bad.to_json()).ok());
  bad = record;
  bad.parts[0].second = "other";
  EXPECT_TRUE(ActionRecord::parse(bad.to_json()).is(Code::kKeyMismatch));
  bad = record;
  bad.inputs = {{"a", {}, 1, 0644}, {"a", {}, 1, 0644}};
  EXPECT_FALSE(ActionRecord::parse(bad.to_json()).ok());
  std::string newer = record.to_json();
  newer.replace(newer.find("\"v\":1"), 5, "\"v\":2");
  EXPECT_TRUE(ActionRecord::parse(newer).is(Code::kUnsupported));
  EXPECT_TRUE(
      ActionRecord::parse(std::string(ActionRecord::kMaxBytes + 1, ' ')).is(Code::kTooLarge));
}

}  // namespace
}  // namespace nc::daemon
