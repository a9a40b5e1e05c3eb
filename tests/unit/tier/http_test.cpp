// What comes over HTTP: heads, ranges, XML, and a fetch that goes on where it broke.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/fake_filesystem.hpp"
#include "cache/tier/curl_library.hpp"
#include "cache/tier/http_fetch.hpp"
#include "cache/tier/loopback.hpp"
#include "cache/tier/xml.hpp"
#include "tests/unit/tier/fake_http.hpp"

namespace nc::tier {
namespace {

TEST(HttpHeadTest, InterimAnswersAreDropped) {
  HttpHeadReader reader;
  EXPECT_FALSE(reader.line("HTTP/1.1 100 Continue\r\n").value());
  EXPECT_FALSE(reader.line("\r\n").value());
  EXPECT_FALSE(reader.line("HTTP/1.1 206 Partial Content\r\n").value());
  EXPECT_FALSE(reader.line("Content-LENGTH:  12 \r\n").value());
  EXPECT_FALSE(reader.line("X: a: b\r\n").value());
  EXPECT_TRUE(reader.line("\r\n").value());
  EXPECT_EQ(reader.head().status, 206);
  EXPECT_EQ(reader.head().content_length(), 12U);
  EXPECT_EQ(reader.head().header("x"), "a: b");
  EXPECT_EQ(reader.head().header("y"), "");
}

TEST(HttpHeadTest, WhatIsNoHeadIsRefused) {
  for (const char* line : {"ICY 200 OK", "HTTP/1.1", "HTTP/1.1 abc", "HTTP/1.1 99 x", "HTTP/1.1 20",
                           "SSH-2.0-OpenSSH", ""}) {
    HttpHeadReader reader;
    EXPECT_TRUE(reader.line(line).is(Code::kCorrupt)) << line;
  }
  HttpHeadReader reader;
  ASSERT_TRUE(reader.line("HTTP/1.1 200 OK").ok());
  EXPECT_TRUE(reader.line("no colon").is(Code::kCorrupt));
  EXPECT_TRUE(reader.line(": no name").is(Code::kCorrupt));
}

TEST(HttpHeadTest, HeadsAreBounded) {
  HttpHeadReader many;
  ASSERT_TRUE(many.line("HTTP/1.1 200 OK").ok());
  std::size_t lines = 0;
  while (many.line("a: b").ok()) ++lines;
  EXPECT_EQ(lines, HttpHeadReader::kMaxHeaders);
  HttpHeadReader interim;  // interim answers without end
  std::size_t rounds = 0;
  while (interim.line("HTTP/1.1 100 Continue").ok() && interim.line("").ok()) ++rounds;
  EXPECT_LT(rounds, HttpHeadReader::kMaxBytes);
  HttpHead head{200, {{"content-length", "-1"}}};
  EXPECT_FALSE(head.content_length());
  head.headers[0].value = "99999999999999999999999";
  EXPECT_FALSE(head.content_length());
}

TEST(HttpTest, Ranges) {
  const auto range = parse_content_range("bytes 5-9/10");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->first, 5U);
  EXPECT_EQ(range->last, 9U);
  EXPECT_EQ(range->total, 10U);
  EXPECT_EQ(parse_content_range("bytes */7")->total, 7U);
  for (const char* text : {"", "bytes", "bytes 5-9/*", "bytes 9-5/10", "bytes 5-10/10",
                           "items 0-1/2", "bytes 5/10", "bytes -5/10", "bytes 0-1/2 "}) {
    EXPECT_FALSE(parse_content_range(text)) << text;
  }
}

TEST(HttpTest, OwnAddresses) {
  for (const char* host : {"localhost", "127.0.0.1", "127.9.9.9", "::1"}) {
    EXPECT_TRUE(is_loopback(host)) << host;
  }
  for (const char* host : {"", "10.0.0.1", "127.0.0.1.example", "localhost.example", "::2"}) {
    EXPECT_FALSE(is_loopback(host)) << host;
  }
  EXPECT_EQ(host_of_url("http://169.254.170.2/v2?x=@y"), "169.254.170.2");
  EXPECT_EQ(host_of_url("http://127.0.0.1@evil.example/"), "evil.example");
}

TEST(CurlLibraryTest, WithoutItTheTierSaysWhatToInstall) {
  const char* const names[] = {"libcurl-that-is-not-there.so.4", nullptr};
  const auto none = load_curl(names);
  ASSERT_TRUE(none.is(Code::kUnsupported));
  EXPECT_THAT(none.error().text(), testing::HasSubstr("Debian: libcurl4"));
  const char* const other[] = {"libm.so.6", nullptr};
  EXPECT_TRUE(load_curl(other).is(Code::kUnsupported));
}

// ---- XML ----

TEST(XmlTest, ElementsAndText) {
  const auto root = parse_xml(
      "\xef\xbb\xbf<?xml version=\"1.0\"?>\n<!-- <a> -->\n"
      "<s3:List xmlns:s3='x>y'><Key a=\"/>\">a&amp;b&#x20AC;&#65;</Key><Empty/>\n"
      "<!-- c --><Key>2</Key ></s3:List>\n");
  ASSERT_TRUE(root.ok()) << root.error().text();
  EXPECT_EQ(root->name, "List");
  EXPECT_EQ(root->child_text("Key"),
            "a&b\xe2\x82\xac"
            "A");
  EXPECT_EQ(root->child_text("Empty"), "");
  EXPECT_EQ(root->child("Nothing"), nullptr);
  EXPECT_EQ(root->children.size(), 3U);
}

TEST(XmlTest, GarbageIsRefused) {
  for (const char* text :
       {"", "text", "<a>", "<a></b>", "<a></a><b/>", "<a>&nope;</a>", "<a>&#0;</a>",
        "<a>&#xD800;</a>", "<a>&amp</a>", "<!DOCTYPE a><a/>", "<a><![CDATA[x]]></a>", "<a b='>",
        "<a/ >", "< a/>", "<a><!-- ", "<a></a x>", "{\"json\": 1}"}) {
    EXPECT_TRUE(parse_xml(text).is(Code::kCorrupt)) << text;
  }
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "<a>";
  EXPECT_TRUE(parse_xml(deep).is(Code::kCorrupt));
  std::string wide = "<a>";
  for (int i = 0; i < 60'000; ++i) wide += "<b/>";
  EXPECT_TRUE(parse_xml(wide + "</a>").is(Code::kCorrupt));
}

// ---- Fetching ----

struct FetchTest : testing::Test {
  FakeFileSystem files;
  FakeDoors doors;
  EngineDeps deps = doors.deps(files);
  FakeHttp http;
  std::string got;
  Status sink_status;

  Result<std::uint64_t> fetch(std::uint64_t offset = 0, std::uint64_t limit = 1000) {
    got.clear();
    const Sink sink = [&](Bytes piece) {
      got += as_text(piece);
      return sink_status;
    };
    return fetch_object(deps, "x", offset, limit, sink,
                        [&](const FetchParts& parts) -> Result<HttpResponse> {
                          HttpRequest request;
                          request.headers = parts.headers;
                          request.on_head = parts.on_head;
                          request.sink = parts.sink;
                          NC_ASSIGN(auto response, http.send(request));
                          const int status = response.head.status;
                          if (status == 404) return Error{Code::kNotFound, "", ""};
                          if (status >= 500) return Error{Code::kUnavailable, "", ""};
                          return response;
                        });
  }
  static std::vector<HttpHeader> whole(std::size_t size, const char* etag = "\"1\"") {
    return {{"content-length", std::to_string(size)}, {"etag", etag}};
  }
  static std::vector<HttpHeader> part(const char* range, const char* etag = "\"1\"") {
    return {{"content-range", range}, {"etag", etag}};
  }
  static Error broken(Code code = Code::kCorrupt) { return {code, "broke off", ""}; }
};

TEST_F(FetchTest, GoesOnWhereItBroke) {
  http.answer({200, whole(10), "0123", broken()});
  http.answer(503);
  http.answer({206, part("bytes 4-9/10"), "45", broken(Code::kTimeout)});
  http.answer(206, "6789", part("bytes 6-9/10"));
  EXPECT_EQ(fetch().value(), 10U);
  EXPECT_EQ(got, "0123456789");
  ASSERT_EQ(http.seen.size(), 4U);
  EXPECT_EQ(http.seen[0].header("range"), "");
  EXPECT_EQ(http.seen[1].header("range"), "bytes=4-");
  EXPECT_EQ(http.seen[1].header("if-match"), "\"1\"");
  EXPECT_EQ(http.seen[3].header("range"), "bytes=6-");
  EXPECT_EQ(doors.waits.size(), 3U);
}

TEST_F(FetchTest, FromAnOffset) {
  http.answer(206, "6789", part("bytes 6-9/10"));
  EXPECT_EQ(fetch(6).value(), 10U);
  EXPECT_EQ(got, "6789");
  http.answer(416, "", {{"content-range", "bytes */10"}});
  EXPECT_EQ(fetch(10).value(), 10U);
  http.answer(416);  // does not say how much there is
  http.answer(206, "9", part("bytes 9-9/10"));
  EXPECT_EQ(fetch(10).value(), 10U);
  EXPECT_EQ(got, "");
  EXPECT_EQ(http.seen.back().header("range"), "bytes=9-");
  http.answer(416, "", {{"content-range", "bytes */10"}});
  EXPECT_TRUE(fetch(11).is(Code::kCorrupt));
  http.answer(416);
  http.answer(416);
  EXPECT_TRUE(fetch(12).is(Code::kCorrupt));
  http.answer(200, "0123456789", whole(10));  // a server without ranges
  EXPECT_EQ(fetch(6).value(), 10U);
  EXPECT_EQ(got, "6789");
  EXPECT_EQ(http.left(), 0U);
}

TEST_F(FetchTest, NeverBytesOfTwoVersions) {
  http.answer({200, whole(10), "0123", broken()});
  http.answer(412);
  EXPECT_TRUE(fetch().is(Code::kCorrupt));
  http.answer({200, whole(10), "0123", broken()});
  http.answer(206, "xxxxxx", part("bytes 4-9/10", "\"2\""));
  EXPECT_TRUE(fetch().is(Code::kCorrupt));
  EXPECT_EQ(got, "0123");
  http.answer({200, whole(10, ""), "0123", broken()});
  http.answer(206, "xxxxxxx", part("bytes 4-10/11", ""));
  EXPECT_TRUE(fetch().is(Code::kCorrupt));
  EXPECT_EQ(got, "0123");
}

TEST_F(FetchTest, WrongLengthsAndRanges) {
  http.answer(206, "6789", part("bytes 5-9/10"));
  EXPECT_TRUE(fetch(6).is(Code::kCorrupt));
  http.answer(206, "678", part("bytes 6-8/10"));
  EXPECT_TRUE(fetch(6).is(Code::kCorrupt));
  http.answer(206, "6789", {});
  EXPECT_TRUE(fetch(6).is(Code::kCorrupt));
  http.answer(206, "6789", {{"content-range", "bytes 6-9/10"}, {"content-length", "5"}});
  EXPECT_TRUE(fetch(6).is(Code::kCorrupt));
  http.answer(200, "0123456789+", whole(10));
  EXPECT_TRUE(fetch().is(Code::kCorrupt));
  http.answer(200, "01234", whole(5));
  EXPECT_TRUE(fetch(6).is(Code::kCorrupt));
  EXPECT_EQ(http.left(), 0U);
  for (int i = 0; i < 3; ++i) http.answer(200, "", whole(10));  // ends early each time
  EXPECT_TRUE(fetch().is(Code::kCorrupt));
  EXPECT_EQ(http.left(), 0U);
}

TEST_F(FetchTest, LimitsHold) {
  http.answer(200, "0123456789", whole(10));
  EXPECT_TRUE(fetch(0, 9).is(Code::kTooLarge));
  EXPECT_EQ(got, "");
  http.answer(206, "6789", part("bytes 6-9/10"));
  EXPECT_TRUE(fetch(6, 9).is(Code::kTooLarge));
  http.answer(200, "0123456789");  // without a length
  EXPECT_TRUE(fetch(0, 9).is(Code::kTooLarge));
  http.answer(200, "0123456789");
  EXPECT_EQ(fetch(0, 10).value(), 10U);
}

TEST_F(FetchTest, WhatIsFinalIsNotRepeated) {
  http.answer(404);
  EXPECT_TRUE(fetch().is(Code::kNotFound));
  http.fail(Code::kTimeout);
  EXPECT_TRUE(fetch().is(Code::kTimeout));
  http.answer(200, "0123456789", whole(10));
  sink_status = Error{Code::kUnavailable, "of the sink", ""};
  EXPECT_TRUE(fetch().is(Code::kUnavailable));
  EXPECT_EQ(got, "0123456789");
  sink_status = {};
  for (int i = 0; i < 3; ++i) http.answer(503);
  EXPECT_TRUE(fetch().is(Code::kUnavailable));
  EXPECT_EQ(http.left(), 0U);
}

}  // namespace
}  // namespace nc::tier
