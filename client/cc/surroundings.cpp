// What the parser of command lines asks about the world, answered by this machine.
#include <sys/stat.h>

#include "base/filesystem.hpp"
#include "client/cc/arguments.hpp"

namespace nc::cc {

Surroundings real_surroundings() {
  Surroundings world;
  world.read_file = [](const std::string& path) -> std::optional<std::string> {
    constexpr std::uint64_t kLimit = 16 << 20;
    struct stat s {};
    if (::stat(path.c_str(), &s) != 0 || !S_ISREG(s.st_mode)) return std::nullopt;
    auto text = real_filesystem().read_all(path, kLimit);
    if (!text.ok()) return std::nullopt;
    return *std::move(text);
  };
  world.exists = [](const std::string& path) {
    struct stat s {};
    return ::stat(path.c_str(), &s) == 0;
  };
  return world;
}

}  // namespace nc::cc
