// Sizes come in, plans of buckets go out.
#include "daemon/answers.hpp"
#include "daemon/bucket_request.hpp"
#include "daemon/service.hpp"

namespace nc::daemon {
namespace {

namespace js = boost::json;

void put_plan(js::object& out, const buckets::FamilyPlan& plan) {
  const buckets::Ladder beyond = plan.beyond();
  js::array ends;
  for (const buckets::Size end : plan.buckets) ends.push_back(end);
  out["buckets"] = std::move(ends);
  out["beyond"] = js::object{{"base", beyond.base},
                             {"ratio", js::array{beyond.num, beyond.den}},
                             {"tile", beyond.tile},
                             {"max", beyond.max == 0 ? js::value(nullptr) : js::value(beyond.max)}};
  out["tile"] = plan.axis.tile;
  out["floor"] = plan.axis.floor;
  out["varies"] = plan.varies;
}

js::array joints_json(const buckets::Plan& plan) {
  js::array out;
  for (const buckets::JointPlan& joint : plan.joints) {
    js::array pairs;
    for (const auto& [a, b] : joint.buckets) pairs.push_back(js::array{a, b});
    out.push_back(js::object{
        {"families", {plan.families[joint.first].family, plan.families[joint.second].family}},
        {"buckets", std::move(pairs)}});
  }
  return out;
}

js::object program_json(const ProgramView& view) {
  js::array families;
  for (const ProgramView::Family& family : view.families) {
    js::object one{{"family", family.name},       {"calls", family.calls},
                   {"distinct", family.distinct}, {"min", family.smallest},
                   {"max", family.largest},       {"waste", optional_number(family.waste)}};
    if (family.plan) put_plan(one, *family.plan);
    families.push_back(std::move(one));
  }
  return {{"program", view.program.hex()},
          {"label", view.head.label},
          {"seen_ms", view.head.seen_ms},
          {"compile_ms", view.head.usual_compile_ms()},
          {"call_us", view.head.usual_call_us()},
          {"epoch", view.plan ? view.plan->epoch : 0},
          {"digest", view.plan ? js::value(view.plan->digest().hex()) : js::value(nullptr)},
          {"jobs", view.jobs},
          {"families", std::move(families)},
          {"joint", view.plan ? joints_json(*view.plan) : js::array()}};
}

}  // namespace

HttpResponse observe_sizes(Service& service, const HttpRequest& request) {
  const auto seen = read_observation(request.body);
  if (!seen.ok()) return HttpResponse::error(seen.error());
  if (service.read_only) {
    return HttpResponse::error({Code::kReadOnly, "the store is read-only, sizes are not kept",
                                "unset read_only to let plans be learned"});
  }
  service.buckets.observe(*seen);
  HttpResponse response;
  response.status = 204;
  return response;
}

HttpResponse plan_buckets(Service& service, const HttpRequest& request) {
  const auto wanted = read_plan_request(request.body);
  if (!wanted.ok()) return HttpResponse::error(wanted.error());
  const Pin pin = service.buckets.plan(*wanted);
  js::object families;
  for (std::size_t i = 0; i < pin.plan.families.size(); ++i) {
    js::object one;
    put_plan(one, pin.plan.families[i]);
    one["waste"] = optional_number(pin.waste[i]);
    families[pin.plan.families[i].family] = std::move(one);
  }
  return answer({{"epoch", pin.plan.epoch},
                 {"digest", pin.plan.digest().hex()},
                 {"families", std::move(families)},
                 {"joint", joints_json(pin.plan)},
                 {"artifacts", pin.plan.artifacts()},
                 {"waste_met", pin.waste_met}});
}

HttpResponse list_buckets(Service& service, const HttpRequest& request) {
  std::optional<Sha256> only;
  if (const auto text = request.query("program"); !text.empty()) {
    only = Sha256::from_hex(text);
    if (!only) {
      return HttpResponse::error({Code::kInvalid, "program is not 64 lower-case hex digits",
                                  "send a program's whole name"});
    }
  }
  js::array programs;
  for (const ProgramView& view : service.buckets.programs(only)) {
    programs.push_back(program_json(view));
  }
  return answer({{"programs", std::move(programs)}});
}

}  // namespace nc::daemon
