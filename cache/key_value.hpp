// The ordered key-value database under the index: column families, atomic batches, scans. The
// implementation (rocks_db.cpp) is the only code that knows RocksDB; no type of it leaves.
//
// Thread-safe. A write that failed for want of space leaves the database refusing writes until
// recover() succeeds.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/filesystem.hpp"
#include "base/result.hpp"

namespace nc {

enum class Family : std::uint8_t {
  kMeta,
  kManifests,
  kBlobs,
  kEntries,
  kRecords,
  kStats,
  kMisses,
  kHistograms,
  kPlans,
};
inline constexpr std::size_t kFamilies = 9;

// Changes that are applied all together or not at all, in order.
class KvBatch {
 public:
  void put(Family family, std::string_view key, std::string value) {
    ops_.push_back({family, std::string(key), std::move(value)});
  }
  void erase(Family family, std::string_view key) {
    ops_.push_back({family, std::string(key), std::nullopt});
  }
  bool empty() const { return ops_.empty(); }
  std::size_t size() const { return ops_.size(); }
  void append(KvBatch other) {
    for (auto& op : other.ops_) ops_.push_back(std::move(op));
  }

  struct Op {
    Family family;
    std::string key;
    std::optional<std::string> value;  // nullopt: erase
  };
  const std::vector<Op>& ops() const { return ops_; }

 private:
  std::vector<Op> ops_;
};

class KeyValueDb {
 public:
  struct Options {
    std::string dir;
    bool read_only = false;  // opens beside a live writer: sees what was committed until now
    bool create = true;      // when there is none; else kNotFound
  };
  // kCorrupt: will not open (damaged). kBusy: another process writes it. kNotFound, kNoSpace,
  // kReadOnly, kDenied, kIo.
  static Result<std::unique_ptr<KeyValueDb>> open(FileSystem& fs, const Options& options);
  virtual ~KeyValueDb() = default;
  // Puts together what can still be read of a database that does not open. Changes its files.
  static Status repair(FileSystem& fs, const std::string& dir);

  // nullopt: absent. kCorrupt: the block that holds it is damaged.
  virtual Result<std::optional<std::string>> get(Family family, std::string_view key) = 0;
  // Calls `visit` for every pair from `from` on, in order of the keys' bytes, until it returns
  // false. `visit` must not write.
  using Visitor = std::function<bool(std::string_view key, std::string_view value)>;
  virtual Status scan(Family family, std::string_view from, const Visitor& visit) = 0;
  virtual Result<std::optional<std::string>> last_key(Family family, std::string_view prefix) = 0;

  // With `sync` durable against power loss when it returns, with everything committed before; else
  // against a kill only.
  virtual Status commit(const KvBatch& batch, bool sync) = 0;
  virtual Status sync() = 0;
  // Writes memory out to tables. For the end, and for tests.
  virtual Status flush() = 0;
  virtual Status compact() = 0;

  // nullopt while writes work; else why they do not.
  virtual std::optional<Error> broken() = 0;
  // Makes writes work again after an error (resume, else close and open).
  virtual Status recover() = 0;
};

}  // namespace nc
