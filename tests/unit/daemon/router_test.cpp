#include "daemon/router.hpp"

#include <set>
#include <stdexcept>

#include <gtest/gtest.h>

#include "tests/unit/daemon/harness.hpp"

namespace nc::daemon {
namespace {

Match find(Method method, const std::string& target, const std::string& protocol = "") {
  RequestHead head;
  head.method = method;
  head.path = target;
  head.protocol = protocol;
  return route(head);
}

const std::string kKey(64, 'a');

TEST(Router, FindsRoutesAndTheirArgument) {
  auto match = find(Method::kPost, "/v1/actions/" + kKey + "/acquire");
  ASSERT_NE(match.route, nullptr);
  EXPECT_EQ(match.route->pattern, "/v1/actions/{key}/acquire");
  EXPECT_EQ(match.arg, kKey);
  match = find(Method::kPut, "/v1/recordings/run/actions/" + kKey);
  EXPECT_EQ(match.outer, "run");
  EXPECT_EQ(match.arg, kKey);
  EXPECT_EQ(find(Method::kPut, "/v1/recordings/run/actions/x").status, 400);
  EXPECT_EQ(find(Method::kGet, "/v1/entries").route->pattern, "/v1/entries");
  EXPECT_EQ(find(Method::kGet, "/v1/entries/ab").arg, "ab");
  EXPECT_EQ(find(Method::kGet, "/v1/hello?x=1").route->pattern, "/v1/hello");
}

TEST(Router, EveryRouteIsReachableAndHasOneHandler) {
  std::set<std::string> seen;
  for (const Route& route : routes()) {
    std::string target(route.pattern);
    for (auto brace = target.find('{'); brace != std::string::npos; brace = target.find('{')) {
      target.replace(brace, target.find('}') + 1 - brace, kKey);
    }
    EXPECT_EQ(find(route.method, target).route, &route) << route.pattern;
    EXPECT_NE(route.handle != nullptr, route.open != nullptr) << route.pattern;
    EXPECT_TRUE(seen.insert(std::string(method_name(route.method)) + " " + target).second);
  }
}

TEST(Router, TellsNotFoundFromAnotherMethod) {
  EXPECT_EQ(find(Method::kGet, "/v1/nothing").status, 404);
  EXPECT_EQ(find(Method::kGet, "/").status, 404);
  EXPECT_EQ(find(Method::kGet, "/v1/hello/").status, 404);
  EXPECT_EQ(find(Method::kGet, "/v1/entries/").status, 404);
  EXPECT_EQ(find(Method::kPut, "/v1/hello").status, 405);
  EXPECT_EQ(find(Method::kOther, "/v1/hello").status, 405);
}

TEST(Router, KeysAreSixtyFourHexDigits) {
  for (const std::string& key : {std::string("ab"), std::string(64, 'A'), std::string(65, 'a'),
                                 std::string(63, 'a') + "g"}) {
    auto match = find(Method::kGet, "/v1/actions/" + key);
    EXPECT_EQ(match.route, nullptr);
    EXPECT_EQ(match.status, 400);
    EXPECT_EQ(match.error.code, Code::kInvalid);
  }
}

TEST(Router, AnotherProtocolVersionIsRefusedWithOurRange) {
  EXPECT_NE(find(Method::kGet, "/v1/hello", "1").route, nullptr);
  for (const char* version : {"0", "2", "x", "1.0", "99999999999999"}) {
    auto match = find(Method::kGet, "/v1/hello", version);
    EXPECT_EQ(match.route, nullptr) << version;
    EXPECT_EQ(match.status, 400);
    EXPECT_EQ(match.error.code, Code::kUnsupported);
    EXPECT_NE(match.error.message.find("1 to 1"), std::string::npos);
  }
}

TEST(Router, AnExceptionOfAHandlerBecomesA500) {
  Harness h;
  const Route route{Method::kGet,    "/boom",
                    BodyKind::kNone, 0,
                    Lane::kQuick,    [](Service&, Call) { throw std::runtime_error("boom"); },
                    nullptr};
  std::optional<HttpResponse> got;
  run_handler(route, h.service, {{}, [&](HttpResponse response) { got = std::move(response); }});
  ASSERT_TRUE(got);
  EXPECT_EQ(got->status, 500);
  EXPECT_NE(got->body.find("boom"), std::string::npos);
}

TEST(Http, EveryCodeHasAStatus) {
  for (int i = 0; i <= static_cast<int>(Code::kInternal); ++i) {
    const int status = http_status(static_cast<Code>(i));
    EXPECT_GE(status, 400);
    EXPECT_LT(status, 600);
  }
}

TEST(Http, AHeaderTellsLengthAndEnd) {
  HttpResponse response = HttpResponse::json("{}");
  EXPECT_EQ(response.header(true),
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n");
  EXPECT_NE(response.header(false).find("Connection: close\r\n"), std::string::npos);
  response.head_length = 77;
  EXPECT_NE(response.header(true).find("Content-Length: 77\r\n"), std::string::npos);
}

TEST(Http, AnErrorIsJsonWhateverItQuotes) {
  auto response = HttpResponse::error({Code::kInvalid, "not \xff\xc3( this", ""});
  EXPECT_NE(response.body.find(R"("not ??( this")"), std::string::npos) << response.body;
}

TEST(Http, AnErrorSaysWhatAndWhatToDo) {
  auto response = HttpResponse::error({Code::kNoSpace, "the \"disk\" is full", "free some"});
  EXPECT_EQ(response.status, 507);
  EXPECT_EQ(
      response.body,
      R"({"error":{"code":"no_space","message":"the \"disk\" is full","action":"free some"}})");
}

}  // namespace
}  // namespace nc::daemon
