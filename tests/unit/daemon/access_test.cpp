#include "daemon/access.hpp"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/daemon/harness.hpp"

namespace nc::daemon {
namespace {

using trust::NamespaceSet;

Rights rights_of(Scope scope, const char* namespaces) {
  Rights rights;
  rights.scope = scope;
  rights.namespaces = *NamespaceSet::parse(namespaces);
  rights.who = "token 1";
  return rights;
}

// A new request is for administrators until somebody has thought about it: then it comes in here.
TEST(Access, WhatReadersAndWritersMayDo) {
  std::map<std::string, std::string> granted;
  for (const Route& route : routes()) {
    std::string who;
    for (const Scope scope : {Scope::kRead, Scope::kWrite, Scope::kAdmin}) {
      const bool some = check_rights(route, rights_of(scope, "team-a")).ok();
      const bool all = check_rights(route, rights_of(scope, "team-a,*")).ok();
      EXPECT_TRUE(all || !some);
      who += some ? "+" : all ? "*" : "-";
    }
    granted[std::string(method_name(route.method)) + " " + std::string(route.pattern)] = who;
  }
  const std::map<std::string, std::string> by_namespace = {
      {"GET /v1/hello", "+++"},
      {"POST /v1/actions/{key}/acquire", "+++"},
      {"GET /v1/actions/{key}", "+++"},
      {"HEAD /v1/actions/{key}", "+++"},
      {"GET /v1/blobs/{digest}", "+++"},
      {"HEAD /v1/blobs/{digest}", "+++"},
      {"POST /v1/blobs/{digest}/check", "+++"},
      {"PUT /v1/actions/{key}", "-++"},
      {"PUT /v1/blobs/{digest}", "-++"},
      {"POST /v1/leases/{id}/heartbeat", "-++"},
      {"POST /v1/leases/{id}/fail", "-++"},
      {"DELETE /v1/leases/{id}", "-++"},
  };
  for (const auto& [route, who] : granted) {
    const auto at = by_namespace.find(route);
    if (at != by_namespace.end()) {
      EXPECT_EQ(who, at->second) << route;
    } else {
      EXPECT_EQ(who.find('+'), std::string::npos) << route << " is about all namespaces";
    }
  }
  for (const char* route :
       {"POST /v1/prune", "POST /v1/verify", "POST /v1/pins", "GET /v1/config", "POST /v1/config",
        "POST /v1/shutdown", "DELETE /v1/queue", "DELETE /v1/recordings/{name}"}) {
    EXPECT_EQ(granted.at(route), "--*") << route;
  }
}

TEST(Access, GateKnowsTokensAndClients) {
  FakeClock clock;
  FakeFileSystem fs(&clock);
  ASSERT_TRUE(fs.make_dirs("/conf").ok());
  fs.set_owner("/conf", ::geteuid());
  Gate gate(fs, clock, "/conf/tokens");
  const Remote remote{"10.0.0.7:1", ""};
  EXPECT_TRUE(gate.admit(remote, "Bearer x").error().code == Code::kDenied);

  trust::TokenFile file;
  trust::Grant grant;
  grant.hash = trust::token_hash("secret");
  grant.namespaces = NamespaceSet::all();
  grant.expires_ms = clock.wall_ms() + 60'000;
  ASSERT_TRUE(file.add(grant).ok());
  trust::Grant client;
  client.client = "host-7";
  client.scope = Scope::kWrite;
  client.namespaces = *NamespaceSet::parse("team-a");
  ASSERT_TRUE(file.add(client).ok());
  const auto save = [&] {
    clock.advance(1'000);
    ASSERT_TRUE(file.save(fs, "/conf/tokens").ok());
    fs.set_owner("/conf/tokens", ::geteuid());
    gate.refresh();
  };
  save();
  const auto rights = gate.admit(remote, "Bearer secret");
  ASSERT_TRUE(rights.ok());
  EXPECT_TRUE((*rights)->remote);
  EXPECT_EQ((*rights)->scope, Scope::kRead);
  for (const char* bad :
       {"", "secret", "Bearer", "Bearer ", "bearer secret", "Bearer secret ", "Basic c2VjcmV0"}) {
    EXPECT_FALSE(gate.admit(remote, bad).ok()) << bad;
  }
  const auto by_name = gate.admit({"10.0.0.7:1", "host-7"}, "");
  ASSERT_TRUE(by_name.ok());
  EXPECT_TRUE((*by_name)->may("team-a").ok());
  EXPECT_TRUE((*by_name)->may("default").is(Code::kDenied));
  EXPECT_FALSE(gate.admit({"10.0.0.7:1", "host-7"}, "Bearer wrong").ok())
      << "a wrong token is not made good by a certificate";
  EXPECT_FALSE(gate.admit({"10.0.0.7:1", "host-8"}, "").ok());

  clock.advance(60'000);
  EXPECT_FALSE(gate.admit(remote, "Bearer secret").ok()) << "expired";
  ASSERT_TRUE(file.remove("host-7").ok());
  save();
  EXPECT_FALSE(gate.admit({"10.0.0.7:1", "host-7"}, "").ok());
  // A file that anybody could have written lets nobody in.
  fs.set_owner("/conf/tokens", ::geteuid() + 1);
  clock.advance(1'000);
  gate.refresh();
  EXPECT_EQ(gate.counts().grants, 0U);
  EXPECT_NE(gate.counts().problem, "");
}

TEST(Access, ErrorsForStrangersHaveNoPaths) {
  const auto hidden = [](const std::string& message) {
    HttpResponse response = HttpResponse::error({Code::kIo, message, "look at /var/log/x"});
    response.hide_paths();
    const auto object = boost::json::parse(response.body).at("error");
    EXPECT_EQ(object.at("action"), "look at (a path)");
    return std::string(object.at("message").as_string());
  };
  EXPECT_EQ(hidden("cannot write /home/me/cas/ab: No space left"),
            "cannot write (a path): No space left");
  EXPECT_EQ(hidden("/a"), "(a path)");
  EXPECT_EQ(hidden("(in '/a/b c')"), "(in '(a path) c')");
  EXPECT_EQ(hidden("there is nothing at /v1/x and 1/2 or a/b"),
            "there is nothing at /v1/x and 1/2 or a/b");
  HttpResponse fine = HttpResponse::json(R"({"path":"/x"})");
  fine.hide_paths();
  EXPECT_EQ(fine.body, R"({"path":"/x"})") << "answers leave theirs out by themselves";
}

}  // namespace
}  // namespace nc::daemon
