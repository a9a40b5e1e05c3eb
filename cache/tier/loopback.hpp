// Which addresses are this host's own: secrets may go there in the clear, and nowhere else.
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "cache/tier/tier_url.hpp"

namespace nc::tier {

bool is_loopback(std::string_view host);        // "localhost", 127.0.0.0/8, ::1
std::string host_of_url(std::string_view url);  // "": it has none

// kInvalid when `what` ("a password") would go to `host` in the clear and the address does not say
// insecure=true.
Status check_clear(const TierAddress& address, std::string_view host, bool tls,
                   std::string_view what);

}  // namespace nc::tier
