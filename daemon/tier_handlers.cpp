// GET /v1/tiers: what the shared tiers are and how they are doing.
#include "daemon/answers.hpp"
#include "daemon/service.hpp"

namespace nc::daemon {
namespace {

namespace js = boost::json;

js::object breaker_json(const tier::Breaker::View& view) {
  return {{"state", std::string(tier::breaker_state_name(view.state))},
          {"problem", view.problem},
          {"retry_in_s", static_cast<double>(view.retry_in_ms) / 1000},
          {"opened", view.opened}};
}

js::value share(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return nullptr;
  return static_cast<double>(part) / static_cast<double>(whole);
}

js::object tier_json(const tier::TierView& v) {
  return {{"address", v.address},
          {"priority", v.priority},
          {"read_only", !v.writable},
          {"write_only", !v.readable},
          {"compression", v.compress},
          {"timeout_ms", v.timeout_ms},
          {"max_bytes", v.max_bytes},
          {"reading", breaker_json(v.reading)},
          {"writing", breaker_json(v.writing)},
          {"counters",
           {{"asked", v.asked},
            {"hits", v.hits},
            {"absent", v.absent},
            {"denied", v.denied},
            {"failed", v.failed},
            {"timed_out", v.timed_out},
            {"refused", v.refused},
            {"corrupt", v.corrupt},
            {"skipped", v.skipped},
            {"sent", v.sent},
            {"known", v.known},
            {"send_failed", v.send_failed},
            {"unsigned", v.unsigned_kept},
            {"bytes_in", v.bytes_in},
            {"bytes_out", v.bytes_out}}},
          {"hit_share", share(v.hits, v.hits + v.absent)},
          {"entry_ms", v.entry_ms},
          {"queued", v.queued},
          {"sending", v.sending}};
}

}  // namespace

HttpResponse list_tiers(Service& service, const HttpRequest& /*request*/) {
  js::array tiers;
  if (service.tiers.any()) {
    for (const auto& view : service.tiers.chain().view()) tiers.push_back(tier_json(view));
  }
  js::array problems;
  for (const auto& problem : service.tiers.problems()) {
    problems.push_back(js::object{{"address", problem.address}, {"problem", problem.problem}});
  }
  const auto dropped = service.tiers.any() ? service.tiers.chain().dropped() : 0;
  return answer(
      {{"tiers", std::move(tiers)}, {"problems", std::move(problems)}, {"dropped", dropped}});
}

}  // namespace nc::daemon
