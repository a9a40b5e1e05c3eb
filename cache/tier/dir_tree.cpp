#include "cache/tier/dir_tree.hpp"

#include <dirent.h>
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "cache/tier/layout.hpp"

namespace nc::tier {
namespace {

constexpr int kDirFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
// A file that was removed while somebody had it open, as NFS clients keep it.
constexpr std::string_view kNfsLeftover = ".nfs";

int open_at(int dir, const char* name, int flags) {
  int fd = -1;
  do {
    fd = ::openat(dir, name, flags);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

Error open_error(int err, const std::string& path) {
  if (err == ELOOP || err == ENOTDIR) {
    // The object is bad, the tier is not sick.
    return {Code::kCorrupt, path + " in the tier is not what belongs there",
            "remove it; symbolic links are not followed"};
  }
  return errno_error(err, "cannot open", path);
}

struct CloseDir {
  void operator()(DIR* dir) const { ::closedir(dir); }
};

}  // namespace

std::uint32_t file_mode(std::uint32_t dir_mode) {
  return (dir_mode & 0444U) | 0600U;
}

Result<struct ::stat> stat_fd(const UniqueFd& fd, const std::string& path) {
  struct ::stat st {};
  if (::fstat(fd.get(), &st) != 0) return errno_error(errno, "cannot stat", path);
  return st;
}

Result<UniqueFd> DirTree::open_root() const {
  // The root itself may be a link: whoever names it in the settings knows where it leads.
  UniqueFd fd(open_at(AT_FDCWD, root_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.valid()) return fd;
  if (errno == ENOENT || errno == ENOTDIR) {
    return Error{Code::kUnavailable, "the tier's directory " + root_ + " is not there",
                 "mount it, or create it once with mkdir"};
  }
  return errno_error(errno, "cannot open", root_);
}

Result<UniqueFd> DirTree::step(const UniqueFd& dir, const std::string& part,
                               const std::string& path, bool make, std::uint32_t mode) const {
  UniqueFd next(open_at(dir.get(), part.c_str(), kDirFlags));
  if (next.valid()) return next;
  if (errno != ENOENT || !make) return open_error(errno, path);
  if (::mkdirat(dir.get(), part.c_str(), 0700) != 0) {
    if (errno != EEXIST) return errno_error(errno, "cannot create", path);
    next.reset(open_at(dir.get(), part.c_str(), kDirFlags));
    if (next.valid()) return next;
    return open_error(errno, path);
  }
  next.reset(open_at(dir.get(), part.c_str(), kDirFlags));
  if (!next.valid()) return open_error(errno, path);
  // Not the umask of this process decides who can use it, but the directory that people made.
  if (::fchmod(next.get(), mode) != 0) return errno_error(errno, "cannot set the mode of", path);
  if (::fsync(dir.get()) != 0 && errno != EINVAL) return errno_error(errno, "cannot sync", path);
  return next;
}

Result<UniqueFd> DirTree::walk(const std::string& dir, bool make) const {
  NC_ASSIGN(UniqueFd at, open_root());
  NC_ASSIGN(const auto root, stat_fd(at, root_));
  std::size_t start = 0;
  while (start < dir.size()) {
    const auto end = std::min(dir.find('/', start), dir.size());
    NC_ASSIGN(at, step(at, dir.substr(start, end - start), root_ + "/" + dir.substr(0, end), make,
                       root.st_mode & 02777U));
    start = end + 1;
  }
  return at;
}

Result<Place> DirTree::find(const std::string& name, bool make) const {
  const auto slash = name.rfind('/');
  const auto dir = slash == std::string::npos ? std::string() : name.substr(0, slash);
  NC_ASSIGN(UniqueFd fd, walk(dir, make));
  return Place{std::move(fd), slash == std::string::npos ? name : name.substr(slash + 1)};
}

Result<UniqueFd> DirTree::open(const std::string& name) const {
  NC_ASSIGN(const auto place, find(name, false));
  const auto path = root_ + "/" + name;
  // Not blocking: a pipe put there must not stop us.
  UniqueFd fd(
      open_at(place.dir.get(), place.leaf.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd.valid() && errno != ELOOP) return open_error(errno, path);
  if (fd.valid()) {
    NC_ASSIGN(const auto st, stat_fd(fd, path));
    if (S_ISREG(st.st_mode)) return fd;
  }
  return open_error(ELOOP, path);
}

Result<std::vector<DirTree::Entry>> DirTree::entries(const std::string& dir) const {
  std::vector<Entry> found;
  auto fd = walk(dir, false);
  if (fd.is(Code::kNotFound)) return found;
  if (!fd.ok()) return std::move(fd).error();
  const std::unique_ptr<DIR, CloseDir> stream(::fdopendir(fd->get()));
  if (!stream) return errno_error(errno, "cannot list", root_ + "/" + dir);
  fd->release();
  for (;;) {
    errno = 0;
    const auto* item = ::readdir(stream.get());  // NOLINT(concurrency-mt-unsafe): a stream of ours
    if (item == nullptr) {
      if (errno != 0) return errno_error(errno, "cannot list", root_ + "/" + dir);
      break;
    }
    const std::string name(item->d_name);
    if (!check_name(name).ok() || name.starts_with(kNfsLeftover)) continue;
    auto type = item->d_type;
    if (type == DT_UNKNOWN) {
      struct ::stat st {};
      if (::fstatat(::dirfd(stream.get()), item->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
      type = S_ISDIR(st.st_mode) ? DT_DIR : S_ISREG(st.st_mode) ? DT_REG : DT_LNK;
    }
    found.push_back({name, type == DT_DIR});
  }
  // "a.b" comes before "a/b": a directory sorts as if it ended in '/'.
  std::ranges::sort(found, {}, [](const Entry& e) { return e.is_dir ? e.name + "/" : e.name; });
  return found;
}

}  // namespace nc::tier
