// Which entry goes first: GreedyDual-Size-Frequency over rebuild cost.
//
//   value(e)    = max(build seconds, 1 ms) * max(uses, 1) / max(bytes, 4 KiB)
//   priority(e) = age of its namespace when it was last used + value(e)
//
// The lowest priority goes first, equal ones least recently used first. The age rises to the
// priority of what was evicted, so that what was dear once and is not used any more gets its turn.
// A namespace over its quota evicts its own entries first; that ages this namespace alone. Pinned
// and held entries are never chosen.
//
// Insert, touch, erase, hold and victim are O(log n). Nothing here touches the disk. Not
// thread-safe: the owner locks.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/clock.hpp"
#include "base/hash.hpp"

namespace nc {

// Seconds of rebuilding saved per byte kept; also what prune calls dear.
double rebuild_value(std::uint64_t build_ms, std::uint64_t uses, std::uint64_t bytes);

struct EvictionEntry {
  ActionKey key;
  std::string name_space = "default";
  std::uint64_t bytes = 0;  // what it takes on disk
  std::uint64_t build_ms = 0;
  std::uint64_t uses = 0;
  Millis used_ms = 0;  // last use
  double age =
      0;  // of its namespace at the last use: keep it with the access record, 0 for a new entry
  bool pinned = false;
};

struct Victim {
  enum class Why { kQuota, kStore };
  ActionKey key;
  std::string name_space;
  std::uint64_t bytes = 0;
  std::uint64_t build_ms = 0;
  std::uint64_t uses = 0;
  Millis used_ms = 0;
  Why why = Why::kStore;
  std::uint64_t quota = 0;  // of the namespace, when kQuota
  std::uint64_t quota_used = 0;
  std::string text() const;  // "namespace team holds 11.0 GiB of its 10.0 GiB; this entry is ... "
};

class EvictionQueue {
 public:
  EvictionQueue();
  ~EvictionQueue();
  EvictionQueue(const EvictionQueue&) = delete;
  EvictionQueue& operator=(const EvictionQueue&) = delete;

  // At open, for entries in the order of their last use (older first) where that is known; later
  // for new ones. A new entry (age 0) gets the current age. Replaces an entry of the same key.
  void insert(const EvictionEntry& entry);
  bool erase(const ActionKey& key);              // removed for another reason than eviction
  bool touch(const ActionKey& key, Millis now);  // one more use; O(1)
  // Does now for a used entry what choosing victims would have to do later: call it, when there is
  // time, for what was touched. Changes nothing that can be seen.
  void settle(const ActionKey& key);
  bool set_pinned(const ActionKey& key, bool pinned);
  bool set_bytes(const ActionKey& key, std::uint64_t bytes);
  std::optional<EvictionEntry> find(const ActionKey& key) const;

  // Counted; a key without an entry may be held (a build) and keeps the hold when the entry comes.
  void hold(const ActionKey& key);
  void release(const ActionKey& key);
  bool held(const ActionKey& key) const;

  void set_quotas(std::map<std::string, std::uint64_t> quotas);
  std::optional<std::uint64_t> quota(std::string_view name_space) const;

  // An entry of a namespace that is over its quota (the one furthest over first), or nullopt.
  // `adding` bytes are about to be added to `name_space` (the caller refuses first what is more
  // than the whole quota: it never fits).
  std::optional<Victim> over_quota(std::string_view name_space = {}, std::uint64_t adding = 0);
  // over_quota(), else the cheapest entry of all. nullopt: everything is pinned, held or gone.
  std::optional<Victim> victim();
  // Call when a victim really goes: removes it and raises the age.
  void evicted(const Victim& victim);

  std::size_t size() const;
  std::uint64_t bytes() const;  // sum of the entries
  std::uint64_t namespace_bytes(std::string_view name_space) const;

  // The store-wide part of the age: keep it across restarts (one number).
  double age() const;
  void set_age(double age);

 private:
  struct Space;
  struct Item;
  struct Order;
  Space& space(std::string_view name);
  void link(Item& item);  // into its namespace's order unless pinned or held
  void unlink(Item& item);
  void rank(Space& space);          // after the namespace's first entry or its age changed
  void replace(Item& item);         // to where its priority belongs
  const Item& first(Space& space);  // which is not empty
  Victim describe(const Item& item, Victim::Why why) const;

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace nc
