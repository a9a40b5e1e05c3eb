// What the steps of one command share.
#pragma once

#include <string>
#include <vector>

#include "base/settings.hpp"
#include "client/cc/arguments.hpp"
#include "client/cc/identity.hpp"
#include "client/cc/key.hpp"
#include "client/cc/real_compiler.hpp"
#include "client/client.hpp"

namespace nc::cc {

struct Session {
  std::string self;              // the wrapper's own file
  std::vector<std::string> env;  // as the caller gave it
  Settings settings;
  RealCompiler compiler;
  std::string chain;  // "NAME=value" for what is started
  Command command;
  CompilerIdentity identity;
  Action action;
  client::ClientOptions client_options;
  std::string model;         // "": not known, as for a command
  std::string output_locks;  // the file for output_turn(), "" without a cache

  // The environment of the real compiler.
  std::vector<std::string> compiler_env() const;
  std::vector<std::string> compiler_argv() const;
};

// Becomes the real compiler; returns (an exit status) only when that fails.
int become_compiler(const Session& session);

// Builds under the lease, publishes, and gives the exit status. kUnavailable and the like never
// come out of here: trouble with the daemon is said, and the output is the compiler's.
int build(Session& session, client::Client& client, const client::Lease& lease);

struct BuildReport {
  enum class End { kBuilt, kFailed, kGivenBack };  // kGivenBack: we were asked to end
  End end = End::kFailed;
  std::string failure_class, message;  // kFailed
  Millis wall_ms = 0;                  // of the compiler
};

// The same in a process of its own, for whoever will need it: prints nothing, leaves the output
// where the command says.
BuildReport build_for_others(Session& session, client::Client& client, const client::Lease& lease);

// Puts the entry's outputs in place and prints what the compiler printed. An error means that
// nothing was printed, and that the caller should run the compiler. kDigestMismatch: what is stored
// is damaged; the daemon knows it then.
Status deliver(const Session& session, client::Client& client, const client::Acquired& hit);

// The remembered failure as if it had happened now. -> the exit status.
int replay(const Session& session, const client::FailureInfo& failure);

// Names of an entry's outputs.
inline constexpr const char* kNeff = "neff";
inline constexpr const char* kStdout = "stdout";
inline constexpr const char* kStderr = "stderr";
inline constexpr const char* kLog = "log";
// In meta: XXH3-128 of the output, which is cheaper to check than its name.
inline constexpr const char* kNeffSum = "neff_xxh128";
inline constexpr const char* kLogAppends = "log_appends";  // in meta: "1"

}  // namespace nc::cc
