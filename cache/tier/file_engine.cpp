#include "cache/tier/file_engine.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/log.hpp"
#include "cache/tier/dir_tree.hpp"
#include "cache/tier/layout.hpp"
#include "cache/tier/patience.hpp"

namespace nc::tier {
namespace {

constexpr std::size_t kPiece = 1 << 20;
constexpr std::string_view kAside = "~aside";       // not a name of an object
constexpr Millis kCleaningPauseMs = 6 * 3'600'000;  // between looks at what lies aside

using SharedFd = std::shared_ptr<UniqueFd>;

Millis mtime_of(const struct ::stat& st) {
  return static_cast<Millis>(st.st_mtim.tv_sec) * 1000 + st.st_mtim.tv_nsec / 1'000'000;
}

Error over(const std::string& name, std::uint64_t limit) {
  return {Code::kTooLarge, name + " in the tier is over " + format_size(limit), ""};
}

// Up to out.size() bytes; fewer only at the end.
Result<std::size_t> read_some(const UniqueFd& fd, std::uint64_t offset, std::span<char> out,
                              const std::string& path) {
  std::size_t done = 0;
  while (done < out.size()) {
    const auto n =
        ::pread(fd.get(), out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error(errno, "cannot read", path);
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

Status write_all(const UniqueFd& fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const auto n = ::write(fd.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error(errno, "cannot write", path);
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

// Some file systems do not sync directories, and say so with EINVAL.
Status sync_dir(const UniqueFd& dir, const std::string& path) {
  if (::fsync(dir.get()) == 0 || errno == EINVAL || errno == ENOTSUP) return {};
  return errno_error(errno, "cannot sync the directory of", path);
}

// The object is bad, the tier is not sick.
Error no_file(const DirTree& tree, const std::string& name) {
  return {Code::kCorrupt, "a directory lies at " + tree.root() + "/" + name + " in the tier",
          "remove it"};
}

// A file aside; it goes when this does, unless it was renamed.
class Aside {
 public:
  static Result<std::shared_ptr<Aside>> create(const DirTree& tree, const std::string& id) {
    const auto name = std::string(kAside) + "/" + id;
    NC_ASSIGN(auto place, tree.find(name, true));
    NC_ASSIGN(const auto dir, stat_fd(place.dir, tree.root()));
    UniqueFd fd(::openat(place.dir.get(), place.leaf.c_str(),
                         O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!fd.valid()) return errno_error(errno, "cannot create", tree.root() + "/" + name);
    auto aside = std::make_shared<Aside>(std::move(place), std::move(fd), tree.root() + "/" + name);
    if (::fchmod(aside->fd_.get(), file_mode(dir.st_mode)) != 0) {
      return errno_error(errno, "cannot set the mode of", aside->path_);
    }
    return aside;
  }

  Aside(Place place, UniqueFd fd, std::string path)
      : place_(std::move(place)), fd_(std::move(fd)), path_(std::move(path)) {}
  ~Aside() {
    if (!moved_) ::unlinkat(place_.dir.get(), place_.leaf.c_str(), 0);
  }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

  Status append(std::string_view bytes) { return write_all(fd_, bytes, path_); }

  // Every error counts, close() included: a network file system may tell of a full disk only there.
  Status close() {
    if (::fsync(fd_.get()) != 0) return errno_error(errno, "cannot sync", path_);
    if (::close(fd_.release()) != 0) return errno_error(errno, "cannot close", path_);
    return {};
  }

  Status move(const DirTree& tree, const std::string& name) {
    NC_ASSIGN(const auto to, tree.find(name, true));
    if (::renameat(place_.dir.get(), place_.leaf.c_str(), to.dir.get(), to.leaf.c_str()) != 0) {
      const int err = errno;
      if (err == EISDIR || err == ENOTEMPTY || err == EEXIST) return no_file(tree, name);
      return errno_error(err, "cannot rename to", tree.root() + "/" + name);
    }
    moved_ = true;
    return sync_dir(to.dir, tree.root() + "/" + name);
  }

  Result<bool> link(const DirTree& tree, const std::string& name) {
    NC_ASSIGN(const auto to, tree.find(name, true));
    const auto path = tree.root() + "/" + name;
    if (::linkat(place_.dir.get(), place_.leaf.c_str(), to.dir.get(), to.leaf.c_str(), 0) != 0) {
      const int err = errno;
      // An NFS client that repeats a request whose answer got lost is told of its own link as if it
      // were another's; the count of the file's links tells.
      struct ::stat st {};
      const bool ours =
          ::fstatat(place_.dir.get(), place_.leaf.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 &&
          st.st_nlink == 2;
      if (!ours && err == EEXIST) return false;
      if (!ours && (err == EPERM || err == ENOTSUP || err == EMLINK)) {
        return Error{Code::kUnsupported, "the file system of " + path + " has no hard links",
                     "use another tier for leases"};
      }
      if (!ours) return errno_error(err, "cannot link", path);
    }
    NC_TRY(sync_dir(to.dir, path));
    return true;
  }

 private:
  Place place_;
  UniqueFd fd_;
  const std::string path_;
  bool moved_ = false;
};

// Removes what lies aside for longer than `grace_ms`. Both times are the file server's: that of a
// file just made is now. Should one of a writer at work go, its rename fails and it writes again.
void clean_aside(const DirTree& tree, Millis grace_ms, const std::string& id) {
  auto now = Aside::create(tree, id);
  auto place = tree.find(std::string(kAside) + "/x", false);
  if (!now.ok() || !place.ok()) return;
  struct ::stat mine {};
  if (::fstatat(place->dir.get(), id.c_str(), &mine, AT_SYMLINK_NOFOLLOW) != 0) return;
  const UniqueFd dir(::openat(place->dir.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR* stream = ::fdopendir(::dup(dir.get()));
  if (stream == nullptr) return;
  while (const auto* item = ::readdir(stream)) {  // NOLINT(concurrency-mt-unsafe)
    struct ::stat st {};
    if (::fstatat(dir.get(), item->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (S_ISREG(st.st_mode) && mtime_of(mine) - mtime_of(st) > grace_ms) {
      ::unlinkat(dir.get(), item->d_name, 0);
    }
  }
  ::closedir(stream);
}

// As list(): depth first, which with the order of DirTree::entries() is the order of the names.
class Lister {
 public:
  Lister(const DirTree& tree, std::string prefix, std::string after, std::size_t limit)
      : tree_(tree), prefix_(std::move(prefix)), after_(std::move(after)), limit_(limit) {}

  Result<Page> run() {
    const auto slash = prefix_.rfind('/');
    NC_TRY(descend(slash == std::string::npos ? std::string() : prefix_.substr(0, slash)));
    return std::move(page_);
  }

 private:
  Status descend(const std::string& dir) {
    NC_ASSIGN(const auto entries, tree_.entries(dir));
    for (const auto& entry : entries) {
      const auto name = dir.empty() ? entry.name : dir + "/" + entry.name;
      if (!page_.next.empty()) return {};
      if (entry.is_dir) {
        const auto inside = name + "/";
        const bool matches = inside.starts_with(prefix_) || prefix_.starts_with(inside);
        const bool passed = inside < after_ && !after_.starts_with(inside);
        if (matches && !passed) NC_TRY(descend(name));
        continue;
      }
      if (!name.starts_with(prefix_) || name <= after_) continue;
      if (page_.objects.size() == limit_) {
        page_.next = page_.objects.back().name;
        return {};
      }
      // One that goes between being listed and looked at is not there.
      auto fd = tree_.open(name);
      if (fd.is(Code::kCorrupt)) page_.objects.push_back({name});  // a link or pipe: to be told of
      if (!fd.ok()) continue;
      auto st = stat_fd(*fd, name);
      if (!st.ok()) continue;
      page_.objects.push_back({name, static_cast<std::uint64_t>(st->st_size), mtime_of(*st)});
    }
    return {};
  }

  const DirTree& tree_;
  const std::string prefix_, after_;
  const std::size_t limit_;
  Page page_;
};

class FileEngine final : public Engine {
 public:
  FileEngine(FileEngineOptions options, Clock& clock, Random& random)
      : options_(std::move(options)),
        clock_(clock),
        random_(random),
        tree_(std::make_shared<DirTree>(options_.dir)),
        patience_("the tier " + options_.address, options_.timeout_ms) {}

  const std::string& address() const override { return options_.address; }
  Capabilities capabilities() const override { return {true, true, true}; }

  Result<std::string> get(const std::string& name, std::uint64_t limit) override {
    NC_TRY(check_name(name));
    return patience_.run<std::string>([tree = tree_, name, limit]() -> Result<std::string> {
      NC_ASSIGN(const auto fd, tree->open(name));
      NC_ASSIGN(const auto st, stat_fd(fd, name));
      const auto size = static_cast<std::uint64_t>(st.st_size);
      if (size > limit) return over(name, limit);
      std::string bytes(size, '\0');
      NC_ASSIGN(const auto got, read_some(fd, 0, bytes, tree->root() + "/" + name));
      if (got != size) return short_file(name);
      return bytes;
    });
  }

  Result<std::uint64_t> fetch(const std::string& name, std::uint64_t offset, std::uint64_t limit,
                              const Sink& sink) override {
    NC_TRY(check_name(name));
    auto fd = std::make_shared<UniqueFd>();
    auto opened = patience_.run<std::uint64_t>([tree = tree_, name, fd]() -> Result<std::uint64_t> {
      NC_ASSIGN(*fd, tree->open(name));
      NC_ASSIGN(const auto st, stat_fd(*fd, name));
      return static_cast<std::uint64_t>(st.st_size);
    });
    NC_ASSIGN(const auto size, std::move(opened));
    if (size > limit) return over(name, limit);
    if (offset > size) return short_file(name);
    while (offset < size) {
      const auto want = static_cast<std::size_t>(std::min<std::uint64_t>(kPiece, size - offset));
      NC_ASSIGN(const auto piece,
                patience_.run<std::string>([fd, offset, want, name]() -> Result<std::string> {
                  std::string bytes(want, '\0');
                  NC_ASSIGN(const auto got, read_some(*fd, offset, bytes, name));
                  if (got != want) return short_file(name);
                  return bytes;
                }));
      NC_TRY(sink(as_bytes(piece)));
      offset += want;
    }
    return size;
  }

  Result<ObjectInfo> head(const std::string& name) override {
    NC_TRY(check_name(name));
    return patience_.run<ObjectInfo>([tree = tree_, name]() -> Result<ObjectInfo> {
      NC_ASSIGN(const auto fd, tree->open(name));
      NC_ASSIGN(const auto st, stat_fd(fd, name));
      return ObjectInfo{name, static_cast<std::uint64_t>(st.st_size), mtime_of(st)};
    });
  }

  Status put(const std::string& name, Bytes bytes) override {
    NC_TRY(check_name(name));
    clean();
    return patience_.run<void>([tree = tree_, name, id = random_.hex_id(),
                                text = std::string(as_text(bytes))]() -> Status {
      NC_ASSIGN(const auto aside, Aside::create(*tree, id));
      NC_TRY(aside->append(text));
      NC_TRY(aside->close());
      return aside->move(*tree, name);
    });
  }

  Status store(const std::string& name, Source& source) override {
    NC_TRY(check_name(name));
    clean();
    NC_ASSIGN(const auto aside,
              patience_.run<std::shared_ptr<Aside>>(
                  [tree = tree_, id = random_.hex_id()] { return Aside::create(*tree, id); }));
    std::uint64_t at = 0;
    while (at < source.size()) {
      std::string piece(std::min<std::uint64_t>(kPiece, source.size() - at), '\0');
      NC_ASSIGN(const auto got, source.read_at(at, std::as_writable_bytes(std::span(piece))));
      if (got == 0) return Error{Code::kCorrupt, "what is stored is shorter than announced", ""};
      piece.resize(got);
      at += got;
      NC_TRY(
          patience_.run<void>([aside, piece = std::move(piece)] { return aside->append(piece); }));
    }
    NC_TRY(patience_.run<void>([aside] { return aside->close(); }));
    return patience_.run<void>([aside, tree = tree_, name] { return aside->move(*tree, name); });
  }

  Result<bool> create(const std::string& name, Bytes bytes, Millis /*keep_ms*/) override {
    NC_TRY(check_name(name));
    clean();
    return patience_.run<bool>([tree = tree_, name, id = random_.hex_id(),
                                text = std::string(as_text(bytes))]() -> Result<bool> {
      NC_ASSIGN(const auto aside, Aside::create(*tree, id));
      NC_TRY(aside->append(text));
      NC_TRY(aside->close());
      return aside->link(*tree, name);
    });
  }

  Status remove(const std::string& name) override {
    NC_TRY(check_name(name));
    return patience_.run<void>([tree = tree_, name]() -> Status {
      auto place = tree->find(name, false);
      if (place.is(Code::kNotFound)) return {};
      if (!place.ok()) return std::move(place).error();
      if (::unlinkat(place->dir.get(), place->leaf.c_str(), 0) == 0 || errno == ENOENT) return {};
      if (errno == EISDIR) return no_file(*tree, name);
      return errno_error(errno, "cannot remove", tree->root() + "/" + name);
    });
  }

  Result<Page> list(const std::string& prefix, const std::string& after,
                    std::size_t limit) override {
    NC_TRY(check_prefix(prefix));
    return patience_.run<Page>([tree = tree_, prefix, after, limit] {
      return Lister(*tree, prefix, after, std::max<std::size_t>(limit, 1)).run();
    });
  }

 private:
  static Error short_file(const std::string& name) {
    return {Code::kCorrupt, name + " in the tier is shorter than it was a moment ago", ""};
  }

  // At most every few hours, and beside what the caller wants: should it hang, nobody waits for it.
  void clean() {
    const auto now = clock_.monotonic_ms();
    auto next = next_cleaning_.load();
    if (now < next || !next_cleaning_.compare_exchange_strong(next, now + kCleaningPauseMs)) return;
    auto cleaned = patience_.run<void>(
        [tree = tree_, grace = options_.leftover_grace_ms, id = random_.hex_id()]() -> Status {
          clean_aside(*tree, grace, id);
          return {};
        });
    ignore_error(cleaned, "what is left is removed another time");
  }

  const FileEngineOptions options_;
  Clock& clock_;
  Random& random_;
  const std::shared_ptr<const DirTree> tree_;
  Patience patience_;
  std::atomic<Millis> next_cleaning_ = 0;
};

}  // namespace

Result<std::unique_ptr<Engine>> open_file_engine(FileEngineOptions options, Clock& clock,
                                                 Random& random) {
  if (!options.dir.starts_with("/")) {
    return Error{Code::kInvalid, "'" + options.dir + "' is not an absolute directory",
                 "write file:///path"};
  }
  return std::unique_ptr<Engine>(std::make_unique<FileEngine>(std::move(options), clock, random));
}

}  // namespace nc::tier
