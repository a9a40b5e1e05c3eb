// Room to build, recorded actions and the queue, as the client sees them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "client/client.hpp"
#include "client/codec.hpp"
#include "client/lease_keeper.hpp"
#include "tests/unit/client/fake_server.hpp"

namespace nc::client {
namespace {

using testing::FakeServer;
using testing::json_step;

class ClientBuilds : public ::testing::Test {
 protected:
  ClientOptions options() const {
    ClientOptions o;
    o.socket_path = server.path();
    o.connect_timeout_ms = 2'000;
    o.request_timeout_ms = 10'000;
    return o;
  }
  static KeyParts parts() { return {{"a", "1"}}; }
  static ActionKey key() { return *action_key(parts()); }
  static Lease lease() { return {key(), "ab", 3, 15'000, 10}; }
  static RecordedAction action() {
    RecordedAction r;
    r.key = key();
    r.kind = "neff";
    r.label = "llama \"fw\"";
    r.compiler = "neuronx-cc 2.27";
    r.parts = parts();
    r.argv = {"compile", "{in/model}", "--flag=\xe2\x82\xac"};
    r.env = {{"NEURON_CC_FLAGS", "-O1"}};
    r.inputs = {{"model", Sha256::of(as_bytes("m")), 1, 0600}};
    return r;
  }

  FakeServer server;
};

constexpr const char* kWaiting =
    R"({"state":"waiting","ahead":2,"running":3,"budget_bytes":100,"reserved_bytes":90,)"
    R"("expected_bytes":20,"source":"guess","waited_s":1.5})";
constexpr const char* kAdmitted =
    R"({"state":"admitted","reserved_bytes":20,"cores":4,"alone":true,"expected_bytes":20,)"
    R"("source":"learned","waited_s":2,"build_timeout_ms":60000})";

TEST_F(ClientBuilds, AdmissionIsWaitedFor) {
  server.push(json_step(200, kWaiting));
  server.push(json_step(200, kAdmitted));
  Client client(options());
  AdmissionRequest request;
  request.compiler = "neuronx-cc 2.27";
  request.input_bytes = 5;
  request.minimum_bytes = 7;
  request.alone = true;
  int waited = 0;
  const auto answer = client.admit_and_wait(lease(), request, 0, [&](const Admission& a) {
    EXPECT_EQ(a.ahead, 2);
    EXPECT_EQ(a.running, 3);
    EXPECT_EQ(a.budget_bytes, 100U);
    EXPECT_EQ(a.reserved_bytes, 90U);
    EXPECT_FALSE(a.learned);
    ++waited;
    return true;
  });
  ASSERT_TRUE(answer.ok()) << answer.error().text();
  EXPECT_EQ(waited, 1);
  EXPECT_EQ(answer->state, Admission::State::kAdmitted);
  EXPECT_EQ(answer->reserved_bytes, 20U);
  EXPECT_EQ(answer->cores, 4U);
  EXPECT_TRUE(answer->alone);
  EXPECT_TRUE(answer->learned);
  EXPECT_EQ(answer->build_timeout_ms, 60'000);
  const std::string body = server.seen()[0].body;
  for (const char* part : {R"("lease":"ab")", R"("fence":3)", R"("input_bytes":5)",
                           R"("minimum_bytes":7)", R"("alone":true)", R"("wait_ms":1000)"}) {
    EXPECT_NE(body.find(part), std::string::npos) << body;
  }
}

TEST_F(ClientBuilds, AWaitForAdmissionCanBeGivenUp) {
  server.push(json_step(200, kWaiting));
  const auto answer =
      Client(options()).admit_and_wait(lease(), {}, 0, [](const Admission&) { return false; });
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->state, Admission::State::kWaiting);
  server.push(json_step(200, R"({"state":"later"})"));
  EXPECT_TRUE(Client(options()).admit(lease(), {}).is(Code::kInvalid));
}

TEST_F(ClientBuilds, AHeartbeatTellsAndIsTold) {
  server.push(json_step(200, R"({"ttl_ms":9,"waiters":4,"cancel":true})"));
  Client client(options());
  const auto beat = client.heartbeat(lease(), BuildStatus{"half", 50, 2, true});
  ASSERT_TRUE(beat.ok());
  EXPECT_EQ(beat->ttl_ms, 9);
  EXPECT_EQ(beat->waiters, 4);
  EXPECT_TRUE(beat->cancel);
  const std::string body = server.seen()[0].body;
  EXPECT_NE(body.find(R"("reserved_bytes":50,"cores":2,"detached":true)"), std::string::npos);
}

TEST_F(ClientBuilds, ARecordedActionComesBackAsItWent) {
  const std::string text = codec::record_body(action());
  server.push(json_step(201, R"({"recorded":true})"));
  server.push(json_step(200, text));
  Client client(options());
  EXPECT_TRUE(*client.record("run 1", action()));
  EXPECT_NE(server.seen()[0].head.find("PUT /v1/recordings/run%201/actions/" + key().hex()),
            std::string::npos);
  const auto back = client.recorded("run", key());
  ASSERT_TRUE(back.ok()) << back.error().text();
  EXPECT_EQ(codec::record_body(*back), text);
  EXPECT_EQ(back->inputs[0].mode, 0600U);
  server.push(json_step(200, R"({"v":2,"key":"x"})"));
  EXPECT_TRUE(client.recorded("run", key()).is(Code::kInvalid));
}

TEST_F(ClientBuilds, AWorkerTakesAJob) {
  server.push(json_step(200, R"({"state":"job","key":")" + key().hex() + R"(","record":)" +
                                 codec::record_body(action()) +
                                 R"(,"lease":{"id":"cd","fence":8,"ttl_ms":7,"heartbeat_ms":6}})"));
  server.push(json_step(
      200, R"({"state":"empty","counts":{"queued":1,"building":2,"built":3,"failed":4}})"));
  server.push(json_step(200, R"({"state":"job","record":{},"lease":null})"));
  Client client(options());
  const auto taken = client.take_job("2.27");
  ASSERT_TRUE(taken.ok() && taken->job);
  EXPECT_EQ(taken->job->lease.id, "cd");
  EXPECT_EQ(taken->job->lease.key, key());
  EXPECT_EQ(taken->job->lease.fence, 8U);
  EXPECT_EQ(taken->job->record.argv.size(), 3U);
  const auto none = client.take_job("");
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->job);
  EXPECT_EQ(none->counts.failed, 4U);
  EXPECT_TRUE(client.take_job("").is(Code::kInvalid));
}

TEST_F(ClientBuilds, ListsAreRead) {
  server.push(json_step(200, R"({"recordings":[{"name":"r","actions":2,"bytes":9,"first_ms":1,)"
                             R"("last_ms":2}]})"));
  server.push(json_step(200, R"({"actions":[{"key":"k","built":true,"lost":"why"}],"next":"k"})"));
  server.push(json_step(200, R"({"counts":{"queued":1},"jobs":[{"key":"k","state":"failed",)"
                             R"("class":"killed","number":5}],"next":5})"));
  server.push(json_step(200, R"({"queued":1,"already":2,"built":3,"lost":4})"));
  server.push(json_step(200, R"({"removed":6})"));
  server.push(json_step(200, R"({"budget_bytes":10,"running":[{"lease":"l","bytes":4,)"
                             R"("elapsed_s":2.5}],"waiting":[{"waited_s":3}]})"));
  Client client(options());
  EXPECT_EQ(client.recordings()->at(0).actions, 2U);
  const auto page = client.recorded_actions("r", "", 10);
  EXPECT_TRUE(page->actions.at(0).built);
  EXPECT_EQ(page->actions.at(0).lost, "why");
  EXPECT_EQ(page->next, "k");
  const auto queue = client.queue("failed", 0, 10);
  EXPECT_EQ(queue->jobs.at(0).failure_class, "killed");
  EXPECT_EQ(queue->next, 5U);
  const auto enqueued = client.enqueue_recording("r");
  EXPECT_EQ(enqueued->already, 2U);
  EXPECT_EQ(enqueued->lost, 4U);
  EXPECT_EQ(*client.clear_queue(), 6U);
  const auto builds = client.builds();
  EXPECT_EQ(builds->running.at(0).since_s, 2.5);
  EXPECT_EQ(builds->waiting.at(0).since_s, 3);
}

}  // namespace
}  // namespace nc::client
