// When a build may start, and which run. A request that has to wait holds no thread.
#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "cache/json_fields.hpp"
#include "daemon/answers.hpp"
#include "daemon/service.hpp"

namespace nc::daemon {
namespace {

namespace js = boost::json;

constexpr Millis kMaxWaitMs = 60'000;
constexpr unsigned kMaxCores = 1 << 20;

struct Asked {
  Builds::Ask ask;
  ActionKey key;
  std::uint64_t fence = 0;
};

Result<Asked> parse(const HttpRequest& http) {
  NC_ASSIGN(const auto object, parse_json_object(http.body, http.body.size(), "the body"));
  Asked asked;
  Builds::Ask& ask = asked.ask;
  JsonFields fields(object, "the body");
  fields.require("lease").require("key").require("fence");
  fields.text("lease", ask.lease, 64)
      .digest("key", asked.key)
      .integer("fence", asked.fence, 1, JsonFields::kMaxInteger)
      .text("compiler", ask.compiler)
      .integer("input_bytes", ask.input_bytes, 0, JsonFields::kMaxInteger)
      .integer("minimum_bytes", ask.minimum_bytes, 0, JsonFields::kMaxInteger)
      .integer("cores", ask.cores, 0, kMaxCores)
      .integer("wait_ms", ask.wait_ms, 0, JsonFields::kMaxInteger);
  if (const auto* alone = fields.member("alone"); alone != nullptr) {
    if (alone->is_bool()) {
      ask.alone = alone->get_bool();
    } else {
      fields.fail(Code::kInvalid, "alone", "is not true or false");
    }
  }
  NC_TRY(fields.done());
  ask.wait_ms = std::min(ask.wait_ms, kMaxWaitMs);
  ask.pid = http.connection->peer().pid;
  return asked;
}

HttpResponse lost(const std::string& lease) {
  return HttpResponse::error({Code::kLeaseLost, "lease " + lease + " is not held any more",
                              "drop this build and look the key up again"});
}

// What an answer says beside how it went.
struct Told {
  std::string lease;
  ActionKey key;
  std::uint64_t fence = 0;
  std::uint64_t expected = 0;
  bool learned = false;
};

// For those who wait for this build.
void tell_waiters(Service& service, const Told& told, std::string_view progress) {
  service.leases.heartbeat(told.lease, told.key, told.fence, progress);
}

HttpResponse answer_of(Service& service, const Told& told, const AdmissionQueue::Answer& went) {
  js::object object{{"expected_bytes", told.expected},
                    {"source", told.learned ? "learned" : "guess"},
                    {"waited_s", static_cast<double>(went.waited_ms) / 1000}};
  if (went.kind == AdmissionQueue::Answer::Kind::kAdmitted) {
    const auto lease = service.leases.find(told.lease);
    service.builds.told(told.lease, went.granted);
    if (!lease || !service.leases.find(told.lease)) {  // it ended meanwhile, the clean-up was early
      service.builds.lease_ended(told.lease);
      return lost(told.lease);
    }
    if (went.waited_ms > 0) {
      tell_waiters(service, told, "builds");
      service.store.count(lease->request.name_space, "admission_wait_seconds",
                          static_cast<double>(went.waited_ms) / 1000);
    }
    const double timeout_s = service.settings.copy().seconds("build_timeout");
    object["state"] = "admitted";
    object["reserved_bytes"] = went.granted.bytes;
    object["cores"] = went.granted.cores;
    object["alone"] = went.granted.alone;
    object["build_timeout_ms"] = static_cast<Millis>(timeout_s * 1000);
  } else {
    tell_waiters(service, told, "waits for memory");
    object["state"] = "waiting";
    object["ahead"] = went.ahead;
    object["running"] = went.running;
    object["budget_bytes"] = went.budget;
    object["reserved_bytes"] = went.reserved;
  }
  return answer(object);
}

js::object build_json(Service& service, const AdmissionQueue::View::Build& build, bool runs) {
  js::object object{{"lease", build.lease},
                    {"bytes", build.demand.bytes},
                    {"cores", build.demand.cores},
                    {"alone", build.demand.alone}};
  const auto lease = service.leases.find(build.lease);
  object["key"] = lease ? lease->request.key.hex() : "";
  object["label"] = lease ? lease->request.label : "";
  object["compiler"] = lease ? lease->request.compiler : "";
  object["builder"] = lease ? js::value(builder_json(*lease)) : js::value(nullptr);
  object[runs ? "elapsed_s" : "waited_s"] = static_cast<double>(build.since_ms) / 1000;
  if (runs) {
    object["taken_bytes"] = build.taken;
  } else {
    object["overtaken"] = build.overtaken;
  }
  return object;
}

}  // namespace

void admit(Service& service, Call call) {  // NOLINT(performance-unnecessary-value-param): a handler
  auto asked = parse(call.request);
  if (!asked.ok()) return call.reply(HttpResponse::error(asked.error()));
  Builds::Ask& ask = asked->ask;
  if (!keep_lease(service, call.request, ask.lease, asked->key, asked->fence, "")) {
    return call.reply(lost(ask.lease));
  }
  ask.guess = service.settings.copy().size("build_memory_guess");
  const PeakBook::Estimate estimate = service.builds.expect(ask);
  const Told told{ask.lease, asked->key, asked->fence, estimate.bytes, estimate.learned};
  const auto went = service.builds.ask(
      ask, estimate.bytes,
      [&service, told, reply = call.reply](const AdmissionQueue::Answer& then) {
        service.pool.post(Lane::kQuick,
                          [&service, told, reply, then] { reply(answer_of(service, told, then)); });
      });
  using Kind = AdmissionQueue::Answer::Kind;
  if (went.joined) {
    if (const auto lease = service.leases.find(ask.lease)) {
      service.store.count(lease->request.name_space, "admission_waits", 1);
    } else {
      service.builds.lease_ended(ask.lease);  // wakes it, if it is parked
    }
    service.keeper.nudge();
  }
  if (went.kind == Kind::kParked) return service.keeper.nudge();
  if (went.kind == Kind::kRefused) {
    return call.reply(HttpResponse::error(
        {Code::kBusy, "too many builds are waiting for memory", "try again later"}));
  }
  call.reply(answer_of(service, told, went));
}

HttpResponse list_builds(Service& service, const HttpRequest&) {
  const AdmissionQueue::View view = service.builds.view();
  js::array running;
  js::array waiting;
  js::array learned;
  for (const auto& one : view.running) running.push_back(build_json(service, one, true));
  for (const auto& one : view.waiting) waiting.push_back(build_json(service, one, false));
  for (const auto& one : service.builds.learned()) {
    learned.push_back(js::object{{"compiler", one.of.compiler},
                                 {"input_below_bytes", std::uint64_t{1} << one.of.size},
                                 {"samples", one.samples},
                                 {"highest_bytes", one.highest},
                                 {"expected_bytes", one.expected}});
  }
  return answer({{"budget_bytes", view.budget},
                 {"reserved_bytes", view.reserved},
                 {"available_bytes", view.available ? js::value(*view.available) : js::value()},
                 {"automatic", view.automatic},
                 {"cores", view.cores},
                 {"cores_used", view.cores_used},
                 {"running", std::move(running)},
                 {"waiting", std::move(waiting)},
                 {"learned", std::move(learned)}});
}

}  // namespace nc::daemon
