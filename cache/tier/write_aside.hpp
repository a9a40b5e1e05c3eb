// Hashes and writes an upload on a thread of its own, so that its bytes go on arriving meanwhile.
// One thread uses it.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/thread_annotations.hpp"
#include "cache/store.hpp"

namespace nc::tier {

class WriteAside {
 public:
  // Below `kLeast` bytes a thread costs more than it gains: written at once then.
  static constexpr std::uint64_t kLeast = 1 << 20;
  WriteAside(Upload& upload, std::uint64_t size);
  ~WriteAside();
  WriteAside(const WriteAside&) = delete;
  WriteAside& operator=(const WriteAside&) = delete;

  // Keeps at most kPieces pieces in memory; then it waits. An error may be that of an earlier call.
  Status write(Bytes bytes) NC_EXCLUDES(mutex_);
  // All that was given is written, or could not be.
  Status drain() NC_EXCLUDES(mutex_);

 private:
  static constexpr std::size_t kPiece = 64 << 10;
  static constexpr std::size_t kPieces = 64;
  void run() NC_EXCLUDES(mutex_);
  Status hand_over() NC_EXCLUDES(mutex_);

  Upload& upload_;
  std::string filling_;
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::string> pieces_ NC_GUARDED_BY(mutex_);
  std::vector<std::string> spare_ NC_GUARDED_BY(mutex_);  // emptied ones
  bool writing_ NC_GUARDED_BY(mutex_) = false;
  bool ending_ NC_GUARDED_BY(mutex_) = false;
  Status failed_ NC_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace nc::tier
