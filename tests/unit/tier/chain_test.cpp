#include "cache/tier/chain.hpp"

#include <thread>

#include <gtest/gtest.h>

#include "cache/tier/layout.hpp"
#include "tests/unit/tier/tier_box.hpp"

namespace nc::tier {
namespace {

// Two hosts with one tier between them.
struct ChainTest : testing::Test {
  ChainTest() {
    near = &a.add(objects, "file:///shared");
    far = &b.add(objects, "file:///shared");
    a.connect();
    b.connect();
  }
  void build(const TestEntry& e) {
    ASSERT_TRUE(a.put(e));
    a.chain->published(e.manifest.key);
    a.deliver();
  }
  bool find(TierBox& box, const TestEntry& e) { return box.chain->find(e.manifest.key, {}).found; }
  TierView seen() { return b.chain->view().at(0); }
  std::string big = noise(200'000, 1);
  TestEntry entry = make_entry("one", {words(300'000, 7), big, "small"});
  FakeClock server;
  std::shared_ptr<MemoryObjects> objects = std::make_shared<MemoryObjects>(server);
  TierBox a, b;
  MemoryEngine* near = nullptr;
  MemoryEngine* far = nullptr;
};

TEST_F(ChainTest, WhatOneBuiltTheOtherFinds) {
  EXPECT_FALSE(find(b, entry));
  build(entry);
  EXPECT_EQ(near->calls(Call::kPut), 1U);
  EXPECT_TRUE(objects->get(blob_name(entry.manifest.outputs[0].digest, true)));
  EXPECT_TRUE(objects->get(blob_name(entry.manifest.outputs[1].digest, false)));
  EXPECT_TRUE(objects->get(blob_name(entry.manifest.outputs[2].digest, false)));
  EXPECT_TRUE(find(b, entry));
  EXPECT_EQ(b.get(entry), "hit");
  const auto v = seen();
  EXPECT_EQ(v.asked, 2U);
  EXPECT_EQ(v.hits, 1U);
  EXPECT_EQ(v.absent, 1U);
  EXPECT_LT(v.bytes_in, 250'000U);  // zstd from end to end
  EXPECT_EQ(v.queued, 0U);          // nobody is told what it told us
  EXPECT_EQ(a.chain->view().at(0).sent, 1U);
}

TEST_F(ChainTest, TheEntryComesAfterItsBlobs) {
  near->script(Call::kStore, {.code = Code::kUnavailable}, 1);
  ASSERT_TRUE(a.put(entry));
  a.chain->published(entry.manifest.key);
  a.deliver();
  EXPECT_FALSE(objects->get(entry_name(entry.manifest.key)));
  EXPECT_EQ(a.chain->view().at(0).queued, 1U);
  a.deliver(10'000);
  EXPECT_EQ(a.chain->view().at(0).queued, 0U);
  EXPECT_TRUE(find(b, entry));
}

TEST_F(ChainTest, SpoiledBodiesAreNeverTaken) {
  build(entry);
  const auto other = make_entry("other", {"else"});
  build(other);
  using K = Fault::Kind;
  for (const auto call : {Call::kGet, Call::kFetch}) {
    for (const auto kind : {K::kTruncated, K::kGarbage, K::kLonger, K::kOther}) {
      far->script(
          call, {.kind = kind,
                 .other = call == Call::kGet ? entry_name(other.manifest.key)
                                             : blob_name(other.manifest.outputs[0].digest, false)});
      EXPECT_FALSE(find(b, entry)) << static_cast<int>(call) << " " << static_cast<int>(kind);
      far->clear_script();
      EXPECT_EQ(b.get(entry), "miss");
    }
  }
  EXPECT_EQ(seen().corrupt, 8U);
  EXPECT_TRUE(find(b, entry));
  EXPECT_EQ(b.get(entry), "hit");
  EXPECT_TRUE(verify_all(*b.store).value().bad.empty());
}

TEST_F(ChainTest, ATransferThatBreaksGoesOnWhereItWas) {
  build(entry);
  far->script(Call::kFetch, {.kind = Fault::Kind::kShort}, 2);
  EXPECT_TRUE(find(b, entry));
  EXPECT_EQ(b.get(entry), "hit");
  std::uint64_t in_tier = 0;
  for (const auto& name : objects->names()) in_tier += objects->get(name)->bytes.size();
  EXPECT_LE(seen().bytes_in, in_tier);
}

TEST_F(ChainTest, ABombIsRefused) {
  build(entry);
  // A frame that grows to far more than the entry announces.
  auto& output = entry.manifest.outputs[0];
  TierBox c;
  auto bomb = make_entry("bomb", {std::string(30'000'000, 'x')});
  c.add(objects, "file:///shared");
  c.connect();
  ASSERT_TRUE(c.put(bomb));
  c.chain->published(bomb.manifest.key);
  c.deliver();
  const auto frame = objects->get(blob_name(bomb.manifest.outputs[0].digest, true));
  ASSERT_TRUE(frame);
  objects->put(blob_name(output.digest, true), frame->bytes);
  EXPECT_FALSE(find(b, entry));
  EXPECT_EQ(seen().corrupt, 1U);
  EXPECT_EQ(b.store->size().reserved, 0U);
}

TEST_F(ChainTest, UnsignedEntriesAreRefusedAndDoNotMaskGoodOnes) {
  auto bad = entry.manifest;
  objects->put(entry_name(entry.manifest.key), bad.to_json());
  EXPECT_FALSE(find(b, entry));
  EXPECT_EQ(seen().refused, 1U);
  build(entry);  // beside it
  EXPECT_TRUE(find(b, entry));
  EXPECT_EQ(objects->get(entry_name(entry.manifest.key))->bytes, bad.to_json());
}

// Each host signs with its own name and believes its own alone.
struct Strangers : ChainTest {
  static Trust alone(const std::string& who) {
    const std::string mine = R"({"by":")" + who + R"("})";
    Trust trust;
    trust.check = [mine](const Manifest& m, std::string_view) -> Status {
      return m.signature == mine ? Status() : Error{Code::kDenied, "a stranger's", ""};
    };
    trust.sign = [mine](Manifest& m) -> Status {
      m.signature = mine;
      return {};
    };
    trust.disowns = [](const Manifest& m) { return m.signature == R"({"by":"thief"})"; };
    return trust;
  }
  struct Host : TierBox {
    Host(const std::shared_ptr<MemoryObjects>& objects, const std::string& who) {
      trust = alone(who);
      engine = &add(objects, "file:///shared");
      connect();
    }
    void build(const TestEntry& e) {
      ASSERT_TRUE(put(e));
      chain->published(e.manifest.key);
      deliver();
    }
    MemoryEngine* engine = nullptr;
  };
  std::string at(unsigned place) {
    const auto object = objects->get(entry_name(entry.manifest.key, place));
    return object ? Manifest::parse(object->bytes).value().signature : "";
  }
  Host red{objects, "red"}, blue{objects, "blue"}, red2{objects, "red"}, blue2{objects, "blue"};
};

TEST_F(Strangers, ShareATierWithoutHarmToEither) {
  red.build(entry);
  EXPECT_FALSE(blue.chain->find(entry.manifest.key, {}).found);
  blue.build(entry);
  EXPECT_EQ(at(0), R"({"by":"red"})");
  EXPECT_EQ(at(1), R"({"by":"blue"})");
  EXPECT_TRUE(red2.chain->find(entry.manifest.key, {}).found);
  EXPECT_EQ(red2.engine->calls(Call::kGet), 1U);  // a hit costs no more than without strangers
  EXPECT_TRUE(blue2.chain->find(entry.manifest.key, {}).found);
  EXPECT_EQ(blue2.chain->view().at(0).hits, 1U);
  // Whoever builds it once more finds his own.
  Host blue3(objects, "blue"), red3(objects, "red");
  blue3.build(entry);
  red3.build(entry);
  EXPECT_EQ(blue3.chain->view().at(0).known, 1U);
  EXPECT_EQ(red3.chain->view().at(0).known, 1U);
  EXPECT_EQ(at(2), "");
}

TEST_F(Strangers, WhatNobodyCanUseIsReplaced) {
  objects->put(entry_name(entry.manifest.key), "garbage");
  red.build(entry);
  EXPECT_EQ(at(0), R"({"by":"red"})");
  blue.build(entry);
  objects->put(entry_name(entry.manifest.key), "garbage");
  EXPECT_TRUE(blue2.chain->find(entry.manifest.key, {}).found);  // nor does it mask the next one
  auto stolen = entry.manifest;
  stolen.signature = R"({"by":"thief"})";
  objects->put(entry_name(entry.manifest.key), stolen.to_json());
  red2.build(entry);
  EXPECT_EQ(at(0), R"({"by":"red"})");
  EXPECT_EQ(at(1), R"({"by":"blue"})");
}

TEST_F(Strangers, CrowdsAreToldOfAndNotReplaced) {
  for (unsigned place = 0; place < kEntryPlaces; ++place) {
    objects->put(entry_name(entry.manifest.key, place), entry.manifest.to_json());
  }
  red.build(entry);
  EXPECT_EQ(red.chain->view().at(0).send_failed, 1U);
  EXPECT_EQ(red.chain->view().at(0).queued, 0U);
  for (unsigned place = 0; place < kEntryPlaces; ++place) EXPECT_EQ(at(place), "");
}

// The other host's entry comes while the blobs of this one are on their way.
TEST_F(Strangers, TwoThatBuildAtTheSameTimeKeepBoth) {
  TierBox slow;
  slow.trust = alone("red");
  bool first = true;
  MemoryEngine::Options options;
  options.wait = [&](Millis) {
    if (std::exchange(first, false)) blue.build(entry);
  };
  auto engine = std::make_unique<MemoryEngine>(objects, options);
  engine->script(Call::kStore, {.kind = Fault::Kind::kDelay, .delay_ms = 1}, 1);
  slow.links.push_back(std::make_unique<Link>(*parse_tier_url("file:///shared"), std::move(engine),
                                              slow.clock, slow.random));
  slow.connect();
  ASSERT_TRUE(slow.put(entry));
  slow.chain->published(entry.manifest.key);
  slow.deliver();
  EXPECT_FALSE(first);
  EXPECT_EQ(at(0), R"({"by":"blue"})");
  EXPECT_EQ(at(1), R"({"by":"red"})");
}

TEST_F(ChainTest, AnEntryUnderAnothersNameIsToldOf) {
  std::vector<std::string> told;
  TierBox c;
  c.trust.misplaced = [&](const Manifest& m, const ActionKey& under, std::string_view origin) {
    told.push_back(m.key.hex() + " " + under.hex() + " " + std::string(origin));
  };
  c.add(objects, "file:///shared");
  c.connect();
  build(entry);
  const auto other = make_entry("other", {"else"});
  objects->put(entry_name(other.manifest.key), objects->get(entry_name(entry.manifest.key))->bytes);
  EXPECT_FALSE(find(c, other));
  EXPECT_EQ(told, std::vector{entry.manifest.key.hex() + " " + other.manifest.key.hex() +
                              " file:///shared"});
  EXPECT_EQ(c.chain->view().at(0).corrupt, 1U);
}

TEST_F(ChainTest, AGoodEntryIsNotReplaced) {
  build(entry);
  const auto before = objects->get(entry_name(entry.manifest.key))->bytes;
  auto again = entry;
  again.manifest.build_ms = 99;
  ASSERT_TRUE(b.put(again));
  b.chain->published(again.manifest.key);
  b.deliver();
  EXPECT_EQ(objects->get(entry_name(entry.manifest.key))->bytes, before);
  EXPECT_EQ(seen().known, 1U);
}

TEST_F(ChainTest, MissingAndDamagedBlobsAreWrittenAnewByTheNextWhoBuilds) {
  build(entry);
  const auto name = blob_name(entry.manifest.outputs[1].digest, false);
  const auto good = objects->get(name)->bytes;
  for (const bool damaged : {false, true}) {
    TierBox builder, reader;
    builder.add(objects, "file:///shared");
    reader.add(objects, "file:///shared");
    builder.connect();
    reader.connect();
    objects->remove(name);
    if (damaged) objects->put(name, std::string(good.size(), 'x'));
    EXPECT_FALSE(find(builder, entry));
    ASSERT_TRUE(builder.put(entry));
    builder.chain->published(entry.manifest.key);
    builder.deliver();
    ASSERT_TRUE(objects->get(name));
    EXPECT_EQ(objects->get(name)->bytes, good);
    EXPECT_TRUE(find(reader, entry));
  }
}

TEST_F(ChainTest, BlobsOfADamagedEntryAreWrittenAnewWithIt) {
  build(entry);
  const auto blob = blob_name(entry.manifest.outputs[1].digest, false);
  const auto good = objects->get(blob)->bytes;
  const auto other = make_entry("other", {"x"}).manifest.to_json();
  for (const std::string& damage : {std::string("{"), other, std::string(2 << 20, 'x')}) {
    TierBox builder;
    builder.add(objects, "file:///shared");
    builder.connect();
    objects->put(entry_name(entry.manifest.key), damage);
    objects->put(blob, std::string(good.size(), 'x'));
    ASSERT_TRUE(builder.put(entry));
    builder.chain->published(entry.manifest.key);
    builder.deliver();
    EXPECT_EQ(objects->get(blob)->bytes, good);
  }
}

TEST_F(ChainTest, EachFailureHasItsCounter) {
  build(entry);
  const auto ask = [&](const Fault& fault) {
    far->script(Call::kGet, fault);
    EXPECT_FALSE(find(b, entry));
    b.clock.advance(3'600'000);  // any pause is over
    b.chain->probe();
  };
  ask({.code = Code::kDenied});
  ask({.code = Code::kTimeout});
  ask({.code = Code::kUnavailable});
  ask({.code = Code::kNotFound});
  ask({.kind = Fault::Kind::kDelay, .delay_ms = 60'000});
  ask({.kind = Fault::Kind::kGarbage});
  const auto v = seen();
  EXPECT_EQ(v.denied, 1U);
  EXPECT_EQ(v.timed_out, 2U);
  EXPECT_EQ(v.failed, 1U);
  EXPECT_EQ(v.absent, 1U);
  EXPECT_EQ(v.corrupt, 1U);
  EXPECT_EQ(v.hits, 0U);
  EXPECT_EQ(v.asked, 6U);
}

TEST_F(ChainTest, ASickTierCostsSecondsInTotal) {
  build(entry);
  far->script(Call::kGet, {.kind = Fault::Kind::kDelay, .delay_ms = 60'000}, 1000);
  const auto begin = b.clock.monotonic_ms();
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(find(b, entry));
  EXPECT_LE(b.clock.monotonic_ms() - begin, 5'000);
  EXPECT_EQ(seen().skipped, 99U);
  EXPECT_EQ(seen().reading.state, Breaker::State::kOpen);
  // Probes, not look-ups, find out that it is well again.
  far->clear_script();
  b.clock.advance(3'000);
  EXPECT_FALSE(find(b, entry));
  b.chain->probe();
  EXPECT_TRUE(find(b, entry));
}

TEST_F(ChainTest, AFullLocalStoreIsNotHeldAgainstTheTier) {
  build(entry);
  auto limits = b.options;
  limits.max_blob = 1000;
  b.store->set_limits(limits);
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(find(b, entry));
  EXPECT_EQ(seen().reading.state, Breaker::State::kClosed);
  EXPECT_EQ(seen().failed, 5U);
}

TEST_F(ChainTest, OneFetchOfABlobThatManyWant) {
  build(entry);
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) threads.emplace_back([&] { EXPECT_TRUE(find(b, entry)); });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(b.get(entry), "hit");
  // The compressed form is looked for first, so a blob may take two calls.
  EXPECT_LE(far->calls(Call::kFetch), 4U);
}

TEST_F(ChainTest, TheQueueSurvivesARestart) {
  near->set_down(Code::kUnavailable);
  for (int i = 0; i < 5; ++i) {
    const auto e = make_entry("e" + std::to_string(i), {noise(1000, i)});
    ASSERT_TRUE(a.put(e));
    a.chain->published(e.manifest.key);
  }
  a.deliver();
  a.chain.reset();
  ASSERT_TRUE(a.open().ok());
  a.add(objects, "file:///shared");
  a.connect();
  EXPECT_EQ(a.chain->view().at(0).queued, 5U);
  a.deliver();
  EXPECT_EQ(a.chain->view().at(0).sent, 5U);
  // And nothing is left for the next time.
  EXPECT_TRUE(a.store->records("tier_queue").value().empty());
}

TEST_F(ChainTest, TheQueueIsBounded) {
  TierBox c;
  c.max_items = 3;
  c.add(objects, "file:///shared").set_down(Code::kUnavailable);
  c.connect();
  for (int i = 0; i < 5; ++i) c.chain->published(Sha256::of(as_bytes(std::to_string(i))));
  EXPECT_EQ(c.chain->view().at(0).queued, 3U);
  EXPECT_EQ(c.chain->dropped(), 2U);
}

TEST_F(ChainTest, WhatIsGoneOrMayNotBeSignedIsNotSent) {
  a.chain->published(Sha256::of(as_bytes("no such entry")));
  a.deliver();
  EXPECT_EQ(a.chain->view().at(0).queued, 0U);
  TierBox c;
  c.trust.sign = [](Manifest&) -> Status { return Error{Code::kDenied, "no key", ""}; };
  auto& engine = c.add(objects, "file:///shared");
  c.connect();
  ASSERT_TRUE(c.put(entry));
  c.chain->published(entry.manifest.key);
  c.deliver();
  EXPECT_EQ(c.chain->view().at(0).unsigned_kept, 1U);
  EXPECT_EQ(c.chain->view().at(0).queued, 0U);
  EXPECT_EQ(engine.calls(), 0U);
}

TEST_F(ChainTest, AnEntryThatTheTierHasNoPlaceForIsSentLater) {
  const Link& link = **a.chain->link("");
  near->set_down(Code::kCorrupt);  // as where a directory lies in each of its places
  build(entry);
  EXPECT_EQ(a.chain->view().at(0).queued, 1U);
  EXPECT_TRUE(a.chain->stuck(entry.manifest.key, link));
  const auto calls = near->calls();
  a.chain->hurry(entry.manifest.key, link);
  a.deliver();
  EXPECT_EQ(near->calls(), calls) << "its pause is kept";
  near->set_down(std::nullopt);
  a.deliver(10'000);
  EXPECT_EQ(a.chain->view().at(0).sent, 1U);
  EXPECT_FALSE(a.chain->stuck(entry.manifest.key, link));
  EXPECT_TRUE(find(b, entry));
}

TEST_F(ChainTest, WhatFailsOftenIsNotWaitedFor) {
  const Link& link = **a.chain->link("");
  near->set_down(Code::kUnavailable);
  build(entry);
  EXPECT_FALSE(a.chain->stuck(entry.manifest.key, link));
  a.deliver(300'000);
  EXPECT_TRUE(a.chain->stuck(entry.manifest.key, link));
  // Built anew it is sent without waiting for the next attempt.
  near->set_down(std::nullopt);
  a.chain->published(entry.manifest.key);
  EXPECT_FALSE(a.chain->stuck(entry.manifest.key, link));
  a.deliver(60'000);
  EXPECT_EQ(a.chain->view().at(0).sent, 1U);
}

TEST_F(ChainTest, LostAnswersDoNoHarm) {
  near->script_all({.kind = Fault::Kind::kLost, .code = Code::kTimeout});
  ASSERT_TRUE(a.put(entry));
  a.chain->published(entry.manifest.key);
  a.deliver(600'000);
  EXPECT_TRUE(find(b, entry));
  EXPECT_EQ(b.get(entry), "hit");
}

TEST(Chain, FasterTiersAreFilledFromSlowerOnes) {
  FakeClock server;
  auto fast = std::make_shared<MemoryObjects>(server);
  auto slow = std::make_shared<MemoryObjects>(server);
  const auto entry = make_entry("one", {noise(5000, 3)});
  TierBox a;
  a.add(slow, "file:///slow?priority=200");
  a.connect();
  ASSERT_TRUE(a.put(entry));
  a.chain->published(entry.manifest.key);
  a.deliver();
  TierBox b;
  b.add(slow, "file:///slow?priority=200");
  b.add(fast, "file:///fast?priority=10");
  b.connect();
  const auto found = b.chain->find(entry.manifest.key, {});
  EXPECT_TRUE(found.found);
  EXPECT_EQ(found.tier, "file:///slow");
  EXPECT_EQ(b.chain->view().at(0).address, "file:///fast");
  EXPECT_EQ(b.chain->view().at(0).absent, 1U);
  b.deliver();
  EXPECT_EQ(fast->names(), slow->names());
  // A tier behind the one that answered is not asked.
  TierBox c;
  auto& behind = c.add(slow, "file:///slow?priority=200");
  c.add(fast, "file:///fast?priority=10");
  c.connect();
  EXPECT_EQ(c.chain->find(entry.manifest.key, {}).tier, "file:///fast");
  EXPECT_EQ(behind.calls(), 0U);
}

TEST(Chain, ReadOnlyAndWriteOnlyAreKept) {
  FakeClock server;
  auto objects = std::make_shared<MemoryObjects>(server);
  const auto entry = make_entry("one", {noise(5000, 3)});
  TierBox a;
  auto& ro = a.add(objects, "file:///ro?read_only=true");
  a.connect();
  ASSERT_TRUE(a.put(entry));
  a.chain->published(entry.manifest.key);
  a.deliver();
  EXPECT_EQ(ro.calls(), 0U);
  EXPECT_TRUE(a.chain->queue(entry.manifest.key, "file:///ro").is(Code::kReadOnly));
  TierBox b;
  auto& wo = b.add(objects, "file:///wo?write_only=true");
  b.connect();
  wo.script(Call::kGet, {.code = Code::kDenied}, 10);  // it may write, and not look
  wo.script(Call::kHead, {.code = Code::kDenied}, 10);
  ASSERT_TRUE(b.put(entry));
  b.chain->published(entry.manifest.key);
  b.deliver();
  EXPECT_EQ(b.chain->view().at(0).sent, 1U);
  EXPECT_FALSE(b.chain->find(entry.manifest.key, {}).found);
  EXPECT_EQ(b.chain->view().at(0).asked, 0U);
}

TEST(Chain, ATierOverItsBudgetIsNotWritten) {
  FakeClock server;
  auto objects = std::make_shared<MemoryObjects>(server);
  TierBox a;
  a.add(objects, "file:///t?max_bytes=6000");
  a.connect();
  for (int i = 0; i < 4; ++i) {
    const auto e = make_entry("e" + std::to_string(i), {noise(2500, i)});
    ASSERT_TRUE(a.put(e));
    a.chain->published(e.manifest.key);
    a.deliver();
  }
  EXPECT_EQ(a.chain->view().at(0).sent, 3U);
  EXPECT_EQ(a.chain->view().at(0).queued, 1U);
  // Nobody should wait for it.
  const Link& link = **a.chain->link("");
  EXPECT_TRUE(a.chain->stuck(make_entry("e3", {noise(2500, 3)}).manifest.key, link));
  EXPECT_FALSE(a.chain->stuck(make_entry("e2", {noise(2500, 2)}).manifest.key, link));
  EXPECT_NE(a.chain->view().at(0).writing.problem.find("budget"), std::string::npos);
}

}  // namespace
}  // namespace nc::tier
