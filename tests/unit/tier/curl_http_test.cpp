// The real client against servers that do everything wrong.
#include "cache/tier/curl_http.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/tier/engine_contract.hpp"
#include "tests/unit/tier/raw_server.hpp"

namespace nc::tier {
namespace {

using testing::HasSubstr;
using Then = RawAnswer::Then;

struct CurlHttpTest : testing::Test {
  RawServer server;
  std::shared_ptr<HttpClient> http;

  void SetUp() override {
    auto opened = open_curl_http(system_clock());
    ASSERT_TRUE(opened.ok()) << opened.error().text();
    http = *opened;
  }
  HttpRequest request(const char* method = "GET") {
    HttpRequest out;
    out.method = method;
    out.url = "http://127.0.0.1:" + std::to_string(server.port()) + "/a%2Bb/../c?secret=1";
    out.timeout_ms = 20'000;
    return out;
  }
  Result<HttpResponse> send(const HttpRequest& what) { return http->send(what); }
};

TEST_F(CurlHttpTest, RequestsGoOutAsTheyAre) {
  server.answer("HTTP/1.1 200 OK\r\nContent-Length: 4\r\nETag: \"x\"\r\n\r\ntext");
  server.answer("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n");
  server.answer("HTTP/1.1 204 No Content\r\n\r\n");
  server.answer("HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n");
  auto get = request();
  get.headers = {{"x-one", "1"}, {"x-empty", ""}};
  const auto got = send(get);
  ASSERT_TRUE(got.ok()) << got.error().text();
  EXPECT_EQ(got->body, "text");
  EXPECT_EQ(got->head.header("etag"), "\"x\"");
  auto put = request("PUT");
  const auto large = patterned(300'000);
  TextSource source("..some bytes..");
  put.source = &source;
  put.source_offset = 2;
  put.source_size = 10;
  EXPECT_EQ(send(put)->head.status, 201);
  EXPECT_EQ(send(request("DELETE"))->head.status, 204);
  EXPECT_EQ(send(request("HEAD"))->head.content_length(), 12345U);
  server.answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  auto post = request("POST");
  post.bytes = as_bytes(large);
  EXPECT_TRUE(send(post).ok());
  server.answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  EXPECT_TRUE(send(request("POST")).ok());
  EXPECT_EQ(server.connections(), 1);  // kept and used again
  const auto seen = server.requests();
  ASSERT_EQ(seen.size(), 6U);
  EXPECT_THAT(seen[0], testing::StartsWith("GET /a%2Bb/../c?secret=1 HTTP/1.1\r\n"));
  EXPECT_THAT(seen[0], HasSubstr("\r\nx-one: 1\r\n"));
  EXPECT_THAT(seen[0], HasSubstr("\r\nx-empty:\r\n"));
  EXPECT_THAT(seen[1], testing::EndsWith("\r\n\r\nsome bytes"));
  EXPECT_THAT(seen[1], HasSubstr("\r\nContent-Length: 10\r\n"));
  EXPECT_THAT(seen[1], testing::Not(HasSubstr("Expect")));
  EXPECT_THAT(seen[2], testing::StartsWith("DELETE "));
  EXPECT_TRUE(seen[4].ends_with(large));
  EXPECT_THAT(seen[4], testing::Not(HasSubstr("Expect")));
  EXPECT_THAT(seen[5], HasSubstr("\r\nContent-Length: 0\r\n"));
}

TEST_F(CurlHttpTest, BodiesStreamWhereTheyAreAskedFor) {
  const auto large = patterned(1 << 20);
  server.answer("HTTP/1.1 200 OK\r\nContent-Length: 1048576\r\n\r\n" + large);
  auto get = request();
  std::string got;
  int heads = 0;
  get.on_head = [&](const HttpHead& head) {
    ++heads;
    EXPECT_EQ(head.content_length(), 1U << 20);
    return Status();
  };
  get.sink = [&](Bytes piece) {
    got += as_text(piece);
    return Status();
  };
  const auto response = send(get);
  ASSERT_TRUE(response.ok());
  EXPECT_EQ(response->body, "");
  EXPECT_TRUE(got == large);
  EXPECT_EQ(heads, 1);
  server.answer("HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone");
  get.on_head = {};
  got.clear();
  const auto failed = send(get);
  EXPECT_EQ(failed->body, "none");  // a failure's text is no body
  EXPECT_EQ(got, "");
}

TEST_F(CurlHttpTest, WhatOursRefuseEndsIt) {
  server.answer("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ntext", Then::kClose);
  auto get = request();
  get.on_head = [](const HttpHead&) -> Status { return Error{Code::kTooLarge, "of head", ""}; };
  EXPECT_TRUE(send(get).is(Code::kTooLarge));
  server.answer("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ntext", Then::kClose);
  get.on_head = {};
  get.sink = [](Bytes) -> Status { return Error{Code::kNoSpace, "of sink", ""}; };
  const auto refused = send(get);
  ASSERT_TRUE(refused.is(Code::kNoSpace));
  EXPECT_THAT(refused.error().message, HasSubstr("of sink"));
  EXPECT_THAT(refused.error().message, testing::Not(HasSubstr("secret=1")));
  server.answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Then::kClose);
  auto put = request("PUT");
  TextSource shorter("abc");
  put.source = &shorter;
  put.source_size = 10;
  EXPECT_TRUE(send(put).is(Code::kCorrupt));
}

TEST_F(CurlHttpTest, LimitsHoldWhileItStreams) {
  server.answer("HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n" + std::string(101, 'x'));
  auto get = request();
  get.body_limit = 100;
  EXPECT_TRUE(send(get).is(Code::kTooLarge));
  // Endless, without a length.
  server.answer("HTTP/1.1 200 OK\r\n\r\n" + std::string(10 << 20, 'x'), Then::kClose);
  EXPECT_TRUE(send(get).is(Code::kTooLarge));
  server.answer("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + std::string(100, 'x'));
  EXPECT_EQ(send(get)->body.size(), 100U);
  // The text of a failure is cut off.
  server.answer("HTTP/1.1 500 Oops\r\nContent-Length: 10485760\r\n\r\n" +
                std::string(10 << 20, 'x'));
  const auto failed = send(get);
  ASSERT_TRUE(failed.ok()) << failed.error().text();
  EXPECT_EQ(failed->head.status, 500);
  EXPECT_EQ(failed->body.size(), kMaxFailureText);
  std::string head = "HTTP/1.1 200 OK\r\n";
  for (int i = 0; i < 300; ++i) head += "x-" + std::to_string(i) + ": y\r\n";
  server.answer(head + "Content-Length: 0\r\n\r\n");
  EXPECT_TRUE(send(get).is(Code::kTooLarge));
  server.answer("HTTP/1.1 200 OK\r\nx: " + std::string(70'000, 'y') +
                "\r\nContent-Length: 0\r\n\r\n");
  EXPECT_TRUE(send(get).is(Code::kTooLarge));
}

TEST_F(CurlHttpTest, BrokenAnswersAreToldApart) {
  server.answer("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\ntext", Then::kClose);
  EXPECT_TRUE(send(request()).is(Code::kCorrupt));
  server.answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\ntex", Then::kClose);
  EXPECT_FALSE(send(request()).ok());
  server.answer("SSH-2.0-OpenSSH_9.2\r\n", Then::kClose);
  EXPECT_TRUE(send(request()).is(Code::kCorrupt));
  server.answer("", Then::kClose);
  EXPECT_TRUE(send(request()).is(Code::kUnavailable));
  server.answer(
      "HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(send(request())->head.status, 302);  // is not followed
  server.answer("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n", Then::kHold);
  auto slow = request();
  slow.timeout_ms = 200;
  const auto late = send(slow);
  EXPECT_TRUE(late.is(Code::kTimeout)) << late.error().text();
}

TEST_F(CurlHttpTest, NobodyThere) {
  auto get = request();
  get.url = "http://127.0.0.1:1/";
  const auto refused = send(get);
  ASSERT_TRUE(refused.is(Code::kUnavailable));
  EXPECT_THAT(refused.error().action, HasSubstr("check the address"));
  get.url = "file:///etc/passwd";
  EXPECT_FALSE(send(get).ok());
  get.url = "https://127.0.0.1:" + std::to_string(server.port());
  server.answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Then::kClose);
  get.timeout_ms = 1'000;
  EXPECT_FALSE(send(get).ok());  // speaks no TLS
}

}  // namespace
}  // namespace nc::tier
