// Bytes up and down, commits, lease keeping.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "client/client.hpp"
#include "client/connection.hpp"
#include "client/lease_keeper.hpp"
#include "tests/unit/client/fake_server.hpp"

namespace nc::client {
namespace {

using testing::FakeServer;
using testing::json_step;
using testing::SeenRequest;
using testing::Step;

class BlobTest : public ::testing::Test {
 protected:
  ClientOptions options(Millis request_timeout_ms = 10'000) const {
    ClientOptions o;
    o.socket_path = server.path();
    o.request_timeout_ms = request_timeout_ms;
    return o;
  }
  static Step bytes_step(const std::string& bytes) {
    Step step;
    step.answer =
        fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", bytes.size(), bytes);
    return step;
  }
  static std::string big() {
    std::string out(3 << 20, 'x');
    for (std::size_t i = 0; i < out.size(); i += 1000) out[i] = static_cast<char>('a' + i % 26);
    return out;
  }

  FakeServer server;
};

TEST_F(BlobTest, UploadSendsTheBytes) {
  server.push(json_step(201, R"({"existed":false})"));
  server.push(json_step(200, R"({"existed":true})"));
  const std::string bytes = big();
  const Digest digest = Digest::of(as_bytes(bytes));
  Client client(options());
  const auto first = client.upload(digest, as_bytes(bytes), {true, "l e"});
  ASSERT_TRUE(first.ok()) << first.error().text();
  EXPECT_FALSE(first->existed);
  EXPECT_EQ(first->size, bytes.size());
  const auto second = client.upload(digest, as_bytes(""), {false, ""});
  ASSERT_TRUE(second.ok());
  EXPECT_TRUE(second->existed);
  const auto seen = server.seen();
  EXPECT_EQ(seen[0].target, "/v1/blobs/" + digest.hex() + "?compress=auto&lease=l%20e");
  EXPECT_EQ(seen[0].body, bytes);
  EXPECT_EQ(seen[1].target, "/v1/blobs/" + digest.hex() + "?compress=never");
  EXPECT_NE(seen[1].head.find("Content-Length: 0\r\n"), std::string::npos);
}

TEST_F(BlobTest, AnUploadThatIsRefusedEarlyTellsWhy) {
  Step refuse =
      json_step(507, R"({"error":{"code":"no_space","message":"full","action":"free some"}})");
  refuse.before_body = true;
  server.push(refuse);
  server.push(json_step(201, R"({"existed":false})"));
  const std::string bytes = big();
  Client client(options());
  const auto refused = client.upload(Digest::of(as_bytes(bytes)), as_bytes(bytes), {});
  ASSERT_TRUE(refused.is(Code::kNoSpace)) << refused.error().text();
  EXPECT_TRUE(client.upload(Digest::of(as_bytes("a")), as_bytes("a"), {}).ok());
}

TEST_F(BlobTest, AFileIsStreamedAndNamedByItsDigest) {
  char path[] = "/tmp/nc-upload-XXXXXX";
  ::close(::mkstemp(path));
  const std::string bytes = big();
  std::ofstream(path) << bytes;
  server.push(json_step(201, "{}"));
  Client client(options());
  const auto up = client.upload_file(path, {});
  ::unlink(path);
  ASSERT_TRUE(up.ok()) << up.error().text();
  EXPECT_EQ(up->digest, Digest::of(as_bytes(bytes)));
  EXPECT_EQ(server.seen()[0].body, bytes);
  EXPECT_TRUE(client.upload_file(path, {}).is(Code::kNotFound));
}

TEST_F(BlobTest, ABodyThatEndsEarlyIsAnErrorAndNotASilentTruncation) {
  struct Short final : BodySource {
    std::uint64_t size() const override { return 10; }
    Result<std::size_t> read(std::uint64_t offset, std::span<std::byte> out) override {
      if (offset > 0) return std::size_t{0};
      out[0] = std::byte{1};
      return std::size_t{1};
    }
  } source;
  server.push(json_step(201, "{}"));
  EXPECT_TRUE(Client(options()).upload_from(Digest::of(as_bytes("x")), source, {}).is(Code::kIo));
}

TEST_F(BlobTest, DownloadsAreChecked) {
  const std::string bytes = big();
  server.push(bytes_step(bytes));
  server.push(bytes_step("other"));
  server.push(bytes_step(bytes));
  server.push(json_step(404, R"({"error":{"code":"not_found","message":"m","action":""}})"));
  Client client(options());
  const Digest digest = Digest::of(as_bytes(bytes));
  const auto good = client.download(digest, 1ULL << 30);
  ASSERT_TRUE(good.ok()) << good.error().text();
  EXPECT_EQ(*good, bytes);
  EXPECT_TRUE(client.download(digest, 100).is(Code::kDigestMismatch));
  EXPECT_TRUE(client.download(digest, 100).is(Code::kTooLarge));
  EXPECT_TRUE(client.download(digest, 100).is(Code::kNotFound));
}

TEST_F(BlobTest, ASinkGetsThePiecesAndCanStop) {
  const std::string bytes = big();
  server.push(bytes_step(bytes));
  server.push(bytes_step(bytes));
  server.push(json_step(500, R"({"error":{"code":"io","message":"m","action":""}})"));
  Client client(options());
  const Digest digest = Digest::of(as_bytes(bytes));
  std::string got;
  const auto all = client.download_to(digest, [&](Bytes b) -> Status {
    got += as_text(b);
    return {};
  });
  ASSERT_TRUE(all.ok()) << all.error().text();
  EXPECT_EQ(*all, bytes.size());
  EXPECT_EQ(got, bytes);
  EXPECT_TRUE(
      client.download_to(digest,
                         [](Bytes) -> Status {
                           return Error{Code::kNoSpace, "full", ""};
                         })
          .is(Code::kNoSpace));
  bool called = false;
  const auto failed = client.download_to(digest, [&](Bytes) -> Status {
    called = true;
    return {};
  });
  EXPECT_TRUE(failed.is(Code::kIo));
  EXPECT_FALSE(called);
}

TEST_F(BlobTest, HasBlobAsksWithHead) {
  Step yes;
  yes.answer = "HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n";  // HEAD: a length, no body
  Step no;
  no.answer = "HTTP/1.1 404 Not Found\r\nContent-Length: 77\r\n\r\n";
  server.push(yes);
  server.push(no);
  Client client(options());
  const Digest digest = Digest::of(as_bytes("x"));
  EXPECT_TRUE(*client.has_blob(digest));
  EXPECT_FALSE(*client.has_blob(digest));
  EXPECT_EQ(server.connections(), 1);
}

TEST_F(BlobTest, CommitSendsTheManifest) {
  server.push(json_step(201, R"({"published":true})"));
  server.push(json_step(200, R"({"published":false})"));
  EntryManifest m;
  m.key = *action_key({{"a", "1"}});
  m.kind = "graph";
  m.parts = {{"a", "1"}};
  m.outputs = {{"so", Digest::of(as_bytes("x")), 1, 0755}};
  m.meta = {{"k", "v"}};
  const Lease lease{m.key, "ff", 3, 100, 10};
  Client client(options());
  EXPECT_TRUE(*client.commit(lease, m));
  EXPECT_FALSE(*client.commit(lease, m));
  const SeenRequest seen = server.seen()[0];
  EXPECT_EQ(seen.method, "PUT");
  EXPECT_EQ(seen.target, "/v1/actions/" + m.key.hex() + "?lease=ff&fence=3");
  EXPECT_NE(seen.body.find(R"("outputs":[{"name":"so","digest":")"), std::string::npos);
  EXPECT_NE(seen.body.find(R"("parts":[["a","1"]])"), std::string::npos);
}

TEST_F(BlobTest, AnImportedManifestMustBeOfItsKey) {
  const std::string manifest = fmt::format(R"({{"key":"{}"}})", Digest::of(as_bytes("x")).hex());
  EXPECT_TRUE(
      Client(options()).commit_import(Digest::of(as_bytes("y")), manifest).is(Code::kCorrupt));
  EXPECT_EQ(server.seen().size(), 0U);
}

TEST_F(BlobTest, LeaseKeeperBeatsUntilItEnds) {
  server.answer_with([](const SeenRequest&) { return json_step(200, R"({"ttl_ms":5000})"); });
  {
    LeaseKeeper keeper(options(), {*action_key({{"a", "1"}}), "ff", 3, 5000, 2});
    keeper.set_progress("half way");
    ASSERT_TRUE(server.wait_for_requests(3));
    EXPECT_FALSE(keeper.lost());
  }
  const auto seen = server.seen();
  EXPECT_EQ(seen[0].target, "/v1/leases/ff/heartbeat");
  EXPECT_NE(seen.back().body.find("half way"), std::string::npos);
}

TEST_F(BlobTest, LeaseKeeperSaysWhenTheLeaseIsLost) {
  std::atomic<bool> lost{false};
  server.answer_with([&](const SeenRequest&) {
    return lost ? json_step(
                      409,
                      R"({"error":{"code":"lease_lost","message":"another has it","action":""}})")
                : json_step(503, R"({"error":{"code":"busy","message":"later","action":""}})");
  });
  LeaseKeeper keeper(options(), {*action_key({{"a", "1"}}), "ff", 3, 60'000, 2});
  ASSERT_TRUE(server.wait_for_requests(2));
  EXPECT_FALSE(keeper.lost());  // trouble is not loss
  EXPECT_NE(keeper.trouble().find("later"), std::string::npos);
  lost = true;
  for (int i = 0; i < 1000 && !keeper.lost(); ++i) ::usleep(5000);
  EXPECT_TRUE(keeper.lost());
}

}  // namespace
}  // namespace nc::client
