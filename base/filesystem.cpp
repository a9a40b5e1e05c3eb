// The parts of the file system door that are the same for every disk.
#include "base/filesystem.hpp"

#include "base/random.hpp"

namespace nc {

std::string parent_dir(const std::string& path) {
  std::size_t end = path.find_last_not_of('/');
  if (end == std::string::npos) return "/";
  const std::size_t slash = path.find_last_of('/', end);
  if (slash == std::string::npos) return ".";
  end = path.find_last_not_of('/', slash);
  return end == std::string::npos ? "/" : path.substr(0, end + 1);
}

std::string join(std::string_view dir, std::string_view name) {
  std::string path(dir);
  if (!path.empty() && path.back() != '/') path.push_back('/');
  return path.append(name);
}

Status FileSystem::write_atomically(const std::string& path, Bytes bytes, std::uint32_t mode) {
  const std::string aside = path + std::string(kAsideMark) + system_random().hex_id();
  Status done = [&]() -> Status {
    NC_ASSIGN(const auto file, open(aside, Open::kCreateNew, mode));
    NC_TRY(file->write(bytes));
    NC_TRY(file->sync());
    return {};
  }();
  if (done.ok()) done = rename(aside, path);
  if (!done.ok()) {
    ignore_error(remove(aside), "the first error is the one to tell; the name may not exist");
    return std::move(done).error().context("replacing " + path);
  }
  return sync_dir(parent_dir(path));
}

}  // namespace nc
