#include "cache/miss_explainer.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "cache/failure_policy.hpp"

namespace nc {
namespace {

constexpr std::size_t kMaxRows = 16;
constexpr std::size_t kMaxValue = 200;
constexpr std::size_t kCandidates = 4;  // the first ones may turn out to be gone
constexpr std::string_view kAbsent = "(absent)";

std::uint32_t short_hash(std::string_view a, std::string_view b = {}) {
  std::string text;
  text.reserve(a.size() + b.size() + 1);
  text.append(a).push_back('\0');
  text.append(b);
  return static_cast<std::uint32_t>(xxh128(as_bytes(text)).low);
}

std::vector<std::uint32_t> part_hashes_of(const KeyParts& parts) {
  std::vector<std::uint32_t> hashes;
  hashes.reserve(parts.size());
  for (const auto& [name, value] : parts) hashes.push_back(short_hash(name, value));
  std::sort(hashes.begin(), hashes.end());
  return hashes;
}

// Answers for a few hashes whether they are in: one or two looks at a table that fits the cache.
class HashSet {
 public:
  explicit HashSet(const std::vector<std::uint32_t>& hashes)
      : table_(std::bit_ceil(4 * hashes.size() + 4)), mask_(table_.size() - 1) {
    for (const std::uint32_t h : hashes) {
      std::size_t at = h & mask_;
      while (table_[at] != 0) at = (at + 1) & mask_;
      table_[at] = stored(h);
    }
  }
  bool contains(std::uint32_t h) const {
    for (std::size_t at = h & mask_; table_[at] != 0; at = (at + 1) & mask_) {
      if (table_[at] == stored(h)) return true;
    }
    return false;
  }

 private:
  static std::uint64_t stored(std::uint32_t h) { return std::uint64_t{h} + 1; }  // 0: free

  std::vector<std::uint64_t> table_;
  std::size_t mask_;
};

}  // namespace

std::string_view removal_cause_name(RemovalCause cause) {
  switch (cause) {
    case RemovalCause::kEvicted:
      return "evicted";
    case RemovalCause::kPruned:
      return "pruned";
    case RemovalCause::kCorrupt:
      return "corrupt";
    case RemovalCause::kFailureExpired:
      return "failure_expired";
  }
  return "never_built";
}

std::vector<Miss::Differs> compare_parts(const KeyParts& wanted, const KeyParts& have) {
  std::map<std::string_view, std::string_view> others(have.begin(), have.end());
  std::vector<Miss::Differs> rows;
  std::size_t more = 0;
  const auto add = [&](std::string_view name, std::string_view want, std::string_view is) {
    if (rows.size() >= kMaxRows) {
      ++more;
      return;
    }
    rows.push_back({std::string(name), cut_middle(want, kMaxValue), cut_middle(is, kMaxValue)});
  };
  for (const auto& [name, value] : wanted) {
    const auto other = others.find(name);
    if (other == others.end()) {
      add(name, value, kAbsent);
      continue;
    }
    if (other->second != value) add(name, value, other->second);
    others.erase(other);
  }
  for (const auto& [name, value] : others) add(name, kAbsent, value);
  if (more > 0) rows.push_back({"(more)", fmt::format("{} more parts differ", more), ""});
  return rows;
}

void MissExplainer::remember(const ActionKey& key, std::string_view kind, std::string_view label,
                             const KeyParts& parts) {
  if (parts.empty()) return;
  forget(key);
  if (const auto gone = removed_.find(key); gone != removed_.end()) {
    removed_order_.erase(gone->second.place);
    removed_.erase(gone);
  }
  order_.push_back({key, short_hash(kind), short_hash(label), part_hashes_of(parts)});
  part_hashes_ += parts.size();
  entries_[key] = std::prev(order_.end());
  trim();
}

void MissExplainer::seen(const ActionKey& key) {
  const auto it = entries_.find(key);
  if (it != entries_.end()) order_.splice(order_.end(), order_, it->second);
}

void MissExplainer::removed(const ActionKey& key, RemovalCause cause) {
  forget(key);
  if (const auto it = removed_.find(key); it != removed_.end())
    removed_order_.erase(it->second.place);
  removed_order_.push_back(key);
  removed_.insert_or_assign(key, Removed{cause, std::prev(removed_order_.end())});
  while (removed_.size() > limits_.max_removed) {
    removed_.erase(removed_order_.front());
    removed_order_.pop_front();
  }
}

std::optional<RemovalCause> MissExplainer::removal(const ActionKey& key) const {
  const auto it = removed_.find(key);
  if (it == removed_.end()) return std::nullopt;
  return it->second.cause;
}

void MissExplainer::forget(const ActionKey& key) {
  const auto it = entries_.find(key);
  if (it == entries_.end()) return;
  part_hashes_ -= it->second->parts.size();
  order_.erase(it->second);
  entries_.erase(it);
}

void MissExplainer::trim() {
  while (!order_.empty() &&
         (part_hashes_ > limits_.max_part_hashes || entries_.size() > limits_.max_entries)) {
    forget(ActionKey(order_.front().key));
  }
}

std::vector<ActionKey> MissExplainer::ranked(const Request& request) const {
  const std::vector<std::uint32_t> hashes = part_hashes_of(request.parts);
  const HashSet wanted(hashes);
  const std::uint32_t kind = short_hash(request.kind);
  const std::uint32_t label = short_hash(request.label);
  // Parts that differ (on either side), another label, how long unseen: small is near.
  using Rank = std::tuple<std::size_t, bool, std::size_t>;
  std::vector<std::pair<Rank, ActionKey>> best;
  std::size_t unseen = 0;
  for (auto it = order_.rbegin(); it != order_.rend(); ++it, ++unseen) {
    const Sketch& sketch = *it;
    if (sketch.kind != kind) continue;
    std::size_t common = 0;
    for (const std::uint32_t h : sketch.parts) common += wanted.contains(h) ? 1 : 0;
    const std::size_t most = std::max(hashes.size(), sketch.parts.size());
    if (common * 2 < most) continue;
    const Rank rank{most - common, sketch.label != label, unseen};
    if (best.size() == kCandidates && rank > best.back().first) continue;
    best.insert(std::upper_bound(best.begin(), best.end(), std::pair(rank, sketch.key)),
                std::pair(rank, sketch.key));
    if (best.size() > kCandidates) best.pop_back();
    // Nothing can be nearer than one part of the same label, seen last.
    if (best.size() == kCandidates && std::get<0>(best.back().first) == 1 &&
        !std::get<1>(best.back().first)) {
      break;
    }
  }
  std::vector<ActionKey> keys;
  keys.reserve(best.size());
  for (auto& [rank, key] : best) keys.push_back(key);
  return keys;
}

Miss MissExplainer::explain(const Request& request, const Lookup& lookup) {
  Miss miss;
  if (!request.parts.empty()) {
    for (const ActionKey& key : ranked(request)) {
      if (key == request.key) continue;
      auto known = lookup(key);
      if (!known) {
        forget(key);
        continue;
      }
      miss.nearest = Miss::Nearest{key, known->created_ms, std::move(known->host),
                                   compare_parts(request.parts, known->parts)};
      break;
    }
  }
  if (const auto cause = removal(request.key)) {
    miss.cause = removal_cause_name(*cause);
  } else {
    miss.cause = miss.nearest ? "parts_differ" : "never_built";
  }
  return miss;
}

}  // namespace nc
