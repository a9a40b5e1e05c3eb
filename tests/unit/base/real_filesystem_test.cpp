// What only the real disk can show: permissions, special files, locks across processes.
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "base/filesystem.hpp"
#include "temp_dir.hpp"

namespace nc {
namespace {

using Open = FileSystem::Open;

// Root may do everything, so it becomes nobody for a while.
class AsNobody {
 public:
  AsNobody() { EXPECT_EQ(was_root_ ? ::seteuid(65534) : 0, 0); }
  ~AsNobody() { EXPECT_EQ(was_root_ ? ::seteuid(0) : 0, 0); }

 private:
  bool was_root_ = ::geteuid() == 0;
};

TEST(RealFileSystem, PermissionIsDenied) {
  TempDir dir;
  ASSERT_EQ(::chmod(dir.path().c_str(), 0555), 0);
  {
    const AsNobody nobody;
    const auto made = real_filesystem().open(join(dir.path(), "a"), Open::kCreateNew);
    ASSERT_TRUE(made.is(Code::kDenied));
    EXPECT_NE(made.error().text().find(dir.path()), std::string::npos);
    EXPECT_NE(made.error().action, "");
    EXPECT_TRUE(real_filesystem().make_dirs(join(dir.path(), "a/b")).is(Code::kDenied));
    EXPECT_TRUE(real_filesystem().make_dirs(dir.path()).ok());
  }
  ASSERT_EQ(::chmod(dir.path().c_str(), 0700), 0);
}

TEST(RealFileSystem, AFullDiskIsNoSpace) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full here";
  const auto file = real_filesystem().open("/dev/full", Open::kAppend);
  ASSERT_TRUE(file.ok());
  const auto written = (*file)->write(as_bytes("x"));
  ASSERT_TRUE(written.is(Code::kNoSpace));
  EXPECT_NE(written.error().text().find("/dev/full: No space left on device"), std::string::npos);
}

TEST(RealFileSystem, FilesWithoutASizeAreReadToTheirEnd) {
  const auto text = real_filesystem().read_all("/proc/self/stat", 1 << 16);
  ASSERT_TRUE(text.ok());
  EXPECT_GT(text->size(), 10U);
  EXPECT_TRUE(real_filesystem().read_all("/proc/self/stat", 3).is(Code::kTooLarge));
}

TEST(RealFileSystem, StatFollowsLinks) {
  TempDir dir;
  ASSERT_EQ(::symlink(dir.path().c_str(), join(dir.path(), "self").c_str()), 0);
  EXPECT_TRUE(real_filesystem().stat(join(dir.path(), "self"))->is_dir);
  ASSERT_EQ(::symlink("/nowhere/at/all", join(dir.path(), "dangling").c_str()), 0);
  EXPECT_TRUE(real_filesystem().stat(join(dir.path(), "dangling")).is(Code::kNotFound));
}

TEST(RealFileSystem, AllocatedBytesAreThoseOnDisk) {
  TempDir dir;
  const std::string path = join(dir.path(), "sparse");
  const auto file = real_filesystem().open(path, Open::kCreateNew);
  ASSERT_TRUE((*file)->truncate(100 << 20).ok());
  const auto info = real_filesystem().stat(path);
  EXPECT_EQ(info->size, 100U << 20);
  EXPECT_LT(info->allocated, 1U << 20);
  EXPECT_GT(info->mtime_ms, 1'600'000'000'000);
}

TEST(RealFileSystem, ALockIsFreeWhenItsProcessIsKilled) {
  TempDir dir;
  const std::string path = join(dir.path(), "lock");
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto lock = real_filesystem().lock(path);
    const char answer = lock.ok() ? 'y' : 'n';
    if (::write(ready[1], &answer, 1) != 1) ::_exit(1);
    while (true) ::pause();
  }
  char answer = '?';
  ASSERT_EQ(::read(ready[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  EXPECT_TRUE(real_filesystem().lock(path).is(Code::kBusy));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(real_filesystem().lock(path).ok());
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST(RealFileSystem, ALockOnARemovedNameDoesNotCount) {
  TempDir dir;
  const std::string path = join(dir.path(), "lock");
  const auto first = real_filesystem().lock(path);
  ASSERT_TRUE(real_filesystem().remove(path).ok());
  const auto second = real_filesystem().lock(path);
  EXPECT_TRUE(second.ok());
  EXPECT_TRUE(real_filesystem().lock(path).is(Code::kBusy));
}

}  // namespace
}  // namespace nc
