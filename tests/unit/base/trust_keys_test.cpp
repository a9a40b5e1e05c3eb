#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/fake_filesystem.hpp"
#include "base/trust/keyring.hpp"
#include "base/trust/keys.hpp"
#include "base/trust/time_text.hpp"
#include "tests/unit/base/temp_dir.hpp"

namespace nc::trust {
namespace {

using ::testing::HasSubstr;

TEST(TrustKeys, VerifiesThePublishedTestVectors) {
  // RFC 8032, section 7.1, tests 1 and 3.
  PublicKey key;
  const auto set = [&key](std::string_view hex) {
    const auto raw = *from_hex(hex);
    std::copy_n(as_bytes(raw).begin(), 32, key.raw.begin());
  };
  set("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
  const auto first = *from_hex(
      "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9"
      "b46bd25bf5f0595bbe24655141438e7a100b");
  EXPECT_TRUE(key.verify({}, as_bytes(first)));
  EXPECT_FALSE(key.verify(as_bytes("x"), as_bytes(first)));
  set("fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025");
  const auto third = *from_hex(
      "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984d"
      "c6594a7c15e9716ed28dc027beceea1ec40a");
  EXPECT_TRUE(key.verify(as_bytes("\xaf\x82"), as_bytes(third)));
  EXPECT_FALSE(key.verify(as_bytes("\xaf\x82"), as_bytes(third).first(63)));
}

TEST(TrustKeys, TextOfAPublicKeyHasOneForm) {
  const PublicKey key = PrivateKey::generate()->public_key();
  EXPECT_EQ(*PublicKey::parse(key.text()), key);
  EXPECT_TRUE(is_hex(key.id(), 32));
  for (const std::string& bad :
       {std::string(), std::string("ed25519:"), key.text() + "=", " " + key.text(),
        "rsa:" + key.text().substr(8), key.text().substr(0, key.text().size() - 4)}) {
    EXPECT_FALSE(PublicKey::parse(bad).ok()) << bad;
  }
}

// With these anybody can sign, or nobody.
TEST(TrustKeys, PointsThatAreNoKeysAreRefused) {
  for (const char* hex : {
           "0000000000000000000000000000000000000000000000000000000000000000",
           "0000000000000000000000000000000000000000000000000000000000000080",
           "0100000000000000000000000000000000000000000000000000000000000000",
           "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
           "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
           "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
           "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
           "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
           "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
           "0200000000000000000000000000000000000000000000000000000000000000",  // not on the curve
       }) {
    const auto key = PublicKey::parse("ed25519:" + to_base64(as_bytes(*from_hex(hex))));
    ASSERT_FALSE(key.ok()) << hex;
    EXPECT_THAT(key.error().message, HasSubstr("cannot be used as a public key"));
  }
  for (int i = 0; i < 50; ++i) {
    EXPECT_TRUE(PublicKey::parse(PrivateKey::generate()->public_key().text()).ok());
  }
}

TEST(TrustKeys, FileIsPrivateAndComesBack) {
  const TempDir dir;
  FileSystem& fs = real_filesystem();
  const std::string path = dir.path() + "/conf/sign.key";
  const auto key = PrivateKey::generate();
  ASSERT_TRUE(key->save(fs, path, 1'780'000'000'000, "ci builders").ok());
  EXPECT_EQ(fs.stat(path)->mode & 0777, 0600U);
  EXPECT_EQ(fs.stat(parent_dir(path))->mode & 0777, 0700U);
  EXPECT_TRUE(key->save(fs, path, 0, "").is(Code::kConflict)) << "a key is never overwritten";
  auto again = PrivateKey::load(fs, path);
  ASSERT_TRUE(again.ok()) << again.error().text();
  EXPECT_EQ(again->id(), key->id());
  EXPECT_EQ(again->comment(), "ci builders");
  EXPECT_EQ(again->created_ms(), 1'780'000'000'000);
  EXPECT_TRUE(key->public_key().verify(as_bytes("m"), as_bytes(*again->sign(as_bytes("m")))));
}

TEST(TrustKeys, DamagedFilesAreRefusedWithoutShowingTheSecret) {
  FakeFileSystem fs;
  ASSERT_TRUE(fs.make_dirs("/k").ok());
  const auto key = PrivateKey::generate();
  ASSERT_TRUE(key->save(fs, "/k/a", 0, "c").ok());
  const std::string good = *fs.read_all("/k/a", 4096);
  ASSERT_TRUE(PrivateKey::parse(good).ok());
  const std::string secret = good.substr(good.find("\nprivate ") + 9, 43);
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = bad[i] == 'A' ? 'B' : 'A';
    auto parsed = PrivateKey::parse(bad);
    if (parsed.ok()) {  // in the comment or the time alone
      EXPECT_EQ(parsed->id(), key->id());
      EXPECT_GT(i, good.find("\ncreated "));
    } else {
      EXPECT_EQ(parsed.error().text().find(secret.substr(0, 16)), std::string::npos);
    }
    EXPECT_FALSE(i > 0 && i < good.find("\ncreated ") && PrivateKey::parse(good.substr(0, i)).ok());
  }
  EXPECT_FALSE(PrivateKey::parse(good + "more\n").ok());
}

TEST(TrustTime, OnlyRealTimesInOneForm) {
  EXPECT_EQ(time_text(1'780'000'000'000), "2026-05-28T20:26:40Z");
  EXPECT_EQ(*parse_time("2026-05-28T20:26:40Z"), 1'780'000'000'000);
  for (const char* bad :
       {"", "2026-02-30T00:00:00Z", "2026-05-28 20:26:40Z", "2026-05-28T24:00:00Z",
        "2026-05-28T20:26:40", "1969-12-31T23:59:59Z", "2026-05-28T20:26:40z"}) {
    EXPECT_FALSE(parse_time(bad).has_value()) << bad;
  }
}

TEST(Keyring, ComesBackAsWritten) {
  Keyring ring;
  for (int i = 0; i < 3; ++i) {
    TrustedKey entry;
    entry.key = PrivateKey::generate()->public_key();
    entry.id = entry.key.id();
    if (i > 0) entry.comment = "host é " + std::to_string(i);
    if (i > 0) entry.write = *NamespaceSet::parse("default,team-*");
    if (i > 1) entry.not_before_ms = 1'000;
    if (i > 1) entry.not_after_ms = 2'000;
    if (i > 1) entry.revoked_ms = 3'000;
    ASSERT_TRUE(ring.add(entry).ok());
  }
  const std::string text = ring.text();
  auto again = Keyring::parse(text);
  ASSERT_TRUE(again.ok()) << again.error().text();
  EXPECT_EQ(again->text(), text);
  EXPECT_TRUE(again->keys()[0].write.empty()) << "no role, no right";
  EXPECT_TRUE(again->keys()[1].write.contains("team-x"));
  EXPECT_FALSE(again->keys()[1].read.contains("default"));
  EXPECT_EQ(ring.add(again->keys()[0]).error().code, Code::kConflict);
}

TEST(Keyring, IsStrict) {
  const PublicKey key = PrivateKey::generate()->public_key();
  const std::string head = "neuroncache-keyring 1\n";
  const std::string entry = "\nkey " + key.text() + "\nid " + key.id() + "\n";
  EXPECT_TRUE(Keyring::parse(head).ok());
  EXPECT_TRUE(Keyring::parse(head + entry + "write *\n").ok());
  const std::string other(32, '0');
  for (const std::string& bad :
       {std::string(), std::string("neuroncache-keyring 2\n"), head + "write *\n",
        head + entry + "write *", head + entry + "write *\nwrite *\n", head + entry + "writes *\n",
        head + entry + "only-from 10.0.0.0/8\n", head + entry + "write a,,b\n",
        head + entry + "write */x\n", head + entry + "revoked yesterday\n", head + entry + entry,
        head + "\nkey " + key.text() + "\n", head + "\nkey " + key.text() + "\nid " + other + "\n",
        head + entry + "comment \n", head + entry + "write\n", "\n" + head + entry}) {
    EXPECT_TRUE(Keyring::parse(bad).is(Code::kInvalid)) << bad;
  }
  EXPECT_TRUE(Keyring::parse(std::string(Keyring::kMaxBytes + 1, '\n')).is(Code::kTooLarge));
}

TEST(Keyring, NamespacePatterns) {
  const auto set = *NamespaceSet::parse("a,b-*");
  EXPECT_TRUE(set.contains("a"));
  EXPECT_FALSE(set.contains("ab"));
  EXPECT_TRUE(set.contains("b-"));
  EXPECT_TRUE(set.contains("b-1"));
  EXPECT_FALSE(set.contains("b"));
  EXPECT_TRUE(NamespaceSet::all().contains("anything"));
  EXPECT_FALSE(NamespaceSet().contains("a"));
  for (const char* bad : {"", "a b", "a,", "..", "a/b", "*a"}) {
    EXPECT_FALSE(NamespaceSet::parse(bad).ok()) << bad;
  }
}

TEST(Keyring, OnlyOursIsRead) {
  const TempDir dir;
  FileSystem& fs = real_filesystem();
  const std::string path = dir.path() + "/conf/trusted_keys";
  ASSERT_TRUE(Keyring().save(fs, path).ok());
  ASSERT_TRUE(Keyring::load(fs, path).ok());
  ASSERT_EQ(::chmod(path.c_str(), 0664), 0);
  EXPECT_TRUE(Keyring::load(fs, path).is(Code::kDenied));
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  ASSERT_EQ(::chmod(parent_dir(path).c_str(), 0777), 0);
  const auto denied = Keyring::load(fs, path);
  ASSERT_TRUE(denied.is(Code::kDenied));
  EXPECT_THAT(denied.error().action, HasSubstr("chmod go-w"));
  ASSERT_EQ(::chmod(parent_dir(path).c_str(), 0700), 0);
}

}  // namespace
}  // namespace nc::trust
