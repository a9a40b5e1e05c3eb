// Admission through the router: what belongs to a lease ends with it, is learned from, and is known
// after a restart.
#include <gtest/gtest.h>

#include "tests/unit/daemon/harness.hpp"

namespace nc::daemon {
namespace {

class BuildRequests : public testing::Test {
 protected:
  BuildRequests() {
    set("build_memory", "1000MB");
    set("build_cores", "4");
    set("build_memory_guess", "600MB");
  }
  void set(const std::string& name, const std::string& value) {
    ASSERT_TRUE(h.settings.change(name, value).ok());
    h.service.builds.configure(h.settings.copy());
  }
  struct Builder {
    std::string name;
    std::shared_ptr<FakeConnection> connection;
    LeaseOf lease;
  };
  Builder start(const std::string& name, pid_t pid) {
    auto connection = h.connect(pid);
    return {name, connection, lease_of(h.acquire(connection, h.key(name)))};
  }
  std::string body(const Builder& builder, const std::string& rest = "") const {
    return R"({"lease":")" + builder.lease.id + R"(","key":")" + h.key(builder.name) +
           R"(","fence":)" + std::to_string(builder.lease.fence) +
           R"(,"compiler":"stub 1","input_bytes":100000)" + rest + "}";
  }
  Harness::Reply admit(const Builder& builder, const std::string& rest = "") {
    return h.call(builder.connection, Method::kPost, "/v1/admission", body(builder, rest));
  }
  std::future<HttpResponse> admit_later(const Builder& builder) {
    return h.send(builder.connection, Method::kPost, "/v1/admission",
                  body(builder, R"(,"wait_ms":60000)"));
  }
  Harness::Reply fail(const Builder& builder, const std::string& failure_class,
                      const std::string& rest = "") {
    return h.call(
        builder.connection, Method::kPost, "/v1/leases/" + builder.lease.id + "/fail",
        R"({"key":")" + h.key(builder.name) + R"(","class":")" + failure_class + "\"" + rest + "}");
  }
  boost::json::object builds() { return h.call(h.connect(1), Method::kGet, "/v1/builds").json; }

  Harness h;
};

