// A blob of the local store, and any file, as something that can be sent.
#pragma once

#include <memory>
#include <string>

#include "base/filesystem.hpp"
#include "base/result.hpp"
#include "cache/store.hpp"
#include "cache/tier/engine.hpp"

namespace nc::tier {

class TextSource final : public Source {  // bytes in memory
 public:
  explicit TextSource(std::string text) : text_(std::move(text)) {}
  std::uint64_t size() const override { return text_.size(); }
  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> out) override;

 private:
  const std::string text_;
};

Result<std::unique_ptr<Source>> file_source(FileSystem& fs, const std::string& path);

// The raw bytes, checked by the store. Files are read as they are sent; what the store keeps
// compressed (at most 64 MiB) is in memory meanwhile. kNotFound, kCorrupt as Store::blob_ref().
Result<std::unique_ptr<Source>> blob_source(Store& store, FileSystem& fs, const Digest& digest);

}  // namespace nc::tier
