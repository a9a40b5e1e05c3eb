// Many threads on one store: what they are told stays true, nothing deadlocks, nothing races (run
// under TSan by `./x test`).
#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "tests/unit/cache/store_box.hpp"

namespace nc {
namespace {

#ifdef NC_SANITIZED
constexpr int kSteps = 60;
#else
constexpr int kSteps = 150;
#endif

TEST(StoreThreadsTest, EverythingAtOnce) {
  StoreBox box;
  box.options.max_bytes = 3 << 20;  // so that it evicts all the time
  box.options.max_entries = 40;
  ASSERT_TRUE(box.open().ok());
  std::vector<TestEntry> entries;
  for (int i = 0; i < 60; ++i) {
    const auto seed = static_cast<std::uint64_t>(i);
    // Every third shares a blob with others.
    entries.push_back(make_entry(
        "e" + std::to_string(i),
        {noise(70'000, i % 3 == 0 ? 0 : seed), "small " + std::to_string(i)}, 100 + seed));
  }
  std::atomic<int> hits = 0;
  std::atomic<int> published = 0;
  const auto fail = [](const std::string& what, const Error& error) {
    // Removed between upload and publish, or no room: clear answers that a client tries again on.
    if (error.code != Code::kNotFound && error.code != Code::kNoSpace) {
      ADD_FAILURE() << what << ": " << error.text();
    }
  };
  const auto work = [&](unsigned id) {
    std::uint64_t dice = id * 7919 + 1;
    for (int step = 0; step < kSteps; ++step) {
      dice = dice * 6364136223846793005ULL + 1442695040888963407ULL;
      const auto& entry = entries[(dice >> 33) % entries.size()];
      switch ((dice >> 20) % 8) {
        case 0: {
          const auto hold = box.store->hold(entry.manifest.key);
          const auto hit = box.store->lookup(entry.manifest.key);
          if (!hit.ok()) fail("look-up", hit.error());
          if (!hit.ok() || !*hit) break;
          // Held: whatever else happens, its bytes are there.
          for (std::size_t i = 0; i < entry.contents.size(); ++i) {
            const auto bytes = fetch(box.fs, *box.store, (*hit)->blobs[i]);
            ASSERT_TRUE(bytes.ok()) << bytes.error().text();
            EXPECT_EQ(*bytes, entry.contents[i]);
          }
          ++hits;
          break;
        }
        case 1: {
          const auto page = box.store->entries({}, "", 20);
          if (!page.ok()) fail("list", page.error());
          break;
        }
        case 2:
          if (const auto done = box.store->pin(entry.manifest.key, (dice >> 40) % 4 == 0);
              !done.ok()) {
            fail("pin", done.error());
          }
          break;
        case 3:
          box.store->count("default", "hits", 1);
          box.store->maintain();
          break;
        default: {
          const auto done = put(*box.store, entry);
          if (!done.ok()) fail("put", done.error());
          if (done.ok() && *done) ++published;
        }
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned id = 0; id < 6; ++id) threads.emplace_back(work, id);
  threads.emplace_back([&] {
    for (int i = 0; i < 6; ++i) {
      PruneRequest request;
      request.max_entries = 10;
      EXPECT_TRUE(box.store->prune(request).ok());
      const auto page = verify_all(*box.store);
      ASSERT_TRUE(page.ok()) << page.error().text();
      for (const auto& bad : page->bad) ADD_FAILURE() << bad.what << ": " << bad.problem;
    }
  });
  for (auto& thread : threads) thread.join();
  EXPECT_GT(hits, 0);
  EXPECT_GT(published, 40);
  EXPECT_EQ(box.store->size().reserved, 0);
  const auto page = verify_all(*box.store);
  EXPECT_TRUE(page->bad.empty());
  const auto in_memory = box.store->size();
  ASSERT_TRUE(box.store->flush().ok());
  ASSERT_TRUE(box.open().ok());
  EXPECT_EQ(box.store->size().entries, in_memory.entries);
}

TEST(StoreThreadsTest, OneOfManyPublishesWins) {
  StoreBox box;
  ASSERT_TRUE(box.open().ok());
  const auto entry = make_entry("same", {noise(70'000, 1), "small"});
  std::atomic<int> wins = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const auto done = put(*box.store, entry);
      ASSERT_TRUE(done.ok()) << done.error().text();
      wins += *done ? 1 : 0;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wins, 1);
  EXPECT_EQ(box.get(entry), "hit");
  EXPECT_EQ(box.store->size().blobs, 2);
}

}  // namespace
}  // namespace nc
