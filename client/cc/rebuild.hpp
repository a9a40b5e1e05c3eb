// Recorded actions, built again without the program that once needed them: here, for the compiler
// and the target that they were recorded with or for others.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "client/cc/session.hpp"

namespace nc::cc {

struct KnownCompiler {
  RealCompiler compiler;  // its path is absolute
  CompilerIdentity identity;
};

// Where compilers are looked for.
struct CompilerSearch {
  std::string self;              // the wrapper of this installation, which is never one; "": none
  std::vector<std::string> env;  // PATH, and what their processes get
  std::string setting;           // real_cc, or ""
  std::string cache_dir;         // see identify()
};

// `wanted`: "" for the one that the wrapper would run, a path, or a version or its beginning
// ("2.20"), of real_cc or of any neuronx-cc on PATH. kNotFound names the versions that are there.
Result<KnownCompiler> choose_compiler(const CompilerSearch& search, const std::string& wanted);

// Whether an action was recorded with this compiler.
bool recorded_with(const client::RecordedAction& record, const CompilerIdentity& compiler);

struct Aim {
  const CompilerIdentity* compiler = nullptr;  // null: the recorded one
  std::string target;                          // "": the recorded one
};
// The action as the wrapper would have recorded it under that compiler, for that target: with
// another key, another command. kUnsupported, with the reason: it cannot be said so.
Result<client::RecordedAction> aim_at(const client::RecordedAction& record, const Aim& aim);

// What a build needs of its surroundings.
struct Workshop {
  CompilerSearch search;
  RealCompiler compiler;
  Settings settings;
  client::ClientOptions client_options;
  std::string directory;  // empty, for inputs and output; whoever made it removes it
};

// Builds and publishes under the lease, in a process of its own: changes the working directory. The
// key must come out as recorded, else nothing is built: another compiler, another machine, or a
// record that is not what it says.
BuildReport build_recorded(const Workshop& workshop, const client::RecordedAction& record,
                           client::Client& client, const client::Lease& lease);

}  // namespace nc::cc
