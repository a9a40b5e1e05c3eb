#include "base/fake_disk.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace nc {
namespace {

Error no_power(const std::string& path) {
  return {Code::kIo, "cannot use " + path + ": the power was cut", ""};
}

Result<std::vector<std::string>> split(const std::string& path) {
  if (!path.starts_with('/')) {
    return Error{Code::kInvalid, "\"" + path + "\" is not an absolute path", ""};
  }
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    std::string part = path.substr(at, end - at);
    if (part == "..") return Error{Code::kInvalid, "\"" + path + "\" has a .. in it", ""};
    if (!part.empty() && part != ".") parts.push_back(std::move(part));
    at = end + 1;
  }
  return parts;
}

}  // namespace

FakeDisk::FakeDisk(const Clock* clock) : clock_(clock) {
  MutexLock lock(mutex);
  root = new_inode(true, 0755);
  root->links = 1;
}

Status FakeDisk::enter(Call call, const std::string& path, bool is_change) {
  if (power && is_change && cut_at && --cut_at->calls_left == 0) {
    const PowerCut how = cut_at->cut;
    cut_at.reset();
    cut(how);
    power = false;
  }
  if (!power) return no_power(path);
  ++calls[static_cast<std::size_t>(Call::kAny)];
  ++calls[static_cast<std::size_t>(call)];
  if (is_change) ++changes;
  partial = 0;
  for (auto it = failures.begin(); it != failures.end(); ++it) {
    if (it->call != Call::kAny && it->call != call) continue;
    if (path.find(it->path_part) == std::string::npos) continue;
    if (it->nth > 1) {
      --it->nth;
      continue;
    }
    Error error = it->error;
    partial = it->partial;
    if (--it->times == 0) failures.erase(it);
    return error;
  }
  if (is_change && read_only) return errno_error(EROFS, "cannot change", path);
  return {};
}

Result<FakeDisk::Place> FakeDisk::place(const std::string& path, std::string_view what) {
  NC_ASSIGN(const auto parts, split(path));
  if (parts.empty()) return Place{nullptr, "", root};
  InodePtr dir = root;
  for (std::size_t i = 0;; ++i) {
    if (!dir->is_dir) return errno_error(ENOTDIR, what, path);
    const auto it = dir->names.find(parts[i]);
    InodePtr found = it == dir->names.end() ? nullptr : it->second;
    if (i + 1 == parts.size()) return Place{std::move(dir), parts[i], std::move(found)};
    if (!found) return errno_error(ENOENT, what, path);
    dir = std::move(found);
  }
}

Result<FakeDisk::InodePtr> FakeDisk::find(const std::string& path, std::string_view what) {
  NC_ASSIGN(Place at, place(path, what));
  if (!at.inode) return errno_error(ENOENT, what, path);
  return std::move(at.inode);
}

FakeDisk::InodePtr FakeDisk::new_inode(bool is_dir, std::uint32_t mode) {
  auto inode = std::make_shared<Inode>();
  inode->number = ++last_number_;
  inode->is_dir = is_dir;
  inode->mode = mode;
  inode->uid = ::getuid();
  inode->mtime_ms = now();
  return inode;
}

void FakeDisk::change_names(NameOp op) {
  for (const NameChange& change : op) {
    if (change.inode) ++change.inode->links;
    InodePtr& slot = change.dir->names[change.name];
    const InodePtr old = std::exchange(slot, change.inode);
    if (!slot) change.dir->names.erase(change.name);
    change.dir->mtime_ms = now();
    if (change.inode) charge(*change.inode);
    if (old) {
      --old->links;
      charge(*old);
    }
  }
  pending_.push_back(std::move(op));
}

Status FakeDisk::make_dirs(const std::string& dir, std::uint32_t mode) {
  NC_ASSIGN(const auto parts, split(dir));
  InodePtr at = root;
  for (const std::string& part : parts) {
    const auto it = at->names.find(part);
    if (it != at->names.end()) {
      if (!it->second->is_dir) return errno_error(ENOTDIR, "cannot create the directory", dir);
      at = it->second;
      continue;
    }
    auto made = new_inode(true, mode);
    change_names({{at, part, made}});
    at = std::move(made);
  }
  return {};
}

