// What became of the actions of a recording, through the router.
#include "daemon/outcomes.hpp"

#include <set>

#include <gtest/gtest.h>

#include "tests/unit/daemon/harness.hpp"

namespace nc::daemon {
namespace {

class OutcomeRequests : public testing::Test {
 protected:
  Harness::Reply need(const std::string& name, const std::string& more = "") {
    return h.acquire(client, h.key(name), R"(,"recording":"run","label":")" + name + "\"" + more);
  }
  LeaseOf lease_in(const Harness::Reply& reply) {
    EXPECT_EQ(reply.state(), "lease");
    const auto& lease = reply.json.at("lease").as_object();
    return {std::string(lease.at("id").as_string()), lease.at("fence").to_number<std::uint64_t>()};
  }
  void build(const std::string& name, const LeaseOf& lease) {
    EXPECT_EQ(h.publish(client, name, lease.id, lease.fence).status, 201);
  }
  void fail(const std::string& name, const LeaseOf& lease, const std::string& failure_class) {
    h.call(client, Method::kPost, "/v1/leases/" + lease.id + "/fail",
           R"({"key":")" + h.key(name) + R"(","message":"m","log":"\n\nfirst\nsecond","class":")" +
               failure_class + "\"}");
  }
  boost::json::object outcome(const std::string& name) {
    const auto reply = h.call(client, Method::kGet, "/v1/recordings/run/outcomes");
    for (const auto& one : reply.json.at("outcomes").as_array()) {
      if (one.at("key").as_string() == h.key(name)) return one.as_object();
    }
    return {};
  }
  std::string state(const std::string& name) {
    const auto one = outcome(name);
    return one.empty() ? "" : std::string(one.at("outcome").as_string());
  }

  Harness h;
  std::shared_ptr<FakeConnection> client = h.connect(100);
  std::shared_ptr<FakeConnection> other = h.connect(200);
};

TEST_F(OutcomeRequests, WhatIsBuiltStaysBuiltAndWhatIsThereIsAHit) {
  const LeaseOf lease = lease_in(need("a"));
  EXPECT_EQ(state("a"), "unfinished");
  build("a", lease);
  EXPECT_EQ(state("a"), "built");
  EXPECT_EQ(outcome("a").at("build_ms").to_number<int>(), 3000);
  EXPECT_EQ(outcome("a").at("label").as_string(), "a");
  EXPECT_FALSE(outcome("a").at("cause").as_string().empty());
  EXPECT_EQ(need("a").state(), "hit");
  EXPECT_EQ(state("a"), "built");

  h.call(client, Method::kDelete, "/v1/recordings/run/outcomes");
  EXPECT_EQ(state("a"), "");
  EXPECT_EQ(need("a").state(), "hit");
  EXPECT_EQ(state("a"), "hit");
  EXPECT_EQ(outcome("a").at("cause").as_string(), "");
}

TEST_F(OutcomeRequests, WithoutANameNothingIsKept) {
  h.acquire(client, h.key("a"));
  EXPECT_EQ(state("a"), "");
  EXPECT_EQ(h.acquire(client, h.key("b"), R"(,"recording":"a/b")").status, 400);
}

TEST_F(OutcomeRequests, FailuresJustNowAndRemembered) {
  fail("a", lease_in(need("a")), "deterministic");
  EXPECT_EQ(state("a"), "failed");
  EXPECT_EQ(outcome("a").at("class").as_string(), "deterministic");
  EXPECT_EQ(outcome("a").at("log_line").as_string(), "first");
  h.call(client, Method::kDelete, "/v1/recordings/run/outcomes");
  EXPECT_EQ(need("a").state(), "failed");
  EXPECT_EQ(state("a"), "failed");
  EXPECT_EQ(outcome("a").at("message").as_string(), "m");

  fail("b", lease_in(need("b")), "killed");
  EXPECT_EQ(state("b"), "failed");
  build("b", lease_in(need("b")));
  EXPECT_EQ(state("b"), "built") << "the second try was good";
}

TEST_F(OutcomeRequests, ALeaseGivenBackLeavesItUnfinished) {
  const LeaseOf lease = lease_in(need("a"));
  h.call(client, Method::kDelete,
         "/v1/leases/" + lease.id + "?key=" + h.key("a") + "&fence=" + std::to_string(lease.fence));
  EXPECT_EQ(state("a"), "unfinished");
}

TEST_F(OutcomeRequests, WhoWaitsForOthersWaited) {
  const LeaseOf lease = lease_in(h.acquire(other, h.key("a")));
  auto waiting = h.send(client, Method::kPost, "/v1/actions/" + h.key("a") + "/acquire",
                        R"({"intent":"build","recording":"run","wait_ms":60000})");
  ASSERT_TRUE(h.eventually([&] { return state("a") == "unfinished"; }));
  build("a", lease);
  EXPECT_EQ(h.read(std::move(waiting)).state(), "hit");
  EXPECT_EQ(state("a"), "waited");
}

