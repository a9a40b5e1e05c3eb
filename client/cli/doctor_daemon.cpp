#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/filesystem.hpp"
#include "client/autostart.hpp"
#include "client/cli/doctor.hpp"
#include "client/client.hpp"

namespace nc::cli {
namespace {

using Level = Finding::Level;
using client::Client;
using client::ClientOptions;

void check_health(Client& client, Findings& out) {
  const auto stats = client.stats("");
  if (!stats.ok()) {
    out.push_back({Level::kProblem, "health", stats.error().message, stats.error().action});
    return;
  }
  const client::Stats::Health& health = stats->health;
  for (const std::string& problem : health.problems) {
    out.push_back({Level::kProblem, "health", problem, "see the daemon's log"});
  }
  const auto number = [&](const char* name) {
    const auto it = health.numbers.find(name);
    return it == health.numbers.end() ? 0.0 : it->second;
  };
  if (!health.ok && health.problems.empty()) {
    out.push_back({Level::kProblem, "health", "the store cannot be written",
                   "free space, check permissions, see the daemon's log"});
  }
  if (number("failed_writes") > 0) {
    out.push_back(
        {Level::kWarning, "health",
         fmt::format("{:.0f} stores failed since the store was made", number("failed_writes")),
         "see the daemon's log; new artifacts are lost while this goes on"});
  }
  if (number("quarantined") > 0) {
    out.push_back({Level::kWarning, "health",
                   fmt::format("{:.0f} damaged blobs were set aside", number("quarantined")),
                   "run `neuroncache verify`; damage that comes again points at the disk"});
  }
  if (health.ok) out.push_back({Level::kOk, "health", "the store is written without trouble", ""});
}

constexpr long kNfs = 0x6969;
constexpr long kSmb = 0x517B;
constexpr long kSmb2 = static_cast<long>(0xFE534D42);
constexpr long kTmpfs = 0x01021994;

std::string file_system_kind(const std::string& dir) {
  struct statfs fs {};
  if (::statfs(dir.c_str(), &fs) != 0) return "";
  const auto type = static_cast<long>(fs.f_type);
  return type == kNfs                    ? "nfs"
         : type == kSmb || type == kSmb2 ? "smb"
         : type == kTmpfs                ? "tmpfs"
                                         : "";
}

// The directory itself, or the nearest one above it that exists.
std::string existing(std::string dir) {
  while (dir.size() > 1 && real_filesystem().stat(dir).is(Code::kNotFound)) dir = parent_dir(dir);
  return dir;
}

void check_space(const Settings& settings, const std::string& dir, Findings& out) {
  const auto space = real_filesystem().space(dir);
  if (!space.ok()) {
    out.push_back({Level::kProblem, "space", space.error().message, space.error().action});
    return;
  }
  const std::uint64_t min_free = settings.size("min_free");
  if (space->available <= min_free) {
    out.push_back({Level::kProblem, "space",
                   fmt::format("{} free at {}, and min_free keeps {} of it: nothing new is stored",
                               format_size(space->available), dir, format_size(min_free)),
                   "free space, lower max_bytes, or move the store (NEURONCACHE_DIR)"});
  } else {
    out.push_back({Level::kOk, "space",
                   fmt::format("{} free at {}", format_size(space->available), dir), ""});
  }
  const std::uint64_t max_bytes = settings.size("max_bytes");
  if (max_bytes > space->total) {
    out.push_back({Level::kWarning, "space",
                   fmt::format("max_bytes is {}, the disk has {}", format_size(max_bytes),
                               format_size(space->total)),
                   "lower max_bytes, so that old entries go before the disk is full"});
  }
}

void check_owner(const std::string& what, const std::string& path, Findings& out) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) {
    if (errno != ENOENT) {
      out.push_back({Level::kProblem, what,
                     fmt::format("cannot look at {}: {}", path, std::strerror(errno)),
                     "check the permissions of the directories above it"});
    }
    return;
  }
  if (st.st_uid != ::geteuid() && ::geteuid() != 0) {
    out.push_back({Level::kWarning, what, fmt::format("{} belongs to user {}", path, st.st_uid),
                   "only its owner, root and (when shared) its group are served"});
  }
  constexpr mode_t kOthersWrite = 0002;
  if ((st.st_mode & kOthersWrite) != 0 && (st.st_mode & S_ISVTX) == 0) {
    out.push_back(
        {Level::kProblem, what,
         fmt::format(
             "everybody may write to {}: whoever can change an artifact can run code as you", path),
         fmt::format("chmod o-w {}", path)});
  } else {
    out.push_back({Level::kOk, what, path, ""});
  }
}

}  // namespace

