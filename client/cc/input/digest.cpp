#include "client/cc/input/digest.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "base/unique_fd.hpp"
#include "client/cc/input/canonical.hpp"
#include "client/cc/input/hlo_proto.hpp"
#include "client/cc/input/mlir_bytecode.hpp"
#include "client/cc/input/mlir_text.hpp"

namespace nc::cc {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 20;

Error changed(const std::string& path) {
  return {Code::kConflict, fmt::format("{} changed while it was read", path), "run it again"};
}

struct OpenFile {
  UniqueFd fd;
  struct stat info {};
};

Result<OpenFile> open_input(const std::string& path) {
  OpenFile file;
  // Not blocking: a pipe would wait for a writer. What it is, is asked of the open file.
  file.fd.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.fd.valid()) return errno_error(errno, "cannot read", path);
  if (::fstat(file.fd.get(), &file.info) != 0) return errno_error(errno, "cannot look at", path);
  if (!S_ISREG(file.info.st_mode) && !S_ISDIR(file.info.st_mode)) {
    return Error{Code::kUnsupported, fmt::format("{} is neither a file nor a directory", path), ""};
  }
  return file;
}

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_size == b.st_size && a.st_mtim.tv_sec == b.st_mtim.tv_sec &&
         a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

// Reads all of the file: each time into what `buffer(bytes so far)` gives, which `took(n)` then
// has. Fails when it is not the same file at the end as it was at the start.
template <class Buffer, class Took>
Status read_through(const std::string& path, const OpenFile& file, Buffer buffer, Took took) {
  const auto size = static_cast<std::uint64_t>(file.info.st_size);
  std::uint64_t done = 0;
  while (done <= size) {
    const std::span<std::byte> into = buffer(done);
    const ssize_t n = ::read(file.fd.get(), into.data(), into.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error(errno, "cannot read", path);
    if (n == 0) break;
    done += static_cast<std::uint64_t>(n);
    took(static_cast<std::size_t>(n));
  }
  struct stat after {};
  if (::fstat(file.fd.get(), &after) != 0) return errno_error(errno, "cannot look at", path);
  if (done != size || !same_file(file.info, after)) return changed(path);
  return {};
}

Result<InputDigest> digest_file(const std::string& path, const OpenFile& file,
                                const InputLimits& limits) {
  const auto size = static_cast<std::uint64_t>(file.info.st_size);
  if (size <= limits.parsed_bytes) {
    // One byte more than there should be, to see that there is not.
    const auto content = std::make_unique_for_overwrite<std::byte[]>(size + 1);
    NC_TRY(read_through(
        path, file,
        [&](std::uint64_t done) { return std::span(content.get() + done, size + 1 - done); },
        [](std::size_t) {}));
    return digest_bytes(Bytes(content.get(), size), limits);
  }
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(kChunk);
  CanonicalHash out("raw");
  NC_TRY(read_through(
      path, file, [&](std::uint64_t) { return std::span(buffer.get(), kChunk); },
      [&](std::size_t n) { out.raw(as_text(Bytes(buffer.get(), n))); }));
  return InputDigest{.form = "raw", .digest = out.finish(), .bytes = size, .normalised = false};
}

// The files below a directory, by relative name; an empty directory as "name/".
class DirectoryDigest {
 public:
  DirectoryDigest(std::string root, const InputLimits& limits)
      : root_(std::move(root)), limits_(limits) {}

  Result<InputDigest> digest() {
    NC_TRY(collect());
    std::sort(names_.begin(), names_.end());
    CanonicalHash out("directory");
    InputDigest result{.form = "directory", .digest = {}, .bytes = 0, .normalised = false};
    for (const std::string& name : names_) {
      out.bytes(name);
      if (name.ends_with('/')) continue;
      const std::string path = root_ + "/" + name;
      NC_ASSIGN(const OpenFile file, open_input(path));
      if (S_ISDIR(file.info.st_mode)) return changed(path);
      NC_ASSIGN(const InputDigest one, digest_file(path, file, limits_));
      out.bytes(one.form);
      out.raw(one.digest.view());
      result.bytes += one.bytes;
      result.normalised = result.normalised || one.normalised;
    }
    result.digest = out.finish();
    return result;
  }

 private:
  struct Pending {
    std::string name;  // relative, with a slash at the end; empty: the root
    std::uint32_t depth;
  };

  Status collect() {
    std::vector<Pending> pending{{"", 0}};
    while (!pending.empty()) {
      const Pending dir = std::move(pending.back());
      pending.pop_back();
      if (dir.depth > limits_.depth) return too_large("is nested too deep");
      NC_TRY(list(dir, pending));
    }
    return {};
  }

  Status list(const Pending& dir, std::vector<Pending>& pending) {
    const std::string path = root_ + "/" + dir.name;
    const std::unique_ptr<DIR, int (*)(DIR*)> handle(::opendir(path.c_str()), ::closedir);
    if (!handle) return errno_error(errno, "cannot list", path);
    bool any = false;
    errno = 0;
    while (const dirent* entry = ::readdir(handle.get())) {
      const std::string_view name = entry->d_name;
      if (name == "." || name == "..") continue;
      any = true;
      if (++seen_ > limits_.files) return too_large("holds too many files");
      const std::string relative = dir.name + std::string(name);
      struct stat info {};
      if (::stat((root_ + "/" + relative).c_str(), &info) != 0)
        return errno_error(errno, "cannot look at", root_ + "/" + relative);
      if (S_ISDIR(info.st_mode)) {
        pending.push_back({relative + "/", dir.depth + 1});
      } else if (S_ISREG(info.st_mode)) {
        names_.push_back(relative);
      } else {
        return Error{Code::kUnsupported,
                     fmt::format("{}/{} is neither a file nor a directory", root_, relative), ""};
      }
      errno = 0;
    }
    if (errno != 0) return errno_error(errno, "cannot list", path);
    if (!any) names_.push_back(dir.name.empty() ? "/" : dir.name);
    return {};
  }

  Error too_large(std::string_view what) const {
    return {Code::kTooLarge, fmt::format("{} {}", root_, what), ""};
  }

  std::string root_;
  const InputLimits& limits_;
  std::vector<std::string> names_;
  std::uint64_t seen_ = 0;
};

using Normaliser = std::optional<Digest> (*)(Bytes);

InputDigest raw_digest(Bytes bytes) {
  CanonicalHash out("raw");
  out.raw(as_text(bytes));
  return {.form = "raw", .digest = out.finish(), .bytes = bytes.size(), .normalised = false};
}

}  // namespace

Result<InputDigest> digest_input(const std::string& path, const InputLimits& limits) {
  NC_ASSIGN(const OpenFile file, open_input(path));
  if (S_ISDIR(file.info.st_mode)) return DirectoryDigest(path, limits).digest();
  return digest_file(path, file, limits);
}

InputDigest digest_bytes(Bytes bytes, const InputLimits& limits) {
  if (bytes.size() > limits.parsed_bytes) return raw_digest(bytes);
  static constexpr std::pair<std::string_view, Normaliser> kForms[] = {
      {"mlir-bytecode", mlir_bytecode_digest},
      {"hlo-proto", hlo_proto_digest},
      {"mlir-text", mlir_text_digest},
  };
  for (const auto& [form, normalise] : kForms) {
    if (const std::optional<Digest> digest = normalise(bytes)) {
      return {
          .form = std::string(form), .digest = *digest, .bytes = bytes.size(), .normalised = true};
    }
  }
  return raw_digest(bytes);
}

}  // namespace nc::cc
