// Names of objects in a tier, and what they mean. The engines know none of it.
//
//   v1/entries/<ab>/<key>            a manifest (JSON, signed); written after all its blobs
//   v1/entries/<ab>/<key>.<n>        another one for the same key, n = 1 .. 7, where all before it
//                                    are of signers whom its writer does not know: hosts that do
//                                    not trust each other share a tier without harm to either.
//                                    Readers go on to the next place when they believe none so far
//   v1/blobs/<ab>/<sha256>           a blob's raw bytes
//   v1/blobs/<ab>/<sha256>.zst       the same as one zstd frame; readers take either
//   v1/leases/<ab>/<key>/<fence>     one generation of the lease of a key; fences have 20 digits
//   v1/leases/<ab>/<key>/seen        what that row was like at some time (garbage collection)
//   v1/queue/<key>[.<note>]          an action that waits for a builder (cache/tier/job_queue.hpp)
//   v1/marks/<ab>/<sha256>           when a blob was first seen without an entry (garbage
//   collection)
//
// <ab> is the first two digits of the name that follows, which spreads a large tier over 256
// directories.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/hash.hpp"
#include "base/result.hpp"

namespace nc::tier {

inline constexpr std::size_t kMaxNameBytes = 512;
inline constexpr std::string_view kEntries = "v1/entries/";
inline constexpr std::string_view kBlobs = "v1/blobs/";
inline constexpr std::string_view kLeases = "v1/leases/";
inline constexpr std::string_view kQueue = "v1/queue/";
inline constexpr std::string_view kMarks = "v1/marks/";

// kInvalid unless `name` is what Engine allows: [a-z0-9._-] parts, none empty, "." or "..".
Status check_name(std::string_view name);
// As check_name(), for what list() takes: "", or a name whose last part may be cut anywhere.
Status check_prefix(std::string_view prefix);

std::string entry_name(const ActionKey& key, unsigned place = 0);
std::string blob_name(const Digest& digest, bool compressed);
std::string mark_name(const Digest& digest);
std::string lease_dir(const ActionKey& key);  // ends in '/'
std::string lease_name(const ActionKey& key, std::uint64_t fence);
std::string lease_seen_name(const ActionKey& key);
std::string queue_name(std::string_view id);  // `id`: a name of one part

// Entries of one key, place 0 .. 7; without holes but for those that a crash left.
inline constexpr unsigned kEntryPlaces = 8;

struct EntryName {
  ActionKey key;
  unsigned place = 0;
};
struct BlobName {
  Digest digest;
  bool compressed = false;
};
struct LeaseName {
  ActionKey key;
  std::uint64_t fence = 0;
};

// Nothing: the object is not of that kind, or lies in the wrong directory.
std::optional<EntryName> parse_entry(std::string_view name);
std::optional<BlobName> parse_blob(std::string_view name);
std::optional<Digest> parse_mark(std::string_view name);
std::optional<LeaseName> parse_lease(std::string_view name);
std::optional<ActionKey> parse_lease_seen(std::string_view name);
std::optional<std::string> parse_queue(std::string_view name);

}  // namespace nc::tier
