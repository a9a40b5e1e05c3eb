// Finding the compiler behind the wrapper: the next `neuronx-cc` on PATH that is not the wrapper.
//
// A wrapper of the wrapper, or a copy of it, may come first on PATH and lead back here. Each start
// of a compiler therefore leaves a note in the environment (the chain) of the programs tried and of
// the depth; who finds such a note goes on to one that was not tried, and gives up when the chain
// gets long.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace nc::cc {

struct FileId {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  bool operator==(const FileId&) const = default;
};

struct Chain {
  int depth = 0;
  std::vector<FileId> tried;

  static Chain parse(std::string_view text);  // of damaged text: what can be read
  std::string format() const;
  bool contains(const FileId& id) const;
};
inline constexpr std::string_view kChainVariable = "_NEURONCACHE_CC_CHAIN";
inline constexpr int kMaxChain = 8;

struct RealCompiler {
  std::string path;      // as found
  std::string resolved;  // without symbolic links
  FileId id;
  std::uint64_t size = 0;
  std::int64_t mtime_ns = 0;
};

// The compiler at a path; kInvalid, in a sentence that begins with `what` and the path, when that
// is no program or the wrapper (`self`: of the running program).
Result<RealCompiler> compiler_at(const std::string& path, const std::string& self,
                                 const std::string& what);

// `setting`: the setting real_cc, "" for none. `self`: of the running program. Errors, each with
// what to do: kNotFound no compiler; kConflict a chain that leads to itself; kInvalid real_cc is
// not a program or is the wrapper.
Result<RealCompiler> find_real_compiler(const std::string& setting, const std::string& path_list,
                                        const std::string& self, const Chain& chain);

// The chain for the environment of `compiler` when started from `self`.
Chain extend(Chain chain, const std::string& self, const RealCompiler& compiler);

}  // namespace nc::cc
