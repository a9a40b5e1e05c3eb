#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "client/cli/doctor.hpp"

namespace nc::cli {
namespace {

using Level = Finding::Level;

const Finding* find(const Findings& findings, Level level, std::string_view check) {
  const auto it = std::find_if(findings.begin(), findings.end(), [&](const Finding& f) {
    return f.level == level && f.check == check;
  });
  return it == findings.end() ? nullptr : &*it;
}

class DoctorTest : public ::testing::Test {
 protected:
  DoctorTest() {
    char path[] = "/tmp/nc-doctor-XXXXXX";
    dir = ::mkdtemp(path);
  }
  ~DoctorTest() override { std::filesystem::remove_all(dir); }
  Settings settings() { return *Settings::load(real_filesystem(), {}, {{"config", "/dev/null"}}); }

  std::string dir;
  Findings findings;
};

TEST_F(DoctorTest, EveryMisspeltVariableIsNamedWithTheNearestRightOne) {
  const std::vector<std::string> env{"NEURONCACHE_DIRR=/x", "NEURONCACHE_SOKET=/y",
                                     "NEURONCACHE_MAX_BYTES=1GiB", "HOME=" + dir};
  const Settings got = check_settings(env, {}, findings);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].level, Level::kProblem);
  EXPECT_NE((findings[0].detail + findings[0].fix).find("NEURONCACHE_DIR"), std::string::npos);
  EXPECT_NE((findings[1].detail + findings[1].fix).find("NEURONCACHE_SOCKET"), std::string::npos);
  EXPECT_EQ(got.size("max_bytes"), 1ULL << 30);  // the good ones count
}

TEST_F(DoctorTest, ARefusedValueAndASwitchedOffCacheAreTold) {
  check_settings({"NEURONCACHE_LEASE_TTL=soon", "NEURONCACHE=0", "HOME=" + dir}, {}, findings);
  EXPECT_NE(find(findings, Level::kProblem, "environment"), nullptr);
  EXPECT_NE(find(findings, Level::kWarning, "environment"), nullptr);
}

TEST_F(DoctorTest, AGoodEnvironmentIsFine) {
  check_settings({"HOME=" + dir, "NEURONCACHE_DIR=/x", "PATH=/bin"}, {}, findings);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].level, Level::kOk);
}

TEST_F(DoctorTest, AStoreThatEverybodyMayWriteIsAProblem) {
  ::chmod(dir.c_str(), 0777);
  check_store(settings(), dir, 1'800'000'000'000, findings);
  const Finding* problem = find(findings, Level::kProblem, "store");
  ASSERT_NE(problem, nullptr);
  EXPECT_EQ(problem->fix, "chmod o-w " + dir);
}

TEST_F(DoctorTest, AStoreThatIsNotThereYetIsFine) {
  check_store(settings(), dir + "/a/b", 1'800'000'000'000, findings);
  EXPECT_EQ(find(findings, Level::kProblem, "store"), nullptr);
  EXPECT_NE(find(findings, Level::kOk, "store"), nullptr);
}

TEST_F(DoctorTest, TooLittleSpaceIsAProblem) {
  Settings s = settings();
  ASSERT_TRUE(s.set("min_free", "8000000TiB", Origin::kFlag, "").ok() ||
              s.set("min_free", "900TiB", Origin::kFlag, "").ok());
  check_store(s, dir, 1'800'000'000'000, findings);
  EXPECT_NE(find(findings, Level::kProblem, "space"), nullptr);
}

TEST_F(DoctorTest, AClockThatIsBehindIsAProblem) {
  std::ofstream(dir + "/STORE") << "x";
  check_store(settings(), dir, 1'000'000'000'000, findings);
  EXPECT_NE(find(findings, Level::kProblem, "clock"), nullptr);
  findings.clear();
  check_store(settings(), dir, system_clock().wall_ms() - 86'400'000, findings);
  EXPECT_NE(find(findings, Level::kProblem, "clock"), nullptr);
  findings.clear();
  check_store(settings(), dir, system_clock().wall_ms(), findings);
  EXPECT_NE(find(findings, Level::kOk, "clock"), nullptr);
}

TEST_F(DoctorTest, AMissingDaemonAndASocketThatIsTooLongAreProblems) {
  Settings s = settings();
  ASSERT_TRUE(s.set("daemon_path", dir + "/none", Origin::kFlag, "").ok());
  check_daemon(s, dir + "/s", dir, findings);
  EXPECT_NE(find(findings, Level::kProblem, "program"), nullptr);
  check_socket_dir("/" + std::string(200, 'x') + "/s", findings);
  EXPECT_NE(find(findings, Level::kProblem, "socket"), nullptr);
}

TEST_F(DoctorTest, AFileWhereTheSocketShouldBeIsAProblem) {
  std::ofstream(dir + "/s") << "x";
  check_socket_dir(dir + "/s", findings);
  EXPECT_NE(find(findings, Level::kProblem, "socket"), nullptr);
  findings.clear();
  check_socket_dir(dir + "/not_yet", findings);
  EXPECT_EQ(find(findings, Level::kProblem, "socket"), nullptr);
}

TEST_F(DoctorTest, CompilerAndAutoload) {
  check_programs({"PATH=" + dir, "TORCH_DEVICE_BACKEND_AUTOLOAD=0"}, findings);
  EXPECT_NE(find(findings, Level::kWarning, "autoload"), nullptr);
  EXPECT_NE(find(findings, Level::kWarning, "compiler"), nullptr);
  EXPECT_NE(find(findings, Level::kWarning, "python"), nullptr);
  findings.clear();
  std::ofstream(dir + "/g++") << "";
  ::chmod((dir + "/g++").c_str(), 0755);
  check_programs({"PATH=" + dir}, findings);
  EXPECT_NE(find(findings, Level::kOk, "compiler"), nullptr);
}

}  // namespace
}  // namespace nc::cli
