#include "cache/tier/http_engine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/fake_filesystem.hpp"
#include "cache/tier/layout.hpp"
#include "tests/unit/tier/engine_contract.hpp"
#include "tests/unit/tier/fake_http.hpp"

namespace nc::tier {
namespace {

using testing::HasSubstr;
using testing::Not;

struct HttpEngineTest : testing::Test {
  FakeFileSystem files;
  FakeDoors doors;
  std::shared_ptr<FakeHttp> http = std::make_shared<FakeHttp>();
  std::unique_ptr<Engine> engine;

  void SetUp() override { open("https://cache.example/base"); }
  void open(const std::string& url) { engine = std::move(opened(url)).value(); }
  Result<std::unique_ptr<Engine>> opened(const std::string& url) {
    return open_http(parse_tier_url(url).value(), doors.deps(files), http);
  }
};

TEST_F(HttpEngineTest, RequestsAndAnswers) {
  http->answer(200, "text");
  EXPECT_EQ(engine->get("v1/a", 10).value(), "text");
  http->answer(201);
  EXPECT_TRUE(engine->put("v1/a", as_bytes("x")).ok());
  TextSource source("streams");
  http->answer(204);
  EXPECT_TRUE(engine->store("v1/b", source).ok());
  http->answer(404);
  EXPECT_TRUE(engine->remove("v1/a").ok());
  http->answer(200, "", {{"content-length", "3"}});
  EXPECT_EQ(engine->head("v1/a")->size, 3U);
  http->answer(200);
  EXPECT_TRUE(engine->head("v1/a").is(Code::kUnsupported));
  EXPECT_EQ(http->seen[0].line(), "GET https://cache.example/base/v1/a");
  EXPECT_EQ(http->seen[1].line(), "PUT https://cache.example/base/v1/a");
  EXPECT_EQ(http->seen[2].body, "streams");
  EXPECT_EQ(http->seen[3].line(), "DELETE https://cache.example/base/v1/a");
  EXPECT_EQ(http->seen[0].header("authorization"), "");
  EXPECT_FALSE(engine->capabilities().list);
  EXPECT_TRUE(engine->list("", "", 1).is(Code::kUnsupported));
  open("http://[::1]:8080");
  http->answer(200);
  EXPECT_TRUE(engine->get("a", 10).ok());
  EXPECT_EQ(http->seen.back().url, "http://[::1]:8080/a");
}

TEST_F(HttpEngineTest, EveryFailureHasItsCode) {
  const std::pair<int, Code> table[] = {
      {400, Code::kIo},          {401, Code::kDenied},   {403, Code::kDenied},
      {404, Code::kNotFound},    {405, Code::kReadOnly}, {408, Code::kTimeout},
      {409, Code::kIo},          {410, Code::kNotFound}, {413, Code::kTooLarge},
      {501, Code::kUnsupported}, {507, Code::kNoSpace},  {301, Code::kIo},
  };
  for (const auto& [status, code] : table) {
    http->answer(status, "<html>");
    const auto got = engine->put("a", {});
    EXPECT_TRUE(got.is(code)) << status;
    EXPECT_THAT(got.error().text(), HasSubstr(std::to_string(status)));
    EXPECT_EQ(http->left(), 0U);
  }
  for (const auto& [status, code] : {std::pair{429, Code::kBusy},
                                     {500, Code::kUnavailable},
                                     {503, Code::kUnavailable},
                                     {599, Code::kUnavailable}}) {
    for (int i = 0; i < 3; ++i) http->answer(status);
    EXPECT_TRUE(engine->get("a", 10).is(code)) << status;
    EXPECT_EQ(http->left(), 0U);
  }
  http->answer(302, "", {{"location", "http://169.254.169.254/"}});
  EXPECT_TRUE(engine->get("a", 10).is(Code::kIo));
  EXPECT_EQ(http->left(), 0U);
}

TEST_F(HttpEngineTest, Credentials) {
  open("https://me:p%40ss@cache.example");
  http->answer(200);
  EXPECT_TRUE(engine->get("a", 10).ok());
  EXPECT_EQ(http->seen.back().header("authorization"), "Basic bWU6cEBzcw==");
  EXPECT_EQ(engine->address(), "https://cache.example");

  doors.variables["CACHE_TOKEN"] = "hunter2";
  open("https://cache.example?token_env=CACHE_TOKEN");
  http->answer(401);
  const auto refused = engine->get("a", 10);
  EXPECT_EQ(http->seen.back().header("authorization"), "Bearer hunter2");
  EXPECT_THAT(refused.error().text(), Not(HasSubstr("hunter2")));

  ASSERT_TRUE(files.make_dirs("/run").ok());
  ASSERT_TRUE(files.write_atomically("/run/token", as_bytes("one\n")).ok());
  open("https://cache.example?token_file=/run/token");
  http->answer(200);
  EXPECT_TRUE(engine->get("a", 10).ok());
  ASSERT_TRUE(files.write_atomically("/run/token", as_bytes("two")).ok());  // rotated
  http->answer(200);
  EXPECT_TRUE(engine->get("a", 10).ok());
  EXPECT_EQ(http->seen.back().header("authorization"), "Bearer two");
  for (const char* text : {"", "two words", "line\nbreak", "\x01"}) {
    ASSERT_TRUE(files.write_atomically("/run/token", as_bytes(text)).ok());
    EXPECT_TRUE(engine->get("a", 10).is(Code::kDenied));
  }
  ASSERT_TRUE(files.remove("/run/token").ok());
  EXPECT_TRUE(engine->get("a", 10).is(Code::kDenied));
  EXPECT_EQ(http->left(), 0U);

  for (const char* url : {"http://me:p@10.0.0.1", "http://10.0.0.1?token_env=X",
                          "http://cache.example?token_file=/x"}) {
    EXPECT_TRUE(opened(url).is(Code::kInvalid)) << url;
    EXPECT_TRUE(opened(std::string(url) +
                       (std::string(url).find('?') == std::string::npos ? "?" : "&") +
                       "insecure=true")
                    .ok());
  }
  EXPECT_TRUE(opened("http://10.0.0.1").ok());
  EXPECT_TRUE(opened("http://me:p@127.0.0.1").ok());
}

TEST_F(HttpEngineTest, CreateNeedsProof) {
  EXPECT_FALSE(engine->capabilities().exclusive_create);
  EXPECT_TRUE(engine->create("a", as_bytes("x"), 0).is(Code::kUnsupported));
  EXPECT_TRUE(http->seen.empty());
  open("https://cache.example?conditional=true");
  EXPECT_TRUE(engine->capabilities().exclusive_create);
  http->answer(201);
  http->answer(412);
  EXPECT_TRUE(engine->create("a", as_bytes("x"), 0).value());
  EXPECT_EQ(http->seen[0].header("if-none-match"), "*");
  open("https://cache.example?conditional=true");
  for (int i = 0; i < 3; ++i) http->answer(204);
  EXPECT_TRUE(engine->create("a", as_bytes("x"), 0).is(Code::kUnsupported));
  EXPECT_FALSE(engine->capabilities().exclusive_create);
  http->fail(Code::kUnavailable);
  EXPECT_TRUE(engine->create("a", as_bytes("x"), 0).is(Code::kUnavailable));
  EXPECT_EQ(http->left(), 0U);
}

TEST_F(HttpEngineTest, BazelLayout) {
  open("https://cache.example/team?layout=bazel&compression=none");
  const auto digest = Sha256::of(as_bytes("x"));
  http->answer(200);
  EXPECT_TRUE(engine->get(entry_name(digest), 10).ok());
  EXPECT_EQ(http->seen.back().url, "https://cache.example/team/ac/" + digest.hex());
  http->answer(200);
  EXPECT_TRUE(engine->put(blob_name(digest, false), as_bytes("x")).ok());
  EXPECT_EQ(http->seen.back().url, "https://cache.example/team/cas/" + digest.hex());
  EXPECT_TRUE(engine->get(blob_name(digest, true), 10).is(Code::kNotFound));
  EXPECT_TRUE(engine->put(blob_name(digest, true), {}).is(Code::kUnsupported));
  EXPECT_TRUE(engine->put(mark_name(digest), {}).is(Code::kUnsupported));
  EXPECT_TRUE(engine->remove(entry_name(digest)).is(Code::kUnsupported));
  EXPECT_TRUE(engine->get("../x", 1).is(Code::kInvalid));
  EXPECT_FALSE(engine->capabilities().remove);
  EXPECT_EQ(http->left(), 0U);
}

TEST_F(HttpEngineTest, AnotherDaemon) {
  open("https://host:8443/?layout=neuroncached&compression=none");
  const auto digest = Sha256::of(as_bytes("x"));
  for (int i = 0; i < 4; ++i) http->answer(200);
  EXPECT_TRUE(engine->get(entry_name(digest), 10).ok());
  EXPECT_EQ(http->seen.back().url, "https://host:8443/v1/actions/" + digest.hex());
  EXPECT_TRUE(engine->put(entry_name(digest), as_bytes("{}")).ok());
  EXPECT_EQ(http->seen.back().url, "https://host:8443/v1/actions/" + digest.hex() + "?import=1");
  EXPECT_TRUE(engine->put(blob_name(digest, false), as_bytes("x")).ok());
  EXPECT_EQ(http->seen.back().url, "https://host:8443/v1/blobs/" + digest.hex());
  EXPECT_TRUE(engine->get(blob_name(digest, false), 10).ok());
  EXPECT_TRUE(engine->put(blob_name(digest, true), {}).is(Code::kUnsupported));
  EXPECT_TRUE(engine->remove(entry_name(digest)).is(Code::kUnsupported));
  // Leases live there as well.
  const auto lease = lease_name(digest, 7);
  const auto at = "https://host:8443/v1/cluster/leases/" + digest.hex() + ".7";
  http->answer(201);
  EXPECT_TRUE(engine->create(lease, as_bytes("x"), 0).value());
  EXPECT_EQ(http->seen.back().line(), "PUT " + at + "?create=1");
  http->answer(409);
  EXPECT_FALSE(engine->create(lease, as_bytes("y"), 0).value());
  http->answer(404);  // one that has no such requests
  EXPECT_TRUE(engine->create(lease, as_bytes("y"), 0).is(Code::kUnsupported));
  http->answer(200);
  EXPECT_TRUE(engine->put(lease, as_bytes("beat")).ok());
  EXPECT_EQ(http->seen.back().line(), "PUT " + at);
  http->answer(200, "beat");
  EXPECT_EQ(engine->get(lease, 10).value(), "beat");
  http->answer(200);
  EXPECT_TRUE(engine->remove(lease).ok());
  EXPECT_EQ(http->seen.back().line(), "DELETE " + at);
  EXPECT_TRUE(engine->capabilities().exclusive_create);
  EXPECT_FALSE(engine->capabilities().list);
  EXPECT_TRUE(engine->remove(blob_name(digest, false)).is(Code::kUnsupported));
  for (int i = 0; i < 3; ++i) http->answer(422);
  EXPECT_TRUE(engine->put(blob_name(digest, false), {}).is(Code::kCorrupt));
  EXPECT_EQ(http->left(), 0U);
}

}  // namespace
}  // namespace nc::tier
