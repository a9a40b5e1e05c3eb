// prune, pin, unpin: what may go and what must stay.
#include <fmt/format.h>

#include "base/bytes.hpp"
#include "client/cli/output.hpp"
#include "client/cli/render.hpp"
#include "client/cli/session.hpp"
#include "client/cli/tier_ops.hpp"

namespace nc::cli {
namespace {

using client::PruneAnswer;
using client::PruneRequest;

Result<PruneRequest> request_of(const Context& context) {
  PruneRequest request;
  NC_ASSIGN(request.filter, context.filter());
  NC_ASSIGN(request.max_bytes, context.size_option("max-size"));
  NC_ASSIGN(request.max_entries, context.count_option("max-entries"));
  request.dry_run = context.flag("dry-run");
  const client::EntryFilter& f = request.filter;
  const bool bounded = f.name_space || f.compiler || f.model || f.kind || f.older_than_s ||
                       f.unused_since_s || f.failed || request.max_bytes || request.max_entries;
  if (!bounded && !context.flag("all")) {
    return Error{Code::kInvalid, "without a filter prune would remove every entry",
                 "say which (e.g. --unused-since 30d), or --all to remove everything; --dry-run "
                 "shows what would go"};
  }
  if (bounded && context.flag("all")) {
    return Error{Code::kInvalid, "--all and a filter contradict each other", "give one of them"};
  }
  return request;
}

std::string summary(const PruneAnswer& answer, bool dry_run) {
  std::string out = fmt::format("{} {} and {} {} of disk.\n", dry_run ? "Would remove" : "Removed",
                                counted(static_cast<double>(answer.count), "entry", "entries"),
                                dry_run ? "free" : "freed", format_size(answer.bytes));
  if (answer.swept_bytes > 0) {
    out += fmt::format("{} of that {} to no entry.\n", format_size(answer.swept_bytes),
                       dry_run ? "belongs" : "belonged");
  }
  if (answer.count > 0) {
    out += fmt::format("Building {} again {} {} of compiling.\n", answer.count == 1 ? "it" : "them",
                       dry_run ? "would take" : "takes", format_duration(answer.rebuild_seconds));
  }
  if (!answer.kept.empty()) {
    std::size_t pinned = 0;
    for (const auto& kept : answer.kept) pinned += kept.why == "pinned" ? 1 : 0;
    out += fmt::format("{} more fit the filter and {}: {} pinned, {} in use.\n", answer.kept.size(),
                       dry_run ? "would stay" : "stay", pinned, answer.kept.size() - pinned);
  }
  return out;
}

Result<int> run_prune(Context& context) {
  if (context.flag("tier")) return prune_tier(context);
  NC_ASSIGN(const PruneRequest request, request_of(context));
  NC_ASSIGN(Session session, Session::open(context, request.dry_run ? Session::Need::kRead
                                                                    : Session::Need::kChange));
  PruneAnswer answer;
  if (session.source() != Session::Source::kNone) {
    Progress progress(request.dry_run ? "looking" : "removing");
    NC_ASSIGN(answer, session.client().prune(request));
  }
  if (context.format() == Format::kJson) {
    bj::array kept;
    for (const auto& k : answer.kept) kept.push_back(bj::object{{"key", k.key}, {"why", k.why}});
    print_json(bj::object{{"dry_run", request.dry_run},
                          {"count", answer.count},
                          {"bytes", answer.bytes},
                          {"swept_bytes", answer.swept_bytes},
                          {"rebuild_seconds", answer.rebuild_seconds},
                          {"entries", entries_json(answer.entries)},
                          {"kept", std::move(kept)}});
    return kOk;
  }
  const Table table = entry_table(answer.entries, system_clock().wall_ms());
  if (context.format() == Format::kTab) {
    print(table.tab());
    return kOk;
  }
  if (request.dry_run && !answer.entries.empty()) print(table.text(terminal_width()) + "\n");
  print(summary(answer, request.dry_run));
  return kOk;
}

Result<int> set_pins(Context& context, bool pinned) {
  const std::vector<std::string> keys = context.all("KEY");
  for (const std::string& key : keys) NC_TRY(check_key(key));
  NC_ASSIGN(Session session, Session::open(context, Session::Need::kChange));
  Table table({{"", "key"}, {"", "pinned"}});
  bj::array done;
  for (const std::string& key : keys) {
    NC_ASSIGN(const client::EntryDetails details, session.client().show(key));
    const auto full = ActionKey::from_hex(details.summary.key);
    if (!full)
      return Error{Code::kInternal, "the daemon named an entry by no key",
                   "see `neuroncache doctor`"};
    NC_TRY(session.client().pin(*full, pinned));
    done.push_back(bj::object{{"key", details.summary.key}, {"pinned", pinned}});
    table.add({details.summary.key, pinned ? "1" : "0"});
    if (context.format() == Format::kText) {
      print(fmt::format("{} {} {}\n", pinned ? "Pinned" : "Unpinned",
                        short_key(details.summary.key), printable(details.summary.label)));
    }
  }
  if (context.format() == Format::kJson) print_json(bj::object{{"entries", std::move(done)}});
  if (context.format() == Format::kTab) print(table.tab());
  return kOk;
}

Result<int> run_pin(Context& context) {
  return set_pins(context, true);
}
Result<int> run_unpin(Context& context) {
  return set_pins(context, false);
}

constexpr OptionSpec kPruneOptions[] = {
    kOlderOption,
    kUnusedOption,
    {"max-size", "SIZE",
     "Of what passes the filters, keep at most this much, dearest to rebuild first.", ""},
    {"max-entries", "N",
     "Of what passes the filters, keep at most N entries, dearest to rebuild first.", ""},
    kCompilerOption,
    kNamespaceOption,
    kModelOption,
    kKindOption,
    kFailedOption,
    kTierOption,
    {"all", "", "Remove everything that is neither pinned nor in use.", ""},
    {"dry-run", "", "Only show what would go and what it would cost to build again.", ""},
};
constexpr ArgumentSpec kKeys[] = {{"KEY", "The keys, or the beginnings of them.", true, true, ""}};

}  // namespace

extern constinit const Verb kPruneVerb{
    .name = "prune",
    .summary = "Remove entries.",
    .details =
        "Filters combine: an entry must pass all of them to go. Pinned entries and those in use "
        "always stay. The store also\n"
        "keeps itself within max_bytes and max_entries without being asked. With --tier, entries "
        "of a shared tier\n"
        "go (without filters none), and then blobs that no entry there has named for a day.",
    .arguments = {},
    .options = kPruneOptions,
    .examples =
        "neuroncache prune --unused-since 30d --dry-run # look first\n"
        "neuroncache prune --compiler 'inductor 2.12' # after an upgrade\n"
        "neuroncache prune --namespace nightly --max-size 10GiB",
    .run = run_prune};

extern constinit const Verb kPinVerb{.name = "pin",
                                     .summary = "Keep entries from being evicted or pruned.",
                                     .details = "",
                                     .arguments = kKeys,
                                     .options = {},
                                     .examples = "neuroncache pin 3f9a",
                                     .run = run_pin};

extern constinit const Verb kUnpinVerb{.name = "unpin",
                                       .summary = "Let pinned entries go again.",
                                       .details = "",
                                       .arguments = kKeys,
                                       .options = {},
                                       .examples = "",
                                       .run = run_unpin};

}  // namespace nc::cli
