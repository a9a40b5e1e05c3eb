// Running the real compiler: in the caller's process group, with its standard streams passed on
// and remembered, signals handed down, and the memory of its whole tree of processes watched.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "client/cc/real_compiler.hpp"

namespace nc::cc {

// Takes the signals that end a program, from now until it is gone: those that arrive in between
// are for the compiler. Then they act as they did before. Make one before any thread starts.
class SignalGate {
 public:
  SignalGate();
  ~SignalGate();
  SignalGate(const SignalGate&) = delete;
  SignalGate& operator=(const SignalGate&) = delete;

  int fd() const { return fd_; }  // a signalfd
  const void* old_mask() const;   // a sigset_t, for the child
  bool child_ignored() const { return child_ignored_; }
  bool pipe_ignored() const { return pipe_ignored_; }

 private:
  struct Saved;
  std::unique_ptr<Saved> saved_;
  int fd_ = -1;
  bool child_ignored_ = false;  // SIGCHLD was ignored by whoever started us
  bool pipe_ignored_ = false;   // SIGPIPE likewise
};

struct ChildSpec {
  std::string program;
  std::vector<std::string> argv;
  std::vector<std::string> env;
  Millis timeout_ms = 0;     // 0: none
  bool quiet = false;        // remember the streams only
  bool watch_memory = true;  // of this machine, to tell a kill for want of it from others
};

struct ChildResult {
  int exit_code = 0;  // of a process that was not killed
  int signal = 0;     // that killed it, or 0
  bool timed_out = false;
  bool interrupted = false;  // we were asked to end meanwhile, and so was it
  std::string out, err;      // what it wrote, the middle cut out beyond a few MiB
  std::uint64_t peak_rss_bytes = 0;
  Millis wall_ms = 0;
  bool oom_kill =
      false;  // the kernel killed something for want of memory meanwhile (or it is not known)

  bool well() const { return signal == 0 && exit_code == 0 && !timed_out; }
};

// kNotFound, kDenied, ...: it could not be started.
Result<ChildResult> run_child(const ChildSpec& spec, SignalGate& gate);

// The text of `--version`. kUnsupported when the program does not end well or says nothing.
Result<std::string> ask_version(const RealCompiler& compiler, std::span<const std::string> env);

// Resident bytes of a process and all its descendants.
std::uint64_t tree_rss(int pid);
// Every living descendant, children first named before theirs; without `pid` itself.
std::vector<int> descendants(int pid);

}  // namespace nc::cc
