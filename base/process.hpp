// The door to other processes: start one, ask whether one lives, learn at once when it dies.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace nc {

// A process, told apart from a later one with the same pid by its start time (clock ticks since
// boot, /proc/<pid>/stat field 22).
struct ProcessId {
  pid_t pid = 0;
  std::uint64_t start_ticks = 0;
  bool operator==(const ProcessId&) const = default;
};

struct SpawnOptions {
  std::vector<std::string> argv;  // argv[0] is the path
  std::vector<std::string> env;   // "NAME=value"; empty: inherit
  std::string working_dir;        // empty: inherit
  std::string stdout_path;  // empty: inherit; else standard output and error are appended to it
  // setsid: survives the parent's terminal. The process is then no child of ours: nobody has to
  // wait(2) for it.
  bool new_session = false;
  bool close_stdin = true;  // reads /dev/null
};

class Processes {
 public:
  virtual ~Processes() = default;
  virtual Result<ProcessId> identify(pid_t pid) = 0;  // kNotFound when gone
  virtual bool alive(const ProcessId& id) = 0;        // false for a zombie too
  // Runs argv. Descriptors above 2 are not inherited. An argv[0] that cannot be executed is an
  // error here. Unless new_session, the caller owns a child and must waitpid() for it.
  virtual Result<pid_t> spawn(const SpawnOptions& options) = 0;
  // A pollable descriptor that becomes readable when the process ends (pidfd). kUnsupported on old
  // kernels, kNotFound when gone. The caller closes it.
  virtual Result<int> exit_fd(pid_t pid) = 0;
};

Processes& system_processes();

}  // namespace nc
