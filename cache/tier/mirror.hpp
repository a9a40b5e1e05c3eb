// A copy of what another tool keeps in a bucket, as files: for `neuroncache import --from`.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "cache/tier/engine.hpp"

namespace nc::tier {

struct Mirrored {
  std::uint64_t objects = 0;
  std::uint64_t bytes = 0;
  std::uint64_t left_out = 0;  // names that are no paths: empty parts, "..", too long
};

// Every object below `url` (s3://bucket/prefix with the options of docs/tiers.md), by its name
// below the prefix, into `directory`, which is there and empty. kInvalid: no such address. Others
// as of engines; what was copied by then stays.
Result<Mirrored> mirror_bucket(const std::string& url, const std::string& directory);

// The same from an engine that takes any names.
Result<Mirrored> mirror(Engine& engine, const std::string& directory);

// Whether a name may be a path below a directory of ours.
bool is_path(std::string_view name);

}  // namespace nc::tier
