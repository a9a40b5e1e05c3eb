// tiers, push, pull: the shared tiers, and entries sent to and brought from them by hand.
#include <fmt/format.h>

#include "base/bytes.hpp"
#include "client/cli/render.hpp"
#include "client/cli/tier_ops.hpp"
#include "client/json.hpp"

namespace nc::cli {
namespace {

std::string breaker_text(const bj::object& tier, const char* direction, bool off) {
  if (off) return "off";
  const auto* breaker = tier.if_contains(direction);
  if (breaker == nullptr || !breaker->is_object()) return "?";
  const std::string state = client::json::text(breaker->get_object(), "state");
  return state == "closed" ? "ok" : state == "open" ? "sick" : "trying";
}

std::string problem_of(const bj::object& tier, const char* direction) {
  const auto* breaker = tier.if_contains(direction);
  return breaker != nullptr && breaker->is_object()
             ? client::json::text(breaker->get_object(), "problem")
             : std::string();
}

std::string share_text(const bj::object& tier) {
  const auto* share = tier.if_contains("hit_share");
  if (share == nullptr || !share->is_number()) return "-";
  return fmt::format("{:.0f} %", 100 * share->to_number<double>());
}

void add_tier(Table& table, std::string& problems, const bj::object& tier) {
  const auto* counters = tier.if_contains("counters");
  const bj::object none;
  const bj::object& c =
      counters != nullptr && counters->is_object() ? counters->get_object() : none;
  const auto n = [&](const char* name) { return client::json::natural(c, name); };
  const std::string address = client::json::text(tier, "address");
  const auto* ms = tier.if_contains("entry_ms");
  const double entry_ms = ms != nullptr && ms->is_number() ? ms->to_number<double>() : 0;
  const auto failures = n("denied") + n("failed") + n("timed_out") + n("refused") + n("corrupt");
  table.add({address, breaker_text(tier, "reading", client::json::boolean(tier, "write_only")),
             breaker_text(tier, "writing", client::json::boolean(tier, "read_only")),
             share_text(tier), fmt::format("{:.1f} ms", entry_ms), std::to_string(n("hits")),
             std::to_string(n("absent")), std::to_string(failures),
             Cell(format_size(n("bytes_in")), std::to_string(n("bytes_in"))),
             Cell(format_size(n("bytes_out")), std::to_string(n("bytes_out"))),
             std::to_string(client::json::natural(tier, "queued"))});
  for (const char* direction : {"reading", "writing"}) {
    const std::string problem = problem_of(tier, direction);
    if (!problem.empty()) problems += fmt::format("{}: {}: {}\n", address, direction, problem);
  }
}

Result<int> run_tiers(Context& context) {
  NC_ASSIGN(Session session, Session::open(context, Session::Need::kRead));
  if (session.source() == Session::Source::kNone) {
    if (context.format() == Format::kJson) {
      print_json(bj::object{{"tiers", bj::array()}, {"problems", bj::array()}, {"dropped", 0}});
    } else if (context.format() == Format::kText) {
      print("There is no store yet, and no daemon that would know of tiers.\n");
    }
    return kOk;
  }
  NC_ASSIGN(const std::string text, session.client().tiers());
  NC_ASSIGN(const bj::object answer, client::json::parse_object(text, "the daemon's answer"));
  if (context.format() == Format::kJson) {
    print_json(answer);
    return kOk;
  }
  Table table({{"TIER", "address"},
               {"READ", "reading"},
               {"WRITE", "writing"},
               {"HIT SHARE", "hit_share", Table::Align::kRight},
               {"LATENCY", "latency", Table::Align::kRight},
               {"HITS", "hits", Table::Align::kRight},
               {"ABSENT", "absent", Table::Align::kRight},
               {"FAILED", "failed", Table::Align::kRight},
               {"IN", "bytes_in", Table::Align::kRight},
               {"OUT", "bytes_out", Table::Align::kRight},
               {"QUEUED", "queued", Table::Align::kRight}});
  std::string problems;
  for (const auto& item : answer.at("tiers").get_array()) {
    if (item.is_object()) add_tier(table, problems, item.get_object());
  }
  for (const auto& item : answer.at("problems").get_array()) {
    if (!item.is_object()) continue;
    problems += fmt::format("{}: not used: {}\n", client::json::text(item.get_object(), "address"),
                            client::json::text(item.get_object(), "problem"));
  }
  if (context.format() == Format::kTab) {
    print(table.tab());
    return kOk;
  }
  if (table.empty() && problems.empty()) {
    print("There are no shared tiers; the setting `tiers` names them.\n");
  }
  if (!table.empty()) print(table.text(terminal_width()));
  if (!problems.empty()) print("\n" + problems);
  return kOk;
}

Result<int> transfer(Context& context, const std::string& call, const std::string& doing,
                     const std::string& done, const std::string& would) {
  const bool dry_run = context.flag("dry-run");
  NC_ASSIGN(const bj::object body, tier_request(context, dry_run));
  NC_ASSIGN(Session session, Session::open(context, Session::Need::kChange));
  NC_ASSIGN(const TierRows got, tier_pages(session.client(), call, body, doing));
  return print_tier_rows(context, got, dry_run ? would : done, dry_run);
}

Result<int> run_push(Context& context) {
  return transfer(context, "push", "queueing", "Queued for sending:", "Would send");
}

Result<int> run_pull(Context& context) {
  return transfer(context, "pull", "fetching", "Pulled", "Would pull");
}

constexpr OptionSpec kTransferOptions[] = {
    {"tier", "ADDRESS",
     "The tier, as `neuroncache tiers` shows it; needed where there are several.", ""},
    kCompilerOption,
    kNamespaceOption,
    kModelOption,
    kOlderOption,
    kNewerOption,
    {"dry-run", "", "Only show what would be transferred.", ""},
};

}  // namespace

extern constinit const Verb kTiersVerb{
    .name = "tiers",
    .summary = "Show the shared tiers and how they are doing.",
    .details =
        "READ and WRITE: ok; sick (it failed and is left alone for a while); trying (asked whether "
        "it is well again); off (by its options). The numbers are since the daemon started.",
    .arguments = {},
    .options = {},
    .examples = "",
    .run = run_tiers};

extern constinit const Verb kPushVerb{
    .name = "push",
    .summary = "Send entries to a shared tier.",
    .details =
        "What is built with tiers in the settings is sent by itself. This is for what was there "
        "before. The daemon sends in the background; `neuroncache tiers` shows how many are left.",
    .arguments = {},
    .options = kTransferOptions,
    .examples = "neuroncache push --model llama # to the only tier",
    .run = run_push};

extern constinit const Verb kPullVerb{
    .name = "pull",
    .summary = "Bring entries of a shared tier into the store.",
    .details =
        "What is wanted is fetched by itself when it is. This is for a host that will be without "
        "the tier, or that must not wait.",
    .arguments = {},
    .options = kTransferOptions,
    .examples =
        "neuroncache pull --compiler 'neuronx-cc 2.27' --newer-than 7d\n"
        "neuroncache pull --namespace team-a --dry-run # look first",
    .run = run_pull};

}  // namespace nc::cli
