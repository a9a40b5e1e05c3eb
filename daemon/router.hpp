// The table of requests: method and path -> handler, with what each takes as a body.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "daemon/access.hpp"
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
  // What a caller needs who is not the daemon's own user. A route that shows or changes what is in
  // every namespace is for those who may use all of them; the others look by themselves at what
  // the request names.
  Scope scope = Scope::kAdmin;
  bool by_namespace = false;
};

// kDenied.
Status check_rights(const Route& route, const Rights& rights);

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
