// POST /v1/actions/{key}/acquire: a look-up from its first request to its one outcome. A request
// that has to wait holds no thread: it is parked in the lease table and taken up again on a disk
// thread.
#include <algorithm>
#include <charconv>
#include <memory>
#include <utility>

#include "base/log.hpp"
#include "cache/json_fields.hpp"
#include "daemon/answers.hpp"
#include "daemon/service.hpp"

namespace nc::daemon {
namespace {

namespace js = boost::json;

constexpr Millis kMaxWaitMs = 60'000;

// What a hit spares its caller: the entry's own build, and those of other entries that it holds
// copies of.
double seconds_saved(const Manifest& manifest) {
  std::uint64_t nested_ms = 0;
  if (const auto it = manifest.meta.find("nested_build_ms"); it != manifest.meta.end()) {
    std::from_chars(it->second.data(), it->second.data() + it->second.size(), nested_ms);
  }
  return static_cast<double>(manifest.build_ms + nested_ms) / 1000;
}

struct Asked {
  Request request;
  bool build = false;
  bool retry = false;
  Millis wait_ms = 0;
  std::string ticket;
  std::string recording;  // "": of none
};

Result<Asked> parse(const HttpRequest& http) {
  NC_ASSIGN(const auto object, parse_json_object(http.body, http.body.size(), "the body"));
  Asked asked;
  Request& request = asked.request;
  request.key = *ActionKey::from_hex(http.arg);
  std::string intent;
  JsonFields fields(object, "the body");
  fields.require("intent");
  fields.text("intent", intent)
      .text("namespace", request.name_space, 64, is_namespace_name)
      .text("kind", request.kind, 32)
      .text("label", request.label)
      .text("program", request.program)
      .text("compiler", request.compiler)
      .text("model", request.model)
      .integer("wait_ms", asked.wait_ms, 0, JsonFields::kMaxInteger)
      .parts("parts", request.parts);
  if (const auto* ticket = fields.member("ticket"); ticket != nullptr && !ticket->is_null()) {
    fields.text("ticket", asked.ticket, 64);
  }
  if (const auto* retry = fields.member("retry"); retry != nullptr) {
    if (!retry->is_bool())
      fields.fail(Code::kInvalid, "retry", "is not true or false");
    else
      asked.retry = retry->get_bool();
  }
  if (const auto* name = fields.member("recording"); name != nullptr && !name->is_null()) {
    constexpr std::size_t kMaxRunName = 129;
    fields.text("recording", asked.recording, kMaxRunName, is_run_name);
  }
  NC_TRY(fields.done());
  if (intent != "build" && intent != "lookup") {
    return Error{Code::kInvalid, "the body's intent is '" + intent + "'", "send build or lookup"};
  }
  asked.build = intent == "build";
  asked.wait_ms = std::min(asked.wait_ms, kMaxWaitMs);
  if (!request.parts.empty()) NC_TRY(check_key(request.parts, request.key, "the body"));
  return asked;
}

Status check_asked(const Rights& rights, const Asked& asked) {
  NC_TRY(rights.may(asked.request.name_space));
  if (!asked.recording.empty() && !rights.namespaces.is_all()) {
    return Error{Code::kDenied, rights.who + " may not record",
                 "ask for a token for all namespaces"};
  }
  if (!asked.build || rights.scope >= Scope::kWrite) return {};
  return Error{Code::kDenied, rights.who + " may look up, and not build", "send intent: lookup"};
}

// An answer of a moment ago that still holds; the use is counted.
std::shared_ptr<const HitMemo::Answer> recall(Service& service, const Request& request) {
  auto known = service.hits.get(request.key);
  if (!known || (!known->only_for.empty() && known->only_for != request.name_space)) return nullptr;
  return service.store.reuse(request.key, known->generation) ? known : nullptr;
}

// What every hit brings with it, and its answer. Does not wait for the disk.
HttpResponse take_hit(Service& service, const Request& request, Connection& connection,
                      const HitMemo::Answer& hit, bool waited) {
  service.store.count(request.name_space, waited ? "waits" : "hits", 1);
  service.store.count(request.name_space, "compile_seconds_saved", hit.seconds_saved);
  connection.keep(request.key, service.store.hold(request.key));
  return hit_answer(hit.text, waited);
}

class LookUp : public std::enable_shared_from_this<LookUp> {
 public:
  LookUp(Service& service, Call call, Asked asked)
      : service_(service),
        call_(std::move(call)),
        asked_(std::move(asked)),
        waited_(!asked_.ticket.empty()) {}

