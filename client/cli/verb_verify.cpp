#include <fmt/format.h>

#include "base/bytes.hpp"
#include "client/cli/output.hpp"
#include "client/cli/session.hpp"
#include "client/cli/tier_ops.hpp"

namespace nc::cli {
namespace {

Result<int> run(Context& context) {
  if (context.flag("tier")) return verify_tier(context);
  if (context.flag("untrusted")) {
    return Error{Code::kInvalid, "--untrusted is for --tier", "name the tier"};
  }
  const bool repair = context.flag("repair") && !context.flag("dry-run");
  NC_ASSIGN(Session session,
            Session::open(context, repair ? Session::Need::kChange : Session::Need::kRead));
  client::VerifyPage total;
  if (session.source() != Session::Source::kNone) {
    NC_ASSIGN(const client::Stats stats, session.client().stats(""));
    const auto bytes_it = stats.counters.find("bytes");
    const auto expected =
        bytes_it == stats.counters.end() ? 0 : static_cast<std::uint64_t>(bytes_it->second);
    Progress progress(repair ? "checking and repairing" : "checking");
    constexpr std::size_t kPage = 64;  // small, so that the progress moves
    std::string after;
    for (;;) {
      NC_ASSIGN(client::VerifyPage page, session.client().verify(after, kPage, repair));
      total.checked += page.checked;
      total.bytes += page.bytes;
      total.orphans += page.orphans;
      total.bad.insert(total.bad.end(), page.bad.begin(), page.bad.end());
      progress.update(total.bytes, expected, format_size(total.bytes));
      if (!page.next || *page.next == after) break;
      after = *page.next;
    }
  }
  Table table({{"WHAT", "what"},
               {"PROBLEM", "problem", Table::Align::kLeft, true},
               {repair ? "DONE" : "TO DO", "action"}});
  for (const auto& bad : total.bad) {
    table.add({key_cell(bad.what), printable(bad.problem), printable(bad.action)});
  }
  switch (context.format()) {
    case Format::kTab:
      print(table.tab());
      break;
    case Format::kJson: {
      bj::array bad;
      for (const auto& b : total.bad)
        bad.push_back(bj::object{{"what", b.what}, {"problem", b.problem}, {"action", b.action}});
      print_json(bj::object{{"source", std::string(session.source_name())},
                            {"repair", repair},
                            {"checked", total.checked},
                            {"bytes", total.bytes},
                            {"orphans", total.orphans},
                            {"bad", std::move(bad)}});
      break;
    }
    case Format::kText:
      if (!table.empty()) print(table.text(terminal_width()) + "\n");
      print(fmt::format("Checked {} blobs and entries, {}: {}.\n",
                        format_count(static_cast<double>(total.checked)), format_size(total.bytes),
                        total.bad.empty() ? std::string("all good")
                                          : fmt::format("{} damaged{}", total.bad.size(),
                                                        repair ? ", repaired" : "")));
      if (total.orphans > 0) {
        print(fmt::format("{} blobs belong to no entry; the daemon removes them by itself.\n",
                          format_count(static_cast<double>(total.orphans))));
      }
      if (!total.bad.empty() && !repair)
        print(
            "`neuroncache verify --repair` removes what is damaged; it is built again when "
            "needed.\n");
      break;
  }
  return total.bad.empty() || repair ? kOk : kFailed;
}

constexpr OptionSpec kOptions[] = {
    kTierOption,
    {"repair", "",
     "Set damaged blobs aside and drop the entries that need them; they are built again when asked "
     "for.",
     ""},
    {"untrusted", "",
     "With --tier and --repair: also remove the entries that this host does not trust. Other hosts "
     "may trust them.",
     ""},
    {"dry-run", "", "Change nothing: as without --repair.", ""},
};

}  // namespace

extern constinit const Verb kVerifyVerb{
    .name = "verify",
    .summary = "Read everything that is stored and check it.",
    .details =
        "Exit status 1 when damage was found and not repaired. With --tier, all entries of a "
        "shared tier are checked as a look-up would, and all their blobs read. Entries that are "
        "not trusted here (unsigned, or signed with a key that is not in the keyring) are no "
        "damage: they are shown, and stay unless --untrusted is given.",
    .arguments = {},
    .options = kOptions,
    .examples = "",
    .run = run};

}  // namespace nc::cli