void FakeDisk::apply(const NameOp& op) {
  for (const NameChange& change : op) {
    if (change.inode) {
      change.dir->durable_names[change.name] = change.inode;
    } else {
      change.dir->durable_names.erase(change.name);
    }
  }
}

void FakeDisk::sync_names(const InodePtr& dir) {
  // What happened to one name stays in order: an operation on `dir` takes along the earlier ones on
  // its other names.
  std::vector<bool> chosen(pending_.size());
  std::set<std::pair<const Inode*, std::string>> needed;
  for (std::size_t i = pending_.size(); i-- > 0;) {
    chosen[i] = std::ranges::any_of(pending_[i], [&](const NameChange& change) {
      return change.dir == dir || needed.contains({change.dir.get(), change.name});
    });
    if (!chosen[i]) continue;
    for (const NameChange& change : pending_[i]) needed.insert({change.dir.get(), change.name});
  }
  std::vector<NameOp> left;
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    if (chosen[i]) {
      apply(pending_[i]);
    } else {
      left.push_back(std::move(pending_[i]));
    }
  }
  pending_ = std::move(left);
}

void FakeDisk::charge(Inode& inode) {
  const bool counts = !inode.is_dir && (inode.links > 0 || inode.opens > 0);
  const std::uint64_t due = counts ? inode.data.size() : 0;
  used = used - inode.charged + due;
  inode.charged = due;
}

void FakeDisk::remember(const InodePtr& inode, Write write) {
  if (!inode->listed) {
    if (dirty_.size() >= next_sweep_) {
      std::erase_if(dirty_, [](const auto& weak) {
        const auto kept = weak.lock();
        if (kept && !kept->unsynced.empty()) return false;
        if (kept) kept->listed = false;
        return true;
      });
      next_sweep_ = 64 + 2 * dirty_.size();
    }
    dirty_.push_back(inode);
    inode->listed = true;
  }
  write.order = ++last_order_;
  inode->unsynced.push_back(std::move(write));
  inode->mtime_ms = now();
  charge(*inode);
}

Status FakeDisk::write(const InodePtr& inode, const std::string& path, std::uint64_t offset,
                       Bytes bytes) {
  std::string& data = inode->data;
  const std::uint64_t size_before = data.size();
  const std::uint64_t free = used >= capacity ? 0 : capacity - used;
  bool full = false;
  if (offset + bytes.size() > size_before + free) {
    full = true;
    if (offset > size_before + free) return errno_error(ENOSPC, "cannot write", path);
    bytes = bytes.first(size_before + free - offset);
  }
  if (!bytes.empty()) {
    Write write;
    write.offset = offset;
    write.now = as_text(bytes);
    write.size_before = size_before;
    if (offset < size_before) write.before = data.substr(offset, bytes.size());
    write.size_after = std::max<std::uint64_t>(size_before, offset + bytes.size());
    data.resize(write.size_after);
    data.replace(offset, bytes.size(), write.now);
    remember(inode, std::move(write));
  }
  if (full) return errno_error(ENOSPC, "cannot write", path);
  return {};
}

void FakeDisk::resize(const InodePtr& inode, std::uint64_t size) {
  if (size == inode->data.size()) return;
  Write write;
  write.offset = size;
  write.size_before = inode->data.size();
  write.size_after = size;
  if (size < inode->data.size()) write.before = inode->data.substr(size);
  inode->data.resize(size);
  remember(inode, std::move(write));
}

std::uint64_t FakeDisk::unsynced_bytes() {
  std::uint64_t bytes = 0;
  for (const auto& weak : dirty_) {
    const auto inode = weak.lock();
    if (!inode) continue;
    for (const Write& write : inode->unsynced) bytes += write.now.size();
  }
  return bytes;
}

}  // namespace nc
