// The real disk without its syncs, for filling a store quickly before anything is measured.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/filesystem.hpp"

namespace nc::bench {

class UnsyncedFile final : public File {
 public:
  explicit UnsyncedFile(std::unique_ptr<File> file) : file_(std::move(file)) {}
  Status write(Bytes bytes) override { return file_->write(bytes); }
  Status write_at(std::uint64_t offset, Bytes bytes) override {
    return file_->write_at(offset, bytes);
  }
  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    return file_->read_at(offset, out);
  }
  Status truncate(std::uint64_t size) override { return file_->truncate(size); }
  Status sync() override { return {}; }
  Result<std::uint64_t> size() const override { return file_->size(); }

 private:
  std::unique_ptr<File> file_;
};

class UnsyncedFileSystem final : public FileSystem {
 public:
  Result<std::unique_ptr<File>> open(const std::string& path, Open how,
                                     std::uint32_t mode) override {
    NC_ASSIGN(auto file, real_.open(path, how, mode));
    return std::unique_ptr<File>(std::make_unique<UnsyncedFile>(std::move(file)));
  }
  Result<std::unique_ptr<Mapping>> map(const std::string& path) override { return real_.map(path); }
  Result<std::string> read_all(const std::string& path, std::uint64_t limit) override {
    return real_.read_all(path, limit);
  }
  Result<FileInfo> stat(const std::string& path) override { return real_.stat(path); }
  Result<std::vector<std::string>> list(const std::string& dir) override { return real_.list(dir); }
  Status make_dirs(const std::string& dir, std::uint32_t mode) override {
    return real_.make_dirs(dir, mode);
  }
  Status rename(const std::string& from, const std::string& to) override {
    return real_.rename(from, to);
  }
  Status link(const std::string& from, const std::string& to) override {
    return real_.link(from, to);
  }
  Status remove(const std::string& path) override { return real_.remove(path); }
  Status remove_dir(const std::string& dir) override { return real_.remove_dir(dir); }
  Status sync_dir(const std::string&) override { return {}; }
  Result<DiskSpace> space(const std::string& path) override { return real_.space(path); }
  Result<std::unique_ptr<FileLock>> lock(const std::string& path) override {
    return real_.lock(path);
  }

 private:
  FileSystem& real_ = real_filesystem();
};

}  // namespace nc::bench
