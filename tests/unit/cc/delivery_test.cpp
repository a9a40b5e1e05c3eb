#include "client/cc/delivery.hpp"

#include <sys/stat.h>

#include <filesystem>

#include <gtest/gtest.h>

#include "base/bytes.hpp"
#include "tests/unit/cc/scratch.hpp"

namespace nc::cc {
namespace {

class Delivery : public testing::Test {
 protected:
  Status deliver(const std::string& name) const {
    return place({source_, {}}, content_.size(), scratch_.path(name));
  }
  Scratch scratch_;
  std::string content_ = std::string(3'000'000, 'n') + "end";
  std::string source_ = scratch_.write("store/blob", content_);
};

TEST_F(Delivery, CopiesAFileAndBytes) {
  ASSERT_TRUE(deliver("out").ok());
  EXPECT_EQ(Scratch::read(scratch_.path("out")), content_);
  ASSERT_TRUE(place({"", "few"}, 3, scratch_.path("out")).ok());
  EXPECT_EQ(Scratch::read(scratch_.path("out")), "few");
  EXPECT_EQ(Scratch::read(source_), content_);
}

TEST_F(Delivery, LeavesNothingBesideTheOutput) {
  std::filesystem::create_directories(scratch_.path("d"));
  ASSERT_TRUE(deliver("d/out").ok());
  EXPECT_FALSE(place({scratch_.path("none"), {}}, 1, scratch_.path("d/out")).ok());
  EXPECT_FALSE(place({source_, {}}, 1, scratch_.path("d/out")).ok());
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator(scratch_.path("d")))
    ++files;
  EXPECT_EQ(files, 1U);
  EXPECT_EQ(Scratch::read(scratch_.path("d/out")), content_);
}

TEST_F(Delivery, FollowsLinksAlsoIntoTheVoid) {
  std::filesystem::create_directories(scratch_.path("d"));
  std::filesystem::create_symlink("d/target", scratch_.path("link"));
  ASSERT_TRUE(deliver("link").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(scratch_.path("link")));
  EXPECT_EQ(Scratch::read(scratch_.path("d/target")), content_);
  ASSERT_TRUE(place({"", "x"}, 1, scratch_.path("link")).ok());
  EXPECT_EQ(Scratch::read(scratch_.path("d/target")), "x");
}

TEST_F(Delivery, KeepsTheModeOfWhatWasThere) {
  scratch_.program("out", "old");
  ASSERT_TRUE(deliver("out").ok());
  struct stat s {};
  ASSERT_EQ(::stat(scratch_.path("out").c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 0777U, 0755U);
}

TEST_F(Delivery, WritesToWhatIsNoFile) {
  EXPECT_TRUE(place({source_, {}}, content_.size(), "/dev/null").ok());
  EXPECT_FALSE(deliver("store").ok());
  EXPECT_FALSE(deliver("none/out").ok());
}

TEST_F(Delivery, TellsAMissingSourceFromABadDestination) {
  EXPECT_TRUE(place({scratch_.path("none"), {}}, 1, scratch_.path("out")).is(Code::kNotFound));
  EXPECT_FALSE(std::filesystem::exists(scratch_.path("out")));
}

TEST_F(Delivery, LogsAreAppendedOrReplaced) {
  const std::string log = scratch_.write("log", "before\n");
  ASSERT_TRUE(place_log("after\n", log, true).ok());
  EXPECT_EQ(Scratch::read(log), "before\nafter\n");
  ASSERT_TRUE(place_log("anew\n", log, false).ok());
  EXPECT_EQ(Scratch::read(log), "anew\n");
}

TEST_F(Delivery, WhatIsDamagedIsNotDelivered) {
  Expected expected(content_.size());
  expected.digest = Digest::of(as_bytes(content_));
  for (const bool quick : {false, true}) {
    if (quick) expected.quick = xxh128(as_bytes(content_));
    EXPECT_TRUE(place({source_, {}}, expected, scratch_.path("out")).ok());
    EXPECT_TRUE(place({source_, {}}, expected, "/dev/null").ok());
    EXPECT_TRUE(place({"", content_}, expected, scratch_.path("bytes")).ok());
    std::string bad = content_;
    bad[2'900'000] ^= 1;
    const std::string damaged = scratch_.write("store/damaged", bad);
    const std::string before = Scratch::read(scratch_.path("out"));
    EXPECT_TRUE(place({damaged, {}}, expected, scratch_.path("out")).is(Code::kDigestMismatch));
    EXPECT_EQ(Scratch::read(scratch_.path("out")), before);
    EXPECT_TRUE(place({damaged, {}}, expected, "/dev/null").is(Code::kDigestMismatch));
    EXPECT_TRUE(place({"", bad}, expected, scratch_.path("bytes")).is(Code::kDigestMismatch));
    const std::string cut = scratch_.write("store/cut", content_.substr(1));
    EXPECT_TRUE(place({cut, {}}, expected, scratch_.path("out")).is(Code::kDigestMismatch));
  }
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator(scratch_.path("")))
    ++files;
  EXPECT_EQ(files, 3U) << "store, out, bytes";
}

TEST(QuickSums, AsText) {
  const Xxh128 sum = xxh128(as_bytes("x"));
  EXPECT_EQ(quick_from(quick_text(sum)), sum);
  EXPECT_EQ(quick_text(sum).size(), 32U);
  for (const char* bad : {"", "12", "zz345678901234567890123456789012"})
    EXPECT_FALSE(quick_from(bad)) << bad;
  EXPECT_FALSE(quick_of("/none").ok());
}

}  // namespace
}  // namespace nc::cc
