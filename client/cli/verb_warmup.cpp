// warmup: everything that a command needs is built and stored before it is needed.
#include <fmt/format.h>

#include "client/cli/warm_run.hpp"

namespace nc::cli {
namespace {

Result<int> run(Context& context) {
  WarmPlan plan;
  plan.verb = "warmup";
  plan.recording = context.option("recording").value_or("warmup");
  plan.command = context.all("COMMAND");
  if (plan.command.empty()) {
    return Error{Code::kInvalid, "warmup needs a command behind --",
                 "as in `neuroncache warmup -- python train.py --steps 3`"};
  }
  NC_ASSIGN(const WarmReport report, run_recorded(context, plan));
  NC_TRY(print_report(context, report));
  if (*report.status != 0) return *report.status;
  return report.counts().whole() ? kOk : kFailed;
}

constexpr ArgumentSpec kArguments[] = {
    {"COMMAND", "What to run, behind `--`, with its arguments.", false, true, ""}};
constexpr OptionSpec kOptions[] = {
    {"recording", "NAME", "The name that it is recorded under (default warmup).", ""},
    {"junit", "FILE", "Write the report as JUnit XML as well.", ""},
};

}  // namespace

extern constinit const Verb kWarmupVerb{
    .name = "warmup",
    .summary = "Run a command and report what it needed, what was built and what failed.",
    .details =
        "The command runs with the cache on, the neuronx-cc wrapper first on PATH, and under a "
        "recording: each action that it asks the cache for is noted with its outcome. Signals are "
        "passed on to it. Ended half-way and run again, it goes on where it was: what is built is "
        "there.\n\n"
        "The exit status is the command's own unless that is 0; then it is 0 only if nothing "
        "failed and nothing was left undone, else 1. With --format json or tab the command's "
        "standard output goes to standard error.",
    .arguments = kArguments,
    .options = kOptions,
    .examples =
        "neuroncache warmup -- python train.py --steps 3 # fill the cache\n"
        "neuroncache warmup --junit warmup.xml -- ./serve.sh --dry-run # for CI",
    .run = run};

}  // namespace nc::cli
