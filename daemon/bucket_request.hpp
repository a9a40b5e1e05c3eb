// The bodies of the bucket requests, read strictly; docs/protocol.md describes them.
#pragma once

#include <string_view>

#include "base/result.hpp"
#include "daemon/bucket_book.hpp"

namespace nc::daemon {

// kInvalid and kTooLarge name the field.
Result<Observation> read_observation(std::string_view body);
Result<PlanRequest> read_plan_request(std::string_view body);

}  // namespace nc::daemon