TEST_F(OutcomeRequests, ARestartKnowsThem) {
  build("a", lease_in(need("a")));
  need("b");
  Outcomes again(h.store, h.clock);
  ASSERT_TRUE(again.restore(true).ok());
  const auto page = again.page("run", std::nullopt, 10);
  ASSERT_EQ(page.size(), 2U);
  for (const Outcome& one : page) {
    EXPECT_EQ(one.state, one.label == "a" ? OutcomeState::kBuilt : OutcomeState::kUnfinished);
    EXPECT_GT(one.first_ms, 0);
  }
}

TEST_F(OutcomeRequests, PagesFollowEachOther) {
  std::set<std::string> wanted;
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    need(name);
    wanted.insert(h.key(name));
  }
  std::set<std::string> seen;
  std::string after;
  for (int pages = 0; pages < 10; ++pages) {
    const auto reply =
        h.call(client, Method::kGet, "/v1/recordings/run/outcomes?limit=2&after=" + after);
    for (const auto& one : reply.json.at("outcomes").as_array())
      EXPECT_TRUE(seen.insert(std::string(one.at("key").as_string())).second);
    if (reply.json.at("next").is_null()) break;
    after = std::string(reply.json.at("next").as_string());
  }
  EXPECT_EQ(seen, wanted);
}

TEST_F(OutcomeRequests, RunsOfOneNameDoNotMeet) {
  const auto under = [&](const std::string& name, const std::string& run) {
    return h.acquire(client, h.key(name), R"(,"recording":")" + run + "\"");
  };
  const auto keys = [&](const std::string& run) {
    const auto reply = h.call(client, Method::kGet, "/v1/recordings/" + run + "/outcomes");
    return reply.json.at("outcomes").as_array().size();
  };
  under("a", "run");
  under("b", "run~1");
  under("c", "run~1");
  under("c", "run~2");
  EXPECT_EQ(under("d", "run~").status, 400);
  EXPECT_EQ(under("d", "run~1~2").status, 400);
  EXPECT_EQ(keys("run"), 1U);
  EXPECT_EQ(keys("run~1"), 2U);
  const auto give = [&](const std::string& from) {
    return h.call(client, Method::kPost, "/v1/recordings/run/outcomes",
                  R"({"from":")" + from + "\"}");
  };
  EXPECT_EQ(give("run~1").json.at("moved"), 2);
  EXPECT_EQ(keys("run"), 2U) << "what was there is gone";
  EXPECT_EQ(keys("run~1"), 0U);
  EXPECT_EQ(keys("run~2"), 1U);
  EXPECT_EQ(give("a/b").status, 400);
  EXPECT_EQ(give("run").json.at("moved"), 0);
  EXPECT_EQ(keys("run"), 2U);
  Outcomes again(h.store, h.clock);
  ASSERT_TRUE(again.restore(true).ok());
  EXPECT_EQ(again.page("run", std::nullopt, 100).size(), 2U);
  EXPECT_EQ(again.page("run~2", std::nullopt, 100).size(), 1U);
}

TEST_F(OutcomeRequests, OldOnesAreForgotten) {
  need("a");
  h.clock.advance(31LL * 24 * 3'600'000);
  need("b");
  h.service.outcomes.maintain();
  EXPECT_EQ(state("a"), "");
  EXPECT_EQ(state("b"), "unfinished");
}

TEST(Outcomes, RecordsComeBackAndDamagedOnesDoNot) {
  Outcome one;
  one.state = OutcomeState::kFailed;
  one.label = "l";
  one.message = "m";
  one.differs = {{"flag", "1", "2"}};
  const auto back = Outcome::decode(one.encode());
  ASSERT_TRUE(back);
  EXPECT_EQ(back->encode(), one.encode());
  for (const char* text : {"", "{}", "[]", R"({"v":1,"state":9,"differs":[]})",
                           R"({"v":1,"state":1,"differs":[["a"]]})", R"({"v":2,"state":1})"})
    EXPECT_FALSE(Outcome::decode(text)) << text;
}

TEST(Outcomes, TheFirstLineThatSaysSomething) {
  EXPECT_EQ(first_log_line("..\n  \n\tERROR: no such op \nmore"), "ERROR: no such op");
  EXPECT_EQ(first_log_line(""), "");
  EXPECT_EQ(first_log_line("[standard output, 2 bytes]\n..\nloading\nError: it is full\n"),
            "Error: it is full");
  EXPECT_EQ(first_log_line("loading\nstopped"), "loading");
  const std::string cut = first_log_line(std::string(499, 'a') + "\xc3\xa9\xc3\xa9");
  EXPECT_EQ(cut, std::string(499, 'a') + "...") << "not in the middle of a character";
}

}  // namespace
}  // namespace nc::daemon
