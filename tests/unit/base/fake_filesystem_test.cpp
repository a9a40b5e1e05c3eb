#include "base/fake_filesystem.hpp"

#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nc {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Open = FileSystem::Open;
using Call = FakeFileSystem::Call;
using Data = PowerCut::Data;
using Names = PowerCut::Names;

class FakeFileSystemTest : public ::testing::Test {
 protected:
  std::unique_ptr<File> open(const std::string& path, Open how = Open::kCreateNew) {
    auto file = fs_.open(path, how);
    EXPECT_TRUE(file.ok()) << file.error().text();
    return std::move(file).value();
  }
  // A file that no power cut harms.
  void put_durably(const std::string& path, std::string_view text) {
    const auto file = open(path, Open::kCreateOrTruncate);
    ASSERT_TRUE(file->write(as_bytes(text)).ok());
    ASSERT_TRUE(file->sync().ok());
    ASSERT_TRUE(fs_.sync_dir(parent_dir(path)).ok());
  }
  std::string get(const std::string& path) {
    auto text = fs_.read_all(path, 1 << 20);
    return text.ok() ? *text : std::string(code_name(text.error().code));
  }

  FakeFileSystem fs_;
};

TEST_F(FakeFileSystemTest, UnsyncedBytesAndNamesAreLost) {
  put_durably("/a", "kept");
  const auto a = open("/a", Open::kAppend);
  ASSERT_TRUE(a->write(as_bytes(" lost")).ok());
  const auto b = open("/b");
  ASSERT_TRUE(b->write(as_bytes("synced, but its name is not")).ok());
  ASSERT_TRUE(b->sync().ok());
  EXPECT_EQ(get("/a"), "kept lost");
  fs_.power_cut();
  EXPECT_EQ(get("/a"), "kept");
  EXPECT_EQ(get("/b"), "not_found");
}

TEST_F(FakeFileSystemTest, SyncedWorkStays) {
  put_durably("/a", "one");
  {
    const auto a = open("/a", Open::kAppend);
    ASSERT_TRUE(a->write(as_bytes(" two")).ok());
    ASSERT_TRUE(a->sync().ok());
  }
  ASSERT_TRUE(fs_.rename("/a", "/b").ok());
  ASSERT_TRUE(fs_.sync_dir("/").ok());
  fs_.power_cut();
  EXPECT_EQ(get("/b"), "one two");
  EXPECT_EQ(get("/a"), "not_found");
}

TEST_F(FakeFileSystemTest, ANameWithoutItsBytesIsAnEmptyFile) {
  ASSERT_TRUE(open("/a")->write(as_bytes("text")).ok());
  ASSERT_TRUE(fs_.sync_dir("/").ok());
  fs_.power_cut();
  EXPECT_EQ(get("/a"), "");
}

TEST_F(FakeFileSystemTest, OpenFilesAndLocksAreGoneAfterACut) {
  put_durably("/a", "text");
  const auto file = open("/a", Open::kAppend);
  const auto mapping = fs_.map("/a");
  const auto lock = fs_.lock("/a");
  ASSERT_TRUE(lock.ok());
  EXPECT_EQ(fs_.open_files(), 1U);
  fs_.power_cut();
  EXPECT_EQ(fs_.open_files(), 0U);
  EXPECT_TRUE(file->write(as_bytes("x")).is(Code::kIo));
  EXPECT_TRUE(file->sync().is(Code::kIo));
  EXPECT_TRUE(file->truncate(0).is(Code::kIo));
  EXPECT_TRUE(file->size().is(Code::kIo));
  std::byte buffer[4];
  EXPECT_TRUE(file->read_at(0, buffer).is(Code::kIo));
  EXPECT_EQ(as_text((*mapping)->bytes()), "text");
  EXPECT_TRUE(fs_.lock("/a").ok());
  EXPECT_EQ(get("/a"), "text");
}

TEST_F(FakeFileSystemTest, CutsAtEveryByte) {
  for (std::uint64_t bytes = 0; bytes <= 7; ++bytes) {
    FakeFileSystem fs;
    const auto a = std::move(fs.open("/a", Open::kCreateNew)).value();
    const auto b = std::move(fs.open("/b", Open::kCreateNew)).value();
    ASSERT_TRUE(a->write(as_bytes("12")).ok());
    ASSERT_TRUE(a->sync().ok());
    ASSERT_TRUE(a->write(as_bytes("345")).ok());
    ASSERT_TRUE(b->write(as_bytes("xy")).ok());
    ASSERT_TRUE(a->write(as_bytes("67")).ok());
    EXPECT_EQ(fs.unsynced_bytes(), 7U);
    fs.power_cut({Data::kFirstBytes, Names::kKeepAll, bytes});
    const std::string a_now = *fs.read_all("/a", 100);
    const std::string b_now = *fs.read_all("/b", 100);
    EXPECT_EQ(a_now, std::string("1234567").substr(
                         0, 2 + std::min<std::uint64_t>(bytes, 3) + (bytes > 5 ? bytes - 5 : 0)));
    EXPECT_EQ(b_now, std::string("xy").substr(0, bytes < 3 ? 0 : bytes - 3));
    EXPECT_EQ(fs.unsynced_bytes(), 0U);
  }
}

