// The published vectors: AWS's test suite for Signature Version 4 and the examples of the S3
// reference.
#include "cache/tier/sigv4.hpp"

#include <gtest/gtest.h>

#include "base/hash.hpp"
#include "cache/tier/dates.hpp"
#include "cache/tier/tier_url.hpp"

namespace nc::tier {
namespace {

std::string header(const SigningInput& input, std::string_view name) {
  for (const auto& one : input.headers) {
    if (one.name == name) return one.value;
  }
  return "";
}

std::string signature(const SigningInput& input) {
  const auto text = header(input, "authorization");
  const auto at = text.find("Signature=");
  return at == std::string::npos ? text : text.substr(at + 10);
}

struct Vector {
  const char* name;
  const char* method;
  const char* path;  // decoded
  QueryFields query;
  std::vector<HttpHeader> headers;
  const char* signature;
};

TEST(Sigv4Test, TestSuite) {
  const AwsKeys keys{"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "", 0};
  const Vector vectors[] = {
      {"get-vanilla",
       "GET",
       "/",
       {},
       {},
       "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
      {"post-vanilla",
       "POST",
       "/",
       {},
       {},
       "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
      {"get-space",
       "GET",
       "/example space/",
       {},
       {},
       "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741"},
      {"get-utf8",
       "GET",
       "/\xe1\x88\xb4",
       {},
       {},
       "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"},
      {"get-unreserved",
       "GET",
       "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
       {},
       {},
       "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"},
      {"get-vanilla-query-order-key-case",
       "GET",
       "/",
       {{"Param2", "value2"}, {"Param1", "value1"}},
       {},
       "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
      {"get-vanilla-utf8-query",
       "GET",
       "/",
       {{"\xe1\x88\xb4", "bar"}},
       {},
       "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04"},
      {"post-header-key-sort",
       "POST",
       "/",
       {},
       {{"My-Header1", "value1"}},
       "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c"},
  };
  for (const auto& vector : vectors) {
    SigningInput input;
    input.method = vector.method;
    input.path = percent_encode(vector.path, "/");
    input.query = vector.query;
    input.headers = vector.headers;
    input.headers.push_back({"Host", "example.amazonaws.com"});
    input.payload_hash = kEmptyPayload;
    sign(input, keys, {"us-east-1", "service", 1'440'938'160'000});
    EXPECT_EQ(signature(input), vector.signature) << vector.name;
    EXPECT_EQ(header(input, "x-amz-date"), "20150830T123600Z");
  }
}

TEST(Sigv4Test, TestSuiteWithASession) {
  const AwsKeys keys{"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
                     "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267", 0};
  SigningInput input{"GET", "/", {}, {{"host", "example.amazonaws.com"}}, ""};
  input.payload_hash = kEmptyPayload;
  sign(input, keys, {"us-east-1", "service", 1'440'938'160'000});
  EXPECT_EQ(signature(input), "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8");
  EXPECT_EQ(header(input, "x-amz-security-token"), keys.token);
}

TEST(Sigv4Test, ExamplesOfS3) {
  const AwsKeys keys{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "", 0};
  const auto welcome = Sha256::of(as_bytes("Welcome to Amazon S3.")).hex();
  struct Example {
    const char* method;
    const char* path;
    QueryFields query;
    std::vector<HttpHeader> headers;
    std::string payload;
    const char* signature;
  };
  const Example examples[] = {
      {"GET",
       "/test.txt",
       {},
       {{"Range", "bytes=0-9"}},
       std::string(kEmptyPayload),
       "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
      {"PUT",
       "/test$file.text",
       {},
       {{"Date", "Fri, 24 May 2013 00:00:00 GMT"}, {"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
       welcome,
       "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
      {"GET",
       "/",
       {{"lifecycle", ""}},
       {},
       std::string(kEmptyPayload),
       "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
      {"GET",
       "/",
       {{"prefix", "J"}, {"max-keys", "2"}},
       {},
       std::string(kEmptyPayload),
       "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
  };
  for (const auto& example : examples) {
    SigningInput input{example.method, percent_encode(example.path, "/"), example.query,
                       example.headers, example.payload};
    input.headers.push_back({"host", "examplebucket.s3.amazonaws.com"});
    input.headers.push_back({"x-amz-content-sha256", example.payload});
    sign(input, keys, {"us-east-1", "s3", 1'369'353'600'000});
    EXPECT_EQ(signature(input), example.signature) << example.method << example.path;
  }
}

TEST(Sigv4Test, CanonicalForms) {
  EXPECT_EQ(canonical_query({{"b", ""}, {"a", "x y"}, {"a", "+/"}}), "a=%2B%2F&a=x%20y&b=");
  SigningInput input{"GET", "/", {}, {{"X-B", "  two   words "}, {"x-a", "1"}, {"X-A", "2"}}, "h"};
  EXPECT_EQ(canonical_request(input), "GET\n/\n\nx-a:1,2\nx-b:two words\n\nx-a;x-b\nh");
}

TEST(Sigv4Test, Hmac) {  // RFC 4231, cases 2 and 6
  EXPECT_EQ(to_hex(as_bytes(hmac_sha256("Jefe", "what do ya want for nothing?"))),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(to_hex(as_bytes(hmac_sha256(std::string(131, '\xaa'),
                                        "Test Using Larger Than Block-Size Key - Hash Key First"))),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Sigv4Test, Dates) {
  EXPECT_EQ(amz_date(951'782'400'000), "20000229T000000Z");
  EXPECT_EQ(parse_http_date("Fri, 24 May 2013 00:00:01 GMT"), 1'369'353'601'000);
  EXPECT_FALSE(parse_http_date("Friday, 24-May-13 00:00:01 GMT"));
  EXPECT_FALSE(parse_http_date("Fri, 31 Feb 2013 00:00:01 GMT"));
  EXPECT_FALSE(parse_http_date("Fri, 24 May 2013 25:00:01 GMT"));
  EXPECT_EQ(parse_iso_date("2013-05-24T00:00:01Z"), 1'369'353'601'000);
  EXPECT_EQ(parse_iso_date("2013-05-24T00:00:01.123Z"), 1'369'353'601'000);
  EXPECT_FALSE(parse_iso_date("2013-05-24"));
  EXPECT_FALSE(parse_iso_date("2013-13-24T00:00:01Z"));
}

}  // namespace
}  // namespace nc::tier
