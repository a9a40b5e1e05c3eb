// One zstd frame as a stream, in both directions, with bounded memory.
#pragma once

#include <cstdint>
#include <memory>

#include "base/filesystem.hpp"
#include "base/result.hpp"
#include "cache/tier/engine.hpp"

namespace nc::tier {

// Decodes pieces as they come and passes them on. What the frame says about its size is not
// believed: whoever takes the pieces has to stop when it has enough, and then all of it stops.
class Inflater {
 public:
  explicit Inflater(Sink out);
  ~Inflater();
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  Status write(Bytes piece);  // kCorrupt: not zstd, or more than one frame; or the sink's error
  Status finish();            // kCorrupt: the frame is not complete

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Whether compressing pays, judged by a piece of the beginning.
Result<bool> worth_compressing(Source& source);

// Writes all of `source` as one frame to `out`; gives its size.
Result<std::uint64_t> deflate(Source& source, File& out);

}  // namespace nc::tier
