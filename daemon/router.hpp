// The table of requests: method and path -> handler, with what each takes as a body.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "daemon/disk_pool.hpp"
#include "daemon/http.hpp"
#include "daemon/service.hpp"

namespace nc::daemon {

enum class BodyKind { kNone, kJson, kBlob };

struct Route {
  Method method;
  std::string_view pattern;  // "/v1/actions/{key}/acquire"; {key} and {digest} are 64 hex digits,
                             // others one segment
  BodyKind body = BodyKind::kNone;
  std::uint64_t max_body = 0;  // kJson
  Lane lane = Lane::kQuick;
  void (*handle)(Service&, Call) = nullptr;  // kNone, kJson
  // When set, asked first, on the I/O thread: must not wait for anything.
  std::optional<HttpResponse> (*now)(Service&, const HttpRequest&) = nullptr;
  Result<std::unique_ptr<BodySink>> (*open)(Service&, const HttpRequest&) = nullptr;  // kBlob
};

std::span<const Route> routes();

struct Match {
  const Route* route = nullptr;
  std::string arg;    // what stood for the last {...}
  std::string outer;  // and for the one before, if there are two
  Error error;        // when there is no route
  int status = 0;
};
// Splits the head's target (in `head.path`) and finds its route; checks the protocol version.
Match route(RequestHead& head);

// Runs the route's handler on this thread; whatever it throws becomes a 500.
void run_handler(const Route& route, Service& service, Call call) noexcept;

}  // namespace nc::daemon
