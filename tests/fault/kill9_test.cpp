// A real process on a real disk, killed at every named point of the store; after each kill the
// store opens, is sound, and has everything that was acknowledged.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <sstream>

#include <gtest/gtest.h>

#include "base/log.hpp"
#include "cache/test_points.hpp"
#include "tests/fault/store_script.hpp"
#include "tests/unit/base/temp_dir.hpp"

namespace nc {
namespace {

using State = Acknowledged::State;

#ifdef NC_SANITIZED
constexpr int kKills = 80;
#else
constexpr int kKills = 520;
#endif
constexpr int kKillsPerStore = 40;

struct Run {
  bool killed = false;
  int exit_code = 0;
  std::string output;
};

Run run_worker(const std::string& dir, std::uint64_t seed, const std::string& point, int nth) {
  int pipe_fds[2];
  if (::pipe2(pipe_fds, O_CLOEXEC) != 0) std::abort();
  const std::string program = std::string(NC_BIN_DIR) + "/../tests/kill9_worker";
  const auto seed_text = std::to_string(seed);
  const auto nth_text = std::to_string(nth);
  const char* args[] = {program.c_str(), dir.c_str(),      seed_text.c_str(),
                        point.c_str(),   nth_text.c_str(), nullptr};
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(pipe_fds[1], STDOUT_FILENO);
    ::execv(program.c_str(), const_cast<char**>(args));
    ::_exit(127);
  }
  ::close(pipe_fds[1]);
  Run run;
  char buffer[4096];
  ssize_t got = 0;
  while ((got = ::read(pipe_fds[0], buffer, sizeof(buffer))) > 0) {
    run.output.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(pipe_fds[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  run.killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  run.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return run;
}

void note(const std::string& output, Acknowledged& told) {
  std::istringstream lines(output);
  std::string what;
  std::string name;
  while (lines >> what >> name) {
    // "maybe" takes back what was said before; of a name that was never there it says nothing new.
    told.entries[name] = what == "there"     ? State::kThere
                         : what == "removed" ? State::kRemoved
                                             : State::kMaybe;
  }
}

std::unique_ptr<Store> open_store(const std::string& dir, const std::string& where) {
  StoreOptions options;
  options.dir = dir;
  options.max_bytes = 64 << 20;
  auto opened = Store::open(options, {real_filesystem(), system_clock(), system_random()});
  EXPECT_TRUE(opened.ok()) << where << ": " << opened.error().text();
  return opened.ok() ? *std::move(opened) : nullptr;
}

void check(Store& store, const Acknowledged& told, const std::string& where) {
  const auto page = verify_all(store);
  ASSERT_TRUE(page.ok()) << where << ": " << page.error().text();
  for (const auto& bad : page->bad) {
    // The worker damages blobs of this one entry; until it is looked up that is as it should be.
    const auto damaged = bad.problem.find("does not hold what its name says") != std::string::npos;
    EXPECT_TRUE(damaged) << where << ": " << bad.what << ": " << bad.problem;
  }
  for (const auto& [name, state] : told.entries) {
    const auto got = get(real_filesystem(), store, script_entry(name));
    if (state == State::kThere) {
      EXPECT_EQ(got, "hit") << where << ": " << name << " was acknowledged";
    } else if (state == State::kRemoved) {
      EXPECT_EQ(got, "miss") << where << ": " << name << " was pruned";
    } else {
      EXPECT_TRUE(got == "hit" || got == "miss") << where << ": " << name << ": " << got;
    }
  }
}

void break_index(const std::string& dir) {
  auto file = real_filesystem().open(dir + "/index/CURRENT", FileSystem::Open::kCreateOrTruncate);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->write(as_bytes("damaged")).ok());
}

TEST(Kill9Test, AtEveryNamedPoint) {
  log::set_level(log::Level::kOff);
  // Against a kill the kernel's memory is as good as a disk, and much faster.
  if (::access("/dev/shm", W_OK) == 0) ::setenv("TMPDIR", "/dev/shm", 0);
  std::map<std::string, int> kills;
  int total = 0;
  std::uint64_t seed = 0;
  const auto points = std::size(points::kAll);
  for (int round = 0; total < kKills; ++round) {
    ASSERT_LT(round, kKills) << "the worker is not killed often enough";
    const TempDir temp;
    const auto dir = join(temp.path(), "store");
    Acknowledged told;
    for (int i = 0; i < kKillsPerStore && total < kKills; ++i) {
      ++seed;
      const std::string point(points::kAll[seed % points]);
      const int nth = 1 + static_cast<int>(seed / points % 3);
      const auto where = "kill " + std::to_string(total) + " at " + point + " pass " +
                         std::to_string(nth) + " seed " + std::to_string(seed);
      const bool broken = point.starts_with("open.index_") && point != points::kOpenIndexOpened;
      if (broken && real_filesystem().stat(dir + "/index/CURRENT").ok()) break_index(dir);
      const auto run = run_worker(dir, seed, point, broken ? 1 : nth);
      note(run.output, told);
      if (run.killed) {
        ++total;
        ++kills[point];
      } else {
        EXPECT_EQ(run.exit_code, 0) << where;
      }
      if (!real_filesystem().stat(dir).ok()) continue;
      const auto store = open_store(dir, where);
      ASSERT_NE(store, nullptr);
      check(*store, told, where);
      if (::testing::Test::HasFailure()) return;
    }
    // What all these kills left behind is seen by prune.
    const auto store = open_store(dir, "the end of a round");
    ASSERT_NE(store, nullptr);
    ASSERT_TRUE(verify_all(*store, true).ok());
    check_after_crash(real_filesystem(), *store, dir, {},
                      "the end of round " + std::to_string(round));
    if (::testing::Test::HasFailure()) return;
  }
  for (const auto point : points::kAll) {
    EXPECT_GT(kills[std::string(point)], 0) << "never killed at " << point;
  }
  std::printf("%d kills at %zu points\n", total, kills.size());
}

}  // namespace
}  // namespace nc
