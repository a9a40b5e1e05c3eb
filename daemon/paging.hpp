// Which part of a list a request asks for. Errors are kInvalid, for the caller to be answered with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/hash.hpp"
#include "base/result.hpp"
#include "daemon/http.hpp"

namespace nc::daemon {

// A number of the query, `otherwise` when it is not there.
Result<std::uint64_t> query_number(const HttpRequest& request, const std::string& name,
                                   std::uint64_t otherwise);
// `limit`: 1 to `most`, and `most` when it is not there.
Result<std::size_t> page_limit(const HttpRequest& request, std::size_t most);
// `after`, in lists by key; nothing: from the beginning.
Result<std::optional<ActionKey>> page_after(const HttpRequest& request);

}  // namespace nc::daemon
