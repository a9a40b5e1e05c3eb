#include "cache/tier/s3_credentials.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/fake_filesystem.hpp"
#include "tests/unit/tier/fake_http.hpp"

namespace nc::tier {
namespace {

using testing::HasSubstr;
using testing::Not;

struct S3CredentialsTest : testing::Test {
  FakeFileSystem files;
  FakeDoors doors;
  EngineDeps deps = doors.deps(files);
  std::shared_ptr<FakeHttp> http = std::make_shared<FakeHttp>();

  S3Credentials credentials(std::string profile = "", std::string region = "") {
    return {S3Credentials::Options{std::move(profile), std::move(region)}, deps, http};
  }
  void write(const std::string& path, std::string_view text) {
    ASSERT_TRUE(files.make_dirs(parent_dir(path)).ok());
    ASSERT_TRUE(files.write_atomically(path, as_bytes(text)).ok());
  }
  void no_instance() { doors.variables["AWS_EC2_METADATA_DISABLED"] = "true"; }
  static std::string role_keys(const std::string& id, const std::string& expires) {
    return R"({"Code":"Success","AccessKeyId":")" + id +
           R"(","SecretAccessKey":"s3cret","Token":"t0ken","Expiration":")" + expires + R"("})";
  }
};

TEST_F(S3CredentialsTest, Environment) {
  doors.variables = {{"AWS_ACCESS_KEY_ID", "id"}, {"AWS_SECRET_ACCESS_KEY", "secret"}};
  auto found = credentials();
  EXPECT_EQ(found.get()->id, "id");
  EXPECT_EQ(found.get()->token, "");
  doors.variables["AWS_SESSION_TOKEN"] = "token";
  EXPECT_EQ(found.get()->token, "");  // known already
  found.refuse(*found.get());
  EXPECT_EQ(found.get()->token, "token");
}

TEST_F(S3CredentialsTest, Profiles) {
  no_instance();
  doors.variables["HOME"] = "/home/me";
  write("/home/me/.aws/credentials",
        "# mine\n[default]\naws_access_key_id = id1\naws_secret_access_key=secret1 # why\n"
        "[other]\naws_access_key_id=id2\naws_secret_access_key=secret2\naws_session_token=t2\n");
  write(
      "/home/me/.aws/config",
      "[default]\nregion = eu-west-3\ns3 =\n  region = nested\n[profile other]\nregion=us-west-2\n"
      "[profile roles]\nrole_arn = arn:x\nsource_profile = default\n");
  EXPECT_EQ(credentials().get()->id, "id1");
  EXPECT_EQ(credentials().get()->secret, "secret1");
  EXPECT_EQ(credentials().profile_region(), "eu-west-3");
  EXPECT_EQ(credentials("other").get()->token, "t2");
  EXPECT_EQ(credentials("other").profile_region(), "us-west-2");
  const auto roles = credentials("roles").get();
  ASSERT_TRUE(roles.is(Code::kDenied));
  EXPECT_THAT(roles.error().text(), HasSubstr("needs role_arn"));
  EXPECT_THAT(credentials("none").get().error().text(), HasSubstr("no AWS profile 'none'"));
  doors.variables["AWS_PROFILE"] = "other";
  EXPECT_EQ(credentials().get()->id, "id2");
  doors.variables["AWS_PROFILE"] = "missing";
  EXPECT_TRUE(credentials().get().is(Code::kDenied));
  // A profile of the address comes before the environment.
  doors.variables["AWS_ACCESS_KEY_ID"] = "id0";
  doors.variables["AWS_SECRET_ACCESS_KEY"] = "secret0";
  EXPECT_EQ(credentials().get()->id, "id0");
  EXPECT_EQ(credentials("other").get()->id, "id2");
  doors.variables["AWS_SHARED_CREDENTIALS_FILE"] = "/elsewhere/c";
  write("/elsewhere/c", "[other]\naws_access_key_id=id3\naws_secret_access_key=secret3\n");
  EXPECT_EQ(credentials("other").get()->id, "id3");
}

