// What a prune request removes: a pure function of the entries. The store gathers the entries,
// asks, and removes (or, for a dry run, only tells).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/hash.hpp"
#include "base/result.hpp"
#include "cache/store.hpp"

namespace nc {

struct BlobUse {
  Digest digest;
  std::uint64_t disk_bytes = 0;
  std::uint64_t refs = 1;  // entries in the whole store that name it
};
// The distinct blobs of an entry. Called once per entry that could go.
using BlobsOf = std::function<std::vector<BlobUse>(const ActionKey&)>;

// kInvalid: a negative or non-finite duration.
Status check_filter(const EntryFilter& filter);
// Text compares ignore case for compiler and model (substring), not for the others (exact). A time
// in the future (the clock went back) counts as now.
bool matches(const EntryFilter& filter, const EntryInfo& entry, Millis now);

// Feed every entry, then finish(). Keeps in memory what matches, nothing else.
class PrunePlanner {
 public:
  PrunePlanner(PruneRequest request, Millis now) : request_(std::move(request)), now_(now) {}
  void add(const EntryInfo& entry);
  // Without max_bytes and max_entries everything that matches goes. With them the cheapest
  // (rebuild_value(), then least recently used, then key) go until what is left of the matching
  // entries is within both. Pinned and in-use entries stay, take their room, and are named in
  // `kept` when their turn would have come. With `blobs_of`, sizes are bytes on disk of distinct
  // blobs, and `bytes` leaves out blobs that survivors share; without it, sizes are the entries'
  // own.
  PruneResult finish(const BlobsOf& blobs_of = {});

 private:
  PruneRequest request_;
  Millis now_;
  std::vector<EntryInfo> matching_;
};

PruneResult plan_prune(std::span<const EntryInfo> entries, const PruneRequest& request, Millis now,
                       const BlobsOf& blobs_of = {});

}  // namespace nc
