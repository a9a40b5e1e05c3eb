// The options of the index's database, chosen for small memory: an idle daemon holds little, and a
// hundred thousand entries do not change that. Private to the files that know RocksDB.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <rocksdb/options.h>

#include "cache/key_value.hpp"

namespace nc {

const char* family_name(Family family);

// Shared by all column families of one database.
struct RocksOptions {
  rocksdb::DBOptions db;
  std::vector<rocksdb::ColumnFamilyOptions> families;  // by Family
};
RocksOptions make_rocks_options(bool read_only);

}  // namespace nc
