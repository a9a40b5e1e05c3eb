#include "cache/tier/lease_sweep.hpp"

#include <set>
#include <string>
#include <unordered_map>

#include "base/number.hpp"
#include "cache/tier/layout.hpp"
#include "cache/tier/lease_record.hpp"
#include "cache/tier/link.hpp"

namespace nc::tier {
namespace {

constexpr std::size_t kMaxSeen = 128;

struct Row {
  std::set<std::uint64_t> fences;
  bool seen = false;
};

// What a row is like: its last fence, and that object's contents. kNotFound: it has just gone.
Result<std::string> looks(Engine& engine, const ActionKey& key, std::uint64_t fence) {
  auto text = engine.get(lease_name(key, fence), LeaseRecord::kMaxBytes);
  if (text.is(Code::kTooLarge) || text.is(Code::kCorrupt))
    return std::to_string(fence) + " garbage";
  if (!text.ok()) return std::move(text).error();
  return std::to_string(fence) + " " + Sha256::of(as_bytes(*text)).hex();
}

struct Note {
  Millis since = 0;
  std::string looks;
};

// Nothing: there is none, or none that can be read.
Result<std::optional<Note>> read_note(Engine& engine, const ActionKey& key) {
  const auto text = engine.get(lease_seen_name(key), kMaxSeen);
  if (text.is(Code::kNotFound) || text.is(Code::kTooLarge) || text.is(Code::kCorrupt)) {
    return std::optional<Note>();
  }
  if (!text.ok()) return text.error();
  const auto space = text->find(' ');
  if (space == std::string::npos) return std::optional<Note>();
  const auto since = whole_number<Millis>(std::string_view(*text).substr(0, space));
  if (!since) return std::optional<Note>();
  return std::optional(Note{*since, text->substr(space + 1)});
}

// Whether the row has gone, or would with `dry_run`.
Result<bool> sweep(Engine& engine, Clock& clock, const ActionKey& key, const Row& row,
                   Millis grace_ms, bool dry_run) {
  const std::uint64_t last = *row.fences.rbegin();
  auto now_looks = looks(engine, key, last);
  if (now_looks.is(Code::kNotFound)) return false;
  if (!now_looks.ok()) return std::move(now_looks).error();
  std::optional<Note> note;
  if (row.seen) {
    NC_ASSIGN(note, read_note(engine, key));
  }
  const Millis now = clock.wall_ms();
  if (!note || note->looks != *now_looks || note->since > now) {
    const std::string text = std::to_string(now) + " " + *now_looks;
    if (!dry_run) NC_TRY(engine.put(lease_seen_name(key), as_bytes(text)));
    return false;
  }
  if (now - note->since < grace_ms) return false;
  if (dry_run) return true;
  // From the end, so that what is left of it is still a row.
  for (auto fence = row.fences.rbegin(); fence != row.fences.rend(); ++fence) {
    NC_TRY(engine.remove(lease_name(key, *fence)));
  }
  NC_TRY(engine.remove(lease_seen_name(key)));
  return true;
}

}  // namespace

Result<LeaseSweep> sweep_leases(Engine& engine, Clock& clock, Millis grace_ms, bool dry_run) {
  std::unordered_map<ActionKey, Row, Sha256Hash> rows;
  NC_TRY(each_object(engine, kLeases, [&](const ObjectInfo& object) -> Status {
    if (const auto lease = parse_lease(object.name)) rows[lease->key].fences.insert(lease->fence);
    if (const auto key = parse_lease_seen(object.name)) rows[*key].seen = true;
    return {};
  }));
  LeaseSweep result;
  for (const auto& [key, row] : rows) {
    if (row.fences.empty()) {  // its hosts have done with it themselves
      if (!dry_run) NC_TRY(engine.remove(lease_seen_name(key)));
      continue;
    }
    ++result.rows;
    NC_ASSIGN(const bool gone, sweep(engine, clock, key, row, grace_ms, dry_run));
    if (gone) ++result.removed;
  }
  return result;
}

}  // namespace nc::tier
