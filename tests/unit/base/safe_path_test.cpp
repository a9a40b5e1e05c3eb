#include "base/safe_path.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/base/temp_dir.hpp"

namespace nc {
namespace {

using ::testing::HasSubstr;

class SafePath : public ::testing::Test {
 protected:
  std::string make(const std::string& name, mode_t mode) {
    const std::string path = dir_.path() + "/" + name;
    EXPECT_TRUE(real_filesystem().make_dirs(path).ok());
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return path;
  }
  TempDir dir_;
};

TEST_F(SafePath, PrivatePlacesAndThoseToComeAreFine) {
  EXPECT_TRUE(check_safe_dir(make("a/b", 0700)).ok());
  EXPECT_TRUE(check_safe_dir(dir_.path() + "/not/there/yet").ok());
  EXPECT_TRUE(check_safe_dir(dir_.path() + "/a/b/").ok());
  EXPECT_TRUE(check_safe_dir(make("shared", 01777)).ok()) << "sticky, as /tmp";
  EXPECT_TRUE(check_safe_dir(make("group", 0770)).ok());
  EXPECT_TRUE(check_safe_dir("/").ok());
  EXPECT_TRUE(check_safe_dir("relative").is(Code::kInvalid));
}

TEST_F(SafePath, ADirectoryOpenToAllOnTheWayIsRefused) {
  const std::string open = make("open", 0777);
  const auto self = check_safe_dir(open);
  ASSERT_TRUE(self.is(Code::kDenied));
  const auto below = check_safe_dir(make("open/mine", 0700));
  ASSERT_TRUE(below.is(Code::kDenied));
  EXPECT_THAT(below.error().message, HasSubstr(open + " can be written by everybody"));
  EXPECT_THAT(below.error().action, HasSubstr("chmod o-w " + open));
  EXPECT_TRUE(check_safe_dir(open + "/not/yet").is(Code::kDenied));
}

TEST_F(SafePath, LinksAreFollowedAndTheirWayIsLookedAtToo) {
  const std::string target = make("open/target", 0700);
  const std::string link = dir_.path() + "/link";
  ASSERT_EQ(::symlink(target.c_str(), link.c_str()), 0);
  EXPECT_TRUE(check_safe_dir(link).ok());
  ASSERT_EQ(::chmod((dir_.path() + "/open").c_str(), 0777), 0);
  EXPECT_TRUE(check_safe_dir(link).is(Code::kDenied));
  EXPECT_TRUE(check_safe_dir(link + "/store").is(Code::kDenied)) << "also what is not there yet";
}

TEST_F(SafePath, AFileOnTheWayIsRefused) {
  ASSERT_TRUE(real_filesystem().write_atomically(dir_.path() + "/file", {}).ok());
  EXPECT_FALSE(check_safe_dir(dir_.path() + "/file").ok());
  EXPECT_FALSE(check_safe_dir(dir_.path() + "/file/x").ok());
}

TEST_F(SafePath, AnothersDirectoryOrLinkIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a directory away";
  const std::string theirs = make("theirs", 0755);
  ASSERT_EQ(::chown(theirs.c_str(), 12345, 12345), 0);
  const auto denied = check_safe_dir(make("theirs/mine", 0700));
  ASSERT_TRUE(denied.is(Code::kDenied));
  EXPECT_THAT(denied.error().message, HasSubstr("belongs to uid 12345"));
  const std::string link = dir_.path() + "/link";
  ASSERT_EQ(::symlink(make("fine", 0700).c_str(), link.c_str()), 0);
  ASSERT_EQ(::lchown(link.c_str(), 12345, 12345), 0);
  EXPECT_TRUE(check_safe_dir(link).is(Code::kDenied)) << "its owner can lead it elsewhere";
}

}  // namespace
}  // namespace nc
