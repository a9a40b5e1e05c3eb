#include "cache/prune_plan.hpp"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include <fmt/format.h>

#include "cache/eviction.hpp"

namespace nc {
namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool contains_ignoring_case(std::string_view text, std::string_view part) {
  return std::search(text.begin(), text.end(), part.begin(), part.end(),
                     [](char a, char b) { return lower(a) == lower(b); }) != text.end();
}

double seconds_since(Millis then, Millis now) {
  return then >= now ? 0 : static_cast<double>(now - then) / 1000;
}

Status check_duration(const std::optional<double>& seconds, std::string_view name) {
  if (!seconds || (std::isfinite(*seconds) && *seconds >= 0)) return {};
  return Error{Code::kInvalid,
               fmt::format("{} is {}, not a number of seconds from 0 up", name, *seconds),
               "give a duration such as 7d or 12h"};
}

// How much the matching entries hold, and how much of the disk removing some frees. Blobs that
// several entries share count once.
class Room {
 public:
  Room(std::span<const EntryInfo> entries, const BlobsOf& blobs_of) {
    sizes_.reserve(entries.size());
    if (blobs_of) blobs_.reserve(entries.size());
    for (const EntryInfo& entry : entries) {
      sizes_.push_back(entry.bytes);
      if (!blobs_of) {
        total_ += entry.bytes;
        continue;
      }
      blobs_.push_back(blobs_of(entry.key));
      for (const BlobUse& blob : blobs_.back()) {
        Seen& seen = seen_[blob.digest];
        if (seen.matching++ == 0) total_ += blob.disk_bytes;
      }
    }
  }

  std::uint64_t total() const { return total_; }  // of what is left of the matching entries
  std::uint64_t freed() const { return freed_; }

  void remove(std::size_t i) {
    if (blobs_.empty()) {
      total_ -= sizes_[i];
      freed_ += sizes_[i];
      return;
    }
    for (const BlobUse& blob : blobs_[i]) {
      Seen& seen = seen_[blob.digest];
      if (++seen.removed == seen.matching) total_ -= blob.disk_bytes;
      if (seen.removed >= blob.refs) freed_ += blob.disk_bytes;
    }
  }

 private:
  struct Seen {
    std::uint64_t matching = 0;  // entries that match and name the blob
    std::uint64_t removed = 0;   // of those
  };
  std::vector<std::uint64_t> sizes_;
  std::vector<std::vector<BlobUse>> blobs_;
  std::unordered_map<Digest, Seen, Sha256Hash> seen_;
  std::uint64_t total_ = 0;
  std::uint64_t freed_ = 0;
};

}  // namespace

Status check_filter(const EntryFilter& filter) {
  NC_TRY(check_duration(filter.older_than_s, "older_than_s"));
  return check_duration(filter.unused_since_s, "unused_since_s");
}

bool matches(const EntryFilter& filter, const EntryInfo& entry, Millis now) {
  if (filter.name_space && entry.name_space != *filter.name_space) return false;
  if (filter.kind && entry.kind != *filter.kind) return false;
  if (filter.failed && entry.failed != *filter.failed) return false;
  if (filter.compiler && !contains_ignoring_case(entry.compiler, *filter.compiler)) return false;
  if (filter.model && !contains_ignoring_case(entry.model, *filter.model)) return false;
  if (filter.older_than_s && seconds_since(entry.created_ms, now) < *filter.older_than_s)
    return false;
  const Millis used = std::max(entry.used_ms, entry.created_ms);  // never used: since it was made
  return !filter.unused_since_s || seconds_since(used, now) >= *filter.unused_since_s;
}

void PrunePlanner::add(const EntryInfo& entry) {
  if (matches(request_.filter, entry, now_)) matching_.push_back(entry);
}

PruneResult PrunePlanner::finish(const BlobsOf& blobs_of) {
  std::sort(matching_.begin(), matching_.end(), [](const EntryInfo& a, const EntryInfo& b) {
    const double va = rebuild_value(a.build_ms, a.uses, a.bytes);
    const double vb = rebuild_value(b.build_ms, b.uses, b.bytes);
    if (va != vb) return va < vb;
    return a.used_ms != b.used_ms ? a.used_ms < b.used_ms : a.key < b.key;
  });
  const bool bounded = request_.max_bytes || request_.max_entries;
  Room room(matching_, blobs_of);
  std::size_t left = matching_.size();
  PruneResult result;
  for (std::size_t i = 0; i < matching_.size(); ++i) {
    const bool fits = (!request_.max_bytes || room.total() <= *request_.max_bytes) &&
                      (!request_.max_entries || left <= *request_.max_entries);
    if (bounded && fits) break;
    EntryInfo& entry = matching_[i];
    if (entry.pinned || entry.in_use) {
      result.kept.push_back({entry.key, entry.pinned ? "pinned" : "in_use"});
      continue;
    }
    room.remove(i);
    --left;
    if (!entry.failed) result.rebuild_seconds += static_cast<double>(entry.build_ms) / 1000;
    result.removed.push_back(std::move(entry));
  }
  result.bytes = room.freed();
  matching_.clear();
  return result;
}

PruneResult plan_prune(std::span<const EntryInfo> entries, const PruneRequest& request, Millis now,
                       const BlobsOf& blobs_of) {
  PrunePlanner planner(request, now);
  for (const EntryInfo& entry : entries) planner.add(entry);
  return planner.finish(blobs_of);
}

}  // namespace nc
