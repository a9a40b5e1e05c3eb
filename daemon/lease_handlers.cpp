// What builders tell about their leases, and clients about look-ups they gave up.
#include "base/log.hpp"
#include "cache/json_fields.hpp"
#include "daemon/answers.hpp"
#include "daemon/service.hpp"

namespace nc::daemon {
namespace {

namespace js = boost::json;

HttpResponse lost(const std::string& id) {
  return HttpResponse::error({Code::kLeaseLost,
                              "lease " + id.substr(0, 64) + " is not held any more",
                              "drop this build and look the key up again"});
}

Result<js::object> body_of(const HttpRequest& request) {
  return parse_json_object(request.body, request.body.size(), "the body");
}

// After a restart, or a long pause of the builder: the lease is taken up again when nothing speaks
// against it.
bool adopt(Service& service, const HttpRequest& request, const std::string& id,
           const ActionKey& key, std::uint64_t fence, const std::string& progress) {
  auto entry = service.store.peek(key);
  if (service.draining || !entry.ok() || *entry) return false;
  Lease lease;
  lease.id = id;
  lease.fence = fence;
  lease.request.key = key;
  lease.builder = builder_of(service, request);
  lease.granted_ms = service.clock.wall_ms();
  lease.progress = progress;
  if (!service.leases.adopt(lease)) return false;
  service.keeper.follow(lease);
  return true;
}

}  // namespace

Builder builder_of(Service& service, const HttpRequest& request) {
  Builder who;
  who.host = service.host;
  const pid_t pid = request.connection->peer().pid;
  if (pid <= 0) return who;
  auto process = service.processes.identify(pid);
  if (process.ok()) {
    who.process = *process;
  } else if (process.is(Code::kNotFound)) {
    who.process.pid = pid;  // gone already: found out when it is watched
  }
  return who;
}

bool keep_lease(Service& service, const HttpRequest& request, const std::string& id,
                const ActionKey& key, std::uint64_t fence, const std::string& progress) {
  if (!is_hex(id, 32)) return false;
  const auto beat = service.leases.heartbeat(id, key, fence, progress);
  return beat == LeaseTable::Beat::kExtended ||
         (beat == LeaseTable::Beat::kUnknown && adopt(service, request, id, key, fence, progress));
}

HttpResponse heartbeat(Service& service, const HttpRequest& request) {
  auto object = body_of(request);
  if (!object.ok()) return HttpResponse::error(object.error());
  ActionKey key;
  std::uint64_t fence = 0;
  std::string progress;
  Demand runs_with;
  bool detached = false;
  JsonFields fields(*object, "the body");
  fields.require("key").require("fence");
  fields.digest("key", key)
      .integer("fence", fence, 1, JsonFields::kMaxInteger)
      .text("progress", progress)
      .integer("reserved_bytes", runs_with.bytes, 0, JsonFields::kMaxInteger)
      .integer("cores", runs_with.cores, 0, 1 << 20);
  if (const auto* given = fields.member("detached"); given != nullptr) {
    if (given->is_bool()) {
      detached = given->get_bool();
    } else {
      fields.fail(Code::kInvalid, "detached", "is not true or false");
    }
  }
  if (Status ok = fields.done(); !ok.ok()) return HttpResponse::error(ok.error());
  if (!keep_lease(service, request, request.arg, key, fence, progress)) return lost(request.arg);
  if (runs_with.bytes > 0) {
    service.builds.adopt(request.arg, request.connection->peer().pid, runs_with);
    if (!service.leases.find(request.arg)) service.builds.lease_ended(request.arg);
  }
  const auto interest = service.leases.interest(request.arg);
  const bool unwanted = detached && interest.any_before && interest.waiters == 0;
  return answer({{"ttl_ms", service.leases.lease_ttl()},
                 {"waiters", interest.waiters},
                 {"cancel", unwanted && service.settings.copy().boolean("cancel_unwanted")}});
}

namespace {

HttpResponse failed(Service& service, const HttpRequest& request) {
  auto object = body_of(request);
  if (!object.ok()) return HttpResponse::error(object.error());
  ActionKey key;
  std::uint64_t fence = 0;
  std::uint64_t peak = 0;
  std::string class_name;
  Failure failure;
  JsonFields fields(*object, "the body");
  fields.require("key").require("class");
  fields.digest("key", key)
      .integer("fence", fence, 0, JsonFields::kMaxInteger)
      .integer("peak_rss_bytes", peak, 0, JsonFields::kMaxInteger)
      .text("class", class_name)
      .text("message", failure.message, 64 << 10)
      .text("log", failure.log, 4 << 20)
      .integer("exit_code", failure.exit_code, -JsonFields::kMaxInteger, JsonFields::kMaxInteger);
  bool unstored = false;
  if (const auto* given = fields.member("unstored"); given != nullptr) {
    if (given->is_bool()) {
      unstored = given->get_bool();
    } else {
      fields.fail(Code::kInvalid, "unstored", "is not true or false");
    }
  }
  if (Status ok = fields.done(); !ok.ok()) return HttpResponse::error(ok.error());
  auto parsed = parse_failure_class(class_name);
  if (!parsed.ok()) return HttpResponse::error(parsed.error());

  const auto lease = service.leases.find(request.arg);
  if (!lease || lease->request.key != key) return lost(request.arg);
  if (*parsed == FailureClass::kOutOfMemory) {
    // It needs more than it had, and more than it got to take.
    service.builds.learn(request.arg, std::max(peak, service.builds.reserved(request.arg)));
    service.store.count(lease->request.name_space, "out_of_memory", 1);
  }
  const Millis ttl = static_cast<Millis>(service.settings.copy().seconds("failure_ttl") * 1000);
  failure.failure_class = *parsed;
  bool kept = remembered(*parsed) && ttl > 0;
  if (kept) {
    const Request& asked = lease->request;
    failure.key = key;
    failure.name_space = asked.name_space;
    failure.label = asked.label;
    failure.compiler = asked.compiler;
    failure.model = asked.model;
    failure.kind = asked.kind;
    failure.parts = asked.parts;
    failure.created_ms = service.clock.wall_ms();
    failure.expires_ms = failure.created_ms + ttl;
    if (Status written = service.store.remember_failure(failure); !written.ok()) {
      log::warn("leases", "a failure is not remembered: {}", written.error().text());
      kept = false;
    }
  }
  if (service.jobs) service.jobs->failed(request.arg, failure);
  service.work.failed(key, *parsed, failure.message);
  service.outcomes.failed(key, class_name, failure.message, failure.log);
  if (kept && service.cluster) service.cluster->failed(request.arg);
  if (unstored && !kept) {
    failure.key = key;
    failure.created_ms = service.clock.wall_ms();
    service.unstored.put(key, failure);
  }
  service.keeper.apply(kept || unstored
                           ? service.leases.settled(key)
                           : service.leases.end(request.arg, LeaseTable::End::kFailed));
  return answer({{"remembered", kept}, {"expires_ms", kept ? failure.expires_ms : 0}});
}

HttpResponse released(Service& service, const HttpRequest& request) {
  const auto lease = service.leases.find(request.arg);
  if (!lease || lease->request.key.hex() != request.query("key")) return lost(request.arg);
  if (service.jobs) service.jobs->given_back(request.arg);
  service.work.given_back(request.arg);
  service.keeper.apply(service.leases.end(request.arg, LeaseTable::End::kReleased));
  return answer({{"released", true}});
}

// The end of a job of the cluster is told to its queue before the lease ends, by threads that may
// wait for the tier.
template <HttpResponse (*kHandler)(Service&, const HttpRequest&)>
void where_it_may_wait(Service& service, Call call) {
  if (service.jobs && service.jobs->holds(call.request.arg)) {
    const auto shared = std::make_shared<Call>(std::move(call));
    const bool posted = service.tiers.post(
        [&service, shared] { shared->reply(kHandler(service, shared->request)); });
    if (posted) return;
    call = std::move(*shared);
  }
  call.reply(kHandler(service, call.request));
}

}  // namespace

void fail_lease(Service& service, Call call) {
  where_it_may_wait<failed>(service, std::move(call));
}

void release_lease(Service& service, Call call) {
  where_it_may_wait<released>(service, std::move(call));
}

HttpResponse list_leases(Service& service, const HttpRequest&) {
  js::array leases;
  for (const auto& one : service.leases.list()) {
    const Request& asked = one.lease.request;
    leases.push_back(js::object{
        {"id", one.lease.id},
        {"fence", one.lease.fence},
        {"key", asked.key.hex()},
        {"namespace", asked.name_space},
        {"kind", asked.kind},
        {"label", asked.label},
        {"builder", builder_json(one.lease)},
        {"granted_ms", one.lease.granted_ms},
        {"elapsed_s", one.elapsed_s},
        {"usual_s", optional_number(service.store.usual_build_seconds(asked.kind, asked.label))},
        {"expires_in_ms", one.expires_in_ms},
        {"waiters", one.waiters},
        {"progress", one.lease.progress}});
  }
  return answer({{"leases", std::move(leases)}});
}

HttpResponse bypass(Service& service, const HttpRequest& request) {
  auto object = body_of(request);
  if (!object.ok()) return HttpResponse::error(object.error());
  std::string name_space = "default";
  std::string reason;
  std::string ticket;
  std::uint32_t count = 1;
  JsonFields fields(*object, "the body");
  fields.require("reason");
  fields.text("namespace", name_space, 64, is_namespace_name)
      .text("reason", reason, 64)
      .integer("count", count, 1, 1'000'000);
  if (const auto* given = fields.member("ticket"); given != nullptr && !given->is_null()) {
    fields.text("ticket", ticket, 64);
  }
  if (Status ok = fields.done(); !ok.ok()) return HttpResponse::error(ok.error());
  if (!ticket.empty()) service.keeper.apply(service.leases.forget_ticket(ticket));
  service.store.count_bypass(name_space, reason, count);
  return answer({{"counted", count}});
}

}  // namespace nc::daemon