  // On a disk thread, like everything below.
  void run() {
    if (asked_.recording.empty() && !call_.request.rights) {
      if (auto known = recall(service_, asked_.request)) return answer_hit(*known);
    }
    auto hit = find();
    if (!hit.ok() && !hit.is(Code::kCorrupt)) return fail(hit.error());
    if (hit.ok() && *hit) return answer_hit(**hit);
    if (!asked_.build || service_.read_only) return look_further();
    if (!asked_.retry) {
      auto failure = service_.store.failure(asked_.request.key);
      if (!failure.ok()) return fail(failure.error());
      if (*failure) return answer_failure(**failure);
      if (waited_) {
        if (const auto unstored = service_.unstored.get(asked_.request.key))
          return answer_unstored(*unstored);
      }
    }
    service_.tiers.before_build(asked_.request);
    ask();
  }

 private:
  // What the store has, if whoever signed it may make entries for this namespace.
  Result<std::optional<Hit>> find() {
    auto hit = service_.store.lookup(asked_.request.key);
    if (!hit.ok() || !*hit || (*hit)->manifest.signature.empty() || !service_.trust) return hit;
    const Manifest& manifest = (*hit)->manifest;
    if (service_.trust->serves(manifest, asked_.request.name_space, "the local store").ok()) {
      return hit;
    }
    return std::optional<Hit>();
  }

  // A shared tier may have it. Whoever asks it calls back, on a thread of its own.
  void look_further() {
    if (service_.read_only || !service_.tiers.any()) return answer_miss();
    service_.tiers.look(asked_.request, [self = shared_from_this()](bool found) {
      self->service_.pool.post(Lane::kQuick, [self, found] {
        auto hit = found ? self->find() : Result<std::optional<Hit>>(std::nullopt);
        if (hit.ok() && *hit) return self->answer_hit(**hit);
        self->answer_miss();
      });
    });
  }

  void ask() {
    LeaseTable::Ask ask;
    ask.request = asked_.request;
    ask.who = builder_of(service_, call_.request);
    ask.connection = call_.request.connection->id();
    ask.ticket = asked_.ticket;
    ask.wait_ms = asked_.wait_ms;
    ask.wake = [self = shared_from_this()](Wake wake) {
      self->service_.pool.post(Lane::kQuick, [self, wake = std::move(wake)] { self->woken(wake); });
    };
    if (ask.wait_ms > 0) call_.request.connection->watch_hangup();
    auto answer = service_.leases.ask(std::move(ask));
    service_.keeper.apply(answer.effects);
    switch (answer.kind) {
      case LeaseTable::Answer::Kind::kGranted:
        return granted(answer.lease);
      case LeaseTable::Answer::Kind::kParked:
        note_waiting();
        return service_.keeper.nudge();
      case LeaseTable::Answer::Kind::kBusy:
        return answer_building(answer.progress);
      case LeaseTable::Answer::Kind::kRefused:
        return fail(answer.error);
    }
  }

  void woken(const Wake& wake) {
    switch (wake.kind) {
      case Wake::Kind::kGranted:
        waited_ = true;
        return granted(wake.lease);
      case Wake::Kind::kEnded:
        waited_ = true;
        asked_.retry = false;  // what ended just now is what was wanted
        asked_.wait_ms = 0;    // should it be gone already, the client asks again
        return run();
      case Wake::Kind::kStillBusy:
        return answer_building(wake.progress);
      case Wake::Kind::kGone:
        return fail({Code::kUnavailable, "the client hung up", ""});
    }
  }

  // The lease is ours. Had another builder published between our look and the grant, the entry is
  // there now.
  void granted(const Lease& lease) {
    auto hit = find();
    if (hit.ok() && *hit) {
      service_.keeper.apply(service_.leases.settled(asked_.request.key));
      return answer_hit(**hit);
    }
    if (!asked_.retry) {
      auto failure = service_.store.failure(asked_.request.key);
      if (failure.ok() && *failure) {
        service_.keeper.apply(service_.leases.settled(asked_.request.key));
        return answer_failure(**failure);
      }
    }
    if (service_.cluster && !service_.cluster->granted(lease)) return ask();
    service_.keeper.follow(lease);
    count("builds");
    HttpResponse response = answer({{"state", "lease"},
                                    {"lease", lease_json(lease, service_.leases.lease_ttl())},
                                    {"miss", explain()}});
    response.undelivered = [&service = service_, id = lease.id] {
      service.pool.post(Lane::kQuick, [&service, id] {
        service.keeper.apply(service.leases.end(id, LeaseTable::End::kReleased));
      });
    };
    call_.reply(std::move(response));
  }

  void answer_hit(const Hit& hit) {
    note_where_from();
    if (call_.request.rights) return answer_stranger(hit);
    if (recorded()) {
      service_.outcomes.hit(asked_.recording, asked_.request, hit.manifest.build_ms, waited_);
    }
    HitMemo::Answer made{hit_tail(hit), hit.generation, seconds_saved(hit.manifest), {}};
    if (!hit.manifest.signature.empty()) made.only_for = asked_.request.name_space;
    answer_hit(made);
    service_.hits.put(asked_.request.key, std::move(made));
  }