void check_daemon(const Settings& settings, const std::string& socket, const std::string& store_dir,
                  Findings& out) {
  const char* path = std::getenv("PATH");
  const auto program =
      client::find_daemon(settings.text("daemon_path"), path == nullptr ? "" : path);
  if (program.ok()) {
    out.push_back({Level::kOk, "program", *program, ""});
  } else {
    out.push_back({Level::kProblem, "program", program.error().message, program.error().action});
  }
  ClientOptions options = ClientOptions::from(settings);
  options.socket_path = socket;
  options.autostart = false;
  const auto up = client::listening(socket, options.connect_timeout_ms);
  if (!up.ok()) {
    out.push_back({Level::kProblem, "daemon", up.error().message, up.error().action});
    return;
  }
  if (!*up) {
    const bool starts = settings.boolean("autostart");
    out.push_back({starts ? Level::kOk : Level::kWarning, "daemon",
                   starts ? fmt::format("not running at {}; it starts when it is needed", socket)
                          : fmt::format("not running at {}, and autostart is off", socket),
                   starts ? "" : "start it with `neuroncache daemon start`"});
    return;
  }
  Client client(options);
  const auto hello = client.hello();
  if (!hello.ok()) {
    out.push_back({Level::kProblem, "daemon", hello.error().message, hello.error().action});
    return;
  }
  out.push_back(
      {Level::kOk, "daemon",
       fmt::format("running, pid {}, version {}, at {}", hello->pid, hello->version, socket), ""});
  if (hello->version != NC_VERSION) {
    out.push_back(
        {Level::kWarning, "version",
         fmt::format("the daemon is version {}, this program {}", hello->version, NC_VERSION),
         "`neuroncache daemon restart` after an upgrade; are two versions installed?"});
  }
  if (!hello->store_path.empty() && hello->store_path != store_dir) {
    out.push_back({Level::kWarning, "store",
                   fmt::format("the daemon serves {}, the settings here say {}", hello->store_path,
                               store_dir),
                   "`neuroncache daemon restart` when these settings are right"});
  }
  check_health(client, out);
}

void check_socket_dir(const std::string& socket, Findings& out) {
  const std::string dir = parent_dir(socket);
  check_owner("socket", dir, out);
  constexpr std::size_t kLongest = 107;
  if (socket.size() > kLongest) {
    out.push_back({Level::kProblem, "socket",
                   fmt::format("{} has {} bytes; a socket's path may have {}", socket,
                               socket.size(), kLongest),
                   "set NEURONCACHE_SOCKET to a shorter path"});
  }
  std::error_code ignored;
  const auto there = std::filesystem::symlink_status(socket, ignored);
  if (std::filesystem::exists(there) && !std::filesystem::is_socket(there)) {
    out.push_back({Level::kProblem, "socket", fmt::format("{} is no socket", socket),
                   "move it away, or set NEURONCACHE_SOCKET to another place"});
  }
}

void check_store(const Settings& settings, const std::string& store_dir, Millis now,
                 Findings& out) {
  const std::string dir = existing(store_dir);
  if (dir != store_dir) {
    out.push_back(
        {Level::kOk, "store",
         fmt::format("{} does not exist yet; it is made when something is stored", store_dir), ""});
  } else {
    check_owner("store", store_dir, out);
  }
  if (::access(dir.c_str(), W_OK | X_OK) != 0 && !settings.boolean("read_only")) {
    out.push_back({Level::kProblem, "store",
                   fmt::format("cannot write to {}: {}", dir, std::strerror(errno)),
                   "set NEURONCACHE_DIR to a directory of your own"});
  }
  const std::string kind = file_system_kind(dir);
  if (kind == "nfs" || kind == "smb") {
    out.push_back({Level::kWarning, "store",
                   fmt::format("{} is on a network file system ({})", dir, kind),
                   "keep the local store on a local disk (NEURONCACHE_DIR)"});
  } else if (kind == "tmpfs") {
    out.push_back(
        {Level::kWarning, "store",
         fmt::format("{} is in memory (tmpfs) and gone after a restart of the machine", dir),
         "keep the store on a disk (NEURONCACHE_DIR)"});
  }
  check_space(settings, dir, out);

  constexpr Millis kYear2025 = 1'735'689'600'000;
  constexpr Millis kSlackMs = 60'000;
  const auto mark = real_filesystem().stat(join(store_dir, "STORE"));
  if (now < kYear2025) {
    out.push_back({Level::kProblem, "clock", "the clock of this machine is years behind",
                   "set it (timedatectl)"});
  } else if (mark.ok() && mark->mtime_ms > now + kSlackMs) {
    out.push_back({Level::kProblem, "clock",
                   "the store was made in the future: the clock of this machine was set back",
                   "set it right (timedatectl); ages of entries are wrong meanwhile"});
  } else {
    out.push_back({Level::kOk, "clock", "plausible", ""});
  }
}

}  // namespace nc::cli
