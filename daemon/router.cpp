#include "daemon/router.hpp"

#include <array>
#include <charconv>
#include <exception>

#include <fmt/format.h>

#include "base/log.hpp"
#include "cache/tier/lease_record.hpp"
#include "client/protocol.hpp"
#include "daemon/head_parser.hpp"

namespace nc::daemon {
namespace {

constexpr std::uint64_t kLease = tier::LeaseRecord::kMaxBytes;
constexpr std::uint64_t kSmall = 64 << 10;
constexpr std::uint64_t kGraphs = 64ULL << 20;
constexpr std::uint64_t kLarge = 4 << 20;  // parts of a key, a manifest, the log of a failure

template <HttpResponse (*kHandler)(Service&, const HttpRequest&)>
void sync(Service& service, Call call) {
  call.reply(kHandler(service, call.request));
}

constexpr Route get(std::string_view pattern, void (*handle)(Service&, Call),
                    Lane lane = Lane::kQuick) {
  return {Method::kGet, pattern, BodyKind::kNone, 0, lane, handle};
}
constexpr Route post(std::string_view pattern, std::uint64_t max, void (*handle)(Service&, Call),
                     Lane lane = Lane::kQuick) {
  return {Method::kPost, pattern, BodyKind::kJson, max, lane, handle};
}

// Whoever may read, or write, in some namespace: the handler looks at which.
constexpr Route reader(Route route) {
  route.scope = Scope::kRead;
  route.by_namespace = true;
  return route;
}
constexpr Route writer(Route route) {
  route.scope = Scope::kWrite;
  route.by_namespace = true;
  return route;
}
// In all of them.
constexpr Route reader_of_all(Route route) {
  route.scope = Scope::kRead;
  return route;
}
constexpr Route writer_of_all(Route route) {
  route.scope = Scope::kWrite;
  return route;
}

// What is not said to be for readers or writers is for administrators.
constexpr std::array kRoutes = {
    reader(get("/v1/hello", sync<hello>)),
    reader({Method::kPost, "/v1/actions/{key}/acquire", BodyKind::kJson, kLarge, Lane::kQuick,
            acquire, acquire_now}),
    reader(get("/v1/actions/{key}", sync<get_action>)),
    reader(
        {Method::kHead, "/v1/actions/{key}", BodyKind::kNone, 0, Lane::kQuick, sync<get_action>}),
    writer({Method::kPut, "/v1/actions/{key}", BodyKind::kJson, kLarge, Lane::kSlow,
            sync<put_action>}),
    reader(get("/v1/blobs/{digest}", sync<get_blob>, Lane::kSlow)),
    reader(
        {Method::kHead, "/v1/blobs/{digest}", BodyKind::kNone, 0, Lane::kQuick, sync<head_blob>}),
    writer({Method::kPut, "/v1/blobs/{digest}", BodyKind::kBlob, 0, Lane::kSlow, nullptr, nullptr,
            put_blob}),
    reader(post("/v1/blobs/{digest}/check", kSmall, sync<check_blob>, Lane::kSlow)),
    writer(post("/v1/leases/{id}/heartbeat", kSmall, sync<heartbeat>)),
    writer(post("/v1/leases/{id}/fail", kLarge, fail_lease)),
    writer({Method::kDelete, "/v1/leases/{id}", BodyKind::kNone, 0, Lane::kQuick, release_lease}),
    reader_of_all(get("/v1/leases", sync<list_leases>)),
    reader_of_all(get("/v1/cluster/leases/{id}", sync<get_guest_lease>)),
    writer_of_all({Method::kPut, "/v1/cluster/leases/{id}", BodyKind::kJson, kLease, Lane::kQuick,
                   sync<put_guest_lease>}),
    writer_of_all({Method::kDelete, "/v1/cluster/leases/{id}", BodyKind::kNone, 0, Lane::kQuick,
                   sync<remove_guest_lease>}),
    writer_of_all(post("/v1/admission", kSmall, admit)),
    reader_of_all(get("/v1/builds", sync<list_builds>)),
    reader_of_all(get("/v1/recordings", sync<list_recordings>)),
    reader_of_all(get("/v1/recordings/{name}", sync<list_recorded>, Lane::kSlow)),
    Route{Method::kDelete, "/v1/recordings/{name}", BodyKind::kNone, 0, Lane::kQuick,
          sync<forget_recording>},
    reader_of_all(get("/v1/recordings/{name}/actions/{key}", sync<get_recorded>)),
    writer_of_all({Method::kPut, "/v1/recordings/{name}/actions/{key}", BodyKind::kJson, kLarge,
                   Lane::kSlow, sync<record_action>}),
    writer_of_all(post("/v1/recordings/{name}/actions/{key}", kSmall, sync<record_lost>)),
    reader_of_all(get("/v1/recordings/{name}/outcomes", sync<list_outcomes>)),
    writer_of_all(post("/v1/recordings/{name}/outcomes", kSmall, sync<move_outcomes>)),
    Route{Method::kDelete, "/v1/recordings/{name}/outcomes", BodyKind::kNone, 0, Lane::kQuick,
          sync<forget_outcomes>},
    reader_of_all(get("/v1/queue", sync<list_queue>)),
    writer_of_all(post("/v1/queue", kLarge, sync<enqueue_work>, Lane::kSlow)),
    Route{Method::kDelete, "/v1/queue", BodyKind::kNone, 0, Lane::kQuick, sync<clear_queue>},
    writer_of_all(post("/v1/queue/take", kSmall, take_work)),
    reader_of_all(get("/v1/queue/cluster", list_cluster_queue)),
    post("/v1/queue/cluster", kLarge, enqueue_in_cluster, Lane::kSlow),
    Route{Method::kDelete, "/v1/queue/cluster", BodyKind::kNone, 0, Lane::kQuick,
          clear_cluster_queue},
    writer_of_all(post("/v1/bypass", kSmall, sync<bypass>)),
    writer_of_all(post("/v1/buckets/observe", kLarge, sync<observe_sizes>)),
    writer_of_all(post("/v1/buckets/plan", kLarge, sync<plan_buckets>)),
    reader_of_all(get("/v1/buckets", sync<list_buckets>)),
    writer_of_all(post("/v1/padding/plan", kGraphs, sync<plan_padding>, Lane::kSlow)),
    reader_of_all(get("/v1/stats", sync<stats>, Lane::kSlow)),
    reader_of_all(get("/v1/entries", sync<list_entries>, Lane::kSlow)),
    reader_of_all(get("/v1/entries/{prefix}", sync<get_entry>)),
    reader_of_all(get("/v1/tiers", sync<list_tiers>)),
    post("/v1/tiers/push", kSmall, push_entries),
    post("/v1/tiers/pull", kSmall, pull_entries),
    post("/v1/tiers/prune", kSmall, prune_tier),
    post("/v1/tiers/verify", kSmall, verify_tier),
    post("/v1/tiers/collect", kSmall, collect_tier),
    post("/v1/prune", kSmall, sync<prune>, Lane::kSlow),
    post("/v1/verify", kSmall, sync<verify>, Lane::kSlow),
    post("/v1/pins", kSmall, sync<pin>),
    reader_of_all(get("/v1/misses", sync<misses>)),
    get("/v1/config", sync<get_config>),
    post("/v1/config", kSmall, sync<set_config>),
    post("/v1/shutdown", kSmall, sync<shut_down>),
};

// Compares segment by segment; the variable one goes to `arg`, and one before it to `outer`.
bool matches(std::string_view pattern, std::string_view path, std::string_view& arg,
             std::string_view& outer) {
  arg = outer = {};
  while (!pattern.empty() && !path.empty()) {
    if (pattern[0] != '/' || path[0] != '/') return false;
    pattern.remove_prefix(1);
    path.remove_prefix(1);
    const std::string_view want = pattern.substr(0, pattern.find('/'));
    const std::string_view have = path.substr(0, path.find('/'));
    if (!want.empty() && want[0] == '{') {
      if (have.empty()) return false;
      outer = arg;
      arg = have;
    } else if (want != have) {
      return false;
    }
    pattern.remove_prefix(want.size());
    path.remove_prefix(have.size());
  }
  return pattern.empty() && path.empty();
}

Status check_version(std::string_view text) {
  if (text.empty()) return {};
  int version = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), version);
  const bool number = ec == std::errc() && end == text.data() + text.size();
  if (number && version >= protocol::kMinVersion && version <= protocol::kVersion) return {};
  return Error{
      Code::kUnsupported,
      fmt::format("this daemon ({}) speaks protocol {} to {}, not {}", NC_VERSION,
                  protocol::kMinVersion, protocol::kVersion, number ? text : "that"),
      "install the same version of neuroncache on both ends, then `neuroncache daemon restart`"};
}

}  // namespace

