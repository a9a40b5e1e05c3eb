// What the daemon is, how it is doing, and how it is told to change.
#include <algorithm>
#include <cmath>

#include "base/settings.hpp"
#include "cache/json_fields.hpp"
#include "client/protocol.hpp"
#include "daemon/answers.hpp"
#include "daemon/paging.hpp"
#include "daemon/service.hpp"

namespace nc::daemon {
namespace {

namespace js = boost::json;

js::string_view js_view(std::string_view text) {
  return {text.data(), text.size()};
}

// Whole numbers are written as such.
js::value number(double value) {
  constexpr double kExact = 9007199254740992.0;
  if (value == std::floor(value) && std::abs(value) <= kExact)
    return static_cast<std::int64_t>(value);
  return value;
}

// lookups is made from the outcomes here, so that they add up in every answer.
js::object counters_json(const Counters& counters) {
  js::object object;
  double lookups = 0;
  for (const auto& [name, value] : counters) object[name] = number(value);
  for (const char* outcome : {"hits", "waits", "builds", "failures", "bypasses"}) {
    auto it = counters.find(outcome);
    const double value = it == counters.end() ? 0 : it->second;
    object[outcome] = number(value);
    lookups += value;
  }
  object["lookups"] = number(lookups);
  if (!object.contains("compile_seconds_saved")) object["compile_seconds_saved"] = 0;
  return object;
}

js::object sums_json(const KindsMemo::Sums& sums) {
  return {{"entries", sums.entries},
          {"bytes", sums.bytes},
          {"build_seconds", number(static_cast<double>(sums.build_ms) / 1000)}};
}

// Entries, bytes and build seconds per kind. Walks the index, so it is done anew only when
// something changed, and at most a twentieth of the time is spent on it.
js::object kinds_json(Service& service, const StoreSize& size) {
  KindsMemo& memo = service.kinds;
  MutexLock lock(memo.mutex);
  const Millis begin = service.clock.monotonic_ms();
  const bool same = memo.entries == size.entries && memo.bytes == size.bytes;
  if (memo.known && (same || begin - memo.at_ms < 20 * memo.cost_ms)) {
    js::object object;
    for (const auto& [kind, sums] : memo.kinds) object[kind] = sums_json(sums);
    return object;
  }
  constexpr std::size_t kPage = 1000;
  std::map<std::string, KindsMemo::Sums> kinds;
  std::string after;
  for (;;) {
    auto page = service.store.entries({}, after, kPage);
    if (!page.ok()) break;
    for (const EntryInfo& entry : *page) {
      auto& sums = kinds[entry.kind];
      ++sums.entries;
      sums.bytes += entry.bytes;
      sums.build_ms += entry.build_ms;
    }
    if (page->size() < kPage) break;
    after = page->back().key.hex();
  }
  memo.kinds = std::move(kinds);
  memo.known = true;
  memo.entries = size.entries;
  memo.bytes = size.bytes;
  memo.at_ms = service.clock.monotonic_ms();
  memo.cost_ms = memo.at_ms - begin;
  js::object object;
  for (const auto& [kind, sums] : memo.kinds) object[kind] = sums_json(sums);
  return object;
}

js::object health_json(Service& service) {
  const StoreHealth health = service.store.health();
  return {{"ok", health.problem.empty() && (health.writable || service.read_only)},
          {"writable", health.writable},
          {"problem", health.problem},
          {"failed_writes", health.failed_writes},
          {"quarantined", health.quarantined},
          {"repaired", health.repaired},
          {"draining", service.draining.load()},
          {"uptime_s", static_cast<double>(service.clock.wall_ms() - service.started_ms) / 1000},
          {"connections", service.connections.load()},
          {"leases", service.leases.leases()},
          {"tickets", service.leases.tickets()}};
}

js::value trust_json(Service& service) {
  if (!service.trust) return nullptr;
  const trust::PolicyState state = service.trust->state();
  js::object refused;
  for (std::size_t i = 0; i < trust::kRefusals; ++i) {
    refused[js_view(trust::refusal_name(static_cast<trust::Refusal>(i)))] = state.refused[i];
  }
  return js::object{{"mode", state.need_signature ? "signed" : "any"},
                    {"key", state.key_id.empty() ? js::value(nullptr) : js::value(state.key_id)},
                    {"trusted_keys", state.trusted},
                    {"problem", state.problem},
                    {"signed", state.signed_count},
                    {"believed", state.believed},
                    {"refused", std::move(refused)}};
}

js::value listener_json(Service& service) {
  if (!service.gate) return nullptr;
  const Gate::Counts gate = service.gate->counts();
  TcpListener::Counts counts;
  if (service.listener) counts = service.listener->counts();
  const std::string problem =
      service.listen_problem.empty() ? gate.problem : service.listen_problem;
  js::object object;
  object["address"] = service.listener ? js::value(service.listener->bound()) : js::value(nullptr);
  object["problem"] = problem;
  object["grants"] = gate.grants;
  object["requests"] = gate.admitted;
  object["refused"] = gate.denied;
  object["open"] = counts.open;
  object["accepted"] = counts.accepted;
  object["turned_away"] = counts.turned_away;
  object["failed_handshakes"] = counts.failed_handshakes;
  object["timed_out"] = counts.timed_out;
  return object;
}

js::value cluster_json(Service& service) {
  if (!service.cluster) return nullptr;
  const Cluster::View view = service.cluster->view();
  const tier::LeaseCounters& c = service.cluster->counters();
  return js::object{{"tier", view.tier},           {"waiting", view.waiting},
                    {"held", view.held},           {"publishing", view.publishing},
                    {"taken", c.taken.load()},     {"takeovers", c.takeovers.load()},
                    {"settled", c.settled.load()}, {"lost", c.lost.load()},
                    {"alone", c.alone.load()},     {"apart", c.apart.load()},
                    {"garbage", c.garbage.load()}, {"requests", c.requests.load()},
                    {"errors", c.errors.load()}};
}

js::object builds_json(Service& service) {
  const AdmissionQueue::View view = service.builds.view();
  const WorkQueue::Counts queue = service.work.queue().counts();
  return {{"running", view.running.size()},
          {"waiting", view.waiting.size()},
          {"budget_bytes", view.budget},
          {"reserved_bytes", view.reserved},
          {"cores", view.cores},
          {"cores_used", view.cores_used},
          {"queued", queue.queued}};
}

}  // namespace

HttpResponse hello(Service& service, const HttpRequest& request) {
  const std::string_view path = request.rights ? std::string_view() : service.store_path;
  return answer(
      {{"protocol", {{"min", protocol::kMinVersion}, {"max", protocol::kVersion}}},
       {"version", NC_VERSION},
       {"capabilities", {"lease", "path", "inline", "import", "buckets", "admission", "queue"}},
       {"pid", service.pid},
       {"started_ms", service.started_ms},
       {"store",
        {{"id", service.store.id()}, {"path", js_view(path)}, {"read_only", service.read_only}}}});
}

HttpResponse stats(Service& service, const HttpRequest& request) {
  const std::string_view name_space = request.query("namespace");
  js::object counters = counters_json(service.store.counters(name_space));
  const StoreSize size = service.store.size();
  if (name_space.empty()) {
    counters["bytes"] = size.bytes;
    counters["entries"] = size.entries;
    counters["blobs"] = size.blobs;
  }
  js::object reasons;
  for (const auto& [reason, count] : service.store.bypass_reasons())
    reasons[reason] = number(count);
  js::object namespaces;
  for (const auto& [name, values] : service.store.namespaces()) {
    namespaces[name] = counters_json(values);
  }
  const Settings settings = service.settings.copy();
  return answer({{"counters", std::move(counters)},
                 {"bypass_reasons", std::move(reasons)},
                 {"kinds", kinds_json(service, size)},
                 {"namespaces", std::move(namespaces)},
                 {"limits",
                  {{"max_bytes", size.max_bytes},
                   {"max_entries", size.max_entries},
                   {"reserved", size.reserved},
                   {"disk_available", size.disk_available},
                   {"max_connections", settings.integer("max_connections")}}},
                 {"builds", builds_json(service)},
                 {"trust", trust_json(service)},
                 {"listener", listener_json(service)},
                 {"cluster", cluster_json(service)},
                 {"guest_leases", service.guest_leases.size()},
                 {"health", health_json(service)}});
}

HttpResponse misses(Service& service, const HttpRequest& request) {
  const auto limit = query_number(request, "limit", 100);
  if (!limit.ok()) return HttpResponse::error(limit.error());
  auto records = service.store.misses(std::clamp<std::size_t>(*limit, 1, 10'000));
  if (!records.ok()) return HttpResponse::error(records.error());
  std::string body = R"({"misses":[)";
  for (const std::string& record : *records) {
    if (body.back() != '[') body.push_back(',');
    body += record;
  }
  body += "]}";
  return HttpResponse::json(std::move(body));
}

HttpResponse get_config(Service& service, const HttpRequest&) {
  const Settings settings = service.settings.copy();
  js::array rows;
  for (const SettingSpec& spec : setting_table()) {
    rows.push_back(js::object{{"name", js_view(spec.name)},
                              {"value", shown_value(spec, settings.text(spec.name))},
                              {"origin", js_view(origin_name(settings.origin(spec.name)))},
                              {"detail", settings.origin_detail(spec.name)},
                              {"default", js_view(spec.default_value)},
                              {"range", js_view(spec.range)},
                              {"live", spec.live},
                              {"reader", js_view(spec.reader)},
                              {"help", js_view(spec.help)}});
  }
  return answer({{"settings", std::move(rows)}, {"file", settings.config_path()}});
}

HttpResponse set_config(Service& service, const HttpRequest& request) {
  auto object = parse_json_object(request.body, request.body.size(), "the body");
  if (!object.ok()) return HttpResponse::error(object.error());
  std::string name;
  std::string value;
  JsonFields fields(*object, "the body");
  fields.require("name").require("value");
  fields.text("name", name).text("value", value, 16 << 10);
  if (Status ok = fields.done(); !ok.ok()) return HttpResponse::error(ok.error());
  if (Status ok = service.settings.change(name, value); !ok.ok()) {
    return HttpResponse::error(ok.error());
  }
  const SettingSpec* spec = find_setting(name);
  return answer(
      {{"name", name}, {"value", shown_value(*spec, service.settings.copy().text(name))}});
}

HttpResponse shut_down(Service& service, const HttpRequest& request) {
  Millis drain_ms = static_cast<Millis>(service.settings.copy().seconds("drain") * 1000);
  if (!request.body.empty()) {
    auto object = parse_json_object(request.body, request.body.size(), "the body");
    if (!object.ok()) return HttpResponse::error(object.error());
    JsonFields fields(*object, "the body");
    fields.integer("drain_ms", drain_ms, 0, 600'000);
    if (Status ok = fields.done(); !ok.ok()) return HttpResponse::error(ok.error());
  }
  service.shut_down(drain_ms);
  HttpResponse response = answer({{"draining", true}, {"pid", service.pid}});
  response.close = true;
  return response;
}

}  // namespace nc::daemon
