// HTTP by libcurl. Connections are kept and used again; TLS certificates are always checked; no
// signals; proxies are those of the environment.
#pragma once

#include <memory>

#include "base/clock.hpp"
#include "cache/tier/http_client.hpp"

namespace nc::tier {

// kUnsupported where the machine has no libcurl.
Result<std::shared_ptr<HttpClient>> open_curl_http(Clock& clock);

}  // namespace nc::tier
