// Fetching one object over HTTP from an offset to its end: goes on where a connection broke, gives
// no byte twice and never bytes of two versions, and notices what is too long or too short.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "cache/tier/http_client.hpp"
#include "cache/tier/open_engine.hpp"

namespace nc::tier {

// "bytes 5-9/10": first and last byte and the whole size; "bytes */10": no range, the whole size.
struct ContentRange {
  std::optional<std::uint64_t> first;
  std::uint64_t last = 0;
  std::uint64_t total = 0;
};
std::optional<ContentRange> parse_content_range(std::string_view text);

// One GET of the object with these headers besides the engine's own; gives answers of 2xx, 412 and
// 416, and an Error for all others.
struct FetchParts {
  std::vector<HttpHeader> headers;
  std::function<Status(const HttpHead&)> on_head;
  Sink sink;
};
using FetchOnce = std::function<Result<HttpResponse>(const FetchParts&)>;

Result<std::uint64_t> fetch_object(const EngineDeps& deps, const std::string& name,
                                   std::uint64_t offset, std::uint64_t limit, const Sink& sink,
                                   const FetchOnce& once);

}  // namespace nc::tier
