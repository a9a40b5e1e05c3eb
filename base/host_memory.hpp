// What this host, or the control group that we run in, has for new processes, and what processes
// have taken. Reads /proc and /sys/fs/cgroup (versions 1 and 2) through the file system's door.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/filesystem.hpp"

namespace nc {

struct HostMemory {
  std::uint64_t total = 0;      // of the host, or the least limit of a group around us
  std::uint64_t available = 0;  // the least that any of them can still give; page cache counts
};
// kIo or kUnsupported when /proc/meminfo cannot be read.
Result<HostMemory> read_host_memory(FileSystem& fs);

// Cores that this process may use: its affinity and the groups' quotas, at least 1.
unsigned usable_cores(FileSystem& fs);

// Private memory of each process together with all its descendants, in bytes: shared pages and
// mapped files are left out. 0 for pid 0 and for a process that is gone. A process below two of
// `roots` counts for the nearer one.
std::vector<std::uint64_t> tree_memory(FileSystem& fs, std::span<const std::int64_t> roots);

}  // namespace nc
