// A tier on a plain HTTP server: PUT, GET, HEAD and DELETE of files (nginx with WebDAV, and the
// like), the /ac and /cas of a Bazel cache, or another host's neuroncached. Options and guarantees:
// docs/tiers.md.
#pragma once

#include <memory>

#include "cache/tier/http_client.hpp"
#include "cache/tier/open_engine.hpp"

namespace nc::tier {

// kInvalid for credentials that would go over the network in the clear.
Result<std::unique_ptr<Engine>> open_http(const TierAddress& address, EngineDeps deps,
                                          std::shared_ptr<HttpClient> http);

}  // namespace nc::tier
