// The engine of the address in NC_TIER_URL, against the real server behind it. test_engines.py
// starts servers and runs this; every test uses names of its own below NC_TIER_ROOT.
#include <atomic>
#include <cstdlib>
#include <thread>

#include <gtest/gtest.h>

#include "cache/tier/layout.hpp"
#include "cache/tier/open_engine.hpp"
#include "tests/unit/tier/engine_contract.hpp"

namespace nc::tier {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

struct TierContract : testing::Test {
  std::unique_ptr<Engine> engine;
  std::string root;

  void SetUp() override {
    const auto address = parse_tier_url(environment("NC_TIER_URL"));
    ASSERT_TRUE(address.ok()) << address.error().text();
    auto opened = open_engine(*address);
    ASSERT_TRUE(opened.ok()) << opened.error().text();
    engine = *std::move(opened);
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    root = environment("NC_TIER_ROOT") + "/";
    for (const char* c = test->name(); *c != '\0'; ++c) {
      root += static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
    }
    root += '/';
  }
};

TEST_F(TierContract, DoesWhatAnEngineDoes) {
  check_engine_contract(*engine, root);
}

TEST_F(TierContract, OneOfManyCreates) {
  if (!engine->capabilities().exclusive_create) {
    EXPECT_TRUE(engine->create(root + "one", as_bytes("x"), 0).is(Code::kUnsupported));
    return;
  }
  constexpr int kThreads = 16;
  constexpr int kNames = 4;
  std::array<std::atomic<int>, kNames> made{};
  std::atomic<int> failed = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const auto bytes = "by " + std::to_string(t);
      for (int n = 0; n < kNames; ++n) {
        const auto got = engine->create(root + std::to_string(n), as_bytes(bytes), 60'000);
        if (!got.ok()) {
          ++failed;
          ADD_FAILURE() << got.error().text();
        } else if (*got) {
          ++made.at(static_cast<std::size_t>(n));
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  for (const auto& count : made) EXPECT_EQ(count, 1);
}

TEST_F(TierContract, ListsPageByPage) {
  if (!engine->capabilities().list) {
    EXPECT_TRUE(engine->list(root, "", 10).is(Code::kUnsupported));
    return;
  }
  std::vector<std::string> names;
  for (int i = 100; i < 123; ++i) {
    names.push_back(root + "a/" + std::to_string(i));
    ASSERT_TRUE(engine->put(names.back(), as_bytes("x")).ok());
  }
  ASSERT_TRUE(engine->put(root + "b", as_bytes("x")).ok());
  std::vector<std::string> got;
  std::string after;
  int pages = 0;
  do {
    const auto page = engine->list(root + "a/1", after, 7);
    ASSERT_TRUE(page.ok()) << page.error().text();
    EXPECT_LE(page->objects.size(), 7U);
    for (const auto& object : page->objects) got.push_back(object.name);
    after = page->next;
  } while (!after.empty() && ++pages < 50);
  EXPECT_EQ(got, names);
  const auto rest = engine->list(root, root + "a/121", 10);
  ASSERT_TRUE(rest.ok());
  ASSERT_EQ(rest->objects.size(), 2U);
  EXPECT_EQ(rest->objects[0].name, root + "a/122");
  EXPECT_EQ(rest->objects[1].name, root + "b");
}

TEST_F(TierContract, ThreadsShareAnEngine) {
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      const auto name = root + "t" + std::to_string(t);
      const auto text = patterned(100'000 + t, t);
      for (int round = 0; round < 3; ++round) {
        if (!engine->put(name, as_bytes(text)).ok()) ++wrong;
        const auto back = fetch_all(*engine, name);
        if (!back.ok() || *back != text) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// Above the size at which S3 gets it in parts.
TEST_F(TierContract, LargeObjects) {
  const auto text = patterned((33 << 20) + 12345);
  TextSource source(text);
  const auto stored = engine->store(root + "large", source);
  ASSERT_TRUE(stored.ok()) << stored.error().text();
  EXPECT_EQ(engine->head(root + "large").value().size, text.size());
  const auto back = fetch_all(*engine, root + "large");
  ASSERT_TRUE(back.ok()) << back.error().text();
  EXPECT_TRUE(*back == text);
  const auto tail = fetch_all(*engine, root + "large", text.size() - 10);
  ASSERT_TRUE(tail.ok()) << tail.error().text();
  EXPECT_TRUE(*tail == text.substr(text.size() - 10));
}

// Another neuroncached: NC_TIER_MANIFEST is an entry with one output, the text of NC_TIER_BLOB.
TEST_F(TierContract, KeepsAnEntry) {
  const auto text = environment("NC_TIER_BLOB");
  if (text.empty()) return;
  const auto manifest = environment("NC_TIER_MANIFEST");
  const auto key = ActionKey::from_hex(environment("NC_TIER_KEY")).value();
  const auto blob = blob_name(Sha256::of(as_bytes(text)), false);
  EXPECT_TRUE(engine->get(entry_name(key), 1 << 20).is(Code::kNotFound));
  EXPECT_TRUE(engine->get(blob, 1 << 20).is(Code::kNotFound));
  EXPECT_TRUE(engine->put(blob, as_bytes("other bytes")).is(Code::kCorrupt));
  ASSERT_TRUE(engine->put(blob, as_bytes(text)).ok());
  EXPECT_EQ(engine->head(blob).value().size, text.size());
  EXPECT_EQ(fetch_all(*engine, blob).value(), text);
  EXPECT_EQ(fetch_all(*engine, blob, 5).value(), text.substr(5));
  const auto stored = engine->put(entry_name(key), as_bytes(manifest));
  ASSERT_TRUE(stored.ok()) << stored.error().text();
  EXPECT_NE(engine->get(entry_name(key), 1 << 20).value().find(key.hex()), std::string::npos);
  // And the leases of a cluster: of many who create one, one does.
  EXPECT_TRUE(engine->get(lease_name(key, 1), 100).is(Code::kNotFound));
  std::atomic<int> made = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      const auto got = engine->create(lease_name(key, 1), as_bytes("x"), 0);
      EXPECT_TRUE(got.ok()) << got.error().text();
      if (got.ok() && *got) ++made;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(made, 1);
  ASSERT_TRUE(engine->put(lease_name(key, 1), as_bytes("beat")).ok());
  EXPECT_EQ(engine->get(lease_name(key, 1), 100).value(), "beat");
  EXPECT_TRUE(engine->remove(lease_name(key, 1)).ok());
  EXPECT_TRUE(engine->remove(lease_name(key, 1)).ok());
  EXPECT_TRUE(engine->get(lease_name(key, 1), 100).is(Code::kNotFound));
  EXPECT_TRUE(engine->remove(entry_name(key)).is(Code::kUnsupported));
}

// Run where the service has no atomic create: it must not be taken for one that has.
TEST_F(TierContract, CreateIsRefused) {
  if (environment("NC_TIER_EXPECT") != "unsupported") return;
  EXPECT_TRUE(engine->create(root + "one", as_bytes("x"), 0).is(Code::kUnsupported));
  EXPECT_FALSE(engine->capabilities().exclusive_create);
}

TEST_F(TierContract, RefusesEntries) {
  if (environment("NC_TIER_ROOT") != "x") return;
  const auto key = Sha256::of(as_bytes("x"));
  EXPECT_TRUE(engine->get(entry_name(key), 100).is(Code::kDenied));
  EXPECT_TRUE(engine->put(blob_name(key, false), as_bytes("x")).is(Code::kDenied));
}

TEST_F(TierContract, IsRefused) {  // in words that depend on when the server ends the connection
  if (environment("NC_TIER_ROOT") != "x") return;
  EXPECT_FALSE(engine->get(root + "x", 100).ok());
  EXPECT_FALSE(engine->get(root + "x", 100).is(Code::kNotFound));
}

TEST_F(TierContract, IsFull) {
  if (environment("NC_TIER_ROOT") != "x") return;  // where the server was told so
  EXPECT_TRUE(engine->put(root + "x", as_bytes("x")).is(Code::kNoSpace));
  EXPECT_TRUE(engine->create(root + "x", as_bytes("x"), 0).is(Code::kNoSpace));
}

// The answer that NC_TIER_EXPECT names, to every call.
TEST_F(TierContract, FailsAsExpected) {
  const auto wanted = environment("NC_TIER_EXPECT");
  if (wanted.empty()) return;
  const auto is = [&](const auto& result) {
    return result.ok() ? std::string("ok") : std::string(code_name(result.error().code));
  };
  const auto got = engine->get(root + "x", 100);
  EXPECT_EQ(is(got), wanted) << got.error().text();
  EXPECT_EQ(is(engine->put(root + "x", as_bytes("x"))), wanted);
  const bool creates = engine->capabilities().exclusive_create;
  EXPECT_EQ(creates ? is(engine->create(root + "y", as_bytes("x"), 0)) : wanted, wanted);
  std::printf("message: %s\n", got.error().text().c_str());
}

}  // namespace
}  // namespace nc::tier
