// Takes rows of leases out of a tier that nobody renews and nobody wants: those of hosts that died,
// and of keys that are not asked for any more. Part of what `prune --tier` does.
#pragma once

#include "base/clock.hpp"
#include "cache/tier/engine.hpp"

namespace nc::tier {

struct LeaseSweep {
  std::uint64_t rows = 0;     // that there are
  std::uint64_t removed = 0;  // of these; with `dry_run`: that would go
};

// A row goes when its last object has not changed for `grace_ms`, which has to be much longer than
// a period. What it was like is noted beside it, in v1/leases/<ab>/<key>/seen, by the wall clock of
// this host. Needs an engine that lists and removes. Should a host take the row at the very moment
// when it goes, another may build the same key.
Result<LeaseSweep> sweep_leases(Engine& engine, Clock& clock, Millis grace_ms, bool dry_run);

}  // namespace nc::tier
