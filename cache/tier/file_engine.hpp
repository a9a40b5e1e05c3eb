// A shared directory as a tier: NFS, FSx for Lustre, any mount. What it relies on is what all of
// these give: that rename() replaces and link() creates a name atomically on the server. It does
// not rely on seeing at once what another client wrote, on times of files, or on locks.
//
// Objects are files of their names below the directory; they are written aside in `~aside/`, synced
// and then renamed (put, store) or linked (create). What a killed writer leaves aside is removed a
// day later by whoever writes then.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "base/random.hpp"
#include "cache/tier/engine.hpp"

namespace nc::tier {

struct FileEngineOptions {
  std::string address;  // "file:///fsx/neuroncache"
  std::string dir;  // absolute; must exist: a mount that is missing must not fill the disk below
  Millis timeout_ms = 10'000;
  Millis leftover_grace_ms = 24 * 3'600'000;
};

// kInvalid when `dir` is not absolute. The directory may come later.
Result<std::unique_ptr<Engine>> open_file_engine(FileEngineOptions options, Clock& clock,
                                                 Random& random);

}  // namespace nc::tier
