// The pieces that the calls of the store hand to each other. Private to cache/.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/hash.hpp"
#include "cache/key_value.hpp"
#include "cache/miss_explainer.hpp"

namespace nc {

inline constexpr char kTombstoneRing = 't';  // in the family misses: why keys are gone
inline constexpr char kMissRing = 'm';
inline constexpr std::uint64_t kMaxTombstones = 20'000;
inline constexpr std::uint64_t kMaxMisses = 10'000;

// Entries on their way out, with the blobs that only they named.
struct Removal {
  explicit Removal(RemovalCause why) : cause(why) {}
  struct Gone {
    ActionKey key;
    std::string name_space;
    std::uint64_t bytes = 0;
  };
  RemovalCause cause;
  std::vector<Gone> keys;
  std::vector<Digest> digests;
  std::vector<ActionKey> skipped;  // held until settled
  KvBatch batch;
};
struct Doomed {
  Digest digest;
  bool compressed = false;
  std::uint64_t bytes = 0;
  Millis since = 0;  // monotonic
};
struct Found {  // a manifest as stored, with the entry it belongs to
  std::string json;
  bool failed = false;
  std::uint64_t generation = 0;
};
struct Swept {
  std::uint64_t files = 0, bytes = 0;
};

}  // namespace nc
