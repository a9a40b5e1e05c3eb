// warmup: everything that a command needs, or once needed, is built and stored before it is needed.
#include <fmt/format.h>

#include "client/cli/build_site.hpp"
#include "client/cli/rebuild_run.hpp"
#include "client/cli/warm_run.hpp"

namespace nc::cli {
namespace {

constexpr const char* kRecording = "warmup";  // the name when none is given

int status_of(const WarmReport& report) {
  if (report.status.value_or(0) != 0) return *report.status;
  return report.counts().whole() ? kOk : kFailed;
}

Result<int> run_command_of(Context& context) {
  WarmPlan plan;
  plan.verb = "warmup";
  plan.recording = context.option("recording").value_or(kRecording);
  plan.command = context.all("COMMAND");
  NC_ASSIGN(const WarmReport report, run_recorded(context, plan));
  NC_TRY(print_report(context, report));
  return status_of(report);
}

Result<int> rebuild(Context& context) {
  Selection selection;
  selection.recording = context.option("recording").value_or(kRecording);
  NC_TRY(check_recording_name(selection.recording));
  if (const auto compiler = context.option("compiler")) selection.compilers = {*compiler};
  if (const auto target = context.option("target")) selection.targets = {*target};
  Shard shard;
  if (const auto part = context.option("shard")) {
    NC_ASSIGN(shard, parse_shard(*part));
  }
  RebuildOrder order;
  order.recording = selection.recording;
  order.queue = context.flag("queue");
  NC_ASSIGN(order.jobs, jobs_option(context));
  const bool dry = context.flag("dry-run");
  NC_ASSIGN(Session session,
            Session::open(context, dry ? Session::Need::kRead : Session::Need::kChange));
  if (session.source() == Session::Source::kNone)
    return Error{Code::kNotFound, "there is no store, and so no recording", ""};
  const cc::CompilerSearch search = workshop_of(context).search;
  NC_ASSIGN(order.items,
            plan_rebuild(session.client(), search, std::span(&selection, 1), shard, !order.queue));
  if (dry) {
    print_dry_run(context, order);
    return kOk;
  }
  NC_ASSIGN(const WarmReport report, run_rebuild(context, session, std::move(order)));
  NC_TRY(print_report(context, report));
  return status_of(report);
}

// Options that say something about recorded actions only.
constexpr std::string_view kOfRecorded[] = {"compiler", "target",  "shard",
                                            "jobs",     "dry-run", "queue"};

Result<int> run(Context& context) {
  const bool command = !context.all("COMMAND").empty();
  const bool recorded = context.flag("recorded");
  if (command == recorded) {
    return Error{Code::kInvalid, "warmup needs a command behind --, or --recorded",
                 "as in `neuroncache warmup -- python train.py --steps 3`"};
  }
  if (recorded) return rebuild(context);
  for (const std::string_view option : kOfRecorded) {
    if (context.flag(option)) {
      return Error{Code::kInvalid, fmt::format("--{} goes with --recorded", option),
                   "a command builds what it builds; see `neuroncache warmup --help`"};
    }
  }
  return run_command_of(context);
}

constexpr ArgumentSpec kArguments[] = {
    {"COMMAND", "What to run, behind `--`, with its arguments.", false, true, ""}};
constexpr OptionSpec kOptions[] = {
    {"recording", "NAME", "The name that it is, or was, recorded under (default warmup).", ""},
    {"recorded", "", "Build what was recorded, without running a command.", ""},
    {"compiler", "PATH|VERSION",
     "With --recorded: for this neuronx-cc, by its path or the beginning of its version (default "
     "the one of each record).",
     ""},
    {"target", "TARGET", "With --recorded: for this --target (default that of each record).", ""},
    {"shard", "I/N", "With --recorded: only part I of N, from 1; each key is in one part.", ""},
    {"jobs", "N", "With --recorded: how many builds at once (default one for each core).", ""},
    {"queue", "", "With --recorded: leave the building to workers, and wait for them.", ""},
    {"dry-run", "", "With --recorded: say what would be built and how long it takes.", ""},
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
        "With --recorded no command runs: the neuronx-cc commands that were recorded under the "
        "name are built again where they are missing, from their recorded inputs, for the compiler "
        "that each was recorded with or for another.\n\n"
        "The exit status is the command's own unless that is 0; then it is 0 only if nothing "
        "failed and nothing was left undone, else 1. With --format json or tab the command's "
        "standard output goes to standard error.",
    .arguments = kArguments,
    .options = kOptions,
    .examples =
        "neuroncache warmup -- python train.py --steps 3 # fill the cache\n"
        "neuroncache warmup --junit warmup.xml -- ./serve.sh --dry-run # for CI\n"
        "neuroncache warmup --recorded --compiler 2.21 --shard 1/4 # the same for a new compiler",
    .run = run};

}  // namespace nc::cli
