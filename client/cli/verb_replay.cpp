// replay: is everything there that a command needs?
#include <fmt/format.h>

#include "client/cli/warm_run.hpp"

namespace nc::cli {
namespace {

Result<int> run(Context& context) {
  WarmPlan plan;
  plan.verb = "replay";
  plan.recording = "replay";
  plan.keep_inputs = false;
  plan.command = context.all("COMMAND");
  if (plan.command.empty()) {
    return Error{Code::kInvalid, "replay needs a command behind --",
                 "as in `neuroncache replay --fail-on-miss -- python train.py --steps 3`"};
  }
  NC_TRY(check_report_file(context));
  NC_ASSIGN(WarmReport report, run_recorded(context, plan));
  report.misses_fail = context.flag("fail-on-miss");
  NC_TRY(print_report(context, report));
  if (*report.status != 0) return *report.status;
  const WarmCounts counts = report.counts();
  if (report.misses_fail && counts.misses() > 0) return kMisses;
  return counts.whole() ? kOk : kFailed;
}

constexpr ArgumentSpec kArguments[] = {
    {"COMMAND", "What to run, behind `--`, with its arguments.", false, true, ""}};
constexpr OptionSpec kOptions[] = {
    {"fail-on-miss", "", "Exit with status 4 when something that was needed was not there.", ""},
    {"junit", "FILE", "Write the report as JUnit XML as well.", ""},
};

}  // namespace

extern constinit const Verb kReplayVerb{
    .name = "replay",
    .summary = "Run a command and tell whether everything that it needed was there.",
    .details =
        "As warmup, but for checking: whatever had to be built, was waited for or failed is a "
        "miss, and is named with its cause and with what differs from the nearest stored entry. "
        "What is missing is built all the same.\n\n"
        "The exit status is the command's own unless that is 0; then, with --fail-on-miss, 4 when "
        "there was a miss. Without that option it is 1 when something failed or was left undone. "
        "With --format json or tab the command's standard output goes to standard error.",
    .arguments = kArguments,
    .options = kOptions,
    .examples = "neuroncache replay --fail-on-miss -- python train.py # after a warm-up",
    .run = run};

}  // namespace nc::cli
