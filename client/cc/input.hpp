// What the inputs of a compile command are, for the key.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/hash.hpp"
#include "base/result.hpp"

namespace nc::cc {

// What the file system says about a file; unequal when it was written to in between.
struct FileStamp {
  std::uint64_t device = 0, inode = 0, size = 0;
  std::int64_t mtime_ns = 0, ctime_ns = 0;
  bool operator==(const FileStamp&) const = default;
};

struct InputFile {
  std::string path;
  FileStamp stamp;  // before it was read
};

struct Input {
  std::string text;  // for the key: form, digest, suffix of the name
  std::uint64_t bytes = 0;
  std::vector<InputFile> files;  // all that were read
};

// A file or a directory (all files in it, by their names below it). kNotFound, kDenied; kInvalid
// for what is neither and for links that leave no end.
Result<Input> read_input(const std::string& path);
// True when none of the files was changed since.
bool unchanged(const std::vector<InputFile>& files);

}  // namespace nc::cc
