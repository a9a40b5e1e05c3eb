// What became of the actions that were needed under the name of a recording.
#include "cache/json_fields.hpp"
#include "daemon/answers.hpp"
#include "daemon/paging.hpp"
#include "daemon/service.hpp"

namespace nc::daemon {
namespace {

namespace js = boost::json;

constexpr std::size_t kPage = 1000;

js::object outcome_json(const Outcome& outcome) {
  js::value nearest;
  if (!outcome.nearest.empty()) {
    js::array differs;
    for (const Miss::Differs& d : outcome.differs)
      differs.push_back(js::array{d.name, d.wanted, d.have});
    nearest = js::object{{"key", outcome.nearest}, {"differs", std::move(differs)}};
  }
  return {
      {"key", outcome.key.hex()},     {"outcome", std::string(outcome_state_name(outcome.state))},
      {"kind", outcome.kind},         {"label", outcome.label},
      {"program", outcome.program},   {"compiler", outcome.compiler},
      {"build_ms", outcome.build_ms}, {"class", outcome.failure_class},
      {"message", outcome.message},   {"log_line", outcome.log_line},
      {"cause", outcome.cause},       {"nearest", std::move(nearest)},
      {"first_ms", outcome.first_ms}, {"last_ms", outcome.last_ms}};
}

}  // namespace

HttpResponse list_outcomes(Service& service, const HttpRequest& request) {
  const auto limit = page_limit(request, kPage);
  if (!limit.ok()) return HttpResponse::error(limit.error());
  const auto after = page_after(request);
  if (!after.ok()) return HttpResponse::error(after.error());
  const auto page = service.outcomes.page(request.arg, *after, *limit);
  js::array out;
  for (const Outcome& outcome : page) out.push_back(outcome_json(outcome));
  js::value next;
  if (page.size() == *limit) next = page.back().key.hex();
  return answer({{"outcomes", std::move(out)}, {"next", std::move(next)}});
}

HttpResponse move_outcomes(Service& service, const HttpRequest& request) {
  const auto object = parse_json_object(request.body, request.body.size(), "the body");
  if (!object.ok()) return HttpResponse::error(object.error());
  std::string from;
  constexpr std::size_t kMaxRunName = 129;
  JsonFields fields(*object, "the body");
  fields.require("from").text("from", from, kMaxRunName, is_run_name);
  if (Status ok = fields.done(); !ok.ok()) return HttpResponse::error(ok.error());
  if (!is_run_name(request.arg)) {
    return HttpResponse::error(
        {Code::kInvalid, "the path names no recording", "use up to 64 letters, digits and . _ -"});
  }
  return answer({{"moved", service.outcomes.move(from, request.arg)}});
}

HttpResponse forget_outcomes(Service& service, const HttpRequest& request) {
  return answer({{"forgotten", service.outcomes.forget(request.arg)}});
}

}  // namespace nc::daemon