  // Not the daemon's own user: no paths, which mean nothing elsewhere and are nobody's business,
  // and no entry of another namespace, whatever namespace the request named.
  void answer_stranger(Hit hit) {
    if (Status may = call_.request.rights->may(hit.manifest.name_space); !may.ok()) {
      end_ticket();
      return fail(may.error());
    }
    if (recorded()) {
      service_.outcomes.hit(asked_.recording, asked_.request, hit.manifest.build_ms, waited_);
    }
    for (BlobRef& blob : hit.blobs) blob.path.clear();
    answer_hit({hit_tail(hit), hit.generation, seconds_saved(hit.manifest), {}});
  }

  void answer_hit(const HitMemo::Answer& known) {
    note_where_from();
    end_ticket();
    call_.reply(take_hit(service_, asked_.request, *call_.request.connection, known, waited_));
  }

  void answer_miss() { call_.reply(answer({{"state", "miss"}, {"miss", explain()}})); }

  void answer_failure(const Failure& failure) {
    end_ticket();
    count("failures");
    if (recorded()) service_.outcomes.refused(asked_.recording, asked_.request, failure);
    call_.reply(answer({{"state", "failed"}, {"failure", failure_json(failure)}}));
  }

  // Nothing is wrong with what is asked for; the caller does without the cache.
  void answer_unstored(const Failure& failure) {
    end_ticket();
    count("bypasses");
    if (recorded()) service_.outcomes.refused(asked_.recording, asked_.request, failure);
    call_.reply(answer({{"state", "failed"}, {"failure", failure_json(failure)}}));
  }

  void answer_building(const Progress& progress) {
    note_waiting();
    const Request& building = progress.lease.request;
    call_.reply(answer({{"state", "building"},
                        {"ticket", progress.ticket},
                        {"builder", builder_json(progress.lease)},
                        {"elapsed_s", progress.elapsed_s},
                        {"usual_s", optional_number(service_.store.usual_build_seconds(
                                        building.kind, building.label))},
                        {"waiters", progress.waiters},
                        {"progress", progress.lease.progress}}));
  }

  void fail(const Error& error) { call_.reply(HttpResponse::error(error)); }

  js::value explain() {
    auto miss = service_.store.explain_miss(asked_.request);
    if (recorded()) {
      service_.outcomes.missed(asked_.recording, asked_.request,
                               miss.ok() ? std::optional(*miss) : std::nullopt);
    }
    if (miss.ok()) {
      // The nearest may be of any namespace.
      const Rights* rights = call_.request.rights.get();
      if (rights != nullptr && !rights->namespaces.is_all()) miss->nearest.reset();
      return miss_json(*miss);
    }
    log::warn("acquire", "cannot explain a miss: {}", miss.error().text());
    return miss_json({"never_built", std::nullopt});
  }

  bool recorded() const { return !asked_.recording.empty(); }
  void note_waiting() {
    if (recorded()) service_.outcomes.waiting(asked_.recording, asked_.request);
  }

  // Who waited while the tiers were asked waited for no builder.
  void note_where_from() { waited_ = waited_ && !service_.tiers.fetched(asked_.request.key); }

  void end_ticket() {
    if (!asked_.ticket.empty()) {
      service_.keeper.apply(service_.leases.forget_ticket(asked_.ticket));
    }
  }

  void count(std::string_view outcome) {
    service_.store.count(asked_.request.name_space, outcome, 1);
  }

  Service& service_;
  Call call_;
  Asked asked_;
  bool waited_;
};

}  // namespace

std::optional<HttpResponse> acquire_now(Service& service, const HttpRequest& request) {
  constexpr std::size_t kMaxBody = 16 << 10;  // more takes its time to parse
  if (request.body.size() > kMaxBody) return std::nullopt;
  if (request.rights) return std::nullopt;  // memory holds answers with paths
  // Asked first because it is cheap, and usually the end of it.
  if (!service.hits.get(*ActionKey::from_hex(request.arg))) return std::nullopt;
  auto asked = parse(request);
  // What is recorded is written down, which this thread must not wait for.
  if (!asked.ok() || !asked->ticket.empty() || !asked->recording.empty()) return std::nullopt;
  const auto known = recall(service, asked->request);
  if (!known) return std::nullopt;
  return take_hit(service, asked->request, *request.connection, *known, false);
}

void acquire(Service& service, Call call) {
  auto asked = parse(call.request);
  if (!asked.ok()) return call.reply(HttpResponse::error(asked.error()));
  if (call.request.rights) {
    if (Status may = check_asked(*call.request.rights, *asked); !may.ok()) {
      return call.reply(HttpResponse::error(may.error()));
    }
  }
  std::make_shared<LookUp>(service, std::move(call), std::move(*asked))->run();
}

}  // namespace nc::daemon