TEST_F(FakeFileSystemTest, OverwritesAndTruncatesAreUndone) {
  put_durably("/a", "0123456789");
  {
    const auto a = open("/a", Open::kCreateOrTruncate);
    ASSERT_TRUE(a->write(as_bytes("new")).ok());
    ASSERT_TRUE(a->write_at(1, as_bytes("EWER")).ok());
    ASSERT_TRUE(a->truncate(2).ok());
  }
  EXPECT_EQ(get("/a"), "nE");
  fs_.power_cut();
  EXPECT_EQ(get("/a"), "0123456789");
}

TEST_F(FakeFileSystemTest, ZeroedTailsKeepTheirSize) {
  put_durably("/a", "12");
  ASSERT_TRUE(open("/a", Open::kAppend)->write(as_bytes("345")).ok());
  fs_.power_cut({Data::kZeroed, Names::kDropAll});
  EXPECT_EQ(get("/a"), std::string("12\0\0\0", 5));
}

TEST_F(FakeFileSystemTest, RandomCutsRepeatForASeedAndDiffer) {
  std::set<std::string> outcomes;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    std::string outcome[2];
    for (std::string& text : outcome) {
      FakeFileSystem fs;
      for (const char* name : {"/a", "/b", "/c"}) {
        const auto file = std::move(fs.open(name, Open::kCreateNew)).value();
        ASSERT_TRUE(file->write(as_bytes("12345678")).ok());
      }
      fs.power_cut({Data::kRandom, Names::kRandom, 0, seed});
      for (const char* name : {"/a", "/b", "/c"}) {
        text += fs.stat(name).ok() ? *fs.read_all(name, 100) : "-";
        text += ',';
      }
    }
    EXPECT_EQ(outcome[0], outcome[1]);
    outcomes.insert(outcome[0]);
  }
  EXPECT_GT(outcomes.size(), 10U);
}

TEST_F(FakeFileSystemTest, ARenameIsNeverHalf) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    FakeFileSystem fs;
    ASSERT_TRUE(fs.make_dirs("/d").ok());
    ASSERT_TRUE(fs.write_atomically("/a", as_bytes("text")).ok());
    ASSERT_TRUE(fs.rename("/a", "/d/b").ok());
    fs.power_cut({Data::kDropAll, Names::kRandom, 0, seed});
    const bool old_name = fs.stat("/a").ok();
    const bool new_name = fs.stat("/d/b").ok();
    EXPECT_NE(old_name, new_name) << seed;
  }
}

TEST_F(FakeFileSystemTest, OperationsOnOneNameStayInOrder) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    FakeFileSystem fs;
    for (const char* text : {"1", "2", "3"}) {
      const auto file = std::move(fs.open("/tmp", Open::kCreateNew)).value();
      ASSERT_TRUE(file->write(as_bytes(text)).ok());
      ASSERT_TRUE(file->sync().ok());
      ASSERT_TRUE(fs.rename("/tmp", "/a").ok());
    }
    fs.power_cut({Data::kDropAll, Names::kRandom, 0, seed});
    const bool has_a = fs.stat("/a").ok();
    const bool has_tmp = fs.stat("/tmp").ok();
    if (has_a && has_tmp) {
      EXPECT_LT(*fs.read_all("/a", 9), *fs.read_all("/tmp", 9)) << seed;
    }
    if (!has_a && has_tmp) {
      EXPECT_EQ(*fs.read_all("/tmp", 9), "1") << seed;
    }
  }
}

TEST_F(FakeFileSystemTest, SyncingOneDirectoryTakesARenameAlongWhole) {
  ASSERT_TRUE(fs_.make_dirs("/d").ok());
  put_durably("/a", "text");
  ASSERT_TRUE(fs_.rename("/a", "/d/b").ok());
  ASSERT_TRUE(fs_.sync_dir("/d").ok());
  fs_.power_cut();
  EXPECT_EQ(get("/d/b"), "text");
  EXPECT_EQ(get("/a"), "not_found");
}

