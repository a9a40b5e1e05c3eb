// Operations on one shared tier that several verbs offer.
#pragma once

#include <string>
#include <vector>

#include "client/cli/context.hpp"
#include "client/cli/output.hpp"
#include "client/cli/session.hpp"

namespace nc::cli {

inline constexpr OptionSpec kTierOption{
    "tier", "ADDRESS", "Of this shared tier, as `neuroncache tiers` shows it, not of this host.",
    ""};
inline constexpr OptionSpec kNewerOption{
    "newer-than", "DURATION", "Only what was built less long ago than this, e.g. 1d.", ""};

// The body of a request about a tier: --tier and the filters that the verb has.
Result<bj::object> tier_request(const Context& context, bool dry_run);

struct TierRows {
  bj::array rows;  // as the daemon gives them
  std::uint64_t bytes = 0;
  std::size_t failed = 0;
};
// All pages of POST /v1/tiers/<call>.
Result<TierRows> tier_pages(client::Client& client, const std::string& call, bj::object body,
                            const std::string& progress);
// Prints rows; `done`: "Pulled", "Would pull". Exit status: 1 when some failed.
Result<int> print_tier_rows(Context& context, const TierRows& got, const std::string& done,
                            bool dry_run, bj::object more = {});

// prune --tier, verify --tier.
Result<int> prune_tier(Context& context);
Result<int> verify_tier(Context& context);

}  // namespace nc::cli
