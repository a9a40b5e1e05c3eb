// A directory on the real disk that is gone after the test.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/filesystem.hpp"
#include "base/random.hpp"

namespace nc {

class TempDir {
 public:
  TempDir() {
    const char* tmp = std::getenv("TMPDIR");
    path_ =
        join(tmp != nullptr && *tmp == '/' ? tmp : "/tmp", "nc-test-" + system_random().hex_id());
    if (!real_filesystem().make_dirs(path_).ok()) std::abort();
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace nc
