// A tier in one Redis server (6 or later; not Redis Cluster): for small clusters, and for leases
// beside another tier. An object is one string; options and guarantees: docs/tiers.md.
#pragma once

#include <memory>

#include "cache/tier/open_engine.hpp"

namespace nc::tier {

inline constexpr std::uint64_t kRedisMaxObject = 512ULL << 20;  // what Redis takes as one string

// kInvalid for a password that would go over the network in the clear.
Result<std::unique_ptr<Engine>> open_redis(const TierAddress& address, EngineDeps deps);

// Redis's failure ("NOAUTH Authentication required.") as ours.
Error redis_error(std::string_view text, std::string_view what);

}  // namespace nc::tier
