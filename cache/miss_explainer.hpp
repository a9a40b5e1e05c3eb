// Why a key was not found: what became of it, or which stored key is nearest and in which parts it
// differs.
//
// Of each known entry only a 32-bit hash per part is kept, within a bound; the parts themselves are
// read again for the one nearest entry. Not thread-safe: the owner locks (explain() calls back into
// the owner to read parts, see Lookup).
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.hpp"
#include "base/hash.hpp"
#include "cache/store.hpp"

namespace nc {

// Values are frozen: they are in the index.
enum class RemovalCause { kEvicted = 0, kPruned = 1, kCorrupt = 2, kFailureExpired = 3 };
std::string_view removal_cause_name(RemovalCause cause);  // as in Miss::cause

// Rows in which two part lists differ, in the order of `wanted` and then of what only `have` has. A
// part that one side lacks is "(absent)". Values over 200 bytes are cut in the middle, at most 16
// rows; a last row "(more)" says how many are left out.
std::vector<Miss::Differs> compare_parts(const KeyParts& wanted, const KeyParts& have);

class MissExplainer {
 public:
  struct Limits {
    std::size_t max_part_hashes = 400'000;  // 1.6 MiB; looking through all takes a few ms
    std::size_t max_entries = 20'000;
    std::size_t max_removed = 20'000;  // keys whose removal is remembered
  };
  struct Known {
    KeyParts parts;
    Millis created_ms = 0;
    std::string host;
  };
  // Reads a stored entry's parts; nullopt when it is gone (it is then forgotten and the next
  // nearest is tried).
  using Lookup = std::function<std::optional<Known>(const ActionKey&)>;

  MissExplainer() = default;
  explicit MissExplainer(Limits limits) : limits_(limits) {}

  // An entry was published, loaded at open or hit. Beyond the limits the longest unseen is
  // forgotten. Entries without parts are not kept.
  void remember(const ActionKey& key, std::string_view kind, std::string_view label,
                const KeyParts& parts);
  void seen(const ActionKey& key);                         // hit: keep longer
  void removed(const ActionKey& key, RemovalCause cause);  // also forgets it
  std::optional<RemovalCause> removal(const ActionKey& key) const;

  // The removal cause when the key is known to have gone; else "parts_differ" when a stored entry
  // of the same kind shares at least half of the parts; else "never_built". The nearest is the one
  // with the fewest differing parts; equal ones: same label first, then the one seen last. Given
  // beside every cause when there is one.
  Miss explain(const Request& request, const Lookup& lookup);

  std::size_t size() const { return entries_.size(); }
  std::size_t part_hashes() const { return part_hashes_; }

 private:
  struct Sketch {
    ActionKey key;
    std::uint32_t kind = 0;  // hashes
    std::uint32_t label = 0;
    std::vector<std::uint32_t> parts;  // sorted
  };
  struct Removed {
    RemovalCause cause;
    std::list<ActionKey>::iterator place;
  };
  void forget(const ActionKey& key);
  void trim();
  std::vector<ActionKey> ranked(const Request& request) const;  // nearest first, a few

  Limits limits_;
  std::list<Sketch> order_;  // longest unseen first
  std::unordered_map<ActionKey, std::list<Sketch>::iterator, Sha256Hash> entries_;
  std::size_t part_hashes_ = 0;
  std::list<ActionKey> removed_order_;
  std::unordered_map<ActionKey, Removed, Sha256Hash> removed_;
};

}  // namespace nc
