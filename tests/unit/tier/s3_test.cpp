#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/fake_filesystem.hpp"
#include "base/hash.hpp"
#include "cache/tier/s3_answers.hpp"
#include "cache/tier/s3_engine.hpp"
#include "tests/unit/tier/engine_contract.hpp"
#include "tests/unit/tier/fake_http.hpp"

namespace nc::tier {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::string failure(const std::string& code) {
  return "<?xml version=\"1.0\"?><Error><Code>" + code + "</Code><Message>why</Message></Error>";
}

struct S3Test : testing::Test {
  FakeFileSystem files;
  FakeDoors doors;
  std::shared_ptr<FakeHttp> http = std::make_shared<FakeHttp>();
  std::unique_ptr<Engine> engine;

  void SetUp() override {
    doors.variables = {{"AWS_ACCESS_KEY_ID", "AKID"},
                       {"AWS_SECRET_ACCESS_KEY", "hunter2"},
                       {"AWS_SESSION_TOKEN", "tok3n"}};
    open("s3://bucket/pre/fix?region=eu-west-1");
  }
  void open(const std::string& url) { engine = std::move(opened(url)).value(); }
  Result<std::unique_ptr<Engine>> opened(const std::string& url) {
    return open_s3(parse_tier_url(url).value(), doors.deps(files), http);
  }
  std::string last_url() { return http->seen.empty() ? "" : http->seen.back().url; }
};

TEST_F(S3Test, WhereRequestsGo) {
  const auto url_of = [&](const std::string& url) {
    open(url);
    http->answer(200);
    EXPECT_TRUE(engine->get("v1/a", 10).ok());
    return last_url();
  };
  EXPECT_EQ(url_of("s3://bucket/pre/fix?region=eu-west-1"),
            "https://bucket.s3.eu-west-1.amazonaws.com/pre/fix/v1/a");
  EXPECT_EQ(url_of("s3://bucket?region=cn-north-1"),
            "https://bucket.s3.cn-north-1.amazonaws.com.cn/v1/a");
  EXPECT_EQ(url_of("s3://a.dotted.bucket"),
            "https://s3.us-east-1.amazonaws.com/a.dotted.bucket/v1/a");
  EXPECT_EQ(url_of("s3://bucket?style=path"), "https://s3.us-east-1.amazonaws.com/bucket/v1/a");
  EXPECT_EQ(url_of("s3://bucket/p%2B?endpoint=http://127.0.0.1:9000"),
            "http://127.0.0.1:9000/bucket/p%2B/v1/a");
  EXPECT_EQ(url_of("s3://bucket?endpoint=https://minio.example:443/s3&style=virtual"),
            "https://bucket.minio.example/s3/v1/a");
  doors.variables["AWS_REGION"] = "ap-south-1";
  EXPECT_EQ(url_of("s3://bucket"), "https://bucket.s3.ap-south-1.amazonaws.com/v1/a");
  doors.variables["AWS_ENDPOINT_URL_S3"] = "https://s3.example";
  EXPECT_EQ(url_of("s3://bucket"), "https://s3.example/bucket/v1/a");
}

TEST_F(S3Test, SecretsStayHome) {
  EXPECT_TRUE(opened("s3://bucket?endpoint=http://10.0.0.1:9000").is(Code::kInvalid));
  EXPECT_TRUE(opened("s3://bucket?endpoint=http://10.0.0.1:9000&insecure=true").ok());
  EXPECT_TRUE(opened("s3://bucket?endpoint=http://10.0.0.1:9000&anonymous=true").ok());
  EXPECT_TRUE(opened("s3://bucket?endpoint=ftp://10.0.0.1").is(Code::kInvalid));
  http->answer(403, failure("SignatureDoesNotMatch"));
  const auto refused = engine->get("a", 10);
  ASSERT_TRUE(refused.is(Code::kDenied));
  EXPECT_THAT(refused.error().text(), HasSubstr("s3://bucket/pre/fix: GET pre/fix/a: status 403 "
                                                "SignatureDoesNotMatch: why"));
  const auto& seen = http->seen.back();
  EXPECT_EQ(seen.header("x-amz-security-token"), "tok3n");
  EXPECT_THAT(seen.header("authorization"),
              StartsWith("AWS4-HMAC-SHA256 Credential=AKID/20231114"));
  EXPECT_THAT(refused.error().text(), Not(HasSubstr("tok3n")));
  for (const auto& header : seen.headers) EXPECT_THAT(header.value, Not(HasSubstr("hunter2")));
  open("s3://bucket?anonymous=true");
  http->answer(200);
  EXPECT_TRUE(engine->get("a", 10).ok());
  EXPECT_EQ(http->seen.back().header("authorization"), "");
}

TEST_F(S3Test, EveryFailureHasItsCode) {
  const std::pair<std::pair<int, const char*>, Code> table[] = {
      {{404, "NoSuchKey"}, Code::kNotFound},
      {{404, ""}, Code::kNotFound},
      {{404, "NoSuchBucket"}, Code::kIo},
      {{403, "AccessDenied"}, Code::kDenied},
      {{403, ""}, Code::kDenied},
      {{400, "InvalidAccessKeyId"}, Code::kDenied},
      {{301, "PermanentRedirect"}, Code::kIo},
      {{405, "MethodNotAllowed"}, Code::kReadOnly},
      {{501, "NotImplemented"}, Code::kUnsupported},
      {{413, ""}, Code::kTooLarge},
      {{507, "XMinioStorageFull"}, Code::kNoSpace},
      {{400, "RequestTimeout"}, Code::kTimeout},
      {{400, "nonsense"}, Code::kIo},
      {{302, ""}, Code::kIo},
  };
  for (const auto& [answer, code] : table) {
    http->answer(answer.first, *answer.second == '\0' ? "" : failure(answer.second));
    const auto got = engine->get("a", 10);
    EXPECT_TRUE(got.is(code)) << answer.first << answer.second << " " << got.error().text();
    EXPECT_EQ(http->left(), 0U);
  }
  // These are repeated, with growing waits, and then given up.
  const std::pair<std::pair<int, const char*>, Code> repeated[] = {
      {{503, "SlowDown"}, Code::kBusy},
      {{429, ""}, Code::kBusy},
      {{500, "InternalError"}, Code::kUnavailable},
      {{502, ""}, Code::kUnavailable},
      {{400, "BadDigest"}, Code::kCorrupt},
  };
  for (const auto& [answer, code] : repeated) {
    doors.waits.clear();
    for (int i = 0; i < 3; ++i) {
      http->answer(answer.first, *answer.second == '\0' ? "" : failure(answer.second));
    }
    EXPECT_TRUE(engine->get("a", 10).is(code)) << answer.second;
    EXPECT_EQ(http->left(), 0U);
    ASSERT_EQ(doors.waits.size(), 2U);
    EXPECT_LT(doors.waits[0], 150);
    EXPECT_GE(doors.waits[1], 200);
  }
  http->answer(503, failure("SlowDown"));
  http->answer(200, "text");
  EXPECT_EQ(engine->get("a", 10).value(), "text");
  http->fail(Code::kTimeout);
  EXPECT_TRUE(engine->get("a", 10).is(Code::kTimeout));
  http->answer(301, failure("PermanentRedirect"), {{"x-amz-bucket-region", "eu-north-1"}});
  EXPECT_THAT(engine->get("a", 10).error().action, HasSubstr("region=eu-north-1"));
  http->answer(200, "too long for it");
  EXPECT_TRUE(engine->get("a", 10).is(Code::kTooLarge));
  http->answer(503, "<html>\x01\xff garbage");
  http->answer(503, "");
  http->answer(503, failure("\n\x01\x7f"));
  EXPECT_THAT(engine->get("a", 10).error().text(), HasSubstr("status 503 ???"));
}

TEST_F(S3Test, AClockThatIsOffIsSetOnce) {
  http->answer(403, failure("RequestTimeTooSkewed"), {{"date", "Tue, 14 Nov 2023 20:13:20 GMT"}});
  http->answer(200, "text");
  EXPECT_EQ(engine->get("a", 10).value(), "text");
  EXPECT_EQ(http->seen[0].header("x-amz-date"), "20231114T221320Z");
  EXPECT_EQ(http->seen[1].header("x-amz-date"), "20231114T201320Z");
  http->answer(200);
  EXPECT_TRUE(engine->put("a", {}).ok());
  EXPECT_EQ(http->seen[2].header("x-amz-date"), "20231114T201320Z");
  for (int i = 0; i < 2; ++i) {
    http->answer(403, failure("RequestTimeTooSkewed"), {{"date", "Tue, 14 Nov 2023 20:13:20 GMT"}});
  }
  EXPECT_TRUE(engine->get("a", 10).is(Code::kDenied));
  http->answer(403, failure("RequestTimeTooSkewed"), {{"date", "yesterday"}});
  EXPECT_TRUE(engine->get("a", 10).is(Code::kDenied));
  EXPECT_EQ(http->left(), 0U);
}

TEST_F(S3Test, KeysThatRanOutAreFetchedAnewOnce) {
  http->answer(400, failure("ExpiredToken"));
  http->answer(200, "text");
  EXPECT_EQ(engine->get("a", 10).value(), "text");
  for (int i = 0; i < 2; ++i) http->answer(400, failure("ExpiredToken"));
  EXPECT_TRUE(engine->get("a", 10).is(Code::kDenied));
  EXPECT_EQ(http->left(), 0U);
}

TEST_F(S3Test, PutSendsTheHashOfItsBytes) {
  http->answer(200);
  ASSERT_TRUE(engine->put("a", as_bytes("text")).ok());
  EXPECT_EQ(http->seen[0].method, "PUT");
  EXPECT_EQ(http->seen[0].body, "text");
  EXPECT_EQ(http->seen[0].header("x-amz-content-sha256"), Sha256::of(as_bytes("text")).hex());
  TextSource source("streams");
  http->answer(200);
  ASSERT_TRUE(engine->store("a", source).ok());
  EXPECT_EQ(http->seen[1].header("x-amz-content-sha256"), "UNSIGNED-PAYLOAD");  // TLS
  open("s3://bucket?endpoint=http://127.0.0.1:1");
  http->answer(200);
  ASSERT_TRUE(engine->store("a", source).ok());
  EXPECT_EQ(http->seen[2].header("x-amz-content-sha256"), Sha256::of(as_bytes("streams")).hex());
  EXPECT_EQ(http->seen[2].body, "streams");
}

TEST_F(S3Test, CreateIsProvenByARequestThatMustFail) {
  http->answer(200);
  http->answer(412, failure("PreconditionFailed"));
  EXPECT_TRUE(engine->create("a", as_bytes("x"), 0).value());
  EXPECT_EQ(http->seen[0].header("if-none-match"), "*");
  http->answer(200);  // proven: one request is enough
  EXPECT_TRUE(engine->create("b", as_bytes("x"), 0).value());
  http->answer(412);
  EXPECT_FALSE(engine->create("b", as_bytes("x"), 0).value());
  EXPECT_EQ(http->left(), 0U);
}

TEST_F(S3Test, AServiceThatIgnoresTheConditionIsFound) {
  EXPECT_TRUE(engine->capabilities().exclusive_create);
  for (int i = 0; i < 3; ++i) http->answer(200);
  EXPECT_TRUE(engine->create("a", as_bytes("x"), 0).is(Code::kUnsupported));
  EXPECT_FALSE(engine->capabilities().exclusive_create);
  http->answer(501, failure("NotImplemented"));
  EXPECT_TRUE(engine->create("a", as_bytes("x"), 0).is(Code::kUnsupported));
}

TEST_F(S3Test, ALostAnswerToCreateIsAnError) {
  http->fail(Code::kUnavailable);
  EXPECT_TRUE(engine->create("a", as_bytes("x"), 0).is(Code::kUnavailable));
  http->answer(500, failure("InternalError"));
  EXPECT_TRUE(engine->create("a", as_bytes("x"), 0).is(Code::kUnavailable));
  http->answer(409, failure("ConditionalRequestConflict"));  // S3 says: again
  http->answer(412, failure("PreconditionFailed"));
  EXPECT_FALSE(engine->create("a", as_bytes("x"), 0).value());
  EXPECT_EQ(http->left(), 0U);
}

struct S3PartsTest : S3Test {
  std::string text = marked();
  static std::string marked() {
    std::string out(kS3WholeBytes + 5, '\0');
    for (std::size_t at = 0; at < out.size(); at += 4093) out[at] = static_cast<char>(at / 4093);
    return out;
  }
  TextSource source{text};
  static constexpr const char* kBegun =
      "<InitiateMultipartUploadResult><UploadId>up/1</UploadId></InitiateMultipartUploadResult>";
  static constexpr const char* kEnded =
      "<CompleteMultipartUploadResult></CompleteMultipartUploadResult>";