TEST_F(S3CredentialsTest, ContainerRole) {
  doors.variables["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"] = "/v2/x";
  http->answer(200, role_keys("role", "2023-11-14T23:13:20Z"));
  auto found = credentials();
  EXPECT_EQ(found.get()->id, "role");
  EXPECT_EQ(http->seen[0].url, "http://169.254.170.2/v2/x");
  EXPECT_FALSE(http->seen[0].use_proxy);
  EXPECT_EQ(found.get()->token, "t0ken");  // kept
  doors.clock.advance(56 * 60'000);        // less than five minutes left
  http->answer(200, role_keys("next", "2023-11-15T23:13:20Z"));
  EXPECT_EQ(found.get()->id, "next");
  EXPECT_EQ(http->left(), 0U);
}

TEST_F(S3CredentialsTest, ContainerRoleOfAPod) {
  doors.variables["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = "http://169.254.170.23/v1/credentials";
  doors.variables["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"] = "/token";
  write("/token", "bearer-token\n");
  http->answer(200, role_keys("pod", "2023-11-14T23:13:20Z"));
  EXPECT_EQ(credentials().get()->id, "pod");
  EXPECT_EQ(http->seen[0].header("authorization"), "bearer-token");
  // Never a token in the clear to anybody else.
  for (const char* url : {"http://10.0.0.1/x", "http://127.0.0.1@evil.example/x",
                          "ftp://127.0.0.1/x", "http://169.254.170.23.evil.example/", "nonsense"}) {
    doors.variables["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = url;
    EXPECT_TRUE(credentials().get().is(Code::kDenied)) << url;
  }
  EXPECT_EQ(http->seen.size(), 1U);
}

TEST_F(S3CredentialsTest, InstanceRole) {
  http->answer(200, "imds-token");
  http->answer(200, "my-role\n");
  http->answer(200, role_keys("instance", "2023-11-14T23:13:20Z"));
  EXPECT_EQ(credentials().get()->id, "instance");
  EXPECT_EQ(http->seen[0].line(), "PUT http://169.254.169.254/latest/api/token");
  EXPECT_EQ(http->seen[0].header("x-aws-ec2-metadata-token-ttl-seconds"), "21600");
  EXPECT_EQ(http->seen[2].url,
            "http://169.254.169.254/latest/meta-data/iam/security-credentials/my-role");
  EXPECT_EQ(http->seen[2].header("x-aws-ec2-metadata-token"), "imds-token");
}

TEST_F(S3CredentialsTest, WebIdentity) {
  doors.variables["AWS_WEB_IDENTITY_TOKEN_FILE"] = "/jwt";
  doors.variables["AWS_ROLE_ARN"] = "arn:aws:iam::1:role/r";
  write("/jwt", "a.b.c\n");
  http->answer(200,
               "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>"
               "<AccessKeyId>web</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t"
               "</SessionToken><Expiration>2023-11-14T23:13:20Z</Expiration></Credentials>"
               "</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>");
  EXPECT_EQ(credentials("", "eu-west-1").get()->id, "web");
  EXPECT_EQ(http->seen[0].url, "https://sts.eu-west-1.amazonaws.com/");
  EXPECT_THAT(http->seen[0].body, HasSubstr("WebIdentityToken=a.b.c"));
  http->answer(403, "<Error/>");
  EXPECT_TRUE(credentials().get().is(Code::kDenied));
}

TEST_F(S3CredentialsTest, NoneAtAllIsLearntOnce) {
  http->fail(Code::kTimeout);
  auto found = credentials();
  const auto none = found.get();
  ASSERT_TRUE(none.is(Code::kDenied));
  EXPECT_THAT(none.error().text(), HasSubstr("anonymous=true"));
  EXPECT_TRUE(found.get().is(Code::kDenied));
  EXPECT_EQ(http->seen.size(), 1U);  // half a minute's answer
  doors.clock.advance(31'000);
  http->answer(200, "token");
  http->answer(404);
  EXPECT_TRUE(found.get().is(Code::kDenied));
  EXPECT_EQ(http->seen.size(), 3U);
}

TEST_F(S3CredentialsTest, KeysThatStillHoldAreUsedWhenTheServiceIsAway) {
  doors.variables["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"] = "/v2/x";
  http->answer(200, role_keys("role", "2023-11-14T23:13:20Z"));
  auto found = credentials();
  EXPECT_TRUE(found.get().ok());
  doors.clock.advance(57 * 60'000);
  http->fail(Code::kTimeout);
  EXPECT_EQ(found.get()->id, "role");
  doors.clock.advance(4 * 60'000);  // they have expired
  http->fail(Code::kTimeout);
  EXPECT_FALSE(found.get().ok());
}

TEST_F(S3CredentialsTest, AnswersOfTheRolesServiceAreInNoMessage) {
  doors.variables["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"] = "/v2/x";
  for (const char* body : {"hunter2", "{\"SecretAccessKey\":\"hunter2\"}", "{\"AccessKeyId\":7}",
                           "[]", R"({"AccessKeyId":"hunter2","SecretAccessKey":["hunter2"]})"}) {
    http->answer(200, body);
    const auto keys = credentials().get();
    ASSERT_TRUE(keys.is(Code::kDenied)) << body;
    EXPECT_THAT(keys.error().text(), Not(HasSubstr("hunter2")));
  }
}

}  // namespace
}  // namespace nc::tier
