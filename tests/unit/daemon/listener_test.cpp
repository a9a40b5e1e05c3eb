#include "daemon/listener.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <gtest/gtest.h>

namespace nc::daemon {
namespace {

class PlaceTest : public testing::Test {
 protected:
  PlaceTest() {
    char name[] = "/tmp/nc-place-XXXXXX";
    dir = ::mkdtemp(name);
  }
  ~PlaceTest() override { std::filesystem::remove_all(dir); }

  Result<std::optional<Place>> take(const std::string& path, bool lock = true) {
    return Place::take(real_filesystem(), system_clock(), {path, lock, 100});
  }
  std::string path() const { return dir + "/run/d.sock"; }

  std::string dir;
};

TEST_F(PlaceTest, MakesAPrivateDirectoryAndSocket) {
  auto place = take(path());
  ASSERT_TRUE(place.ok() && *place);
  auto fd = (*place)->listen();
  ASSERT_TRUE(fd.ok()) << fd.error().text();
  EXPECT_TRUE(answers(path()));
  EXPECT_EQ(bound_path(fd->get()), path());
  struct stat info {};
  ::stat(path().c_str(), &info);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  ::stat((dir + "/run").c_str(), &info);
  EXPECT_EQ(info.st_mode & 0777, 0700U);
  (*place)->leave();
  EXPECT_FALSE(std::filesystem::exists(path()));
  EXPECT_FALSE(answers(path()));
}

TEST_F(PlaceTest, AnotherThatAnswersKeepsIt) {
  auto first = take(path());
  auto fd = (*first)->listen();
  ASSERT_TRUE(fd.ok());
  auto second = take(path());
  ASSERT_TRUE(second.ok());
  EXPECT_FALSE(*second);
}

TEST_F(PlaceTest, OneThatHoldsTheLockButDoesNotAnswerIsWaitedForInVain) {
  auto first = take(path());
  ASSERT_TRUE(first.ok() && *first);
  EXPECT_TRUE(take(path()).is(Code::kBusy));
}

TEST_F(PlaceTest, AStaleSocketIsReplaced) {
  {
    auto dead = take(path());
    auto fd = (*dead)->listen();
    ASSERT_TRUE(fd.ok());
  }  // gone without leave(), as after kill -9
  EXPECT_TRUE(std::filesystem::exists(path()));
  EXPECT_FALSE(answers(path()));
  auto place = take(path());
  ASSERT_TRUE(place.ok() && *place);
  auto fd = (*place)->listen();
  ASSERT_TRUE(fd.ok());
  EXPECT_TRUE(answers(path()));
}

TEST_F(PlaceTest, AFileThatIsNoSocketIsNotRemoved) {
  std::filesystem::create_directories(dir + "/run");
  std::filesystem::copy_file("/proc/self/status", path());
  auto place = take(path());
  ASSERT_TRUE(place.ok() && *place);
  const auto refused = (*place)->listen();
  ASSERT_TRUE(refused.is(Code::kConflict));
  EXPECT_NE(refused.error().message.find("no socket"), std::string::npos);
  EXPECT_FALSE(refused.error().action.empty());
  EXPECT_TRUE(std::filesystem::exists(path()));
}

TEST_F(PlaceTest, AnothersSocketIsNotRemovedWhenLeaving) {
  auto place = take(path());
  auto fd = (*place)->listen();
  ASSERT_TRUE(fd.ok());
  std::filesystem::rename(path(), path() + ".old");
  auto other = take(path(), false);
  auto other_fd = (*other)->listen();
  ASSERT_TRUE(other_fd.ok());
  (*place)->leave();
  EXPECT_TRUE(answers(path()));
}

TEST_F(PlaceTest, APathThatIsTooLongIsRefusedNotCut) {
  auto place = take(dir + "/" + std::string(120, 'x'));
  ASSERT_TRUE(place.is(Code::kInvalid));
  EXPECT_NE(place.error().text().find("107"), std::string::npos);
}

TEST_F(PlaceTest, ADirectoryOpenToAllIsRefused) {
  std::filesystem::create_directories(dir + "/run");
  ::chmod((dir + "/run").c_str(), 0777);
  EXPECT_TRUE(take(path()).is(Code::kDenied));
  ::chmod((dir + "/run").c_str(), 01777);  // like /tmp
  EXPECT_TRUE(take(path()).ok());
}

TEST(Notify, SendsOneDatagram) {
  char name[] = "/tmp/nc-notify-XXXXXX";
  const std::string dir = ::mkdtemp(name);
  const std::string path = dir + "/n";
  UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  ASSERT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
  notify_manager("READY=1");
  ::unsetenv("NOTIFY_SOCKET");
  notify_manager("READY=2");
  char buffer[64] = {};
  EXPECT_EQ(::recv(fd.get(), buffer, sizeof buffer, MSG_DONTWAIT), 7);
  EXPECT_STREQ(buffer, "READY=1");
  EXPECT_EQ(::recv(fd.get(), buffer, sizeof buffer, MSG_DONTWAIT), -1);
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace nc::daemon
