// A disk in memory, for tests: loses what was not synced when the power is cut, fills up, fails at
// a chosen call, goes read-only. Thread-safe. Files, locks and the file system itself may be
// destroyed in any order.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "base/filesystem.hpp"
#include "base/result.hpp"

namespace nc {

class FakeDisk;

// What a power cut leaves of the work that was not synced. The default is the worst that the
// contract allows in order.
struct PowerCut {
  enum class Data {
    kDropAll,     // files are as at their last sync
    kKeepAll,     // every write got through
    kFirstBytes,  // the first `bytes` unsynced bytes, over all files in the order of the writes:
                  // sweep it to cut at every byte
    kRandom,      // of each file a random number of its first unsynced bytes
    kZeroed,      // sizes got through, bytes did not: they read as zeros
  };
  enum class Names {
    kDropAll,  // no create, rename, link or remove since the last sync_dir of its directory
               // happened
    kKeepAll,  // all happened
    kRandom,   // each may have happened or not; those on one name only in their order
  };
  Data data = Data::kDropAll;
  Names names = Names::kDropAll;
  std::uint64_t bytes = 0;
  std::uint64_t seed = 1;

  // A killed process: its files and locks are gone, what it wrote is not.
  static PowerCut process_killed() { return {Data::kKeepAll, Names::kKeepAll}; }
};

class FakeFileSystem final : public FileSystem {
 public:
  enum class Call {
    kAny,
    kOpen,
    kRead,
    kWrite,
    kTruncate,
    kSync,
    kMap,
    kStat,
    kList,
    kMakeDirs,
    kRename,
    kLink,
    kRemove,
    kRemoveDir,
    kSyncDir,
    kSpace,
    kLock,
  };
  static constexpr std::size_t kCallKinds = 17;

  struct Failure {
    Call call = Call::kAny;
    std::uint64_t nth = 1;  // the n-th matching call from now on
    Error error = {};
    std::uint64_t times = 1;     // that many calls in a row
    std::string path_part = {};  // only calls whose path contains this
    std::uint64_t partial = 0;   // kWrite: that many bytes are written before it fails
  };

  // `clock` gives mtimes and must outlive this; without one they are 0.
  explicit FakeFileSystem(const Clock* clock = nullptr);
  ~FakeFileSystem() override;

  Result<std::unique_ptr<File>> open(const std::string& path, Open how,
                                     std::uint32_t mode = 0600) override;
  Result<std::unique_ptr<Mapping>> map(const std::string& path) override;
  Result<std::string> read_all(const std::string& path, std::uint64_t limit) override;
  Result<FileInfo> stat(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& dir) override;
  Status make_dirs(const std::string& dir, std::uint32_t mode = 0700) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status link(const std::string& from, const std::string& to) override;
  Status remove(const std::string& path) override;
  Status remove_dir(const std::string& dir) override;
  Status sync_dir(const std::string& dir) override;
  Result<DiskSpace> space(const std::string& path) override;
  Result<std::unique_ptr<FileLock>> lock(const std::string& path) override;

  // Cuts the power and gives it back: what was not synced is lost as `cut` says, open files fail
  // (kIo), locks are free. Mappings that were given out keep their bytes.
  void power_cut(const PowerCut& cut = {});
  // Cuts it right before the n-th changing call from now on (open for writing, write, truncate,
  // sync, make_dirs, rename, link, remove, remove_dir, sync_dir, lock). Every call then fails (kIo)
  // until power_on().
  void power_cut_at(std::uint64_t nth, const PowerCut& cut = {});
  bool has_power() const;
  void power_on();                       // also forgets a power_cut_at() that has not happened
  std::uint64_t unsynced_bytes() const;  // the bound for PowerCut::bytes

  void fail(Failure failure);  // several may be set; each is used up by itself
  void clear_failures();
  void set_capacity(std::uint64_t bytes);  // default 1 TiB. A write that does not fit writes what
                                           // fits, then kNoSpace
  std::uint64_t used() const;              // bytes of files that have a name or are open
  void set_read_only(bool read_only);      // kReadOnly for every changing call

  std::uint64_t calls(Call call = Call::kAny) const;
  std::uint64_t changes() const;  // changing calls so far
  std::size_t open_files() const;

  // Behind the back of the program under test; durable at once, counted nowhere. Abort when there
  // is no such file.
  void set_owner(const std::string& path, std::uint32_t uid);
  void flip_bit(const std::string& path, std::uint64_t offset, unsigned bit = 0);

 private:
  std::shared_ptr<FakeDisk> disk_;
};

}  // namespace nc
