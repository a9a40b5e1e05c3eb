#include "cache/tier/file_engine.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "cache/tier/patience.hpp"
#include "tests/unit/base/temp_dir.hpp"
#include "tests/unit/tier/engine_contract.hpp"

namespace nc::tier {
namespace {

namespace stdfs = std::filesystem;

struct FileEngineTest : testing::Test {
  std::unique_ptr<Engine> open() {
    auto opened = open_file_engine({.address = "file://" + dir.path(), .dir = dir.path()}, clock,
                                   system_random());
    EXPECT_TRUE(opened.ok());
    return *std::move(opened);
  }
  std::string at(const std::string& name) const { return dir.path() + "/" + name; }
  std::size_t left_aside() const {
    return stdfs::exists(at("~aside"))
               ? std::distance(stdfs::directory_iterator(at("~aside")), stdfs::directory_iterator())
               : 0;
  }

  TempDir dir;
  FakeClock clock;
  std::unique_ptr<Engine> engine = open();
};

TEST_F(FileEngineTest, DoesWhatAnEngineDoes) {
  check_engine_contract(*engine, "t/");
  EXPECT_EQ(left_aside(), 0U);
}

TEST_F(FileEngineTest, OneOfManyCreates) {
  std::atomic<int> winners = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      const auto mine = open();
      for (int k = 0; k < 10; ++k) {
        const auto name = "v1/x/" + std::to_string(k);
        auto made = mine->create(name, as_bytes("by " + std::to_string(i)), 0);
        ASSERT_TRUE(made.ok()) << made.error().text();
        if (*made) ++winners;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(winners, 10);
  EXPECT_EQ(left_aside(), 0U);
}

TEST_F(FileEngineTest, AReaderNeverSeesAPart) {
  const auto texts = {std::string(300'000, 'a'), std::string(200'000, 'b')};
  ASSERT_TRUE(engine->put("x/y", as_bytes(*texts.begin())).ok());
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    const auto other = open();
    while (!stop) {
      for (const auto& text : texts) ASSERT_TRUE(other->put("x/y", as_bytes(text)).ok());
    }
  });
  for (int i = 0; i < 200; ++i) {
    const auto got = engine->get("x/y", 1 << 20);
    ASSERT_TRUE(got.ok()) << got.error().text();
    EXPECT_TRUE(std::ranges::count(texts, *got) == 1);
  }
  stop = true;
  writer.join();
}

TEST_F(FileEngineTest, WithoutItsDirectoryItIsUnavailable) {
  stdfs::remove_all(dir.path());
  EXPECT_TRUE(engine->get("a", 10).is(Code::kUnavailable));
  EXPECT_TRUE(engine->put("a", {}).is(Code::kUnavailable));
  EXPECT_TRUE(engine->list("", "", 10).is(Code::kUnavailable));
  EXPECT_FALSE(stdfs::exists(dir.path()));  // not made anew: a mount may belong there
  stdfs::create_directory(dir.path());
  EXPECT_TRUE(engine->put("a", {}).ok());
}

TEST_F(FileEngineTest, LinksAndPipesAreNotFollowed) {
  TempDir elsewhere;
  std::ofstream(elsewhere.path() + "/secret") << "secret";
  stdfs::create_symlink(elsewhere.path() + "/secret", at("file"));
  stdfs::create_directory_symlink(elsewhere.path(), at("dir"));
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  EXPECT_TRUE(engine->get("file", 100).is(Code::kCorrupt));
  EXPECT_TRUE(engine->get("dir/secret", 100).is(Code::kCorrupt));
  EXPECT_TRUE(engine->get("pipe", 100).is(Code::kCorrupt));
  EXPECT_TRUE(engine->put("dir/new", {}).is(Code::kCorrupt));
  // They are told of, as something that cannot be read.
  std::vector<std::string> names;
  const auto listed = engine->list("", "", 100).value();
  for (const auto& object : listed.objects) {
    EXPECT_EQ(object.size, 0U);
    names.push_back(object.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"dir", "file", "pipe"}));
  // Writing replaces the link and leaves alone what it points to.
  EXPECT_TRUE(engine->put("file", as_bytes("ours")).ok());
  EXPECT_EQ(engine->get("file", 100).value(), "ours");
  EXPECT_EQ(stdfs::file_size(elsewhere.path() + "/secret"), 6U);
  EXPECT_FALSE(engine->create("dir/x", {}, 0).ok());
  EXPECT_EQ(std::distance(stdfs::directory_iterator(elsewhere.path()), {}), 1);
}

TEST_F(FileEngineTest, WhatAKilledWriterLeftGoesAfterItsGrace) {
  stdfs::create_directory(at("~aside"));
  std::ofstream(at("~aside/old")) << "left";
  std::ofstream(at("~aside/young")) << "left";
  const struct ::timespec times[2] = {{1'000'000, 0}, {1'000'000, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, at("~aside/old").c_str(), times, 0), 0);
  ASSERT_TRUE(engine->put("a", {}).ok());
  EXPECT_FALSE(stdfs::exists(at("~aside/old")));
  EXPECT_TRUE(stdfs::exists(at("~aside/young")));
}

TEST_F(FileEngineTest, ModesFollowTheDirectory) {
  ASSERT_EQ(::chmod(dir.path().c_str(), 0770), 0);
  const auto old = ::umask(077);
  ASSERT_TRUE(engine->put("a/b", {}).ok());
  ::umask(old);
  struct ::stat st {};
  ASSERT_EQ(::stat(at("a").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777U, 0770U);
  ASSERT_EQ(::stat(at("a/b").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777U, 0640U);
}

TEST_F(FileEngineTest, ListsAreSortedAsNamesAreAndPaged) {
  for (const std::string name : {"a/b", "a.b", "a-b/c", "b", "a/c/d", "a/b.c"}) {
    ASSERT_TRUE(engine->put(name, {}).ok());
  }
  std::ofstream(at("Upper")) << "x";
  std::ofstream(at(".nfs001")) << "x";
  std::vector<std::string> names;
  std::string after;
  do {
    auto page = engine->list("", after, 1);
    ASSERT_TRUE(page.ok());
    ASSERT_EQ(page->objects.size(), 1U);
    names.push_back(page->objects[0].name);
    after = page->next;
  } while (!after.empty());
  EXPECT_EQ(names, (std::vector<std::string>{"a-b/c", "a.b", "a/b", "a/b.c", "a/c/d", "b"}));
  EXPECT_EQ(engine->list("a/b", "", 10).value().objects.size(), 2U);
}

TEST(Patience, AHangingCallIsLeftBehind) {
  Patience patience("the tier x", 30);
  auto gate = std::make_shared<std::mutex>();
  gate->lock();
  for (std::size_t i = 0; i < Patience::kMaxThreads + 2; ++i) {
    const auto hung = patience.run<int>([gate]() -> Result<int> {
      const std::lock_guard lock(*gate);
      return 1;
    });
    EXPECT_TRUE(hung.is(Code::kTimeout));
  }
  gate->unlock();
  // Its threads come back and serve again.
  for (int tries = 0; tries < 1000; ++tries) {
    auto answer = patience.run<int>([]() -> Result<int> { return 7; });
    if (!answer.ok()) continue;
    EXPECT_EQ(*answer, 7);
    return;
  }
  FAIL() << "no thread came back";
}

}  // namespace
}  // namespace nc::tier
