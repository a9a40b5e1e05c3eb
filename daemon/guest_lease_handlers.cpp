// /v1/cluster/leases/<key>.<fence>: leases that other hosts keep at this daemon.
#include <optional>
#include <utility>

#include "base/number.hpp"
#include "cache/tier/layout.hpp"
#include "cache/tier/lease_record.hpp"
#include "daemon/answers.hpp"
#include "daemon/service.hpp"

namespace nc::daemon {
namespace {

// The object's name, of an id <64 hex digits>.<fence>.
Result<std::string> lease_of(const HttpRequest& request) {
  const std::string_view id = request.arg;
  const auto dot = id.find('.');
  const auto key = ActionKey::from_hex(id.substr(0, dot));
  if (key && dot != std::string_view::npos) {
    const auto fence = whole_number<std::uint64_t>(id.substr(dot + 1));
    if (fence && *fence > 0) return tier::lease_name(*key, *fence);
  }
  return Error{Code::kInvalid, "the path names no lease of a cluster",
               "send <key>.<fence>, the key as 64 hex digits"};
}

HttpResponse done(const Status& status, bool kept) {
  return status.ok() ? answer({{"kept", kept}}) : HttpResponse::error(status.error());
}

}  // namespace

HttpResponse get_guest_lease(Service& service, const HttpRequest& request) {
  const auto name = lease_of(request);
  if (!name.ok()) return HttpResponse::error(name.error());
  auto bytes = service.guest_leases.get(*name, tier::LeaseRecord::kMaxBytes);
  if (!bytes.ok()) return HttpResponse::error(bytes.error());
  HttpResponse response;
  response.body = std::move(*bytes);
  response.content_type = "application/octet-stream";
  return response;
}

HttpResponse put_guest_lease(Service& service, const HttpRequest& request) {
  const auto name = lease_of(request);
  if (!name.ok()) return HttpResponse::error(name.error());
  if (service.read_only) {
    return HttpResponse::error({Code::kReadOnly, "the store is open for reading only", ""});
  }
  if (request.query("create") != "1") {
    return done(service.guest_leases.put(*name, as_bytes(request.body)), true);
  }
  const auto made = service.guest_leases.create(*name, as_bytes(request.body), 0);
  if (!made.ok()) return HttpResponse::error(made.error());
  if (*made) return answer({{"kept", true}}, 201);
  return HttpResponse::error({Code::kConflict, "that lease exists already", ""});
}

HttpResponse remove_guest_lease(Service& service, const HttpRequest& request) {
  const auto name = lease_of(request);
  if (!name.ok()) return HttpResponse::error(name.error());
  return done(service.guest_leases.remove(*name), false);
}

}  // namespace nc::daemon
