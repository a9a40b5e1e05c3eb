// Look-ups that go on to shared tiers, and what becomes of who waits.
#include "daemon/tier_desk.hpp"

#include "cache/tier/layout.hpp"
#include "cache/tier/memory_engine.hpp"
#include "tests/unit/daemon/harness.hpp"

namespace nc::daemon {
namespace {

struct TierDeskTest : testing::Test {
  TierDeskTest() {
    tier::MemoryEngine::Options options;
    options.timeout_ms = 60'000;
    options.wait = [this](Millis) {
      MutexLock lock(gate);
      while (shut) opened.wait(gate);
    };
    auto made = std::make_unique<tier::MemoryEngine>(objects, options);
    engine = made.get();
    std::vector<std::unique_ptr<tier::Link>> links;
    links.push_back(std::make_unique<tier::Link>(tier::parse_tier_url("file:///shared").value(),
                                                 std::move(made), h.clock, h.random));
    tier::Trust trust{[](const Manifest&, std::string_view) { return Status(); },
                      [](Manifest&) { return Status(); }};
    tier::TransferDeps transfer{h.store, fs, h.random, trust, "/store/staging", [](Millis) {}};
    h.service.tiers.open(
        std::make_unique<tier::Chain>(std::move(links), tier::Chain::Deps{h.clock, transfer, {}}),
        {}, {{}, "host-a"});
    EXPECT_TRUE(h.service.tiers.restore().ok());
    h.service.tiers.start();
  }
  ~TierDeskTest() override {
    open_gate();
    h.service.tiers.stop();
  }
  void open_gate() {
    MutexLock lock(gate);
    shut = false;
    opened.notify_all();
  }
  void put(const std::string& name) {
    const std::string blob = "bytes of " + name;
    const auto manifest = Harness::manifest(name, blob);
    objects->put(tier::blob_name(Sha256::of(as_bytes(blob)), false), blob);
    objects->put(tier::entry_name(*ActionKey::from_hex(Harness::key(name))), manifest);
  }
  void hold_answers() {
    MutexLock lock(gate);
    shut = true;
    engine->script(tier::Call::kGet, {.kind = tier::Fault::Kind::kDelay, .delay_ms = 1}, 1000);
  }

