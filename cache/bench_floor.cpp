#include "cache/bench_floor.hpp"

#include <vector>

#include <rocksdb/db.h>

#include "cache/rocks_options.hpp"

namespace nc {

struct BenchFloor::Impl {
  std::unique_ptr<rocksdb::DB> db;
  std::vector<rocksdb::ColumnFamilyHandle*> handles;

  ~Impl() {
    for (auto* handle : handles) db->DestroyColumnFamilyHandle(handle);
  }
  rocksdb::ColumnFamilyHandle* blobs() const {
    return handles[static_cast<std::size_t>(Family::kBlobs)];
  }
};

namespace {

Error to_error(const rocksdb::Status& s, std::string_view what) {
  return {Code::kIo, std::string(what) + " the bare RocksDB: " + s.ToString(), ""};
}

}  // namespace

BenchFloor::BenchFloor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BenchFloor::BenchFloor(BenchFloor&&) noexcept = default;
BenchFloor& BenchFloor::operator=(BenchFloor&&) noexcept = default;
BenchFloor::~BenchFloor() = default;

Result<BenchFloor> BenchFloor::open(const std::string& dir) {
  auto options = make_rocks_options(false);
  options.db.create_if_missing = true;
  std::vector<rocksdb::ColumnFamilyDescriptor> families;
  for (std::size_t i = 0; i < kFamilies; ++i) {
    families.emplace_back(family_name(static_cast<Family>(i)), options.families[i]);
  }
  auto impl = std::make_unique<Impl>();
  rocksdb::DB* db = nullptr;
  const auto s = rocksdb::DB::Open(options.db, dir, families, &impl->handles, &db);
  impl->db.reset(db);
  if (!s.ok()) return to_error(s, "cannot open");
  return BenchFloor(std::move(impl));
}

Status BenchFloor::put(std::string_view key, std::string_view value, bool sync) {
  rocksdb::WriteOptions write;
  write.sync = sync;
  const auto s =
      impl_->db->Put(write, impl_->blobs(), {key.data(), key.size()}, {value.data(), value.size()});
  if (!s.ok()) return to_error(s, "cannot write to");
  return {};
}

Result<std::optional<std::string>> BenchFloor::get(std::string_view key) {
  std::string value;
  const auto s = impl_->db->Get({}, impl_->blobs(), {key.data(), key.size()}, &value);
  if (s.IsNotFound()) return std::optional<std::string>();
  if (!s.ok()) return to_error(s, "cannot read from");
  return std::optional<std::string>(std::move(value));
}

}  // namespace nc
