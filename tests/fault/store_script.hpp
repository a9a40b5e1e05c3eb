// A script of everything that changes a store, with a record of what was acknowledged, and the
// checks that must hold after a crash at any point of it. Used with a fake disk (power cuts) and in
// a process that kills itself.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/cache/store_box.hpp"

namespace nc {

// What the outside was told. Written before a call for what it may do, after it for what it did.
struct Acknowledged {
  enum class State {
    kMaybe,    // under way, or may have been evicted: there or not, but never wrong
    kThere,    // publish said yes
    kRemoved,  // prune said yes
  };
  std::map<std::string, State> entries;  // by name
};

inline TestEntry make_script_entry(const std::string& name) {
  // The name decides the contents: short, long, long and dull, shared with others, several.
  const auto number = get_u64(Sha256::of(as_bytes(name)).raw.data()) % 1000;
  std::vector<std::string> contents;
  switch (number % 5) {
    case 0:
      contents = {"contents of " + name};
      break;
    case 1:
      contents = {noise(70'000 + number, number), "small part of " + name};
      break;
    case 2:
      contents = {std::string(80'000 + number, 'd') + name};
      break;
    case 3:
      contents = {noise(66'000, 7), "shares with others " + name};
      break;
    default:
      contents = {noise(3000, number), noise(68'000, number + 1000), "third " + name};
  }
  auto entry = make_entry(name, contents, 100 + number);
  if (name.starts_with("temp")) entry.manifest.name_space = "temp";
  return entry;
}

// Made once: the checks ask for each of them after every crash.
inline const TestEntry& script_entry(const std::string& name) {
  static std::map<std::string, TestEntry> made;
  const auto it = made.find(name);
  return it != made.end() ? it->second : made.emplace(name, make_script_entry(name)).first->second;
}

// After a crash: `store` is open again. Adds failures to the running test; `where` says which crash
// it was.
inline void check_after_crash(FileSystem& fs, Store& store, const std::string& dir,
                              const Acknowledged& told, const std::string& where) {
  const auto page = verify_all(store);
  ASSERT_TRUE(page.ok()) << where << ": " << page.error().text();
  for (const auto& bad : page->bad) {
    ADD_FAILURE() << where << ": verify finds " << bad.what << ": " << bad.problem;
  }
  for (const auto& [name, state] : told.entries) {
    const auto got = get(fs, store, script_entry(name));
    if (state == Acknowledged::State::kThere) {
      EXPECT_EQ(got, "hit") << where << ": " << name << " was acknowledged";
    } else if (state == Acknowledged::State::kRemoved) {
      EXPECT_EQ(got, "miss") << where << ": " << name << " was pruned";
    } else {
      EXPECT_TRUE(got == "hit" || got == "miss") << where << ": " << name << ": " << got;
    }
  }
  // Whatever is left over is seen by prune, and then nothing is.
  StoreOptions options;
  options.max_bytes = 1ULL << 40;
  options.orphan_grace_ms = 0;
  store.set_limits(options);
  for (const auto& [name, state] : told.entries) {
    ignore_error(store.pin(script_entry(name).manifest.key, false), "most are not pinned");
  }
  const auto pruned = store.prune({});
  ASSERT_TRUE(pruned.ok()) << where << ": " << pruned.error().text();
  EXPECT_TRUE(pruned->kept.empty()) << where;
  EXPECT_EQ(store.size().entries, 0) << where;
  EXPECT_EQ(store.size().blobs, 0) << where;
  const auto outer = fs.list(join(dir, "cas"));
  ASSERT_TRUE(outer.ok());
  for (const auto& a : *outer) {
    const auto inner = fs.list(join(join(dir, "cas"), a));
    for (const auto& b : *inner) {
      const auto files = fs.list(join(join(join(dir, "cas"), a), b));
      EXPECT_TRUE(files->empty()) << where << ": " << files->front() << " is invisible to prune";
    }
  }
  EXPECT_TRUE(fs.list(join(dir, "staging"))->empty()) << where;
  EXPECT_TRUE(fs.list(join(dir, "quarantine"))->empty()) << where;
  // And it works.
  const auto fresh = make_entry("fresh", {"fresh", noise(70'000, 4711)});
  const auto published = put(store, fresh);
  ASSERT_TRUE(published.ok()) << where << ": " << published.error().text();
  EXPECT_EQ(get(fs, store, fresh), "hit") << where;
}

}  // namespace nc
