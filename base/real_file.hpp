// Private to base: files, mappings and locks of RealFileSystem.
#pragma once

#include <memory>
#include <string>

#include "base/filesystem.hpp"
#include "base/unique_fd.hpp"

namespace nc {

struct RealFileOptions {
  bool writable = false;
  bool append = false;
  std::uint64_t end = 0;  // where write() continues
};

std::unique_ptr<File> make_real_file(UniqueFd fd, std::string path, RealFileOptions options);
Result<std::unique_ptr<Mapping>> make_real_mapping(const UniqueFd& fd, const std::string& path);
Result<std::unique_ptr<FileLock>> make_real_lock(const std::string& path);

// open(2), restarted after signals, closed on exec.
Result<UniqueFd> open_fd(const std::string& path, int flags, std::uint32_t mode,
                         std::string_view what);

}  // namespace nc
