#include "cache/rocks_options.hpp"

#include <cstdarg>
#include <cstdio>

#include <rocksdb/cache.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/slice_transform.h>
#include <rocksdb/table.h>

#include "base/log.hpp"

namespace nc {
namespace {

// RocksDB's own log goes to ours, warnings and worse only, so that no LOG files lie in the store.
class Forward final : public rocksdb::Logger {
 public:
  Forward() : Logger(rocksdb::InfoLogLevel::WARN_LEVEL) {}
  using Logger::Logv;
  void Logv(const char* format, va_list args) override {
    char text[512];
    std::vsnprintf(text, sizeof(text), format, args);
    log::debug("index", "{}", text);
  }
};

}  // namespace

const char* family_name(Family family) {
  switch (family) {
    case Family::kMeta:
      return "default";
    case Family::kManifests:
      return "manifests";
    case Family::kBlobs:
      return "blobs";
    case Family::kEntries:
      return "entries";
    case Family::kRecords:
      return "records";
    case Family::kStats:
      return "stats";
    case Family::kMisses:
      return "misses";
    case Family::kHistograms:
      return "histograms";
    case Family::kPlans:
      return "plans";
  }
  return "default";
}

RocksOptions make_rocks_options(bool read_only) {
  RocksOptions out;
  auto& db = out.db;
  db.create_if_missing = false;
  db.create_missing_column_families = !read_only;
  db.info_log = std::make_shared<Forward>();
  db.info_log_level = rocksdb::InfoLogLevel::WARN_LEVEL;
  db.stats_dump_period_sec = 0;
  db.stats_persist_period_sec = 0;
  db.max_background_jobs = 2;
  // A reader beside a live writer must keep the tables open that the writer may delete.
  db.max_open_files = read_only ? -1 : 128;
  db.max_file_opening_threads = 1;
  db.db_write_buffer_size = 8 << 20;
  db.max_total_wal_size = 16 << 20;
  db.table_cache_numshardbits = 2;
  db.wal_bytes_per_sync = 0;
  db.bytes_per_sync = 1 << 20;
  db.max_manifest_file_size = 4 << 20;
  db.keep_log_file_num = 1;
  db.track_and_verify_wals_in_manifest = false;
  // A torn tail after a power cut is normal; what was synced lies before it.
  db.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  db.avoid_flush_during_shutdown = true;

  rocksdb::BlockBasedTableOptions table;
  // Indices and filters stay with their open tables (max_open_files bounds them); reads of data do
  // not fill the cache, see RocksDb::get.
  table.block_cache = rocksdb::NewLRUCache(2 << 20, 2);
  table.cache_index_and_filter_blocks = false;
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10, false));
  table.block_size = 4 << 10;
  table.format_version = 5;
  table.checksum = rocksdb::ChecksumType::kXXH3;

  for (std::size_t i = 0; i < kFamilies; ++i) {
    const auto family = static_cast<Family>(i);
    rocksdb::ColumnFamilyOptions cf;
    const bool big = family == Family::kBlobs || family == Family::kManifests;
    cf.write_buffer_size = big ? 4 << 20 : 1 << 20;
    cf.max_write_buffer_number = 2;
    cf.arena_block_size = 64 << 10;
    cf.target_file_size_base = big ? 16 << 20 : 4 << 20;
    cf.max_bytes_for_level_base = big ? 64 << 20 : 16 << 20;
    cf.level_compaction_dynamic_level_bytes = true;
    // Small blobs are compressed one by one where it pays; manifests are alike and gain as blocks.
    cf.compression = family == Family::kBlobs ? rocksdb::kNoCompression : rocksdb::kLZ4Compression;
    cf.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
    out.families.push_back(std::move(cf));
  }
  return out;
}

}  // namespace nc