TEST_F(FakeFileSystemTest, ALostDirectoryTakesItsFilesAlong) {
  ASSERT_TRUE(fs_.make_dirs("/d/e").ok());
  put_durably("/d/e/a", "text");
  fs_.power_cut();
  EXPECT_THAT(*fs_.list("/"), IsEmpty());
  EXPECT_EQ(fs_.used(), 0U);
}

TEST_F(FakeFileSystemTest, ARemovedNameComesBack) {
  put_durably("/a", "text");
  ASSERT_TRUE(fs_.link("/a", "/b").ok());
  ASSERT_TRUE(fs_.remove("/a").ok());
  fs_.power_cut();
  EXPECT_THAT(*fs_.list("/"), ElementsAre("a"));
  EXPECT_EQ(fs_.stat("/a")->links, 1U);
  EXPECT_EQ(fs_.used(), 4U);
}

TEST_F(FakeFileSystemTest, AKilledProcessLosesNothingThatItWrote) {
  ASSERT_TRUE(open("/a")->write(as_bytes("text")).ok());
  const auto lock = fs_.lock("/lock");
  fs_.power_cut(PowerCut::process_killed());
  EXPECT_EQ(get("/a"), "text");
  EXPECT_TRUE(fs_.lock("/lock").ok());
}

TEST_F(FakeFileSystemTest, WriteAtomicallySurvivesACutAtEveryCallAndByte) {
  const PowerCut cuts[] = {{Data::kDropAll, Names::kDropAll},
                           {Data::kDropAll, Names::kKeepAll},
                           {Data::kKeepAll, Names::kDropAll},
                           {Data::kFirstBytes, Names::kKeepAll, 1},
                           {Data::kZeroed, Names::kKeepAll}};
  for (const PowerCut& cut : cuts) {
    bool done = false;
    for (std::uint64_t nth = 1; !done; ++nth) {
      FakeFileSystem fs;
      ASSERT_TRUE(fs.write_atomically("/a", as_bytes("old")).ok());
      fs.power_cut_at(nth, cut);
      done = fs.write_atomically("/a", as_bytes("new")).ok();
      EXPECT_EQ(fs.has_power(), done);
      fs.power_on();
      if (done) fs.power_cut(cut);
      const std::string text = *fs.read_all("/a", 100);
      EXPECT_TRUE(text == "new" || (!done && text == "old")) << nth << " " << text;
    }
  }
}

TEST_F(FakeFileSystemTest, WithoutPowerNothingWorks) {
  put_durably("/a", "text");
  fs_.power_cut_at(1);
  EXPECT_EQ(get("/a"), "text");  // reading changes nothing
  EXPECT_TRUE(fs_.remove("/a").is(Code::kIo));
  EXPECT_EQ(get("/a"), "io");
  EXPECT_TRUE(fs_.list("/").is(Code::kIo));
  fs_.power_on();
  EXPECT_EQ(get("/a"), "text");
}

TEST_F(FakeFileSystemTest, AFullDiskTakesWhatFits) {
  fs_.set_capacity(10);
  const auto a = open("/a");
  ASSERT_TRUE(a->write(as_bytes("1234567")).ok());
  EXPECT_EQ(fs_.space("/")->available, 3U);
  const auto full = a->write(as_bytes("89abc"));
  ASSERT_TRUE(full.is(Code::kNoSpace));
  EXPECT_EQ(full.error().message, "cannot write /a: No space left on device");
  EXPECT_EQ(get("/a"), "123456789a");
  EXPECT_TRUE(a->write_at(0, as_bytes("x")).ok());  // overwriting needs no space
  EXPECT_TRUE(a->write_at(20, as_bytes("x")).is(Code::kNoSpace));
  EXPECT_TRUE(a->truncate(4).ok());
  EXPECT_TRUE(open("/b")->write(as_bytes("123456")).ok());
  EXPECT_EQ(fs_.used(), 10U);
}

TEST_F(FakeFileSystemTest, RemovedFilesFreeTheirSpaceWhenTheyAreClosed) {
  fs_.set_capacity(10);
  auto a = open("/a");
  ASSERT_TRUE(a->write(as_bytes("12345678")).ok());
  ASSERT_TRUE(fs_.link("/a", "/b").ok());
  EXPECT_EQ(fs_.used(), 8U);
  ASSERT_TRUE(fs_.remove("/a").ok());
  ASSERT_TRUE(fs_.remove("/b").ok());
  EXPECT_EQ(fs_.used(), 8U);
  a.reset();
  EXPECT_EQ(fs_.used(), 0U);
}

