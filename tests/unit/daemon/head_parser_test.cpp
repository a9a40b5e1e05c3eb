#include "daemon/head_parser.hpp"

#include <gtest/gtest.h>

namespace nc::daemon {
namespace {

using Kind = HeadParser::Step::Kind;

HeadParser::Step feed(const std::string& text) {
  HeadParser parser;
  return parser.feed(text);
}

TEST(HeadParser, ReadsARequest) {
  const std::string head =
      "PUT /v1/blobs/ab?compress=never HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\n"
      "X-Neuroncache-Protocol: 1\r\nExpect: 100-Continue\r\n\r\n";
  HeadParser parser;
  auto step = parser.feed(head + "body and more");
  ASSERT_EQ(step.kind, Kind::kDone);
  EXPECT_EQ(step.used, head.size());
  const RequestHead got = parser.take();
  EXPECT_EQ(got.method, Method::kPut);
  EXPECT_EQ(got.path, "/v1/blobs/ab?compress=never");
  EXPECT_EQ(got.content_length, 12U);
  EXPECT_EQ(got.protocol, "1");
  EXPECT_TRUE(got.keep_alive);
  EXPECT_TRUE(got.expect_continue);
  EXPECT_FALSE(got.chunked);
}

TEST(HeadParser, TakesBytesOneByOne) {
  const std::string head = "GET /v1/hello HTTP/1.1\r\nHost: localhost\r\n\r\n";
  HeadParser parser;
  std::string waiting;
  for (std::size_t i = 0; i < head.size(); ++i) {
    waiting.push_back(head[i]);
    const auto step = parser.feed(waiting);
    waiting.erase(0, step.used);
    ASSERT_EQ(step.kind, i + 1 == head.size() ? Kind::kDone : Kind::kMore) << i;
  }
  EXPECT_EQ(parser.take().path, "/v1/hello");
  EXPECT_EQ(waiting, "");
}

TEST(HeadParser, IsUsedAgainAfterReset) {
  HeadParser parser;
  for (const char* path : {"/a", "/b"}) {
    ASSERT_EQ(parser.feed(std::string("GET ") + path + " HTTP/1.1\r\n\r\n").kind, Kind::kDone);
    EXPECT_EQ(parser.take().path, path);
    parser.reset();
  }
}

TEST(HeadParser, KnowsWhetherTheConnectionStays) {
  HeadParser parser;
  parser.feed("GET / HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_FALSE(parser.take().keep_alive);
  parser.reset();
  parser.feed("GET / HTTP/1.0\r\n\r\n");
  EXPECT_FALSE(parser.take().keep_alive);
}

TEST(HeadParser, SeesChunks) {
  HeadParser parser;
  ASSERT_EQ(parser.feed("PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n").kind, Kind::kDone);
  const RequestHead head = parser.take();
  EXPECT_TRUE(head.chunked);
  EXPECT_FALSE(head.content_length);
  // Of an encoding that is not known, too, nobody can say where the body ends.
  parser.reset();
  ASSERT_EQ(parser.feed("GET / HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n").kind, Kind::kDone);
  EXPECT_TRUE(parser.take().chunked);
}

TEST(HeadParser, RefusesWhatIsNotHttp) {
  for (const std::string& text :
       {std::string("\x16\x03\x01\x02\x00\x01\x00", 7), std::string("hello\r\n\r\n"),
        std::string("GET / HTTP/3.0\r\n\r\n"), std::string("GET  HTTP/1.1\r\n\r\n"),
        std::string("GET / HTTP/1.1\r\nno colon\r\n\r\n"),
        std::string("GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"),
        std::string("GET / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n"),
        std::string("GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"),
        std::string("GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n")}) {
    const auto step = feed(text);
    EXPECT_EQ(step.kind, Kind::kBad) << text;
    EXPECT_EQ(step.status, 400) << text;
  }
}

TEST(HeadParser, RefusesAHugeHead) {
  const auto step = feed("GET / HTTP/1.1\r\nX: " + std::string(20'000, 'a') + "\r\n\r\n");
  EXPECT_EQ(step.kind, Kind::kBad);
  EXPECT_EQ(step.status, 431);
  EXPECT_EQ(step.error.code, Code::kTooLarge);
}

TEST(SplitTarget, DecodesPathAndQuery) {
  RequestHead head;
  ASSERT_TRUE(split_target("/a%2Fb%20c?x=1&y=a%26b+c&z&x=2&=e", head).ok());
  EXPECT_EQ(head.path, "/a/b c");
  EXPECT_EQ(head.query.at("x"), "2");
  EXPECT_EQ(head.query.at("y"), "a&b c");
  EXPECT_EQ(head.query.at("z"), "");
}

TEST(SplitTarget, RefusesBadEscapes) {
  RequestHead head;
  for (const char* target : {"", "x", "?a=1", "/%", "/%4", "/%zz", "/%00", "/?a=%4", "/?%g1=1"}) {
    EXPECT_TRUE(split_target(target, head).is(Code::kInvalid)) << target;
  }
}

}  // namespace
}  // namespace nc::daemon
