// A blob of the local store, and any file, as something that can be sent.
#pragma once

#include <memory>
#include <string>

#include "base/filesystem.hpp"
#include "base/result.hpp"
#include "cache/store.hpp"
#include "cache/tier/engine.hpp"

namespace nc::tier {

Result<std::unique_ptr<Source>> file_source(FileSystem& fs, const std::string& path);
std::unique_ptr<Source> text_source(std::string text);

// The raw bytes, checked by the store. Files are read as they are sent; what the store keeps
// compressed (at most 32 MiB) is in memory meanwhile. kNotFound, kCorrupt as Store::blob_ref().
Result<std::unique_ptr<Source>> blob_source(Store& store, FileSystem& fs, const Digest& digest);

}  // namespace nc::tier
