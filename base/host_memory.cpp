#include "base/host_memory.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <string_view>
#include <thread>

namespace nc {
namespace {

constexpr std::uint64_t kMaxProcFile = 256 << 10;
constexpr std::string_view kGroups = "/sys/fs/cgroup";

std::optional<std::uint64_t> number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> read_number(FileSystem& fs, const std::string& path) {
  const auto text = fs.read_all(path, kMaxProcFile);
  return text.ok() ? number(*text) : std::nullopt;
}

// The number behind `name` at the beginning of a line.
std::optional<std::uint64_t> field(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    if (line.starts_with(name)) return number(line.substr(name.size()));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return std::nullopt;
}

// Our groups for memory (version 1) and for everything (version 2), as paths below their mounts.
struct Groups {
  std::string unified, memory, cpu;
  bool v2 = false, v1_memory = false, v1_cpu = false;
};

Groups our_groups(FileSystem& fs) {
  Groups groups;
  const auto text = fs.read_all("/proc/self/cgroup", kMaxProcFile);
  if (!text.ok()) return groups;
  std::string_view rest = *text;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string names = "," + std::string(line.substr(first + 1, second - first - 1)) + ",";
    const std::string path(line.substr(second + 1));
    if (names == ",,") {
      groups.v2 = true;
      groups.unified = path;
    }
    if (names.find(",memory,") != names.npos) {
      groups.v1_memory = true;
      groups.memory = path;
    }
    if (names.find(",cpu,") != names.npos) {
      groups.v1_cpu = true;
      groups.cpu = path;
    }
  }
  return groups;
}

// Calls `each` with the directory of a group and of all around it, up to the mount. In a container
// the path may be the host's, of which only the end of the way up is there.
template <class Each>
void upwards(const std::string& mount, std::string path, Each each) {
  while (true) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    each(mount + path);
    if (path.empty()) return;
    path.resize(path.find_last_of('/') == path.npos ? 0 : path.find_last_of('/'));
  }
}

struct GroupFiles {
  const char* limit;
  const char* used;
  const char* cache;  // in memory.stat: pages that are given back when memory is short
};

void apply_group(FileSystem& fs, const std::string& dir, const GroupFiles& files,
                 HostMemory& memory) {
  const auto limit = read_number(fs, join(dir, files.limit));
  const auto used = read_number(fs, join(dir, files.used));
  if (!limit || !used || *limit >= memory.total) return;  // "max", or so high that it is none
  std::uint64_t taken = *used;
  if (const auto stat = fs.read_all(join(dir, "memory.stat"), kMaxProcFile); stat.ok()) {
    taken -= std::min(taken, field(*stat, files.cache).value_or(0));
  }
  memory.total = *limit;
  memory.available = std::min(memory.available, *limit - std::min(taken, *limit));
}

// Cores that a quota leaves; 0: no quota.
unsigned quota_cores(std::uint64_t quota, std::uint64_t period) {
  return period == 0 ? 0 : static_cast<unsigned>((quota + period - 1) / period);
}

// Of /proc/<pid>/stat: the parent. The command in parentheses may hold anything.
std::optional<std::int64_t> parent_of(std::string_view stat) {
  const std::size_t end = stat.rfind(')');
  if (end == stat.npos || end + 4 >= stat.size()) return std::nullopt;
  const auto parent = number(stat.substr(end + 4));  // ") S 1"
  return parent ? std::optional(static_cast<std::int64_t>(*parent)) : std::nullopt;
}

// Of /proc/<pid>/statm: resident pages less shared ones.
std::uint64_t private_pages(std::string_view statm) {
  std::uint64_t fields[3] = {};
  for (std::uint64_t& one : fields) {
    const auto value = number(statm);
    if (!value) return 0;
    one = *value;
    const std::size_t space = statm.find(' ');
    statm.remove_prefix(space == statm.npos ? statm.size() : space + 1);
  }
  return fields[1] - std::min(fields[1], fields[2]);
}

}  // namespace

