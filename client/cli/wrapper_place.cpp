#include "client/cli/wrapper_place.hpp"

#include <glob.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>

#include <fmt/format.h>

#include "base/filesystem.hpp"

namespace nc::cli {

Result<std::string> wrapper_directory() {
  std::array<char, PATH_MAX> buffer;
  const ssize_t n = ::readlink("/proc/self/exe", buffer.data(), buffer.size());
  if (n <= 0) return errno_error(errno, "cannot read", "/proc/self/exe");
  const std::string prefix =
      parent_dir(parent_dir(std::string(buffer.data(), static_cast<std::size_t>(n))));
  for (const char* place :
       {"/libexec", "/lib/neuroncache/libexec", "/lib/python3*/site-packages/neuroncache/libexec",
        "/lib/python3*/dist-packages/neuroncache/libexec"}) {
    glob_t found{};
    std::string directory;
    const std::string pattern = prefix + place + "/neuronx-cc";
    if (::glob(pattern.c_str(), 0, nullptr, &found) == 0 && found.gl_pathc > 0)
      directory = parent_dir(found.gl_pathv[0]);
    ::globfree(&found);
    if (!directory.empty()) return directory;
  }
  return Error{Code::kNotFound, fmt::format("there is no neuronx-cc wrapper below {}", prefix),
               "install neuroncache again"};
}

}  // namespace nc::cli