std::span<const Route> routes() {
  return kRoutes;
}

Match route(RequestHead& head) {
  Match match;
  const auto refuse = [&match](Error error, int status) {
    match.status = status;
    match.error = std::move(error);
    return match;
  };
  const std::string target = std::move(head.path);
  if (Status ok = split_target(target, head); !ok.ok()) return refuse(ok.error(), 400);
  if (Status ok = check_version(head.protocol); !ok.ok()) return refuse(ok.error(), 400);

  bool other_method = false;
  for (const Route& candidate : kRoutes) {
    std::string_view arg;
    std::string_view outer;
    if (!matches(candidate.pattern, head.path, arg, outer)) continue;
    if (candidate.method != head.method) {
      other_method = true;
      continue;
    }
    const bool hex = candidate.pattern.find("{key}") != std::string_view::npos ||
                     candidate.pattern.find("{digest}") != std::string_view::npos;
    if (hex && !is_hex(arg, 64)) {
      return refuse({Code::kInvalid,
                     "the path needs 64 lower-case hex digits where it says '" +
                         std::string(arg.substr(0, 80)) + "'",
                     "send the SHA-256 in hex"},
                    400);
    }
    match.route = &candidate;
    match.arg = arg;
    match.outer = outer;
    return match;
  }
  if (other_method) {
    return refuse(
        {Code::kInvalid, head.path + " does not take " + std::string(method_name(head.method)),
         "see docs/protocol.md"},
        405);
  }
  return refuse(
      {Code::kNotFound, "there is nothing at " + head.path.substr(0, 200), "see docs/protocol.md"},
      404);
}

