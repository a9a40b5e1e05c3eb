// What a power cut does to a FakeDisk.
#include <algorithm>
#include <limits>

#include "base/fake_disk.hpp"

namespace nc {
namespace {

// xorshift64*: the same numbers for a seed on every machine.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ULL | 1) {}
  std::uint64_t below(std::uint64_t end) {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return (state_ * 0x2545f4914f6cdd1dULL >> 11) % end;
  }

 private:
  std::uint64_t state_;
};

struct DirtyWrite {
  FakeDisk::InodePtr inode;
  FakeDisk::Write write;
};

void undo(std::string& data, const FakeDisk::Write& write) {
  data.resize(write.size_before);
  if (!write.before.empty()) data.replace(write.offset, write.before.size(), write.before);
}

// Does the first `bytes` bytes of a write again.
void redo(std::string& data, const FakeDisk::Write& write, std::uint64_t bytes, bool zeroed) {
  if (write.now.empty()) {
    data.resize(write.size_after);
    return;
  }
  if (bytes == 0) return;
  data.resize(std::max<std::uint64_t>(data.size(), write.offset + bytes));
  data.replace(write.offset, bytes, zeroed ? std::string(bytes, '\0') : write.now.substr(0, bytes));
}

}  // namespace

void FakeDisk::cut(const PowerCut& how) {
  cut_data(how);
  cut_names(how);
  ++boot;
  locked.clear();
  open_files = 0;
}

void FakeDisk::cut_data(const PowerCut& how) {
  std::vector<DirtyWrite> writes;
  for (const auto& weak : dirty_) {
    const auto inode = weak.lock();
    if (!inode) continue;
    for (auto it = inode->unsynced.rbegin(); it != inode->unsynced.rend(); ++it) {
      undo(inode->data, *it);
    }
    for (Write& write : inode->unsynced) writes.push_back({inode, std::move(write)});
    inode->unsynced.clear();
    inode->listed = false;
  }
  dirty_.clear();
  if (how.data == PowerCut::Data::kDropAll) return;
  std::ranges::sort(writes, {}, [](const DirtyWrite& dirty) { return dirty.write.order; });

  constexpr std::uint64_t kAll = std::numeric_limits<std::uint64_t>::max();
  std::map<const Inode*, std::uint64_t> share;  // kRandom: bytes of each file that got through
  if (how.data == PowerCut::Data::kRandom) {
    for (const DirtyWrite& dirty : writes) share[dirty.inode.get()] += dirty.write.now.size();
    Dice dice(how.seed);
    // In the order of the writes, not of the addresses: a seed must mean the same in every run.
    std::set<const Inode*> drawn;
    for (const DirtyWrite& dirty : writes) {
      std::uint64_t& bytes = share[dirty.inode.get()];
      if (drawn.insert(dirty.inode.get()).second) bytes = dice.below(bytes + 1);
    }
  }
  std::uint64_t budget = how.data == PowerCut::Data::kFirstBytes ? how.bytes : kAll;
  for (const DirtyWrite& dirty : writes) {
    const bool random = how.data == PowerCut::Data::kRandom;
    std::uint64_t& left = random ? share[dirty.inode.get()] : budget;
    // A truncate has no bytes: it got through when something after it may have.
    if (left == 0) continue;
    const auto bytes = std::min<std::uint64_t>(left, dirty.write.now.size());
    redo(dirty.inode->data, dirty.write, bytes, how.data == PowerCut::Data::kZeroed);
    if (left != kAll) left -= bytes;
  }
}

void FakeDisk::cut_names(const PowerCut& how) {
  Dice dice(how.seed ^ 0x5bd1e995);
  std::set<std::pair<const Inode*, std::string>> lost;
  for (const NameOp& op : pending_) {
    bool happened = how.names == PowerCut::Names::kKeepAll ||
                    (how.names == PowerCut::Names::kRandom && dice.below(2) == 0);
    for (const NameChange& change : op) {
      if (lost.contains({change.dir.get(), change.name})) happened = false;
    }
    if (happened) {
      apply(op);
    } else {
      for (const NameChange& change : op) lost.insert({change.dir.get(), change.name});
    }
  }
  pending_.clear();
  used = 0;
  forget_counts(root);
  count_again(root);
}

void FakeDisk::forget_counts(const InodePtr& dir) {
  dir->names = dir->durable_names;
  for (const auto& [name, inode] : dir->names) {
    inode->links = 0;
    inode->opens = 0;
    inode->charged = 0;
    if (inode->is_dir) forget_counts(inode);
  }
}

void FakeDisk::count_again(const InodePtr& dir) {
  for (const auto& [name, inode] : dir->names) {
    ++inode->links;
    charge(*inode);
    if (inode->is_dir) count_again(inode);
  }
}

}  // namespace nc