  void answer_parts() {
    http->answer(200, kBegun);
    for (const char* etag : {"\"e1\"", "\"e2\"", "\"e3\""}) http->answer(200, "", {{"etag", etag}});
  }
};

TEST_F(S3PartsTest, LargeObjectsGoInParts) {
  answer_parts();
  http->answer(200, kEnded);
  ASSERT_TRUE(engine->store("big", source).ok());
  ASSERT_EQ(http->seen.size(), 5U);
  EXPECT_THAT(http->seen[0].line(), HasSubstr("POST https://"));
  EXPECT_THAT(http->seen[0].url, HasSubstr("/big?uploads="));
  EXPECT_THAT(http->seen[2].url, HasSubstr("/big?partNumber=2&uploadId=up%2F1"));
  EXPECT_TRUE(http->seen[1].body + http->seen[2].body + http->seen[3].body == text);
  EXPECT_EQ(
      http->seen[4].body,
      "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>&quot;e1&quot;</ETag>"
      "</Part><Part><PartNumber>2</PartNumber><ETag>&quot;e2&quot;</ETag></Part><Part>"
      "<PartNumber>3</PartNumber><ETag>&quot;e3&quot;</ETag></Part></CompleteMultipartUpload>");
}

TEST_F(S3PartsTest, WhatFailsIsAborted) {
  http->answer(200, kBegun);
  http->answer(200, "", {{"etag", "\"e1\""}});
  http->answer(403, failure("AccessDenied"));
  http->answer(204);
  EXPECT_TRUE(engine->store("big", source).is(Code::kDenied));
  EXPECT_THAT(http->seen.back().line(), HasSubstr("DELETE https://"));
  EXPECT_THAT(last_url(), HasSubstr("?uploadId=up%2F1"));
  // The end may fail with status 200.
  answer_parts();
  http->answer(200, failure("AccessDenied"));
  http->answer(204);
  EXPECT_TRUE(engine->store("big", source).is(Code::kDenied));
  http->answer(200, "<html></html>");
  EXPECT_TRUE(engine->store("big", source).is(Code::kCorrupt));
  http->answer(200, kBegun);
  http->answer(200);  // a part without ETag
  http->answer(204);
  EXPECT_TRUE(engine->store("big", source).is(Code::kCorrupt));
  EXPECT_EQ(http->left(), 0U);
}

TEST_F(S3PartsTest, AnEndWhoseAnswerGotLostCounts) {
  answer_parts();
  http->fail(Code::kUnavailable);
  http->answer(404, failure("NoSuchUpload"));
  http->answer(200, "", {{"content-length", std::to_string(text.size())}});
  EXPECT_TRUE(engine->store("big", source).ok());
  answer_parts();
  http->answer(404, failure("NoSuchUpload"));
  http->answer(200, "", {{"content-length", "7"}});  // another object
  http->answer(404);
  EXPECT_TRUE(engine->store("big", source).is(Code::kNotFound));
  EXPECT_EQ(http->left(), 0U);
}

std::string row(const std::string& key, int size = 1) {
  return "<Contents><Key>" + key + "</Key><Size>" + std::to_string(size) +
         "</Size><LastModified>2013-05-24T00:00:00.000Z</LastModified></Contents>";
}
std::string list_of(const std::string& rows, bool more) {
  return "<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>" +
         std::string(more ? "true" : "false") + "</IsTruncated>" + rows + "</ListBucketResult>";
}

TEST_F(S3Test, ListsAreOurNamesOnly) {
  http->answer(
      200, list_of(row("pre/fix/v1/a", 3) + row("pre/fix/v1/B%20") + row("pre/fix/v1/c"), true));
  const auto page = engine->list("v1/", "v1/0", 5000);
  ASSERT_TRUE(page.ok()) << page.error().text();
  EXPECT_THAT(last_url(), HasSubstr("amazonaws.com/?encoding-type=url&list-type=2&max-keys=1000&"
                                    "prefix=pre%2Ffix%2Fv1%2F&start-after=pre%2Ffix%2Fv1%2F0"));
  ASSERT_EQ(page->objects.size(), 2U);
  EXPECT_EQ(page->objects[0].name, "v1/a");
  EXPECT_EQ(page->objects[0].size, 3U);
  EXPECT_EQ(page->objects[0].modified_ms, 1'369'353'600'000);
  EXPECT_EQ(page->next, "v1/c");
  http->answer(200, list_of("", false));
  EXPECT_EQ(engine->list("v1/", "", 10).value().next, "");
}

TEST_F(S3Test, ListsThatAreNone) {
  for (const std::string& body :
       {std::string("<html></html>"), list_of("<Contents><Key>pre/fix/a</Key></Contents>", false),
        list_of(row(""), false), list_of(row("%zz"), false),
        list_of(row("pre/fix/a", -1), false)}) {
    http->answer(200, body);
    EXPECT_TRUE(engine->list("", "", 10).is(Code::kCorrupt)) << body;
  }
  // One that would never end.
  http->answer(200, list_of(row("pre/fix/a"), true));
  EXPECT_TRUE(engine->list("", "b", 10).is(Code::kUnsupported));
}

TEST_F(S3Test, RemoveAndHead) {
  http->answer(204);
  EXPECT_TRUE(engine->remove("a").ok());
  http->answer(404, failure("NoSuchKey"));
  EXPECT_TRUE(engine->remove("a").ok());
  http->answer(200, "",
               {{"content-length", "12"}, {"last-modified", "Fri, 24 May 2013 00:00:00 GMT"}});
  const auto info = engine->head("a");
  EXPECT_EQ(info->size, 12U);
  EXPECT_EQ(info->modified_ms, 1'369'353'600'000);
  http->answer(200);
  EXPECT_TRUE(engine->head("a").is(Code::kCorrupt));
}

}  // namespace
}  // namespace nc::tier