  Mutex gate;
  std::condition_variable_any opened;
  bool shut NC_GUARDED_BY(gate) = false;
  FakeClock server;
  std::shared_ptr<tier::MemoryObjects> objects = std::make_shared<tier::MemoryObjects>(server);
  FakeFileSystem fs;
  Harness h;
  tier::MemoryEngine* engine = nullptr;
};

TEST_F(TierDeskTest, ManyWaitForOneAnswerAndAllHit) {
  put("a");
  hold_answers();
  std::vector<std::shared_ptr<FakeConnection>> clients;
  std::vector<std::future<HttpResponse>> answers;
  for (int i = 0; i < 5; ++i) {
    clients.push_back(h.connect(100 + i));
    answers.push_back(h.acquire_later(clients.back(), Harness::key("a")));
  }
  EXPECT_TRUE(Harness::eventually([&] { return h.table.tickets() == 5; }));
  const auto look = h.connect(200);
  auto looked = h.send(look, Method::kPost, "/v1/actions/" + Harness::key("a") + "/acquire",
                       R"({"intent":"lookup"})");
  open_gate();
  for (auto& answer : answers) EXPECT_EQ(Harness::read(std::move(answer)).state(), "hit");
  EXPECT_EQ(Harness::read(std::move(looked)).state(), "hit");
  EXPECT_EQ(engine->calls(tier::Call::kGet), 1U);
  EXPECT_EQ(h.counter("hits"), 6);
  EXPECT_EQ(h.counter("waits"), 0);
  EXPECT_EQ(h.counter("builds"), 0);
  EXPECT_EQ(h.counter("tier_hits"), 1);
  EXPECT_EQ(h.table.leases(), 0U);
}

TEST_F(TierDeskTest, WithoutAnAnswerTheFirstWhoWaitsBuilds) {
  hold_answers();
  const auto one = h.connect(100);
  const auto two = h.connect(101);
  auto first = h.acquire_later(one, Harness::key("a"));
  EXPECT_TRUE(Harness::eventually([&] { return h.table.tickets() == 1; }));
  auto second = h.acquire_later(two, Harness::key("a"));
  EXPECT_TRUE(Harness::eventually([&] { return h.table.tickets() == 2; }));
  open_gate();
  const auto lease = lease_of(Harness::read(std::move(first)));
  EXPECT_EQ(h.counter("builds"), 1);
  EXPECT_EQ(h.counter("lease_takeovers"), 0);
  EXPECT_EQ(h.publish(one, "a", lease.id, lease.fence).status, 201);
  EXPECT_EQ(Harness::read(std::move(second)).state(), "hit");
  EXPECT_EQ(h.counter("waits"), 1);
  EXPECT_EQ(h.counter("tier_hits"), 0);
  // What was built is on its way to the tier.
  EXPECT_TRUE(Harness::eventually([&] {
    return objects->get(tier::entry_name(*ActionKey::from_hex(Harness::key("a")))).has_value();
  }));
}

TEST_F(TierDeskTest, WhoDoesNotWaitAsksAgain) {
  hold_answers();
  const auto one = h.connect(100);
  auto answer = h.acquire(one, Harness::key("a"));
  EXPECT_EQ(answer.state(), "building");
  EXPECT_EQ(answer.json.at("builder").at("program").as_string(), "neuroncached");
  const auto ticket = answer.text("ticket");
  open_gate();
  EXPECT_TRUE(Harness::eventually([&] { return h.table.leases() == 0; }));
  answer = h.acquire(one, Harness::key("a"), R"(,"ticket":")" + ticket + '"');
  EXPECT_EQ(answer.state(), "lease");
  EXPECT_EQ(engine->calls(tier::Call::kGet), 1U);
}

TEST_F(TierDeskTest, AStoreThatHasItAsksNobody) {
  const auto one = h.connect(100);
  auto first = h.acquire_later(one, Harness::key("a"));
  const auto lease = lease_of(Harness::read(std::move(first)));
  h.publish(one, "a", lease.id, lease.fence);
  // The write-back has looks of its own.
  ASSERT_TRUE(Harness::eventually([&] {
    return objects->get(tier::entry_name(*ActionKey::from_hex(Harness::key("a")))).has_value();
  }));
  const auto calls = engine->calls(tier::Call::kGet);
  EXPECT_EQ(h.acquire(one, Harness::key("a")).state(), "hit");
  EXPECT_EQ(engine->calls(tier::Call::kGet), calls);
}

TEST_F(TierDeskTest, AMissIsAMissForWhoOnlyLooks) {
  const auto one = h.connect(100);
  EXPECT_EQ(h.call(one, Method::kPost, "/v1/actions/" + Harness::key("a") + "/acquire",
                   R"({"intent":"lookup"})")
                .state(),
            "miss");
  EXPECT_EQ(h.table.leases(), 0U);
}

TEST_F(TierDeskTest, ALookThatTakesTooLongIsAMiss) {
  put("a");
  hold_answers();
  const auto one = h.connect(100);
  auto looked = h.send(one, Method::kPost, "/v1/actions/" + Harness::key("a") + "/acquire",
                       R"({"intent":"lookup"})");
  EXPECT_TRUE(Harness::eventually([&] { return engine->calls(tier::Call::kGet) == 1; }));
  h.clock.advance(10'000);
  h.service.tiers.tick();
  EXPECT_EQ(Harness::read(std::move(looked)).state(), "miss");
}

TEST_F(TierDeskTest, TheLeaseIsKeptWhileTheTierAnswers) {
  put("a");
  hold_answers();
  const auto one = h.connect(100);
  auto answer = h.acquire_later(one, Harness::key("a"));
  EXPECT_TRUE(Harness::eventually([&] { return h.table.tickets() == 1; }));
  for (int i = 0; i < 20; ++i) {
    h.clock.advance(1'000);
    h.service.tiers.tick();
    h.keeper.apply(h.table.tick());
  }
  EXPECT_EQ(h.table.leases(), 1U);
  open_gate();
  EXPECT_EQ(Harness::read(std::move(answer)).state(), "hit");
}

}  // namespace
}  // namespace nc::daemon
