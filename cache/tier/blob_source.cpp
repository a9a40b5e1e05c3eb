#include "cache/tier/blob_source.hpp"

#include <algorithm>
#include <cstring>

namespace nc::tier {
namespace {

constexpr std::uint64_t kMaxInMemory = 64 << 20;

class FileSource final : public Source {
 public:
  FileSource(std::unique_ptr<File> file, std::uint64_t size)
      : file_(std::move(file)), size_(size) {}
  std::uint64_t size() const override { return size_; }
  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> out) override {
    return file_->read_at(offset, out);
  }

 private:
  std::unique_ptr<File> file_;
  const std::uint64_t size_;
};

}  // namespace

Result<std::unique_ptr<Source>> file_source(FileSystem& fs, const std::string& path) {
  NC_ASSIGN(auto file, fs.open(path, FileSystem::Open::kRead));
  NC_ASSIGN(const auto size, file->size());
  return std::unique_ptr<Source>(std::make_unique<FileSource>(std::move(file), size));
}

Result<std::size_t> TextSource::read_at(std::uint64_t offset, std::span<std::byte> out) {
  if (offset >= text_.size()) return std::size_t{0};
  const auto n = std::min<std::size_t>(out.size(), text_.size() - offset);
  std::memcpy(out.data(), text_.data() + offset, n);
  return n;
}

Result<std::unique_ptr<Source>> blob_source(Store& store, FileSystem& fs, const Digest& digest) {
  NC_ASSIGN(auto ref, store.blob_ref(digest));
  if (ref.inline_bytes)
    return std::unique_ptr<Source>(std::make_unique<TextSource>(*std::move(ref.inline_bytes)));
  if (!ref.path.empty()) return file_source(fs, ref.path);
  NC_ASSIGN(auto bytes, store.read_blob(digest, kMaxInMemory));
  return std::unique_ptr<Source>(std::make_unique<TextSource>(std::move(bytes)));
}

}  // namespace nc::tier
