#include "base/process.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/fake_processes.hpp"
#include "base/unique_fd.hpp"
#include "temp_dir.hpp"

namespace nc {
namespace {

bool readable(int fd, int timeout_ms) {
  pollfd poll_fd{fd, POLLIN, 0};
  return ::poll(&poll_fd, 1, timeout_ms) == 1;
}

int exit_status(pid_t pid) {
  int status = 0;
  if (::waitpid(pid, &status, 0) != pid) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Runs a shell command and gives what it printed.
std::string output_of(SpawnOptions options, const std::string& script) {
  TempDir dir;
  options.argv = {"/bin/sh", "-c", script};
  options.stdout_path = join(dir.path(), "out");
  const auto pid = system_processes().spawn(options);
  if (!pid.ok()) return pid.error().text();
  if (exit_status(*pid) != 0) return "failed";
  return *real_filesystem().read_all(options.stdout_path, 1 << 16);
}

TEST(Processes, KnowsItselfAndTellsLivesApart) {
  const auto self = system_processes().identify(::getpid());
  ASSERT_TRUE(self.ok());
  EXPECT_GT(self->start_ticks, 0U);
  EXPECT_TRUE(system_processes().alive(*self));
  ProcessId earlier = *self;
  --earlier.start_ticks;
  EXPECT_FALSE(system_processes().alive(earlier));
  EXPECT_TRUE(system_processes().identify(0x7ffffff0).is(Code::kNotFound));
}

TEST(Processes, AZombieIsGone) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(system_processes().identify(child).is(Code::kNotFound));
  ::waitpid(child, nullptr, 0);
}

TEST(Processes, SpawnPassesArgumentsEnvironmentAndDirectory) {
  SpawnOptions options;
  options.env = {"GREETING=hello", "PATH=/usr/bin:/bin"};
  options.working_dir = "/usr";
  EXPECT_EQ(output_of(options, "echo $GREETING; pwd; echo error >&2"), "hello\n/usr\nerror\n");
}

TEST(Processes, SpawnInheritsNothingElse) {
  const UniqueFd leaked(::dup(0));
  ASSERT_TRUE(leaked.valid());
  EXPECT_EQ(output_of({}, "ls /proc/self/fd | wc -l; cat"),
            "4\n");  // 0, 1, 2 and that of ls; nothing to read
  ::signal(SIGPIPE, SIG_IGN);
  EXPECT_EQ(output_of({}, "grep SigIgn /proc/self/status"), "SigIgn:\t0000000000000000\n");
  ::signal(SIGPIPE, SIG_DFL);
}

TEST(Processes, SpawnErrorsAreToldAtOnce) {
  SpawnOptions options;
  EXPECT_TRUE(system_processes().spawn(options).is(Code::kInvalid));
  options.argv = {"/no/such/program"};
  const auto missing = system_processes().spawn(options);
  ASSERT_TRUE(missing.is(Code::kNotFound));
  EXPECT_NE(missing.error().message.find("/no/such/program"), std::string::npos);
  options.argv = {"/bin/true"};
  options.working_dir = "/no/such/dir";
  EXPECT_NE(system_processes().spawn(options).error().message.find("/no/such/dir"),
            std::string::npos);
  options.working_dir.clear();
  options.stdout_path = "/no/such/file";
  options.new_session = true;
  EXPECT_NE(system_processes().spawn(options).error().message.find("/no/such/file"),
            std::string::npos);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);  // and no child is left
}

TEST(Processes, ANewSessionIsNoChildOfOurs) {
  SpawnOptions options;
  options.argv = {"/bin/sleep", "100"};
  options.new_session = true;
  const auto pid = system_processes().spawn(options);
  ASSERT_TRUE(pid.ok()) << pid.error().text();
  EXPECT_NE(::getsid(*pid), ::getsid(0));
  EXPECT_EQ(::waitpid(*pid, nullptr, WNOHANG), -1);
  EXPECT_TRUE(system_processes().identify(*pid).ok());
  const auto fd = system_processes().exit_fd(*pid);
  if (fd.is(Code::kUnsupported)) GTEST_SKIP() << fd.error().text();
  ASSERT_TRUE(fd.ok()) << fd.error().text();
  const UniqueFd exit(*fd);
  EXPECT_FALSE(readable(exit.get(), 0));
  ::kill(*pid, SIGKILL);
  EXPECT_TRUE(readable(exit.get(), 10'000));
}

TEST(Processes, ExitFdOfNobody) {
  const auto fd = system_processes().exit_fd(0x7ffffff0);
  EXPECT_TRUE(fd.is(Code::kNotFound) || fd.is(Code::kUnsupported));
}

TEST(FakeProcesses, LiveAndDie) {
  FakeProcesses processes;
  const ProcessId first = processes.start(10);
  EXPECT_TRUE(processes.alive(first));
  const UniqueFd exit(*processes.exit_fd(10));
  EXPECT_FALSE(readable(exit.get(), 0));
  processes.kill(10);
  EXPECT_TRUE(readable(exit.get(), 0));
  EXPECT_FALSE(processes.alive(first));
  EXPECT_TRUE(processes.identify(10).is(Code::kNotFound));
  EXPECT_TRUE(processes.exit_fd(10).is(Code::kNotFound));
  const ProcessId second = processes.start(10);
  EXPECT_FALSE(processes.alive(first));
  EXPECT_TRUE(processes.alive(second));
}

TEST(FakeProcesses, SpawnIsRemembered) {
  FakeProcesses processes;
  SpawnOptions options;
  options.argv = {"/bin/x", "y"};
  processes.fail_next_spawn({Code::kDenied, "no", ""});
  EXPECT_TRUE(processes.spawn(options).is(Code::kDenied));
  const auto pid = processes.spawn(options);
  ASSERT_TRUE(pid.ok());
  EXPECT_TRUE(processes.identify(*pid).ok());
  ASSERT_EQ(processes.spawned().size(), 1U);
  EXPECT_EQ(processes.spawned()[0].argv, options.argv);
  processes.set_exit_fd_supported(false);
  EXPECT_TRUE(processes.exit_fd(*pid).is(Code::kUnsupported));
}

}  // namespace
}  // namespace nc