TEST_F(FakeFileSystemTest, FailsAtTheNthCallOfAKind) {
  fs_.fail({.call = Call::kSync, .nth = 2, .error = {Code::kIo, "broken", ""}, .times = 2});
  const auto a = open("/a");
  EXPECT_TRUE(a->sync().ok());
  EXPECT_TRUE(a->write(as_bytes("x")).ok());
  EXPECT_EQ(a->sync().error().message, "broken");
  EXPECT_TRUE(a->sync().is(Code::kIo));
  EXPECT_TRUE(a->sync().ok());
  EXPECT_EQ(fs_.calls(Call::kSync), 4U);
  EXPECT_EQ(fs_.calls(Call::kWrite), 1U);
  EXPECT_EQ(fs_.calls(), 6U);
}

TEST_F(FakeFileSystemTest, FailuresChooseByPathAndMayBePartial) {
  fs_.fail({.call = Call::kWrite,
            .error = {Code::kNoSpace, "full", ""},
            .path_part = "/d/",
            .partial = 2});
  fs_.fail({.nth = 3, .error = {Code::kDenied, "no", ""}, .path_part = "/b"});
  ASSERT_TRUE(fs_.make_dirs("/d").ok());
  const auto a = open("/d/a");
  EXPECT_TRUE(open("/b")->write(as_bytes("text")).ok());
  EXPECT_TRUE(a->write(as_bytes("text")).is(Code::kNoSpace));
  EXPECT_EQ(get("/d/a"), "te");
  EXPECT_EQ(get("/b"), "denied");
  EXPECT_EQ(get("/b"), "text");
  fs_.fail({.error = {Code::kIo, "x", ""}});
  fs_.clear_failures();
  EXPECT_EQ(get("/b"), "text");
}

TEST_F(FakeFileSystemTest, ReadOnlyRefusesEveryChange) {
  put_durably("/a", "text");
  const auto file = open("/a", Open::kAppend);
  fs_.set_read_only(true);
  EXPECT_TRUE(file->write(as_bytes("x")).is(Code::kReadOnly));
  EXPECT_TRUE(fs_.open("/b", Open::kCreateNew).is(Code::kReadOnly));
  EXPECT_TRUE(fs_.remove("/a").is(Code::kReadOnly));
  EXPECT_TRUE(fs_.rename("/a", "/b").is(Code::kReadOnly));
  EXPECT_TRUE(fs_.link("/a", "/b").is(Code::kReadOnly));
  EXPECT_TRUE(fs_.make_dirs("/d").is(Code::kReadOnly));
  EXPECT_TRUE(fs_.make_dirs("/").ok());
  EXPECT_TRUE(fs_.lock("/lock").is(Code::kReadOnly));
  EXPECT_EQ(get("/a"), "text");
  fs_.set_read_only(false);
  EXPECT_TRUE(file->write(as_bytes("x")).ok());
}

TEST_F(FakeFileSystemTest, HandsBehindTheBack) {
  put_durably("/a", "text");
  fs_.flip_bit("/a", 1, 0);
  EXPECT_EQ(get("/a"), "tdxt");
  fs_.set_owner("/a", 4242);
  EXPECT_EQ(fs_.stat("/a")->uid, 4242U);
  fs_.power_cut();
  EXPECT_EQ(get("/a"), "tdxt");
  EXPECT_TRUE(fs_.stat("relative").is(Code::kInvalid));
  EXPECT_TRUE(fs_.stat("/a/../b").is(Code::kInvalid));
}

TEST_F(FakeFileSystemTest, TimesComeFromTheClock) {
  FakeClock clock(5000);
  FakeFileSystem fs(&clock);
  const auto file = std::move(fs.open("/a", Open::kCreateNew)).value();
  EXPECT_EQ(fs.stat("/a")->mtime_ms, 5000);
  clock.advance(10);
  ASSERT_TRUE(file->write(as_bytes("x")).ok());
  EXPECT_EQ(fs.stat("/a")->mtime_ms, 5010);
}

TEST_F(FakeFileSystemTest, ManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      const std::string dir = "/d" + std::to_string(t);
      EXPECT_TRUE(fs_.make_dirs(dir).ok());
      for (int i = 0; i < 50; ++i) {
        EXPECT_TRUE(fs_.write_atomically(join(dir, "f"), as_bytes(std::to_string(i))).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  fs_.power_cut({Data::kDropAll, Names::kKeepAll});
  for (int t = 0; t < 4; ++t) EXPECT_EQ(get("/d" + std::to_string(t) + "/f"), "49");
}

}  // namespace
}  // namespace nc
