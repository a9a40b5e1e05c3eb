#include "base/fake_processes.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

namespace nc {

Result<ProcessId> FakeProcesses::identify(pid_t pid) {
  MutexLock lock(mutex_);
  const auto it = living_.find(pid);
  if (it == living_.end())
    return errno_error(ESRCH, "cannot find the process", std::to_string(pid));
  return ProcessId{pid, it->second.start_ticks};
}

bool FakeProcesses::alive(const ProcessId& id) {
  const auto now = identify(id.pid);
  return now.ok() && *now == id;
}

Result<pid_t> FakeProcesses::spawn(const SpawnOptions& options) {
  MutexLock lock(mutex_);
  if (spawn_error_) return *std::exchange(spawn_error_, std::nullopt);
  if (options.argv.empty()) return Error{Code::kInvalid, "no program to start was named", ""};
  spawned_.push_back(options);
  return start_locked(++last_pid_).pid;
}

Result<int> FakeProcesses::exit_fd(pid_t pid) {
  MutexLock lock(mutex_);
  const std::string name = std::to_string(pid);
  if (!exit_fd_supported_) return errno_error(ENOSYS, "cannot watch the process", name);
  const auto it = living_.find(pid);
  if (it == living_.end()) return errno_error(ESRCH, "cannot watch the process", name);
  const int fd = ::fcntl(it->second.ended.get(), F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return errno_error(errno, "cannot watch the process", name);
  return fd;
}

ProcessId FakeProcesses::start(pid_t pid) {
  MutexLock lock(mutex_);
  return start_locked(pid);
}

ProcessId FakeProcesses::start_locked(pid_t pid) {
  kill_locked(pid);
  Living& process = living_[pid];
  process.start_ticks = ++last_start_;
  process.ended.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!process.ended.valid()) std::abort();  // a test cannot go on without descriptors
  return {pid, process.start_ticks};
}

void FakeProcesses::kill(pid_t pid) {
  MutexLock lock(mutex_);
  kill_locked(pid);
}

void FakeProcesses::kill_locked(pid_t pid) {
  const auto it = living_.find(pid);
  if (it == living_.end()) return;
  const std::uint64_t one = 1;
  if (::write(it->second.ended.get(), &one, sizeof one) != sizeof one) std::abort();
  living_.erase(it);
}

void FakeProcesses::fail_next_spawn(Error error) {
  MutexLock lock(mutex_);
  spawn_error_ = std::move(error);
}

void FakeProcesses::set_exit_fd_supported(bool supported) {
  MutexLock lock(mutex_);
  exit_fd_supported_ = supported;
}

std::vector<SpawnOptions> FakeProcesses::spawned() const {
  MutexLock lock(mutex_);
  return spawned_;
}

}  // namespace nc
