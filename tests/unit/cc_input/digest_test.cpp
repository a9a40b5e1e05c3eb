#include "client/cc/input/digest.hpp"

#include <sys/stat.h>

#include <fstream>

#include <gtest/gtest.h>

#include "tests/unit/base/temp_dir.hpp"
#include "tests/unit/cc_input/inputs.hpp"

namespace nc::cc {
namespace {

class InputDigestTest : public testing::Test {
 protected:
  std::string put(const std::string& name, std::string_view content) {
    const std::string path = join(dir_.path(), name);
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
  InputDigest digest(const std::string& path, const InputLimits& limits = {}) {
    auto result = digest_input(path, limits);
    EXPECT_TRUE(result.ok()) << result.error().text();
    return result.ok() ? *result : InputDigest{};
  }

  TempDir dir_;
};

TEST_F(InputDigestTest, TheContentSaysWhatItIsNotTheName) {
  EXPECT_EQ(digest(put("a.neff", sample("here.pb"))).form, "hlo-proto");
  EXPECT_EQ(digest(put("a.pb", sample("here.mlir"))).form, "mlir-text");
  const InputDigest raw = digest(put("a.mlir", "hello"));
  EXPECT_EQ(raw.form, "raw");
  EXPECT_FALSE(raw.normalised);
  EXPECT_EQ(raw.bytes, 5U);
  EXPECT_EQ(digest(put("empty", "")).form, "raw");
}

TEST_F(InputDigestTest, AFileOverTheLimitIsHashedAsItIs) {
  const std::string path = put("a", sample("here.pb"));
  const InputDigest raw = digest(path, {.parsed_bytes = 100});
  EXPECT_EQ(raw.form, "raw");
  EXPECT_NE(raw.digest, digest(path).digest);
  EXPECT_NE(raw.digest, digest(put("b", sample("there.pb")), {.parsed_bytes = 100}).digest);
  // In pieces or whole: one digest.
  EXPECT_EQ(digest(put("c", "hello"), {.parsed_bytes = 1}).digest,
            digest(put("d", "hello")).digest);
}

TEST_F(InputDigestTest, FormsDoNotShareDigests) {
  // What a normalised input hashes, given as a raw file, is another input.
  const InputDigest raw = digest_bytes(as_bytes("x"));
  EXPECT_NE(raw.digest, Sha256::of(as_bytes("x")));
  EXPECT_EQ(raw.digest, Sha256::of(as_bytes("neuroncache input 1 raw\nx")));
}

TEST_F(InputDigestTest, ADirectoryIsItsFilesAndTheirNames) {
  put("one/a", "1");
  put("one/sub/b", "2");
  put("two/sub/b", "2");
  put("two/a", "1");
  const std::string one = join(dir_.path(), "one");
  const std::string two = join(dir_.path(), "two");
  const InputDigest plain = digest(one);
  EXPECT_EQ(plain.form, "directory");
  EXPECT_EQ(plain.bytes, 2U);
  EXPECT_EQ(digest(two).digest, plain.digest);
  put("two/a", "3");
  EXPECT_NE(digest(two).digest, plain.digest);
  put("two/a", "1");
  std::filesystem::create_directory(two + "/empty");
  EXPECT_NE(digest(two).digest, plain.digest);
  std::filesystem::rename(one + "/a", one + "/c");
  EXPECT_NE(digest(one).digest, plain.digest);
}

TEST_F(InputDigestTest, SourceLocationsInADirectoryDoNotCount) {
  put("one/m", sample("here.pb"));
  put("two/m", sample("there.pb"));
  const InputDigest one = digest(join(dir_.path(), "one"));
  EXPECT_TRUE(one.normalised);
  EXPECT_EQ(one.digest, digest(join(dir_.path(), "two")).digest);
}

TEST_F(InputDigestTest, WhatIsNoFileIsRefused) {
  EXPECT_TRUE(digest_input(join(dir_.path(), "absent")).is(Code::kNotFound));
  const std::string pipe = join(dir_.path(), "sub/pipe");
  std::filesystem::create_directory(join(dir_.path(), "sub"));
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_TRUE(digest_input(pipe).is(Code::kUnsupported));
  EXPECT_TRUE(digest_input(join(dir_.path(), "sub")).is(Code::kUnsupported));
}

TEST_F(InputDigestTest, ADirectoryThatHoldsItselfIsRefused) {
  std::filesystem::create_directory(join(dir_.path(), "loop"));
  std::filesystem::create_directory_symlink(".", join(dir_.path(), "loop/again"));
  EXPECT_FALSE(digest_input(join(dir_.path(), "loop")).ok());
  put("many/1", "");
  put("many/2", "");
  EXPECT_TRUE(digest_input(join(dir_.path(), "many"), {.files = 1}).is(Code::kTooLarge));
}

TEST_F(InputDigestTest, AHugeFileTakesLittleMemory) {
  const std::string path = put("huge", "");
  std::filesystem::resize_file(path, std::uint64_t{160} << 20);  // a hole
  const auto peak_kib = [] {
    std::ifstream status("/proc/self/status");
    std::string line;
    while (std::getline(status, line)) {
      if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6));
    }
    return 0ULL;
  };
  const auto before = peak_kib();
  EXPECT_EQ(digest(path, {.parsed_bytes = 1 << 20}).form, "raw");
  EXPECT_LT(peak_kib() - before, 64U << 10);
}

}  // namespace
}  // namespace nc::cc
