#include "client/client.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/unit/client/fake_server.hpp"

namespace nc::client {
namespace {

using testing::FakeServer;
using testing::json_step;
using testing::SeenRequest;
using testing::Step;

constexpr const char* kHello =
    R"({"protocol":{"min":1,"max":1},"version":"9.9","capabilities":["lease","later"],"pid":7,"started_ms":5,)"
    R"("store":{"id":"ab","path":"/x","read_only":true},"unknown":1})";

class ClientTest : public ::testing::Test {
 protected:
  ClientOptions options(Millis request_timeout_ms = 10'000) const {
    ClientOptions o;
    o.socket_path = server.path();
    o.connect_timeout_ms = 2'000;
    o.request_timeout_ms = request_timeout_ms;
    return o;
  }
  static ActionKey key() { return *action_key({{"a", "1"}}); }

  FakeServer server;
};

TEST_F(ClientTest, HelloIsRead) {
  server.push(json_step(200, kHello));
  Client client(options());
  const auto hello = client.hello();
  ASSERT_TRUE(hello.ok()) << hello.error().text();
  EXPECT_EQ(hello->version, "9.9");
  EXPECT_EQ(hello->pid, 7);
  EXPECT_EQ(hello->store_path, "/x");
  EXPECT_TRUE(hello->read_only);
  EXPECT_EQ(hello->capabilities.size(), 2U);
  EXPECT_NE(server.seen()[0].head.find("X-Neuroncache-Protocol: 1\r\n"), std::string::npos);
}

TEST_F(ClientTest, NoCommonVersionIsUnsupported) {
  server.push(json_step(200, R"({"protocol":{"min":2,"max":3},"version":"9"})"));
  const auto hello = Client(options()).hello();
  ASSERT_TRUE(hello.is(Code::kUnsupported));
  EXPECT_NE(hello.error().message.find("2 to 3"), std::string::npos);
}

TEST_F(ClientTest, ErrorsKeepCodeMessageAndAction) {
  server.push(json_step(409, R"({"error":{"code":"lease_lost","message":"m","action":"a"}})"));
  server.push(
      json_step(400, R"({"error":{"code":"unsupported_protocol","message":"m","action":"a"}})"));
  server.push(json_step(500, R"({"error":{"code":"what_is_that","message":"m"}})"));
  server.push(json_step(500, "oops"));
  server.push(json_step(404, ""));
  Client client(options());
  const auto lost = client.heartbeat({key(), "ab", 1, 100, 10}, "");
  ASSERT_TRUE(lost.is(Code::kLeaseLost));
  EXPECT_EQ(lost.error().message, "m");
  EXPECT_EQ(lost.error().action, "a");
  EXPECT_TRUE(client.hello().is(Code::kUnsupported));
  for (const Code code : {Code::kInternal, Code::kInternal, Code::kNotFound}) {
    const auto silent = client.hello();
    ASSERT_TRUE(silent.is(code));
    EXPECT_FALSE(silent.error().message.empty());
    EXPECT_FALSE(silent.error().action.empty());
  }
  EXPECT_EQ(server.connections(), 1);
}

TEST_F(ClientTest, NobodyListensIsUnavailable) {
  ClientOptions o = options();
  o.socket_path += "-not-there";
  EXPECT_TRUE(Client(o).hello().is(Code::kUnavailable));
  o.socket_path = std::string(300, 'x');
  EXPECT_TRUE(Client(o).hello().is(Code::kInvalid));
}

TEST_F(ClientTest, SilenceEndsInTimeout) {
  EXPECT_TRUE(Client(options(30)).hello().is(Code::kTimeout));
}

TEST_F(ClientTest, SilenceInTheMiddleOfAnAnswerEndsInTimeout) {
  Step step;
  step.answer = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{";
  server.push(step);
  EXPECT_TRUE(Client(options(50)).hello().is(Code::kTimeout));
}

TEST_F(ClientTest, AConnectionDroppedWhileIdleIsOpenedAgain) {
  Step first = json_step(200, kHello);
  first.close = true;
  server.push(first);
  server.push(json_step(200, kHello));
  Client client(options());
  ASSERT_TRUE(client.hello().ok());
  const auto second = client.hello();
  ASSERT_TRUE(second.ok()) << second.error().text();
  EXPECT_EQ(server.connections(), 2);
}

TEST_F(ClientTest, ARequestThatGotNoAnswerIsSentOnceMoreWhenThatIsHarmless) {
  Step drop;
  drop.close = true;
  server.push(json_step(200, kHello));
  server.push(drop);
  server.push(json_step(200, kHello));
  Client client(options());
  ASSERT_TRUE(client.hello().ok());
  EXPECT_TRUE(client.hello().ok());
  EXPECT_EQ(server.seen().size(), 3U);
}

TEST_F(ClientTest, ADaemonOnItsWayOutIsAskedAgainOnceItIsReplaced) {
  const char* draining = R"({"error":{"code":"draining","message":"m","action":"a"}})";
  server.push(json_step(503, draining));
  server.push(json_step(503, draining));
  server.push(json_step(200, kHello));
  server.push(json_step(503, draining));
  ClientOptions o = options();
  EXPECT_TRUE(Client(o).hello().is(Code::kDraining));  // may not start one: it is told
  o.autostart = true;
  Client client(o);
  EXPECT_TRUE(client.hello().ok());
  EXPECT_EQ(server.seen().size(), 3U);
  EXPECT_TRUE(client.bypass("default", "x", "").is(Code::kDraining));
}

TEST_F(ClientTest, CountingIsNotRepeated) {
  Step drop;
  drop.close = true;
  server.push(json_step(200, kHello));
  server.push(drop);
  server.push(json_step(200, "{}"));
  Client client(options());
  ASSERT_TRUE(client.hello().ok());
  EXPECT_TRUE(client.bypass("default", "test", "").is(Code::kUnavailable));
  EXPECT_EQ(server.seen().size(), 2U);
}

TEST_F(ClientTest, AFreshConnectionThatIsDroppedIsAnError) {
  Step drop;
  drop.close = true;
  server.push(drop);
  server.push(json_step(200, kHello));
  EXPECT_TRUE(Client(options()).hello().is(Code::kUnavailable));
}

TEST_F(ClientTest, AnAnswerMayComeInPiecesAndChunks) {
  Step slow = json_step(200, kHello);
  slow.byte_by_byte = true;
  server.push(slow);
  const std::string body = kHello;
  Step chunked;
  chunked.answer = fmt::format(
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{}\r\n{:x}\r\n{}\r\n0\r\n\r\n",
      5, body.substr(0, 5), body.size() - 5, body.substr(5));
  chunked.byte_by_byte = true;
  server.push(chunked);
  Client client(options());
  EXPECT_TRUE(client.hello().ok());
  EXPECT_TRUE(client.hello().ok());
  EXPECT_EQ(server.connections(), 1);
}

TEST_F(ClientTest, WhatIsNotHttpOrNotJsonIsAnError) {
  Step garbage;
  garbage.answer = "SSH-2.0-OpenSSH\r\n\r\n";
  garbage.close = true;
  server.push(garbage);
  server.push(json_step(200, "[1]"));
  Client client(options());
  EXPECT_TRUE(client.hello().is(Code::kIo));
  EXPECT_TRUE(client.hello().is(Code::kInvalid));
}

TEST_F(ClientTest, AnAnswerThatIsCutOffIsAnErrorAndTheNextCallWorks) {
  Step cut;
  cut.answer = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"a\"";
  cut.close = true;
  server.push(cut);
  server.push(json_step(200, kHello));
  Client client(options());
  EXPECT_TRUE(client.hello().is(Code::kUnavailable));
  EXPECT_TRUE(client.hello().ok());
}

TEST_F(ClientTest, AChildOfForkHasItsOwnConnection) {
  server.answer_with([](const SeenRequest&) { return json_step(200, kHello); });
  Client client(options());
  ASSERT_TRUE(client.hello().ok());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(client.hello().ok() ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(client.hello().ok());
  const auto seen = server.seen();
  ASSERT_EQ(seen.size(), 3U);
  EXPECT_EQ(seen[0].connection, seen[2].connection);
  EXPECT_NE(seen[0].connection, seen[1].connection);
}

TEST_F(ClientTest, AcquireReadsEveryState) {
  const std::string k = key().hex();
  const Digest digest = Digest::of(as_bytes("hello"));
  server.push(json_step(
      200, fmt::format(
               R"({{"state":"hit","waited":true,"manifest":{{"key":"{}","kind":"graph","outputs":[
      {{"name":"a","digest":"{}","size":5,"mode":493}},{{"name":"b","digest":"{}","size":5,"mode":420}},
      {{"name":"c","digest":"{}","size":5,"mode":420}}],"parts":[["p","v"]],"meta":{{"m":"n","x":1}}}},
      "blobs":{{"a":{{"path":"/cas/a","inline":null}},"b":{{"path":null,"inline":"aGVsbG8="}},"c":{{"path":null,"inline":null}}}}}})",
               k, digest.hex(), digest.hex(), digest.hex())));
  server.push(json_step(
      200, R"({"state":"lease","lease":{"id":"ff","fence":7,"ttl_ms":15000,"heartbeat_ms":3000},
      "miss":{"cause":"parts_differ","nearest":{"key":"aa","created_ms":3,"host":"h","differs":[["p","w","s"],["bad"]]}}})"));
  server.push(json_step(
      200,
      R"({"state":"building","ticket":"t1","builder":{"pid":4,"host":"h","program":"p"},"elapsed_s":12.5,
      "usual_s":null,"waiters":3})"));
  server.push(json_step(
      200,
      R"({"state":"failed","failure":{"class":"deterministic","message":"m","log":"l","exit_code":1}})"));
  server.push(json_step(200, R"({"state":"miss","miss":{"cause":"evicted","nearest":null}})"));
  server.push(json_step(200, R"({"state":"new one"})"));
  Client client(options());
  AcquireRequest request;
  request.key = key();
  request.parts = {{"a", "1"}};

  auto hit = client.acquire(request);
  ASSERT_TRUE(hit.ok()) << hit.error().text();
  EXPECT_EQ(hit->state, Acquired::State::kHit);
  EXPECT_TRUE(hit->waited);
  ASSERT_EQ(hit->blobs.size(), 3U);
  EXPECT_EQ(hit->blobs[0].path, "/cas/a");
  EXPECT_EQ(hit->blobs[0].output.mode, 0755U);
  EXPECT_EQ(hit->blobs[1].inline_bytes, "hello");
  EXPECT_TRUE(hit->blobs[2].path.empty());
  EXPECT_FALSE(hit->blobs[2].inline_bytes.has_value());
  EXPECT_EQ(hit->manifest.meta.at("m"), "n");

  auto lease = client.acquire(request);
  ASSERT_TRUE(lease.ok());
  EXPECT_EQ(lease->state, Acquired::State::kLease);
  EXPECT_EQ(lease->lease.fence, 7U);
  EXPECT_EQ(lease->lease.key, key());
  ASSERT_TRUE(lease->miss.nearest.has_value());
  ASSERT_EQ(lease->miss.nearest->differs.size(), 1U);
  EXPECT_EQ(lease->miss.nearest->differs[0].have, "s");

  auto building = client.acquire(request);
  ASSERT_TRUE(building.ok());
  EXPECT_EQ(building->state, Acquired::State::kBuilding);
  EXPECT_EQ(building->building.ticket, "t1");
  EXPECT_FALSE(building->building.usual_s.has_value());

  auto failed = client.acquire(request);
  ASSERT_TRUE(failed.ok());
  EXPECT_EQ(failed->failure.failure_class, "deterministic");
  auto miss = client.acquire(request);
  ASSERT_TRUE(miss.ok());
  EXPECT_EQ(miss->miss.cause, "evicted");
  EXPECT_TRUE(client.acquire(request).is(Code::kInvalid));

  const SeenRequest seen = server.seen()[0];
  EXPECT_EQ(seen.target, "/v1/actions/" + k + "/acquire");
  EXPECT_EQ(seen.body, R"({"intent":"build","namespace":"default","parts":[["a","1"]]})");
}

