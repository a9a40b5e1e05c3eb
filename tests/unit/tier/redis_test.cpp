#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/fake_filesystem.hpp"
#include "cache/tier/redis_engine.hpp"
#include "cache/tier/resp.hpp"
#include "tests/unit/tier/engine_contract.hpp"
#include "tests/unit/tier/fake_http.hpp"
#include "tests/unit/tier/raw_server.hpp"

namespace nc::tier {
namespace {

using testing::HasSubstr;
using testing::Not;
using Then = RawAnswer::Then;

RespReader reader_of(std::string text, std::size_t piece = 1) {
  return RespReader([text = std::move(text), piece,
                     at = std::size_t{0}](std::span<std::byte> out) mutable -> Result<std::size_t> {
    const auto n = std::min({piece, out.size(), text.size() - at});
    if (n == 0) return Error{Code::kUnavailable, "closed", ""};
    std::memcpy(out.data(), text.data() + at, n);
    at += n;
    return n;
  });
}

TEST(RespTest, Commands) {
  EXPECT_EQ(resp_command({"GET", "a b"}), "*2\r\n$3\r\nGET\r\n$3\r\na b\r\n");
  EXPECT_EQ(resp_head({"SET", "k"}, 7), "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$7\r\n");
}

TEST(RespTest, Replies) {
  for (const std::size_t piece : {1, 3, 1000}) {
    auto reader = reader_of(
        "+OK\r\n-ERR no\r\n:-7\r\n$-1\r\n$0\r\n\r\n*2\r\n$2\r\n\r\n\r\n*1\r\n:1\r\n*-1\r\n", piece);
    EXPECT_EQ(reader.reply(10)->text, "OK");
    const auto error = reader.reply(10);
    EXPECT_EQ(error->kind, RespReply::Kind::kError);
    EXPECT_EQ(error->text, "ERR no");
    EXPECT_EQ(reader.reply(10)->integer, -7);
    EXPECT_EQ(reader.reply(10)->kind, RespReply::Kind::kNull);
    EXPECT_EQ(reader.reply(10)->kind, RespReply::Kind::kBulk);
    const auto array = reader.reply(10);
    ASSERT_EQ(array->items.size(), 2U);
    EXPECT_EQ(array->items[0].text, "\r\n");
    EXPECT_EQ(array->items[1].items[0].integer, 1);
    EXPECT_EQ(reader.reply(10)->kind, RespReply::Kind::kNull);
    EXPECT_TRUE(reader.empty());
    EXPECT_TRUE(reader.reply(10).is(Code::kUnavailable));
  }
}

TEST(RespTest, GarbageAndFloods) {
  for (const char* text :
       {"HTTP/1.1 400 Bad Request\r\n", "\r\n", ":x\r\n", ":\r\n", "$-2\r\n", "$2\r\nabc\r\n",
        "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n", "$99999999999999999999\r\n"}) {
    EXPECT_TRUE(reader_of(text, 100).reply(100).is(Code::kCorrupt)) << text;
  }
  EXPECT_TRUE(reader_of("$101\r\n", 100).reply(100).is(Code::kTooLarge));
  EXPECT_TRUE(reader_of("*2\r\n$60\r\n" + std::string(60, 'x') + "\r\n$60\r\n", 100)
                  .reply(100)
                  .is(Code::kTooLarge));
  EXPECT_TRUE(reader_of(std::string(100'000, '+'), 5000).reply(100).is(Code::kCorrupt));
  std::string many = "*9000000\r\n";
  for (std::uint64_t i = 0; i <= RespReader::kMaxItems; ++i) many += ":1\r\n";
  EXPECT_TRUE(reader_of(many, 1 << 20).reply(100).is(Code::kCorrupt));
}

TEST(RespTest, FailuresHaveTheirCodes) {
  const std::pair<const char*, Code> table[] = {
      {"NOAUTH Authentication required.", Code::kDenied},
      {"WRONGPASS invalid username-password pair", Code::kDenied},
      {"NOPERM this user has no permissions", Code::kDenied},
      {"OOM command not allowed when used memory > 'maxmemory'.", Code::kNoSpace},
      {"READONLY You can't write against a read only replica.", Code::kReadOnly},
      {"LOADING Redis is loading the dataset in memory", Code::kUnavailable},
      {"MOVED 3999 127.0.0.1:6381", Code::kUnsupported},
      {"ERR max number of clients reached", Code::kBusy},
      {"ERR Protocol error: invalid bulk length", Code::kTooLarge},
      {"ERR \x01\xff", Code::kIo},
      {"", Code::kIo},
  };
  for (const auto& [text, code] : table) EXPECT_EQ(redis_error(text, "x").code, code) << text;
  EXPECT_EQ(redis_error("ERR \x01\xff", "x").message, "x: ERR ??");
}

struct RedisTest : testing::Test {
  RawServer server{[](const std::string& text) { return text.ends_with("\r\n"); }};
  FakeFileSystem files;
  FakeDoors doors;
  std::unique_ptr<Engine> engine;

  void SetUp() override { open(""); }
  void open(const std::string& credentials, const std::string& timeout = "20s") {
    const auto url = "redis://" + credentials + "127.0.0.1:" + std::to_string(server.port()) +
                     "/?timeout=" + timeout;
    engine = std::move(open_redis(parse_tier_url(url).value(), doors.deps(files))).value();
  }
};

TEST_F(RedisTest, AConnectionIsKeptAndReplacedWhenItBroke) {
  server.answer("$4\r\ntext\r\n");
  server.answer("$-1\r\n");
  server.answer("$4\r\ntext\r\n", Then::kClose);
  server.answer("$5\r\nagain\r\n");
  EXPECT_EQ(engine->get("a", 10).value(), "text");
  EXPECT_TRUE(engine->get("b", 10).is(Code::kNotFound));
  EXPECT_EQ(engine->get("a", 10).value(), "text");
  EXPECT_EQ(server.connections(), 1);
  EXPECT_EQ(engine->get("a", 10).value(), "again");
  EXPECT_EQ(server.connections(), 2);
  EXPECT_EQ(server.requests()[0], "*2\r\n$3\r\nGET\r\n$13\r\nneuroncache/a\r\n");
}

TEST_F(RedisTest, BrokenAnswersAreRepeatedAndThenGivenUp) {
  server.answer("$10\r\nte", Then::kClose);
  server.answer("", Then::kClose);
  server.answer("$4\r\ntext\r\n");
  EXPECT_EQ(engine->get("a", 10).value(), "text");
  EXPECT_EQ(doors.waits.size(), 2U);
  for (int i = 0; i < 3; ++i) server.answer("$4\r\ntext--", Then::kClose);
  EXPECT_TRUE(engine->get("a", 10).is(Code::kCorrupt));
  server.answer("$11\r\ntoo long!!!\r\n");
  EXPECT_TRUE(engine->get("a", 10).is(Code::kTooLarge));
  server.answer(":1\r\n");
  server.answer("*1\r\n:1\r\n");
  server.answer("+OK\r\n");
  EXPECT_TRUE(engine->get("a", 10).is(Code::kCorrupt));
  server.answer("-NOAUTH Authentication required.\r\n");
  EXPECT_TRUE(engine->get("a", 10).is(Code::kDenied));
}

TEST_F(RedisTest, NoByteIsGivenTwice) {
  server.answer("$10\r\n01234", Then::kClose);
  std::string got;
  const Sink sink = [&](Bytes piece) {
    got += as_text(piece);
    return Status();
  };
  EXPECT_TRUE(engine->fetch("a", 0, 100, sink).is(Code::kUnavailable));
  EXPECT_EQ(got, "01234");
  // From an offset: the rest and the size are of one version, or it is an error.
  server.answer("+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n:1\r\n:10\r\n$4\r\n6789\r\n");
  EXPECT_EQ(fetch_all(*engine, "a", 6).value(), "6789");
  for (int i = 0; i < 3; ++i) {
    server.answer("+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n:1\r\n:10\r\n$3\r\n678\r\n");
  }
  EXPECT_TRUE(fetch_all(*engine, "a", 6).is(Code::kCorrupt));
  server.answer("+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n:0\r\n:0\r\n$0\r\n\r\n");
  EXPECT_TRUE(fetch_all(*engine, "a", 6).is(Code::kNotFound));
}

TEST_F(RedisTest, CreateIsNotRepeated) {
  server.answer("", Then::kClose);
  EXPECT_TRUE(engine->create("a", as_bytes("x"), 5000).is(Code::kUnavailable));
  EXPECT_EQ(server.requests().size(), 1U);
  EXPECT_THAT(server.requests()[0], HasSubstr("$2\r\nNX\r\n$2\r\nPX\r\n$4\r\n5000\r\n"));
  server.answer("+OK\r\n");
  EXPECT_TRUE(engine->create("a", as_bytes("x"), 0).value());
  server.answer("$-1\r\n");
  EXPECT_FALSE(engine->create("a", as_bytes("x"), 0).value());
  EXPECT_THAT(server.requests().back(), Not(HasSubstr("PX")));
}

TEST_F(RedisTest, SilenceEndsInATimeout) {
  open("", "100ms");
  server.answer("$4\r\n", Then::kHold);
  EXPECT_TRUE(engine->get("a", 10).is(Code::kTimeout));
  EXPECT_EQ(server.requests().size(), 1U);  // and is not repeated
}

TEST_F(RedisTest, CredentialsAreInNoMessage) {
  open("me:hunter2@");
  server.answer("-WRONGPASS invalid username-password pair\r\n");
  const auto denied = engine->get("a", 10);
  ASSERT_TRUE(denied.is(Code::kDenied));
  EXPECT_THAT(denied.error().text(), Not(HasSubstr("hunter2")));
  EXPECT_EQ(server.requests()[0], "*3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$7\r\nhunter2\r\n");
  const auto deps = [&] { return doors.deps(files); };
  EXPECT_TRUE(open_redis(parse_tier_url("redis://:p@10.0.0.1").value(), deps()).is(Code::kInvalid));
  EXPECT_TRUE(open_redis(parse_tier_url("redis://:p@10.0.0.1?insecure=true").value(), deps()).ok());
  EXPECT_TRUE(open_redis(parse_tier_url("rediss://:p@10.0.0.1").value(), deps()).ok());
  EXPECT_TRUE(
      open_redis(parse_tier_url("redis://me@127.0.0.1").value(), deps()).is(Code::kInvalid));
}

}  // namespace
}  // namespace nc::tier
