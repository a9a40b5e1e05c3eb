#include <sys/stat.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/trust/tokens.hpp"
#include "tests/unit/base/temp_dir.hpp"

namespace nc::trust {
namespace {

Grant grant_for(const std::string& token) {
  Grant grant;
  grant.hash = token_hash(token);
  grant.namespaces = NamespaceSet::all();
  return grant;
}

TEST(Tokens, OnlyTheHashIsKept) {
  const TempDir dir;
  FileSystem& fs = real_filesystem();
  const std::string path = dir.path() + "/conf/tokens";
  const std::string token = *make_token();
  EXPECT_EQ(token.size(), 68U);
  EXPECT_NE(token, *make_token());
  TokenFile file;
  Grant grant = grant_for(token);
  grant.scope = Scope::kWrite;
  grant.expires_ms = 1'780'000'000'000;
  grant.comment = "host 7";
  ASSERT_TRUE(file.add(grant).ok());
  EXPECT_TRUE(file.add(grant).is(Code::kConflict));
  ASSERT_TRUE(file.save(fs, path).ok());
  EXPECT_EQ(fs.stat(path)->mode & 0777, 0600U);
  EXPECT_EQ(fs.read_all(path, 10'000)->find(token.substr(4)), std::string::npos);

  auto again = TokenFile::load(fs, path);
  ASSERT_TRUE(again.ok()) << again.error().text();
  EXPECT_EQ(again->text(), file.text());
  const Grant* found = again->find_token(token);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->scope, Scope::kWrite);
  EXPECT_FALSE(found->expired(1'779'999'999'999));
  EXPECT_TRUE(found->expired(1'780'000'000'000));
  EXPECT_EQ(again->find_token(token.substr(0, 67)), nullptr);
  EXPECT_EQ(again->find_token(found->hash), nullptr) << "the hash opens nothing";
  EXPECT_EQ(again->find_token(""), nullptr);
  ASSERT_EQ(::chmod(path.c_str(), 0620), 0);
  EXPECT_TRUE(TokenFile::load(fs, path).is(Code::kDenied));
}

TEST(Tokens, ClientsAndRemoval) {
  TokenFile file;
  Grant client;
  client.client = "host-7";
  client.namespaces = *NamespaceSet::parse("team-a");
  ASSERT_TRUE(file.add(client).ok());
  ASSERT_TRUE(file.add(grant_for("a")).ok());
  ASSERT_TRUE(file.add(grant_for("b")).ok());
  EXPECT_NE(file.find_client("host-7"), nullptr);
  EXPECT_EQ(file.find_client("host-70"), nullptr);
  EXPECT_EQ(file.find_client(""), nullptr) << "a token's entry is no client without a name";
  EXPECT_TRUE(file.remove("").is(Code::kNotFound));
  EXPECT_TRUE(file.remove("zz").is(Code::kNotFound));
  EXPECT_TRUE(file.remove(token_hash("a").substr(0, 6)).ok());
  EXPECT_EQ(file.find_token("a"), nullptr);
  EXPECT_NE(file.find_token("b"), nullptr);
  EXPECT_TRUE(file.remove("host-7").ok());
  Grant bad = client;
  bad.client = "a\nscope admin";
  EXPECT_TRUE(file.add(bad).is(Code::kInvalid));
}

TEST(Tokens, FileIsStrict) {
  const std::string head = "neuroncache-tokens 1\n";
  const std::string entry = "\ntoken " + token_hash("a") + "\n";
  const std::string fields = "scope read\nnamespaces *\n";
  EXPECT_TRUE(TokenFile::parse(head).ok());
  EXPECT_TRUE(TokenFile::parse(head + entry + fields).ok());
  for (const std::string& bad :
       {std::string(), std::string("neuroncache-tokens 2\n"), head + fields, head + entry,
        head + entry + "scope read\n", head + entry + "scope root\nnamespaces *\n",
        head + entry + fields + "scope admin\n", head + entry + fields + "from 10.0.0.0/8\n",
        head + entry + fields + "expires never\n", head + entry + fields + entry + fields,
        head + entry + fields.substr(0, fields.size() - 1), head + "\ntoken abc\n" + fields,
        head + "\nclient \n" + fields, head + entry + "scope read\nnamespaces a b\n"}) {
    EXPECT_TRUE(TokenFile::parse(bad).is(Code::kInvalid)) << bad;
  }
}

}  // namespace
}  // namespace nc::trust
