#include "base/safe_path.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <optional>

#include <fmt/format.h>

#include "base/filesystem.hpp"

namespace nc {
namespace {

// Inside a user namespace the owner of what the host's root made has this number.
uid_t overflow_uid() {
  constexpr uid_t kUsual = 65534;
  auto text = real_filesystem().read_all("/proc/sys/kernel/overflowuid", 64);
  if (!text.ok()) return kUsual;
  const unsigned long value = std::strtoul(text->c_str(), nullptr, 10);
  return value == 0 ? kUsual : static_cast<uid_t>(value);
}

Error refuse(const std::string& path, const std::string& at, const std::string& problem,
             const std::string& action) {
  return {Code::kDenied,
          path == at ? fmt::format("{} {}", at, problem)
                     : fmt::format("{} is no safe place: {} {}", path, at, problem),
          action};
}

// One step of the way. nullopt: it is not there.
Result<std::optional<bool>> check_step(const std::string& path, const std::string& at, bool last) {
  struct stat info {};
  if (::lstat(at.c_str(), &info) != 0) {
    if (errno == ENOENT) return std::optional<bool>();
    return errno_error(errno, "cannot look at", at);
  }
  const bool ours = info.st_uid == ::geteuid() || info.st_uid == 0;
  if (!ours && (last || info.st_uid != overflow_uid())) {
    return refuse(path, at, fmt::format("belongs to uid {}", info.st_uid),
                  "choose a place that is yours on the whole way, or have it given to you or root");
  }
  if (S_ISLNK(info.st_mode)) return std::optional<bool>(true);
  if (!S_ISDIR(info.st_mode)) {
    return refuse(path, at, "is no directory", "choose another place");
  }
  if ((info.st_mode & S_IWOTH) != 0 && (info.st_mode & S_ISVTX) == 0) {
    return refuse(path, at,
                  fmt::format("can be written by everybody (mode {:04o})", info.st_mode & 07777),
                  fmt::format("chmod o-w {}, or choose another place", at));
  }
  return std::optional<bool>(false);
}

Result<bool> check_way(const std::string& path) {
  bool links = false;
  for (std::size_t slash = 0; slash != std::string::npos;) {
    slash = path.find('/', slash + 1);
    const std::string at = slash == std::string::npos ? path : path.substr(0, slash);
    if (at.ends_with('/') && at.size() > 1) continue;
    const bool last = slash == std::string::npos || slash + 1 == path.size();
    NC_ASSIGN(const std::optional<bool> link, check_step(path, at, last));
    if (!link) return links;
    links = links || *link;
    if (last) break;
  }
  return links;
}

}  // namespace

Status check_safe_dir(const std::string& path) {
  if (!path.starts_with('/')) {
    return Error{Code::kInvalid, fmt::format("{} is no absolute path", path), ""};
  }
  NC_ASSIGN(const std::optional<bool> root, check_step(path, "/", path == "/"));
  NC_ASSIGN(const bool links, check_way(path));
  if (!root || !links) return {};
  char resolved[PATH_MAX];
  // As far as it is there: what is missing will be made below that.
  for (std::string there = path; ::realpath(there.c_str(), resolved) == nullptr;
       there = parent_dir(there)) {
    if (errno != ENOENT || there == "/") return errno_error(errno, "cannot follow", there);
  }
  NC_ASSIGN(const bool still, check_way(resolved));
  if (still) {
    return Error{Code::kConflict, fmt::format("{} changes while it is looked at", path), ""};
  }
  return {};
}

}  // namespace nc
