#include "client/autostart.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "client/client.hpp"
#include "tests/unit/client/fake_server.hpp"

namespace nc::client {
namespace {

class AutostartTest : public ::testing::Test {
 protected:
  AutostartTest() {
    char path[] = "/tmp/nc-start-XXXXXX";
    dir = ::mkdtemp(path);
  }
  ~AutostartTest() override { std::filesystem::remove_all(dir); }

  std::string script(const std::string& name, const std::string& text) const {
    const std::string path = dir + "/" + name;
    std::ofstream(path) << "#!/bin/sh\n" << text;
    ::chmod(path.c_str(), 0755);
    return path;
  }
  LaunchOptions launch(const std::string& program, Millis timeout_ms) const {
    return {dir + "/s", program, {"--dir", "/x"}, timeout_ms};
  }

  std::string dir;
};

TEST_F(AutostartTest, TheSettingGoesBeforeThePath) {
  const std::string own = script("mine", "exit 0");
  script("neuroncached", "exit 0");
  EXPECT_EQ(*find_daemon(own, dir), own);
  EXPECT_TRUE(find_daemon(dir + "/absent", dir).is(Code::kNotFound));
}

TEST_F(AutostartTest, ThePathIsSearchedButNeverTheCurrentDirectory) {
  const std::string found = script("neuroncached", "exit 0");
  EXPECT_EQ(*find_daemon("", "/nowhere:" + dir), found);
  const auto old = std::filesystem::current_path();
  std::filesystem::current_path(dir);
  const auto nothing = find_daemon("", ":.:/nowhere");
  std::filesystem::current_path(old);
  ASSERT_TRUE(nothing.is(Code::kNotFound));
  EXPECT_NE(nothing.error().action.find("NEURONCACHE_DAEMON_PATH"), std::string::npos);
}

TEST_F(AutostartTest, NothingIsStartedWhenSomebodyListens) {
  testing::FakeServer server;
  const std::string program = script("d", "touch " + dir + "/started");
  LaunchOptions options = launch(program, 1000);
  options.socket_path = server.path();
  EXPECT_TRUE(ensure_daemon(options).ok());
  EXPECT_FALSE(std::filesystem::exists(dir + "/started"));
}

TEST_F(AutostartTest, WhatTheDaemonSaidBeforeItFailedIsTold) {
  const std::string program =
      script("d", "echo \"args: $*\" >&2\necho 'the disk is on fire' >&2\nexit 3\n");
  const Status status = ensure_daemon(launch(program, 20'000));
  ASSERT_TRUE(status.is(Code::kUnavailable));
  EXPECT_NE(status.error().message.find("status 3"), std::string::npos);
  EXPECT_NE(status.error().message.find("the disk is on fire"), std::string::npos);
  EXPECT_NE(status.error().message.find("--dir /x --detach"), std::string::npos);
}

TEST_F(AutostartTest, AClientTriesToStartItOnce) {
  ClientOptions options;
  options.socket_path = dir + "/s";
  options.autostart = true;
  options.daemon_path = script("d", "echo x >> " + dir + "/starts\nexit 3\n");
  options.connect_timeout_ms = 20'000;
  Client client(options);
  EXPECT_TRUE(client.hello().is(Code::kUnavailable));
  EXPECT_TRUE(client.hello().is(Code::kUnavailable));
  EXPECT_TRUE(client.bypass("default", "no_daemon", "").is(Code::kUnavailable));
  EXPECT_EQ(std::filesystem::file_size(dir + "/starts"), 2U);
}

TEST_F(AutostartTest, ADaemonThatNeverListensIsATimeout) {
  const std::string program = script("d", "exit 0");
  const Status status = ensure_daemon(launch(program, 50));
  ASSERT_TRUE(status.is(Code::kTimeout)) << status.error().text();
}

TEST_F(AutostartTest, AProgramThatCannotRunIsAnError) {
  const std::string program = script("d", "");
  std::ofstream(program) << "#!/no/such/interpreter\n";
  const Status status = ensure_daemon(launch(program, 5000));
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find(program), std::string::npos);
}

TEST_F(AutostartTest, APrivateDaemonThatFailsLeavesNothingBehind) {
  ::setenv("XDG_RUNTIME_DIR", dir.c_str(), 1);
  const std::string program = script("d", "exit 4");
  const auto daemon = PrivateDaemon::start(launch(program, 20'000));
  ::unsetenv("XDG_RUNTIME_DIR");
  ASSERT_FALSE(daemon.ok());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir), {}), 1);  // the script
}

}  // namespace
}  // namespace nc::client
