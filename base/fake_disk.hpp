// Private to base: the state behind FakeFileSystem and its open files.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/fake_filesystem.hpp"
#include "base/thread_annotations.hpp"

namespace nc {

class FakeDisk {
 public:
  using Call = FakeFileSystem::Call;

  // One write or truncate since the last sync, with what undoes it.
  struct Write {
    std::uint64_t order = 0;
    std::uint64_t offset = 0;
    std::string now;
    std::string before;  // what was at offset
    std::uint64_t size_before = 0;
    std::uint64_t size_after = 0;
  };
  struct Inode;
  using InodePtr = std::shared_ptr<Inode>;
  using Names = std::map<std::string, InodePtr, std::less<>>;
  struct Inode {
    std::uint64_t number = 0;
    bool is_dir = false;
    std::uint32_t mode = 0;
    std::uint32_t uid = 0;
    Millis mtime_ms = 0;
    std::uint32_t links = 0;
    std::uint32_t opens = 0;
    std::uint64_t charged = 0;  // its share of used
    bool listed = false;        // in dirty_
    std::string data;
    std::vector<Write> unsynced;
    Names names;          // of a directory, as the program sees it
    Names durable_names;  // and as a power cut leaves it
  };
  // A change of names that happens whole or not at all; the inode is null for a removal.
  struct NameChange {
    InodePtr dir;
    std::string name;
    InodePtr inode;
  };
  using NameOp = std::vector<NameChange>;

  explicit FakeDisk(const Clock* clock);

  // Counts a call and decides whether it goes on.
  Status enter(Call call, const std::string& path, bool changes) NC_REQUIRES(mutex);

  // The inode at `path`; errors say what could not be done.
  Result<InodePtr> find(const std::string& path, std::string_view what) NC_REQUIRES(mutex);
  struct Place {  // where a name is or could be
    InodePtr dir;
    std::string name;
    InodePtr inode;  // null: free
  };
  Result<Place> place(const std::string& path, std::string_view what) NC_REQUIRES(mutex);
  InodePtr new_inode(bool is_dir, std::uint32_t mode) NC_REQUIRES(mutex);
  void change_names(NameOp op) NC_REQUIRES(mutex);
  Status make_dirs(const std::string& dir, std::uint32_t mode) NC_REQUIRES(mutex);
  void sync_names(const InodePtr& dir) NC_REQUIRES(mutex);

  Status write(const InodePtr& inode, const std::string& path, std::uint64_t offset, Bytes bytes)
      NC_REQUIRES(mutex);
  void resize(const InodePtr& inode, std::uint64_t size) NC_REQUIRES(mutex);
  void charge(Inode& inode) NC_REQUIRES(mutex);
  void cut(const PowerCut& cut) NC_REQUIRES(mutex);
  std::uint64_t unsynced_bytes() NC_REQUIRES(mutex);

  mutable Mutex mutex;
  InodePtr root NC_GUARDED_BY(mutex);
  std::uint64_t boot NC_GUARDED_BY(mutex) =
      0;  // of an open file or lock: another one means that the power was cut
  bool power NC_GUARDED_BY(mutex) = true;
  bool read_only NC_GUARDED_BY(mutex) = false;
  std::uint64_t capacity NC_GUARDED_BY(mutex) = 1ULL << 40;
  std::uint64_t used NC_GUARDED_BY(mutex) = 0;
  std::size_t open_files NC_GUARDED_BY(mutex) = 0;
  std::set<const Inode*> locked NC_GUARDED_BY(mutex);
  std::array<std::uint64_t, FakeFileSystem::kCallKinds> calls NC_GUARDED_BY(mutex){};
  std::uint64_t changes NC_GUARDED_BY(mutex) = 0;
  std::vector<FakeFileSystem::Failure> failures NC_GUARDED_BY(mutex);
  std::uint64_t partial NC_GUARDED_BY(mutex) = 0;  // of the failure that enter() has just answered
  struct CutAt {
    std::uint64_t calls_left = 0;
    PowerCut cut;
  };
  std::optional<CutAt> cut_at NC_GUARDED_BY(mutex);

 private:
  Millis now() const { return clock_ == nullptr ? 0 : clock_->wall_ms(); }
  void apply(const NameOp& op) NC_REQUIRES(mutex);
  void cut_names(const PowerCut& cut) NC_REQUIRES(mutex);
  void cut_data(const PowerCut& cut) NC_REQUIRES(mutex);
  void forget_counts(const InodePtr& dir) NC_REQUIRES(mutex);
  void count_again(const InodePtr& dir) NC_REQUIRES(mutex);
  void remember(const InodePtr& inode, Write write) NC_REQUIRES(mutex);

  const Clock* clock_;
  std::uint64_t last_number_ NC_GUARDED_BY(mutex) = 0;
  std::uint64_t last_order_ NC_GUARDED_BY(mutex) = 0;
  std::size_t next_sweep_ NC_GUARDED_BY(mutex) = 64;  // of dirty_
  std::vector<NameOp> pending_ NC_GUARDED_BY(mutex);  // in order
  std::vector<std::weak_ptr<Inode>> dirty_
      NC_GUARDED_BY(mutex);  // with unsynced writes, maybe no more
};

}  // namespace nc
