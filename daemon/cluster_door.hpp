// The tiers as the cluster's leases see them (cluster.hpp). What leases ask of their tier counts
// for its breaker like any other call.
#pragma once

#include <memory>
#include <string>

#include "base/settings.hpp"
#include "cache/tier/chain.hpp"
#include "daemon/cluster.hpp"

namespace nc::daemon {

// `where`: the address of the tier that holds the leases, or "auto": the first that can. `chain`
// outlives it. kNotFound, kUnsupported: there is none.
Result<std::unique_ptr<ClusterDoor>> open_cluster_door(tier::Chain& chain,
                                                       const std::string& where);

struct Service;
// As the settings say, over the service's tiers; it follows the leases of the service's keeper.
// Nothing: no leases of a cluster.
std::unique_ptr<Cluster> open_cluster(Service& service, const Settings& settings);

}  // namespace nc::daemon