TEST_F(BuildRequests, ABuildIsAdmittedAndAnotherWaits) {
  const Builder a = start("a", 100);
  auto reply = admit(a);
  EXPECT_EQ(reply.state(), "admitted");
  EXPECT_EQ(reply.json.at("reserved_bytes"), 600'000'000);
  EXPECT_EQ(reply.text("source"), "guess");
  EXPECT_EQ(reply.json.at("build_timeout_ms"), 0);
  const Builder b = start("b", 101);
  reply = admit(b);
  EXPECT_EQ(reply.state(), "waiting");
  EXPECT_EQ(reply.json.at("ahead"), 0);
  EXPECT_EQ(reply.json.at("budget_bytes"), 1'000'000'000);
  EXPECT_EQ(reply.json.at("reserved_bytes"), 600'000'000);
  EXPECT_EQ(h.counter("admission_waits"), 1);
  EXPECT_EQ(h.table.find(b.lease.id)->progress, "waits for memory");
  const auto shown = builds();
  EXPECT_EQ(shown.at("running").as_array().size(), 1U);
  EXPECT_EQ(std::string(shown.at("waiting").at(0).at("key").as_string()), h.key("b"));
  EXPECT_EQ(shown.at("automatic"), false);
}

TEST_F(BuildRequests, EveryEndOfALeaseGivesItsMemoryBack) {
  int pid = 200;
  const auto next = [&] {
    ++pid;
    return start("w" + std::to_string(pid), pid);
  };
  const auto freed = [&](const Builder& holder, auto end) {
    ASSERT_EQ(admit(holder).state(), "admitted") << holder.name;
    const Builder waiter = next();
    auto answer = admit_later(waiter);
    end();
    EXPECT_EQ(Harness::read(std::move(answer)).state(), "admitted") << holder.name;
    h.call(waiter.connection, Method::kDelete,
           "/v1/leases/" + waiter.lease.id + "?key=" + h.key(waiter.name));
    EXPECT_EQ(builds().at("reserved_bytes"), 0);
  };
  ASSERT_TRUE(h.keeper.start().ok());
  Builder a = start("commit", 100);
  freed(a,
        [&] { EXPECT_EQ(h.publish(a.connection, a.name, a.lease.id, a.lease.fence).status, 201); });
  Builder b = start("fail", 101);
  freed(b, [&] { fail(b, "deterministic"); });
  Builder c = start("release", 102);
  freed(c, [&] {
    h.call(c.connection, Method::kDelete, "/v1/leases/" + c.lease.id + "?key=" + h.key(c.name));
  });
  Builder d = start("death", 103);
  freed(d, [&] { h.processes.kill(103); });
  EXPECT_TRUE(h.store.records("admissions").value().empty());
}

TEST_F(BuildRequests, SilenceGivesMemoryBackAsWell) {
  const Builder a = start("a", 100);
  EXPECT_EQ(admit(a).state(), "admitted");
  h.clock.advance(h.table.lease_ttl());
  h.keeper.apply(h.table.tick());
  EXPECT_EQ(builds().at("reserved_bytes"), 0);
  EXPECT_EQ(admit(a).state(), "admitted") << "it comes back and is adopted again";
}

TEST_F(BuildRequests, OnlyTheHolderOfALeaseIsAdmitted) {
  const Builder a = start("a", 100);
  Builder wrong = a;
  wrong.lease.fence += 1;
  EXPECT_EQ(admit(wrong).code(), "lease_lost");
  wrong = a;
  wrong.lease.id = "x";
  EXPECT_EQ(admit(wrong).code(), "lease_lost");
  EXPECT_EQ(admit(a, R"(,"alone":1)").status, 400);
  EXPECT_EQ(h.call(a.connection, Method::kPost, "/v1/admission", "{}").status, 400);
  EXPECT_EQ(builds().at("reserved_bytes"), 0);
}

TEST_F(BuildRequests, PeaksAreLearnedFromCommits) {
  const Builder a = start("a", 100);
  admit(a);
  Manifest manifest = *Manifest::parse(h.manifest("a", "blob"));
  manifest.peak_rss_bytes = 100'000'000;
  h.store.add_blob("blob");
  EXPECT_EQ(h.call(a.connection, Method::kPut,
                   "/v1/actions/" + h.key("a") + "?lease=" + a.lease.id +
                       "&fence=" + std::to_string(a.lease.fence),
                   manifest.to_json())
                .status,
            201);
  const auto reply = admit(start("b", 101));
  EXPECT_EQ(reply.text("source"), "learned");
  EXPECT_EQ(reply.json.at("expected_bytes"), 165'000'000);
  EXPECT_EQ(builds().at("learned").at(0).at("compiler").as_string(), "stub 1");
}

TEST_F(BuildRequests, AKilledBuildNeedsMoreThanItHad) {
  const Builder a = start("a", 100);
  admit(a);
  fail(a, "out_of_memory", R"(,"peak_rss_bytes":400000000)");
  EXPECT_EQ(h.counter("out_of_memory"), 1);
  const Builder b = start("b", 101);
  const auto reply = admit(b);
  EXPECT_EQ(reply.text("source"), "learned");
  EXPECT_EQ(reply.json.at("expected_bytes"), 990'000'000) << "from what was reserved";
  fail(b, "deterministic", R"(,"peak_rss_bytes":1000)");
  EXPECT_EQ(admit(start("c", 102)).json.at("expected_bytes"), 990'000'000)
      << "how far a compiler got before an error says nothing";
}

TEST_F(BuildRequests, ARetryAsksForMoreAndForTheHostAlone) {
  const Builder a = start("a", 100);
  admit(a);
  const auto reply = admit(a, R"(,"minimum_bytes":5000000000,"alone":true)");
  EXPECT_EQ(reply.state(), "admitted") << "nothing else runs";
  EXPECT_EQ(reply.json.at("reserved_bytes"), 5'000'000'000);
  EXPECT_EQ(reply.json.at("alone"), true);
  EXPECT_EQ(admit(start("b", 101)).state(), "waiting");
}

TEST_F(BuildRequests, ARestartKnowsWhatIsReserved) {
  const Builder a = start("a", 100);
  const Builder dead = start("dead", 101);
  set("build_memory", "2000MB");
  admit(a);
  admit(dead);
  admit(start("never asked again", 102), R"(,"minimum_bytes":5000000000)");
  h.processes.kill(101);
  FakeRandom random;
  LeaseTable table{h.clock, random, {}};
  LeaseKeeper keeper({table, h.store, h.processes, h.clock}, true);
  Service again(h.store, table, keeper, h.settings, h.pool, h.clock, h.processes, h.memory);
  ASSERT_TRUE(keeper.restore().ok());
  ASSERT_TRUE(again.builds.restore(table, h.settings.copy(), true).ok());
  const auto view = again.builds.view();
  ASSERT_EQ(view.running.size(), 1U);
  EXPECT_EQ(view.running[0].lease, a.lease.id);
  EXPECT_EQ(view.reserved, 600'000'000U);
  EXPECT_EQ(h.store.records("admissions").value().size(), 1U) << "the others are forgotten";
  keeper.apply(table.end(a.lease.id, LeaseTable::End::kReleased));
  EXPECT_EQ(again.builds.view().reserved, 0U);
}

TEST_F(BuildRequests, AHeartbeatTellsWhatIsReserved) {
  const Builder a = start("a", 100);
  const auto beat = [&](const std::string& rest) {
    return h.call(
        a.connection, Method::kPost, "/v1/leases/" + a.lease.id + "/heartbeat",
        R"({"key":")" + h.key("a") + R"(","fence":)" + std::to_string(a.lease.fence) + rest + "}");
  };
  EXPECT_EQ(beat(R"(,"reserved_bytes":700000000,"cores":2)").status, 200);
  EXPECT_EQ(builds().at("reserved_bytes"), 700'000'000);
  EXPECT_EQ(builds().at("cores_used"), 2);
  EXPECT_EQ(beat(R"(,"detached":1)").status, 400);
}

TEST_F(BuildRequests, ABuildThatNobodyWaitsForAnyMoreIsCancelled) {
  const Builder a = start("a", 100);
  const auto beat = [&](const std::string& rest) {
    return h
        .call(a.connection, Method::kPost, "/v1/leases/" + a.lease.id + "/heartbeat",
              R"({"key":")" + h.key("a") + R"(","fence":)" + std::to_string(a.lease.fence) + rest +
                  "}")
        .json;
  };
  const std::string detached = R"(,"detached":true)";
  set("cancel_unwanted", "true");
  EXPECT_EQ(beat(detached).at("cancel"), false) << "nobody waited yet";
  auto other = h.connect(200);
  auto waits = h.acquire_later(other, h.key("a"));
  EXPECT_EQ(beat(detached).at("waiters"), 1);
  EXPECT_EQ(beat(detached).at("cancel"), false);
  h.keeper.apply(h.table.connection_closed(other->id()));
  EXPECT_EQ(beat("").at("cancel"), false) << "the builder wants it itself";
  EXPECT_EQ(beat(detached).at("cancel"), true);
  set("cancel_unwanted", "false");
  EXPECT_EQ(beat(detached).at("cancel"), false);
}

TEST_F(BuildRequests, TheBuilderIsToldItsTime) {
  set("build_timeout", "90s");
  EXPECT_EQ(admit(start("a", 100)).json.at("build_timeout_ms"), 90'000);
}

}  // namespace
}  // namespace nc::daemon
