// RocksDB's door to the disk: its own on the real one, else an adapter over nc::FileSystem, so that
// a fake disk covers the index, too. Private to rocks_db.cpp.
#pragma once

#include <memory>

#include <rocksdb/env.h>

#include "base/filesystem.hpp"

namespace nc {

// `fs` must outlive the result.
std::unique_ptr<rocksdb::Env> make_rocks_env(FileSystem& fs);

}  // namespace nc
