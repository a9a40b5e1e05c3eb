// The counters of the tiers over restarts. Each tier's are a record of the store, in the table
// "tier_counters" by the tier's address as it is shown:
//
//   record = one JSON object, at most 4 KiB: "v": 1, and for each counter its name as in GET
//            /v1/tiers, and "entry_ms" (of asking for entries, in total), a whole number up to
//            2^53. What is not there counts from 0; unknown members are skipped.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "cache/store.hpp"
#include "cache/tier/chain.hpp"

namespace nc::daemon {

class TierTotals {
 public:
  explicit TierTotals(Store& store) : store_(store) {}

  // Before the tiers are asked for anything: they go on counting. Records of tiers that are not
  // there any more, and what cannot be read, are dropped.
  Status restore(tier::Chain& chain);
  // What has changed since. One thread at a time.
  Status write(tier::Chain& chain);

 private:
  Store& store_;
  std::map<std::string, std::string> written_;
};

std::string encode_totals(const tier::LinkCounters& counters);
// Adds what the record says. False: it cannot be read, and nothing is added.
bool add_totals(std::string_view record, tier::LinkCounters& counters);

}  // namespace nc::daemon
