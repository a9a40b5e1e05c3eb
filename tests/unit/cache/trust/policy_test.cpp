#include "cache/trust/policy.hpp"

#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/fake_filesystem.hpp"
#include "base/trust/keyring.hpp"
#include "cache/trust/envelope.hpp"

namespace nc::trust {
namespace {

using ::testing::HasSubstr;

constexpr const char* kRing = "/conf/trusted_keys";
constexpr const char* kKey = "/conf/sign.key";
constexpr Millis kDay = 86'400'000;

Manifest manifest_of(const std::string& graph, const std::string& name_space = "default") {
  Manifest m;
  m.parts = {{"compiler", "c 1"}, {"graph", graph}};
  m.key = *action_key(m.parts);
  m.kind = "graph";
  m.name_space = name_space;
  m.label = "forward";
  m.model = "llama";
  m.compiler = "c 1";
  m.created_ms = 5;
  m.build_ms = 6;
  m.peak_rss_bytes = 7;
  m.producer = {"host-1", 12, "train.py", "0.1.0"};
  m.outputs = {{"code", Sha256::of(as_bytes("x")), 1, 0755}, {"log", Sha256::of({}), 0, 0644}};
  m.meta = {{"a", "1"}, {"b", "2"}};
  return m;
}

class PolicyTest : public ::testing::Test {
 protected:
  PolicyTest() {
    EXPECT_TRUE(fs_.make_dirs("/conf", 0700).ok());
    fs_.set_owner("/conf", ::geteuid());
    EXPECT_TRUE(own_.save(fs_, kKey, clock_.wall_ms(), "").ok());
    fs_.set_owner(kKey, ::geteuid());
    trust(own_, "*", "*");
  }

