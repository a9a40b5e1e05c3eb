// Where things are when nothing is set.
#include <pwd.h>
#include <unistd.h>

#include <array>
#include <string>

#include "base/settings.hpp"
#include "base/settings_internal.hpp"

namespace nc {
namespace {

std::string home_dir(std::span<const std::string> env) {
  if (const auto home = env_value(env, "HOME"); home.starts_with('/')) return std::string(home);
  std::array<char, 4096> buffer;
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(::getuid(), &entry, buffer.data(), buffer.size(), &found) != 0 ||
      found == nullptr || found->pw_dir == nullptr || found->pw_dir[0] != '/') {
    return "";
  }
  return found->pw_dir;
}

std::string private_tmp_dir() {
  return "/tmp/neuroncache-" + std::to_string(::getuid());
}

// The XDG rule: a relative path in such a variable is ignored.
std::string xdg_dir(std::span<const std::string> env, std::string_view name,
                    std::string_view under_home) {
  if (const auto dir = env_value(env, name); dir.starts_with('/')) return std::string(dir);
  const std::string home = home_dir(env);
  return home.empty() || under_home.empty() ? "" : join(home, under_home);
}

}  // namespace

std::string_view env_value(std::span<const std::string> env, std::string_view name) {
  std::string_view value;
  for (const std::string& entry : env) {
    if (entry.size() > name.size() && entry[name.size()] == '=' && entry.starts_with(name)) {
      value = std::string_view(entry).substr(name.size() + 1);
    }
  }
  return value;
}

std::vector<std::string> process_environment() {
  std::vector<std::string> env;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    env.emplace_back(*entry);
  }
  return env;
}

std::string default_config_path(std::span<const std::string> env) {
  const std::string dir = xdg_dir(env, "XDG_CONFIG_HOME", ".config");
  return dir.empty() ? "" : join(dir, "neuroncache/config.toml");
}

std::string default_store_dir(std::span<const std::string> env) {
  const std::string dir = xdg_dir(env, "XDG_CACHE_HOME", ".cache");
  return dir.empty() ? join(private_tmp_dir(), "store") : join(dir, "neuroncache");
}

std::string default_socket_path(std::span<const std::string> env) {
  const std::string dir = xdg_dir(env, "XDG_RUNTIME_DIR", "");
  return dir.empty() ? join(private_tmp_dir(), "daemon.sock")
                     : join(dir, "neuroncache/daemon.sock");
}

}  // namespace nc
