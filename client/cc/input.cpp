#include "client/cc/input.hpp"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "client/cc/input/digest.hpp"
#include "client/cc/words.hpp"

namespace nc::cc {
namespace {

constexpr int kMaxDepth = 64;
constexpr std::size_t kMaxFiles = 100'000;

std::int64_t ns(const timespec& t) {
  return static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

FileStamp stamp_of(const struct stat& s) {
  return {s.st_dev, s.st_ino, static_cast<std::uint64_t>(s.st_size), ns(s.st_mtim), ns(s.st_ctim)};
}

Result<struct stat> stat_of(const std::string& path) {
  struct stat s {};
  if (::stat(path.c_str(), &s) != 0) return errno_error(errno, "cannot read", path);
  return s;
}

Status add_file(const std::string& path, const struct stat& s, Input& input) {
  if (input.files.size() >= kMaxFiles)
    return Error{Code::kTooLarge, fmt::format("{} holds too many files", path), ""};
  input.files.push_back({path, stamp_of(s)});
  return {};
}

// Notes how every file below looks before it is read.
Status add_directory(const std::string& path, int depth, Input& input) {
  if (depth > kMaxDepth)
    return Error{Code::kInvalid, fmt::format("the directory {} is too deep", path), ""};
  std::vector<std::string> names;
  DIR* directory = ::opendir(path.c_str());
  if (directory == nullptr) return errno_error(errno, "cannot read", path);
  while (const dirent* entry = ::readdir(directory)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  ::closedir(directory);
  for (const std::string& name : names) {
    const std::string full = path + "/" + name;
    NC_ASSIGN(const struct stat s, stat_of(full));
    if (S_ISDIR(s.st_mode)) {
      NC_TRY(add_directory(full, depth + 1, input));
    } else {
      NC_TRY(add_file(full, s, input));
    }
  }
  return {};
}

// The compiler may go by the end of the name.
std::string suffix_of(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  const std::size_t dot = name.rfind('.');
  return dot == std::string::npos || dot == 0 ? "" : name.substr(dot);
}

}  // namespace

Result<Input> read_input(const std::string& path) {
  NC_ASSIGN(const struct stat s, stat_of(path));
  Input input;
  if (S_ISDIR(s.st_mode)) {
    NC_TRY(add_directory(path, 0, input));
  } else {
    NC_TRY(add_file(path, s, input));
  }
  NC_ASSIGN(const InputDigest digest, digest_input(path));
  input.bytes = digest.bytes;
  input.text = fmt::format("{} sha256:{}", digest.form, digest.digest.hex());
  if (const std::string suffix = suffix_of(path); !S_ISDIR(s.st_mode) && !suffix.empty())
    input.text += " " + key_text(suffix);
  return input;
}

bool unchanged(const std::vector<InputFile>& files) {
  return std::ranges::all_of(files, [](const InputFile& file) {
    const auto s = stat_of(file.path);
    return s.ok() && stamp_of(*s) == file.stamp;
  });
}

}  // namespace nc::cc