  void trust(const PrivateKey& key, const char* write, const char* read) {
    TrustedKey entry;
    entry.key = key.public_key();
    entry.id = key.id();
    entry.write = *NamespaceSet::parse(write);
    entry.read = *NamespaceSet::parse(read);
    ASSERT_TRUE(ring_.add(entry).ok());
    write_ring();
  }
  void write_ring() {
    clock_.advance(2'000);  // the policy looks again, and the file has another time
    ASSERT_TRUE(ring_.save(fs_, kRing).ok());
    fs_.set_owner(kRing, ::geteuid());
  }
  TrustedKey& entry_of(const PrivateKey& key) { return **ring_.pick(key.id()); }

  std::unique_ptr<Policy> policy(bool need_signature = true, const char* key = kKey) {
    return make_policy(fs_, clock_, {need_signature, kRing, key});
  }
  Manifest signed_by(const PrivateKey& key, Manifest m = manifest_of("g")) {
    EXPECT_TRUE(sign_manifest(m, key, clock_.wall_ms()).ok());
    return m;
  }
  static std::uint64_t refused(const Policy& policy, Refusal refusal) {
    return policy.state().refused[static_cast<std::size_t>(refusal)];
  }

  FakeClock clock_{1'780'000'000'000};
  FakeFileSystem fs_{&clock_};
  PrivateKey own_ = *PrivateKey::generate();
  PrivateKey other_ = *PrivateKey::generate();
  Keyring ring_;
};

TEST_F(PolicyTest, SignsAndBelievesItself) {
  const auto p = policy();
  Manifest m = manifest_of("g");
  ASSERT_TRUE(p->sign(m).ok());
  EXPECT_TRUE(p->check(m, "there").ok());
  // Through its stored form, too.
  auto again = Manifest::parse(m.to_json());
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(p->check(*again, "there").ok());
  EXPECT_EQ(p->state().signed_count, 1U);
  EXPECT_EQ(p->state().believed, 2U);
  EXPECT_EQ(p->state().key_id, own_.id());
}

TEST_F(PolicyTest, EveryFieldIsSigned) {
  const auto p = policy();
  const Manifest good = signed_by(own_);
  ASSERT_TRUE(p->check(good, "t").ok());
  const std::vector<std::function<void(Manifest&)>> changes = {
      [](Manifest& m) {
        m.parts[1].second = "h";
        m.key = *action_key(m.parts);
      },
      [](Manifest& m) { m.parts[0].first = "compilerg"; },
      [](Manifest& m) { m.key = Sha256::of(as_bytes("another")); },
      [](Manifest& m) { m.kind = "aot"; },
      [](Manifest& m) { m.name_space = "other"; },
      [](Manifest& m) { m.label += "x"; },
      [](Manifest& m) { std::swap(m.model, m.compiler); },
      [](Manifest& m) { m.created_ms++; },
      [](Manifest& m) { m.build_ms++; },
      [](Manifest& m) { m.peak_rss_bytes++; },
      [](Manifest& m) { m.producer.host = "evil"; },
      [](Manifest& m) { m.producer.pid++; },
      [](Manifest& m) { m.producer.program = ""; },
      [](Manifest& m) { m.producer.version = "9"; },
      [](Manifest& m) { m.outputs[0].digest = Sha256::of(as_bytes("y")); },
      [](Manifest& m) { m.outputs[0].size++; },
      [](Manifest& m) { m.outputs[0].mode = 0777; },
      [](Manifest& m) { m.outputs[0].name = "Code"; },
      [](Manifest& m) { m.outputs.pop_back(); },
      [](Manifest& m) { std::swap(m.outputs[0], m.outputs[1]); },
      [](Manifest& m) { m.meta["a"] = "2"; },
      [](Manifest& m) { m.meta.erase("b"); },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Manifest bad = good;
    changes[i](bad);
    EXPECT_TRUE(p->check(bad, "t").is(Code::kCorrupt)) << i;
  }
  EXPECT_EQ(refused(*p, Refusal::kBadSignature), changes.size());
  // Another's signature, or another time, do not fit either.
  auto signature = *Signature::parse(good.signature);
  signature.signed_ms++;
  Manifest bad = good;
  bad.signature = signature.to_json();
  EXPECT_TRUE(p->check(bad, "t").is(Code::kCorrupt));
}

TEST_F(PolicyTest, UnsignedAndUnknownAreDenied) {
  const auto p = policy();
  EXPECT_TRUE(p->check(manifest_of("g"), "t").is(Code::kDenied));
  EXPECT_EQ(refused(*p, Refusal::kUnsigned), 1U);
  EXPECT_TRUE(p->check(signed_by(other_), "t").is(Code::kDenied));
  EXPECT_EQ(refused(*p, Refusal::kUnknownKey), 1U);
  trust(other_, "*", "*");
  EXPECT_TRUE(p->check(signed_by(other_), "t").ok()) << "without a restart";
}

TEST_F(PolicyTest, SignatureTextIsStrict) {
  const auto p = policy();
  const std::string good = signed_by(own_).signature;
  Manifest m = manifest_of("g");
  for (const std::string& text :
       {std::string("{}"), std::string("[]"), good.substr(0, good.size() - 1) + R"(,"more":1})",
        std::string("null"), good + " x"}) {
    m.signature = text;
    EXPECT_TRUE(p->check(m, "t").is(Code::kCorrupt)) << text;
  }
  // Not believed, either; but a newer version may.
  for (const std::string& text : {std::string(R"({"v":2,"alg":"ed25519"})"),
                                  std::string(good).replace(good.find("ed25519"), 7, "none")}) {
    m.signature = text;
    EXPECT_TRUE(p->check(m, "t").is(Code::kUnsupported)) << text;
  }
  EXPECT_EQ(refused(*p, Refusal::kBadSignature), 7U);
  // An id of another key with this signature: the id is signed as well.
  trust(other_, "*", "*");
  auto signature = *Signature::parse(good);
  signature.key_id = other_.id();
  m.signature = signature.to_json();
  EXPECT_TRUE(p->check(m, "t").is(Code::kCorrupt));
}

TEST_F(PolicyTest, RolesAreByNamespace) {
  trust(other_, "team-*,shared", "*");
  const auto p = policy();
  EXPECT_TRUE(p->check(signed_by(other_, manifest_of("g", "team-a")), "t").ok());
  EXPECT_TRUE(p->check(signed_by(other_, manifest_of("g", "shared")), "t").ok());
  EXPECT_TRUE(p->check(signed_by(other_, manifest_of("g", "default")), "t").is(Code::kDenied));
  EXPECT_TRUE(p->check(signed_by(other_, manifest_of("g", "shared2")), "t").is(Code::kDenied));
  EXPECT_EQ(refused(*p, Refusal::kRole), 2U);

  // What this host may write and read itself.
  entry_of(own_).write = *NamespaceSet::parse("mine");
  entry_of(own_).read = *NamespaceSet::parse("mine,team-a");
  write_ring();
  Manifest m = manifest_of("g");
  EXPECT_TRUE(p->sign(m).is(Code::kDenied));
  EXPECT_TRUE(m.signature.empty());
  m = manifest_of("g", "mine");
  EXPECT_TRUE(p->sign(m).ok());
  EXPECT_TRUE(p->check(signed_by(other_, manifest_of("g", "team-a")), "t").ok());
  EXPECT_TRUE(p->check(signed_by(other_, manifest_of("g", "team-b")), "t").is(Code::kDenied));
}

TEST_F(PolicyTest, ARoleIsForLookUpsInItsNamespacesAlone) {
  trust(other_, "team-a", "*");
  const auto p = policy();
  const Manifest theirs = signed_by(other_, manifest_of("g", "team-a"));
  ASSERT_TRUE(p->check(theirs, "t").ok());
  EXPECT_TRUE(p->serves(theirs, "team-a", "t").ok());
  EXPECT_TRUE(p->serves(theirs, "default", "t").is(Code::kDenied));
  EXPECT_EQ(refused(*p, Refusal::kRole), 1U);
  EXPECT_TRUE(p->serves(manifest_of("g"), "default", "t").ok()) << "built here";
  EXPECT_TRUE(p->serves(signed_by(own_, manifest_of("g", "team-a")), "default", "t").ok());
  EXPECT_TRUE(policy(false)->serves(theirs, "default", "t").ok());
  entry_of(other_).revoked_ms = clock_.wall_ms();
  write_ring();
  EXPECT_TRUE(p->serves(theirs, "team-a", "t").is(Code::kDenied)) << "also what is here already";
}

TEST_F(PolicyTest, RetiredKeysKeepWhatTheySignedAndRevokedOnesDoNot) {
  trust(other_, "*", "*");
  const auto p = policy();
  const Manifest old = signed_by(other_);
  entry_of(other_).not_after_ms = clock_.wall_ms() + kDay;
  write_ring();
  const Manifest in_overlap = signed_by(other_);
  clock_.advance(2 * kDay);
  const Manifest late = signed_by(other_);
  EXPECT_TRUE(p->check(old, "t").ok());
  EXPECT_TRUE(p->check(in_overlap, "t").ok());
  EXPECT_TRUE(p->check(late, "t").is(Code::kDenied));
  EXPECT_EQ(refused(*p, Refusal::kExpired), 1U);

  entry_of(other_).revoked_ms = clock_.wall_ms() + kDay;
  write_ring();
  EXPECT_TRUE(p->check(old, "t").ok()) << "not yet";
  clock_.advance(kDay);
  EXPECT_TRUE(p->check(old, "t").is(Code::kDenied));
  EXPECT_EQ(refused(*p, Refusal::kRevoked), 1U);
}

TEST_F(PolicyTest, WhatCameFromElsewhereIsNotSignedAnew) {
  trust(other_, "*", "*");
  const auto p = policy();
  Manifest m = signed_by(other_);
  const std::string theirs = m.signature;
  ASSERT_TRUE(p->sign(m).ok());
  EXPECT_EQ(m.signature, theirs);
  entry_of(other_).revoked_ms = 0;
  write_ring();
  EXPECT_TRUE(p->sign(m).is(Code::kDenied));
  EXPECT_EQ(m.signature, theirs);
}

TEST_F(PolicyTest, WhatThisHostSignedItselfIsItsOwnUntilItsKeyIsRevoked) {
  const auto p = policy();
  Manifest own = manifest_of("own");
  ASSERT_TRUE(p->sign(own).ok());
  // Kept to itself where the keyring knows it no more, and in namespaces that it may not write.
  EXPECT_TRUE(p->serves(own, "team-b", "here").ok());
  const Keyring before = ring_;
  ring_ = Keyring();
  write_ring();
  EXPECT_TRUE(p->serves(own, "default", "here").ok());
  EXPECT_TRUE(p->check(own, "elsewhere").is(Code::kDenied));
  EXPECT_FALSE(p->disowns(own));
  ring_ = before;
  entry_of(own_).revoked_ms = clock_.wall_ms();
  write_ring();
  EXPECT_TRUE(p->serves(own, "default", "here").is(Code::kDenied));
  EXPECT_TRUE(p->disowns(own));
}

TEST_F(PolicyTest, AnEntryUnderAnothersNameIsCountedAndLogged) {
  const auto p = policy();
  p->misplaced(manifest_of("one"), manifest_of("two").key, "s3://bucket");
  EXPECT_EQ(refused(*p, Refusal::kWrongKey), 1U);
  EXPECT_EQ(refusal_name(Refusal::kWrongKey), "wrong_key");
}

TEST_F(PolicyTest, AKeyringThatOthersCanChangeIsNone) {
  const auto p = policy();
  const Manifest good = signed_by(own_);
  ASSERT_TRUE(p->check(good, "t").ok());
  clock_.advance(2'000);
  fs_.set_owner(kRing, ::geteuid() + 1);
  EXPECT_TRUE(p->check(good, "t").is(Code::kDenied));
  EXPECT_THAT(p->state().problem, HasSubstr("belongs to uid"));
  clock_.advance(2'000);
  ASSERT_TRUE(fs_.write_atomically(kRing, as_bytes("neuroncache-keyring 1\nwhat\n")).ok());
  fs_.set_owner(kRing, ::geteuid());
  EXPECT_TRUE(p->check(good, "t").is(Code::kDenied));
  EXPECT_THAT(p->state().problem, HasSubstr("line 2"));
  write_ring();
  EXPECT_TRUE(p->check(good, "t").ok());
}

TEST_F(PolicyTest, WithoutAKeyNothingIsSigned) {
  const auto p = policy(true, "/conf/none");
  Manifest m = manifest_of("g");
  EXPECT_TRUE(p->sign(m).is(Code::kDenied));
  // A key that others may read is not used.
  ASSERT_TRUE(fs_.open("/conf/open.key", FileSystem::Open::kCreateNew, 0640).ok());
  fs_.set_owner("/conf/open.key", ::geteuid());
  const Status denied = policy(true, "/conf/open.key")->sign(m);
  ASSERT_TRUE(denied.is(Code::kDenied));
  EXPECT_THAT(denied.error().message, HasSubstr("others may read"));
}

TEST_F(PolicyTest, TrustAnyStillRefusesForgeries) {
  const auto p = policy(false, "");
  EXPECT_TRUE(p->check(manifest_of("g"), "t").ok());
  EXPECT_TRUE(p->check(signed_by(other_), "t").ok());
  Manifest m = signed_by(own_);
  m.build_ms++;
  EXPECT_TRUE(p->check(m, "t").is(Code::kCorrupt));
  m = manifest_of("g");
  EXPECT_TRUE(p->sign(m).ok());
  EXPECT_TRUE(m.signature.empty());
}

}  // namespace
}  // namespace nc::trust