TEST_F(ClientTest, AHitForAnotherKeyIsRefused) {
  server.push(json_step(
      200, fmt::format(R"({{"state":"hit","manifest":{{"key":"{}","outputs":[]}},"blobs":{{}}}})",
                       Digest::of(as_bytes("x")).hex())));
  AcquireRequest request;
  request.key = key();
  EXPECT_TRUE(Client(options()).acquire(request).is(Code::kInvalid));
}

TEST_F(ClientTest, WaitingGoesOnWithTheTicket) {
  server.push(json_step(200, R"({"state":"building","ticket":"t1","elapsed_s":1})"));
  server.push(json_step(200, R"({"state":"building","ticket":"t1","elapsed_s":2})"));
  server.push(json_step(
      200, R"({"state":"lease","lease":{"id":"ff","fence":1,"ttl_ms":9,"heartbeat_ms":3}})"));
  int steps = 0;
  AcquireRequest request;
  request.key = key();
  request.wait_ms = 5;
  const auto answer = Client(options()).acquire_and_wait(request, 0, [&](const BuildingInfo& info) {
    ++steps;
    return info.elapsed_s < 100;
  });
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->state, Acquired::State::kLease);
  EXPECT_EQ(steps, 2);
  EXPECT_EQ(server.seen()[0].body.find("ticket"), std::string::npos);
  EXPECT_NE(server.seen()[1].body.find(R"("ticket":"t1")"), std::string::npos);
  EXPECT_NE(server.seen()[2].body.find(R"("wait_ms":5)"), std::string::npos);
}

TEST_F(ClientTest, WaitingCanBeGivenUp) {
  server.push(json_step(200, R"({"state":"building","ticket":"t1"})"));
  AcquireRequest request;
  request.key = key();
  const auto answer =
      Client(options()).acquire_and_wait(request, 0, [](const BuildingInfo&) { return false; });
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->state, Acquired::State::kBuilding);
}

}  // namespace
}  // namespace nc::client
