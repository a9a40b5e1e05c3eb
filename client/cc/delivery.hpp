// Putting stored bytes where the compiler would have put its output.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace nc::cc {

struct Placement {
  std::string path;        // of a file to copy, or
  std::string_view bytes;  // when path is empty
};

// Writes aside in the same directory and renames, so that nobody sees a part. Symbolic links are
// followed, an existing file keeps its permissions, a new one gets the usual ones, and devices and
// pipes are written to. Always a copy (shared by the file system where it can): what is written to
// the output later cannot reach the store. kNotFound: the source is gone; other errors are those
// of the destination.
Status place(const Placement& from, std::uint64_t size, const std::string& destination);

// The log: appended to what is there, or in its place.
Status place_log(std::string_view bytes, const std::string& destination, bool append);

}  // namespace nc::cc
