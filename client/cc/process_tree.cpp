// The processes below one, as /proc has them.
#include <dirent.h>
#include <unistd.h>

#include <cctype>
#include <charconv>

#include <fmt/format.h>

#include "base/filesystem.hpp"
#include "client/cc/child.hpp"

namespace nc::cc {
namespace {

constexpr std::size_t kMaxProcesses = 10'000;

std::string read_text(const std::string& path) {
  constexpr std::uint64_t kLimit = 1 << 20;
  auto text = real_filesystem().read_all(path, kLimit);
  return text.ok() ? *std::move(text) : std::string();
}

void add_children(int pid, std::vector<int>& out) {
  const std::string tasks = fmt::format("/proc/{}/task", pid);
  DIR* directory = ::opendir(tasks.c_str());
  if (directory == nullptr) return;
  while (const dirent* entry = ::readdir(directory)) {
    if (std::isdigit(static_cast<unsigned char>(entry->d_name[0])) == 0) continue;
    const std::string text = read_text(fmt::format("{}/{}/children", tasks, entry->d_name));
    const char* at = text.data();
    const char* const end = at + text.size();
    while (at < end) {
      int child = 0;
      const auto [next, error] = std::from_chars(at, end, child);
      if (error != std::errc{}) break;
      out.push_back(child);
      at = next;
      while (at < end && *at == ' ') ++at;
    }
  }
  ::closedir(directory);
}

std::uint64_t rss(int pid) {
  const std::string text = read_text(fmt::format("/proc/{}/statm", pid));
  const std::size_t blank = text.find(' ');
  if (blank == std::string::npos) return 0;
  std::uint64_t pages = 0;
  std::from_chars(text.data() + blank + 1, text.data() + text.size(), pages);
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

std::vector<int> descendants(int pid) {
  std::vector<int> all;
  add_children(pid, all);
  for (std::size_t i = 0; i < all.size() && all.size() < kMaxProcesses; ++i)
    add_children(all[i], all);
  return all;
}

std::uint64_t tree_rss(int pid) {
  std::uint64_t sum = rss(pid);
  for (const int child : descendants(pid)) sum += rss(child);
  return sum;
}

}  // namespace nc::cc
