// What every engine has to do, as functions that a test of one calls.
#pragma once

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "cache/tier/blob_source.hpp"
#include "cache/tier/engine.hpp"

namespace nc::tier {

inline std::string patterned(std::size_t size, unsigned seed = 1) {
  std::string text(size, '\0');
  std::uint32_t x = seed * 2654435761U + 1;
  for (auto& c : text) {
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    c = static_cast<char>(x);
  }
  return text;
}

inline Result<std::string> fetch_all(Engine& engine, const std::string& name,
                                     std::uint64_t offset = 0, std::uint64_t limit = 1 << 30) {
  std::string got;
  auto size = engine.fetch(name, offset, limit, [&](Bytes piece) {
    got.append(as_text(piece));
    return Status();
  });
  if (!size.ok()) return std::move(size).error();
  EXPECT_EQ(*size, got.size() + offset);
  return got;
}

// `root` is a folder of names that nothing else uses, such as "t1/"; it is empty before.
inline void check_engine_contract(Engine& engine, const std::string& root) {
  const auto a = root + "a";
  const auto b = root + "dir/b";
  // Absent.
  EXPECT_TRUE(engine.get(a, 100).is(Code::kNotFound));
  EXPECT_TRUE(fetch_all(engine, a).is(Code::kNotFound));
  EXPECT_TRUE(engine.head(a).is(Code::kNotFound));
  // Small objects.
  ASSERT_TRUE(engine.put(a, as_bytes("first")).ok());
  EXPECT_EQ(engine.get(a, 100).value(), "first");
  ASSERT_TRUE(engine.put(a, as_bytes("second, and longer")).ok());
  EXPECT_EQ(engine.get(a, 100).value(), "second, and longer");
  EXPECT_EQ(engine.get(a, 18).value(), "second, and longer");
  EXPECT_TRUE(engine.get(a, 17).is(Code::kTooLarge));
  EXPECT_EQ(engine.head(a).value().size, 18U);
  ASSERT_TRUE(engine.put(a, {}).ok());
  EXPECT_EQ(engine.get(a, 100).value(), "");
  // Large ones.
  const auto text = patterned(3 << 20);
  TextSource source(text);
  ASSERT_TRUE(engine.store(b, source).ok());
  EXPECT_TRUE(fetch_all(engine, b).value() == text);
  EXPECT_TRUE(fetch_all(engine, b, 1'000'003).value() == text.substr(1'000'003));
  EXPECT_EQ(fetch_all(engine, b, text.size()).value(), "");
  EXPECT_TRUE(fetch_all(engine, b, 0, text.size() - 1).is(Code::kTooLarge));
  EXPECT_EQ(engine.head(b).value().size, text.size());
  // A sink that has enough ends it.
  int pieces = 0;
  const auto stopped = engine.fetch(b, 0, 1 << 30, [&](Bytes) -> Status {
    ++pieces;
    return Error{Code::kLeaseLost, "enough", ""};
  });
  EXPECT_TRUE(stopped.is(Code::kLeaseLost));
  EXPECT_EQ(pieces, 1);
  // Lists.
  if (engine.capabilities().list) {
    ASSERT_TRUE(engine.put(root + "list/1", as_bytes("x")).ok());
    ASSERT_TRUE(engine.put(root + "list/2", as_bytes("xx")).ok());
    ASSERT_TRUE(engine.put(root + "list/3/4", as_bytes("xxx")).ok());
    std::vector<std::string> names;
    std::string after;
    do {
      auto page = engine.list(root + "list/", after, 2);
      ASSERT_TRUE(page.ok()) << page.error().text();
      for (const auto& object : page->objects) {
        names.push_back(object.name);
        EXPECT_EQ(object.size, names.size());
      }
      after = page->next;
    } while (!after.empty());
    EXPECT_EQ(names,
              (std::vector<std::string>{root + "list/1", root + "list/2", root + "list/3/4"}));
    EXPECT_TRUE(engine.list(root + "nothing/", "", 10).value().objects.empty());
  }
  // Only the first makes it.
  if (engine.capabilities().exclusive_create) {
    EXPECT_TRUE(engine.create(root + "one", as_bytes("mine"), 0).value());
    EXPECT_FALSE(engine.create(root + "one", as_bytes("yours"), 0).value());
    EXPECT_EQ(engine.get(root + "one", 100).value(), "mine");
  }
  if (engine.capabilities().remove) {
    EXPECT_TRUE(engine.remove(a).ok());
    EXPECT_TRUE(engine.remove(a).ok());
    EXPECT_TRUE(engine.get(a, 100).is(Code::kNotFound));
  }
  // Names are checked by everybody.
  for (const std::string bad : {"", "../x", "a//b", "/x", "A"}) {
    EXPECT_TRUE(engine.get(bad, 1).is(Code::kInvalid)) << bad;
    EXPECT_TRUE(engine.put(bad, {}).is(Code::kInvalid)) << bad;
    EXPECT_TRUE(engine.remove(bad).is(Code::kInvalid)) << bad;
  }
}

}  // namespace nc::tier
