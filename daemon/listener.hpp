// The daemon's place: one socket name, one daemon. Whoever holds the lock file `<socket>.lock` may
// bind the name; the kernel drops the lock when its holder dies, so a socket file that is left over
// is known to be stale.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>

#include "base/filesystem.hpp"
#include "base/unique_fd.hpp"

namespace nc::daemon {

class Place {
 public:
  struct Options {
    std::string path;
    bool lock = true;             // false: a private daemon at a path nobody else uses
    Millis patience_ms = 60'000;  // for one that starts or ends right now
    std::optional<gid_t> group = std::nullopt;  // may come in, too
  };
  // Makes the socket's directory when needed. nullopt: a daemon answers there already. kInvalid:
  // the path is too long. kDenied: somebody else could put another socket there (base/safe_path).
  static Result<std::optional<Place>> take(FileSystem& fs, Clock& clock, const Options& options);

  Result<UniqueFd> listen();
  // Removes the name, if it is still ours.
  void leave();

 private:
  Place(FileSystem& fs, const Options& options, std::unique_ptr<FileLock> lock);

  FileSystem* fs_;
  std::string path_;
  std::optional<gid_t> group_;
  std::unique_ptr<FileLock> lock_;
  std::uint64_t inode_ = 0;  // of the bound socket
};

// "builders" or "1001" -> its number; kInvalid when there is no such group.
Result<gid_t> find_group(const std::string& name);

// True when something accepts connections at `path`.
bool answers(const std::string& path);

// The listening Unix socket that systemd handed over (LISTEN_PID, LISTEN_FDS), or nothing.
// kInvalid: what it handed over is not one. Takes the variables out of the environment.
Result<std::optional<UniqueFd>> inherited_listener();
// The path that a socket is bound to.
std::string bound_path(int fd);

// Tells systemd (NOTIFY_SOCKET) how we are: "READY=1", "STOPPING=1". Nothing happens without it.
void notify_manager(std::string_view state);

}  // namespace nc::daemon
