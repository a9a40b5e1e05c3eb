// What the verbs that build recorded actions share: where compilers are, where builds take place.
#pragma once

#include <memory>
#include <string>

#include "base/filesystem.hpp"
#include "client/cc/rebuild.hpp"
#include "client/cli/child_pool.hpp"
#include "client/cli/context.hpp"

namespace nc::cli {

// A directory for one build, in $TMPDIR/neuroncache-build-<pid>-XXXXXX. Those of processes that are
// gone are removed when one is made.
class ScratchDir {
 public:
  static Result<ScratchDir> make();
  ~ScratchDir();
  ScratchDir(ScratchDir&& other) noexcept;
  ScratchDir& operator=(ScratchDir&&) = delete;
  ScratchDir(const ScratchDir&) = delete;
  ScratchDir& operator=(const ScratchDir&) = delete;
  std::string work() const;  // empty at first

 private:
  ScratchDir(std::string path, std::unique_ptr<FileLock> lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}
  std::string path_;
  std::unique_ptr<FileLock> lock_;  // children hold it, too
};

// Without its compiler and directory.
cc::Workshop workshop_of(const Context& context);

// --jobs: how many at once; else one for each core. What memory allows is the daemon's to say.
Result<std::size_t> jobs_option(const Context& context);

// A report as what a child leaves for its parent, and back. What cannot be read is a failure of the
// class "killed": the child died.
std::string report_text(const cc::BuildReport& report);
cc::BuildReport report_of(const ChildPool::End& end);

}  // namespace nc::cli
