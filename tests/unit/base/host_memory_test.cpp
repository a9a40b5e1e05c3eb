#include "base/host_memory.hpp"

#include <unistd.h>

#include <gtest/gtest.h>

#include "base/fake_filesystem.hpp"

namespace nc {
namespace {

class HostMemoryOf : public testing::Test {
 protected:
  void put(const std::string& path, std::string_view text) {
    ASSERT_TRUE(fs.make_dirs(parent_dir(path)).ok());
    auto file = fs.open(path, FileSystem::Open::kCreateOrTruncate);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->write(as_bytes(text)).ok());
  }
  void SetUp() override {
    put("/proc/meminfo", "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    800 kB\n");
  }
  HostMemory read() {
    auto memory = read_host_memory(fs);
    EXPECT_TRUE(memory.ok());
    return memory.ok() ? *memory : HostMemory{};
  }

  FakeFileSystem fs;
};

TEST_F(HostMemoryOf, AHostWithoutGroups) {
  EXPECT_EQ(read().total, 1000U * 1024);
  EXPECT_EQ(read().available, 800U * 1024);
}

TEST_F(HostMemoryOf, NothingToRead) {
  put("/proc/meminfo", "nonsense\n");
  EXPECT_FALSE(read_host_memory(fs).ok());
}

TEST_F(HostMemoryOf, TheTightestOfTheGroupsAroundUs) {
  put("/proc/self/cgroup", "0::/a/b\n");
  put("/sys/fs/cgroup/a/memory.max", "400000\n");
  put("/sys/fs/cgroup/a/memory.current", "150000\n");
  put("/sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 50000\n");
  put("/sys/fs/cgroup/a/b/memory.max", "max\n");
  put("/sys/fs/cgroup/a/b/memory.current", "150000\n");
  EXPECT_EQ(read().total, 400'000U);
  EXPECT_EQ(read().available, 300'000U) << "page cache can be had";
}

TEST_F(HostMemoryOf, AContainerSeesItsGroupAtTheMount) {
  put("/proc/self/cgroup", "0::/../other\n");
  put("/sys/fs/cgroup/memory.max", "400000\n");
  put("/sys/fs/cgroup/memory.current", "399999\n");
  EXPECT_EQ(read().available, 1U);
}

TEST_F(HostMemoryOf, VersionOne) {
  put("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/1\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "500000\n");
  put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "300000\n");
  put("/sys/fs/cgroup/memory/memory.stat", "total_inactive_file 100000\n");
  EXPECT_EQ(read().available, 300'000U);
}

TEST_F(HostMemoryOf, ALimitOverTheHostsMemoryIsNone) {
  put("/proc/self/cgroup", "4:memory:/\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "300000\n");
  EXPECT_EQ(read().available, 800U * 1024);
}

TEST_F(HostMemoryOf, QuotasBoundTheCores) {
  const unsigned all = usable_cores(fs);
  EXPECT_GE(all, 1U);
  put("/proc/self/cgroup", "0::/a\n");
  put("/sys/fs/cgroup/a/cpu.max", "max 100000\n");
  EXPECT_EQ(usable_cores(fs), all);
  put("/sys/fs/cgroup/a/cpu.max", "50000 100000\n");
  EXPECT_EQ(usable_cores(fs), 1U);
}

TEST_F(HostMemoryOf, TreesOfProcesses) {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const auto process = [&](int pid, int parent, int resident, int shared) {
    const std::string dir = "/proc/" + std::to_string(pid);
    put(dir + "/stat", std::to_string(pid) + " (a) b (c) S " + std::to_string(parent) + " 1 1");
    put(dir + "/statm",
        "999 " + std::to_string(resident) + " " + std::to_string(shared) + " 0 0 0 0");
  };
  process(1, 0, 100, 0);
  process(10, 1, 5, 2);
  process(11, 10, 100, 30);
  process(12, 11, 7, 7);
  process(20, 11, 50, 0);
  process(30, 1, 1000, 0);
  const std::vector<std::int64_t> roots = {10, 20, 0, 77};
  const auto taken = tree_memory(fs, roots);
  EXPECT_EQ(taken[0], (3 + 70) * page);
  EXPECT_EQ(taken[1], 50 * page) << "of two trees the inner one";
  EXPECT_EQ(taken[2], 0U);
  EXPECT_EQ(taken[3], 0U);
}

TEST_F(HostMemoryOf, ThisProcessTakesSomething) {
  const std::vector<std::int64_t> self = {::getpid(), ::getpid()};
  const auto taken = tree_memory(real_filesystem(), self);
  EXPECT_GT(taken[0], 100'000U);
  EXPECT_EQ(taken[1], 0U) << "told once";
}

}  // namespace
}  // namespace nc
