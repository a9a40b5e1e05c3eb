// Which compiler it is: the text of `--version` and a digest of its package. Asking a compiler
// takes it a second or so, so the answer is kept in a small file, valid while neither the program
// nor its package changes.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "client/cc/real_compiler.hpp"

namespace nc::cc {

struct CompilerIdentity {
  std::string version_text;  // all of `--version`
  std::string package;       // "package sha256:..." or "program sha256:..."

  // "2.20.9961.0+0acef03a", else the first line.
  std::string version() const;
};

// `cache_dir` is created; one that cannot be written only costs time. `chain` is the environment
// entry for the compiler's process. kUnsupported: a compiler that does not say its version.
Result<CompilerIdentity> identify(const RealCompiler& compiler, std::span<const std::string> env,
                                  const std::string& cache_dir);

// Of the RECORD of an installed Python package: without what differs between two installations of
// one package (scripts, compiled files, notes of the installer).
std::string record_digest(std::string_view record);

// The record files of the neuronx-cc package that may belong to a compiler: beside its `bin`
// directory, and beside its interpreter's.
std::vector<std::string> package_records(const RealCompiler& compiler,
                                         std::string_view python_path);

}  // namespace nc::cc
