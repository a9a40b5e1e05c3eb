// Files below one directory, by names that have been checked (cache/tier/layout.hpp). No symbolic
// link below that directory is followed, so that nobody who can write there leads us elsewhere.
// Every call starts at the directory's path again: a mount may come, go and come back.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace nc::tier {

// A file's directory, open, and its name in it.
struct Place {
  UniqueFd dir;
  std::string leaf;
};

class DirTree {
 public:
  explicit DirTree(std::string root) : root_(std::move(root)) {}

  const std::string& root() const { return root_; }

  // kUnavailable when the root is not there. kNotFound when a directory on the way is not, unless
  // `make`: then they are made, with the root's own permissions.
  Result<Place> find(const std::string& name, bool make) const;
  // A regular file, for reading. kNotFound.
  Result<UniqueFd> open(const std::string& name) const;

  struct Entry {
    std::string name;
    bool is_dir = false;
  };
  // What lies in the directory `dir` ("": the root) with names of ours, sorted as the names below
  // them sort: directories, and all else, of which open() gives regular files only. Nothing when
  // it is not there.
  Result<std::vector<Entry>> entries(const std::string& dir) const;

 private:
  Result<UniqueFd> open_root() const;
  Result<UniqueFd> step(const UniqueFd& dir, const std::string& part, const std::string& path,
                        bool make, std::uint32_t mode) const;
  Result<UniqueFd> walk(const std::string& dir, bool make) const;

  const std::string root_;
};

// Permissions of a new file in a directory with those permissions: whoever can look into it can
// read it.
std::uint32_t file_mode(std::uint32_t dir_mode);

Result<struct ::stat> stat_fd(const UniqueFd& fd, const std::string& path);

}  // namespace nc::tier