Result<HostMemory> read_host_memory(FileSystem& fs) {
  NC_ASSIGN(const std::string info, fs.read_all("/proc/meminfo", kMaxProcFile));
  const auto total = field(info, "MemTotal:");
  const auto available = field(info, "MemAvailable:");
  if (!total || !available) {
    return Error{Code::kUnsupported, "/proc/meminfo does not tell what is available",
                 "set build_memory"};
  }
  HostMemory memory{*total * 1024, *available * 1024};
  const Groups groups = our_groups(fs);
  if (groups.v2) {
    upwards(std::string(kGroups), groups.unified, [&](const std::string& dir) {
      apply_group(fs, dir, {"memory.max", "memory.current", "inactive_file"}, memory);
    });
  }
  if (groups.v1_memory) {
    upwards(std::string(kGroups) + "/memory", groups.memory, [&](const std::string& dir) {
      apply_group(fs, dir,
                  {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"},
                  memory);
    });
  }
  return memory;
}

unsigned usable_cores(FileSystem& fs) {
  unsigned cores = std::max(std::thread::hardware_concurrency(), 1U);
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) {
    cores = static_cast<unsigned>(std::max(CPU_COUNT(&set), 1));
  }
  const auto limit = [&cores](unsigned quota) {
    if (quota > 0) cores = std::min(cores, quota);
  };
  const Groups groups = our_groups(fs);
  if (groups.v2) {
    upwards(std::string(kGroups), groups.unified, [&](const std::string& dir) {
      const auto text = fs.read_all(join(dir, "cpu.max"), kMaxProcFile);
      if (!text.ok()) return;
      const std::size_t space = text->find(' ');
      const auto quota = number(*text);
      if (!quota || space == text->npos) return;  // "max 100000"
      limit(quota_cores(*quota, number(text->substr(space)).value_or(0)));
    });
  }
  if (groups.v1_cpu) {
    upwards(std::string(kGroups) + "/cpu", groups.cpu, [&](const std::string& dir) {
      const auto quota = read_number(fs, join(dir, "cpu.cfs_quota_us"));  // -1: none
      const auto period = read_number(fs, join(dir, "cpu.cfs_period_us"));
      if (quota && period) limit(quota_cores(*quota, *period));
    });
  }
  return cores;
}

std::vector<std::uint64_t> tree_memory(FileSystem& fs, std::span<const std::int64_t> roots) {
  std::vector<std::uint64_t> out(roots.size(), 0);
  if (std::all_of(roots.begin(), roots.end(), [](std::int64_t pid) { return pid <= 0; })) {
    return out;
  }
  const auto page = static_cast<std::uint64_t>(std::max(::sysconf(_SC_PAGESIZE), 1L));
  std::map<std::int64_t, std::size_t> root_at;
  for (std::size_t i = 0; i < roots.size(); ++i) {
    if (roots[i] > 0) root_at.emplace(roots[i], i);
  }
  const auto names = fs.list("/proc");
  if (!names.ok()) return out;
  std::map<std::int64_t, std::int64_t> parents;
  for (const std::string& name : *names) {
    const auto pid = number(name);
    if (!pid) continue;
    const auto stat = fs.read_all("/proc/" + name + "/stat", kMaxProcFile);
    if (!stat.ok()) continue;
    if (const auto parent = parent_of(*stat)) {
      parents.emplace(static_cast<std::int64_t>(*pid), *parent);
    }
  }
  for (const auto& [pid, parent] : parents) {
    // Upwards to the nearest root; the bound is for pids that were given anew meanwhile.
    std::int64_t at = pid;
    auto root = root_at.find(at);
    for (int steps = 0; root == root_at.end() && steps < 256; ++steps) {
      const auto up = parents.find(at);
      if (up == parents.end() || up->second <= 1) break;
      at = up->second;
      root = root_at.find(at);
    }
    if (root == root_at.end()) continue;
    const auto statm = fs.read_all("/proc/" + std::to_string(pid) + "/statm", kMaxProcFile);
    if (statm.ok()) out[root->second] += private_pages(*statm) * page;
  }
  // Two builds of one process share what it has.
  for (std::size_t i = 0; i < roots.size(); ++i) {
    if (const auto first = root_at.find(roots[i]); first != root_at.end() && first->second != i) {
      out[i] = 0;
    }
  }
  return out;
}

}  // namespace nc