Status check_rights(const Route& route, const Rights& rights) {
  if (rights.scope < route.scope) {
    return Error{
        Code::kDenied,
        fmt::format("{} has the scope {}; {} needs {}", rights.who, trust::scope_name(rights.scope),
                    route.pattern, trust::scope_name(route.scope)),
        "ask for a token of that scope"};
  }
  if (!route.by_namespace && !rights.namespaces.is_all()) {
    return Error{Code::kDenied,
                 fmt::format("{} may use {} only; {} is about all namespaces", rights.who,
                             rights.namespaces.text(), route.pattern),
                 "ask for a token for all namespaces"};
  }
  return {};
}

void run_handler(const Route& route, Service& service, Call call) noexcept {
  // Kept apart: the handler may have moved the call away before it threw.
  const Reply reply = call.reply;
  std::string what;
  try {
    route.handle(service, std::move(call));
    return;
  } catch (const std::exception& e) {
    what = e.what();
  } catch (...) {
    what = "an exception of unknown type";
  }
  log::error("daemon", "{} failed: {}", route.pattern, what);
  guarded("answering", [&reply, &what] {
    reply(HttpResponse::error({Code::kInternal, "the daemon made an error: " + what,
                               "please report it with the daemon's log"}));
  });
}

}  // namespace nc::daemon
