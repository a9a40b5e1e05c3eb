#include "cache/tier/tier_url.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nc::tier {
namespace {

using testing::HasSubstr;
using testing::Not;
using Scheme = TierAddress::Scheme;

TierAddress parsed(std::string_view text) {
  auto address = parse_tier_url(text);
  EXPECT_TRUE(address.ok()) << address.error().text();
  return address.ok() ? *address : TierAddress();
}

std::string refused(std::string_view text) {
  const auto address = parse_tier_url(text);
  EXPECT_TRUE(address.is(Code::kInvalid)) << text;
  return address.ok() ? "" : address.error().text();
}

TEST(TierUrlTest, EveryScheme) {
  const auto s3 = parsed("s3://My-Bucket/team/cache/?region=eu-west-1&style=path");
  EXPECT_EQ(s3.scheme, Scheme::kS3);
  EXPECT_EQ(s3.host, "my-bucket");
  EXPECT_EQ(s3.path, "team/cache");
  EXPECT_EQ(s3.option("region"), "eu-west-1");
  EXPECT_EQ(s3.option("profile", "none"), "none");
  EXPECT_EQ(s3.shown, "s3://my-bucket/team/cache");

  const auto file = parsed("file:///fsx/neuron%20cache?read_only");
  EXPECT_EQ(file.scheme, Scheme::kFile);
  EXPECT_EQ(file.path, "/fsx/neuron cache");
  EXPECT_TRUE(file.read_only);
  EXPECT_EQ(file.shown, "file:///fsx/neuron%20cache");

  const auto redis = parsed("rediss://me:p%40s%2Fs@[fd00::1]:6380/2");
  EXPECT_EQ(redis.scheme, Scheme::kRedis);
  EXPECT_TRUE(redis.tls);
  EXPECT_EQ(redis.host, "fd00::1");
  EXPECT_EQ(redis.port, 6380);
  EXPECT_EQ(redis.user, "me");
  EXPECT_EQ(redis.password, "p@s/s");
  EXPECT_EQ(redis.path, "2");
  EXPECT_EQ(redis.shown, "rediss://[fd00::1]:6380/2");

  const auto http = parsed("http://cache.example/a/b/");
  EXPECT_EQ(http.scheme, Scheme::kHttp);
  EXPECT_FALSE(http.tls);
  EXPECT_EQ(http.path, "/a/b");
  EXPECT_EQ(http.port, 0);
}

TEST(TierUrlTest, CommonOptions) {
  const auto plain = parsed("s3://bucket");
  EXPECT_FALSE(plain.read_only || plain.write_only);
  EXPECT_TRUE(plain.compress);
  EXPECT_EQ(plain.priority, 100);
  EXPECT_EQ(plain.timeout_ms, 5000);
  EXPECT_EQ(plain.max_bytes, 0U);
  const auto set = parsed(
      "s3://bucket?write_only=true&priority=3&timeout=250ms&max_bytes=2GiB&compression=none&"
      "read_only=false");
  EXPECT_TRUE(set.write_only);
  EXPECT_FALSE(set.read_only || set.compress);
  EXPECT_EQ(set.priority, 3);
  EXPECT_EQ(set.timeout_ms, 250);
  EXPECT_EQ(set.max_bytes, 2ULL << 30);
}

TEST(TierUrlTest, WhatIsWrongIsSaid) {
  EXPECT_THAT(refused("bucket"), HasSubstr("scheme is missing"));
  EXPECT_THAT(refused("gopher://x"), HasSubstr("scheme is not known"));
  EXPECT_THAT(refused("s3://bucket?regoin=x"), HasSubstr("did you mean region?"));
  EXPECT_THAT(refused("file:///x?region=x"), HasSubstr("no option 'region'"));
  EXPECT_THAT(refused("file:///x?region=x"), HasSubstr("options are compression, max_bytes"));
  EXPECT_THAT(refused("s3://bucket?region=a&region=b"), HasSubstr("given twice"));
  EXPECT_THAT(refused("s3://bucket?style=other"), HasSubstr("write one of path|virtual"));
  EXPECT_THAT(refused("s3://bucket?style=path%7Cvirtual"), HasSubstr("write one of"));
  EXPECT_THAT(refused("s3://bucket?read_only=maybe"), HasSubstr("write true or false"));
  EXPECT_THAT(refused("s3://bucket?read_only&write_only"), HasSubstr("read_only and write_only"));
  EXPECT_THAT(refused("s3://bucket?timeout=0"), HasSubstr("100ms to 10m"));
  EXPECT_THAT(refused("s3://bucket?timeout=11m"), HasSubstr("100ms to 10m"));
  EXPECT_THAT(refused("s3://bucket?priority=-1"), HasSubstr("0 to 1000"));
  EXPECT_THAT(refused("s3://bucket?max_bytes=many"), HasSubstr("200GiB"));
  EXPECT_THAT(refused("s3://bucket?region="), HasSubstr("option region is empty"));
  EXPECT_THAT(refused("s3://bucket?compression=lzma"), HasSubstr("zstd or none"));
  EXPECT_THAT(refused("s3://b"), HasSubstr("bucket"));
  EXPECT_THAT(refused("s3://bucket:9000/"), HasSubstr("endpoint="));
  EXPECT_THAT(refused("s3://bucket/a//b"), HasSubstr("empty part"));
  EXPECT_THAT(refused("s3://bucket/a/../b"), HasSubstr("'..'"));
  EXPECT_THAT(refused("s3://bucket/a/%2e%2e/b"), HasSubstr("'..'"));
  EXPECT_THAT(refused("file://host/dir"), HasSubstr("file:///directory"));
  EXPECT_THAT(refused("file:///"), HasSubstr("directory is missing"));
  EXPECT_THAT(refused("redis://"), HasSubstr("host is missing"));
  EXPECT_THAT(refused("redis://h/x"), HasSubstr("number of a database"));
  EXPECT_THAT(refused("redis://h:0/1"), HasSubstr("port is not valid"));
  EXPECT_THAT(refused("redis://[::1/1"), HasSubstr("not closed"));
  EXPECT_THAT(refused("https://h/%zz"), HasSubstr("hexadecimal"));
  EXPECT_THAT(refused("https://h/%00"), HasSubstr("hexadecimal"));
  EXPECT_THAT(refused("https://h/%0a"), HasSubstr("control characters"));
  EXPECT_THAT(refused("https://h/#x"), HasSubstr("'#'"));
  EXPECT_THAT(refused("https://h/?layout=bazel"), HasSubstr("compression=none"));
  EXPECT_THAT(refused("https://h/?layout=neuroncached"), HasSubstr("compression=none"));
  EXPECT_THAT(refused("https://h/?token_file=x"), HasSubstr("absolute path"));
  EXPECT_THAT(refused("https://u:p@h/?token_env=X"), HasSubstr("more than one credential"));
  EXPECT_THAT(refused("https://h/?cert_file=/c"), HasSubstr("belong together"));
  EXPECT_THAT(refused("rediss://h/?key_file=/c"), HasSubstr("belong together"));
  EXPECT_THAT(refused("s3://key:secret@bucket/"), HasSubstr("takes none"));
  refused(std::string(5000, 'x'));
}

TEST(TierUrlTest, NoMessageHoldsCredentials) {
  for (const std::string text :
       {"redis://me:hunter2@host:99999/0", "redis://me:hunter2@host/db", "s3://me:hunter2@bucket",
        "https://me:hunter2@h/?layuot=x", "redis://me:hunter2/x@host", "redis://me:hunter2?x@host",
        "redis://me:ok?hunter2@host", "redis://me:ok/hunter2@host", "redis://me:a#hunter2@host",
        "me:hunter2@host", "https://me:%zzhunter2@h"}) {
    const auto message = refused(text);
    EXPECT_THAT(message, Not(HasSubstr("hunter"))) << message;
    EXPECT_THAT(message, HasSubstr("***"));
  }
  EXPECT_EQ(parsed("https://me:hunter2@h/x").shown, "https://h/x");
}

TEST(TierUrlTest, Escapes) {
  EXPECT_EQ(percent_encode("a b+/~%", "/"), "a%20b%2B/~%25");
  EXPECT_EQ(percent_decode("a%20b%2b/~%25").value(), "a b+/~%");
  EXPECT_FALSE(percent_decode("%").ok());
  EXPECT_FALSE(percent_decode("%4").ok());
  EXPECT_FALSE(percent_decode("%00").ok());
  EXPECT_FALSE(percent_decode(std::string_view("\0", 1)).ok());
}

}  // namespace
}  // namespace nc::tier
