// warmup: everything that a command needs, or once needed, is built and stored before it is needed.
#include <algorithm>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/filesystem.hpp"
#include "client/cc/words.hpp"
#include "client/cli/build_site.hpp"
#include "client/cli/plan_file.hpp"
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

// What a call without a command is to do.
struct Work {
  std::string name = kRecording;  // of the report
  std::vector<Selection> builds;
  std::vector<WarmPlan> runs;
};

Result<Work> work_of_recording(const Context& context) {
  Work work;
  Selection selection;
  selection.recording = context.option("recording").value_or(kRecording);
  NC_TRY(check_recording_name(selection.recording));
  if (const auto compiler = context.option("compiler")) selection.compilers = {*compiler};
  if (const auto target = context.option("target")) selection.targets = {*target};
  work.name = selection.recording;
  work.builds.push_back(std::move(selection));
  return work;
}

// Each command is in one part, as each key is.
bool in_shard(const Shard& shard, const WarmPlan& run) {
  std::vector<std::string> words = run.command;
  words.push_back(run.recording);
  return shard.has(Digest::of(as_bytes(cc::quote_words(words))));
}

Result<Work> work_of_plan(const std::string& path, const Shard& shard) {
  constexpr std::uint64_t kLimit = 16 << 20;
  NC_ASSIGN(const std::string text, real_filesystem().read_all(path, kLimit));
  NC_ASSIGN(PlanFile plan, parse_plan(text, path));
  Work work;
  work.name = "plan";
  work.builds = std::move(plan.builds);
  for (const PlannedRun& planned : plan.runs) {
    for (std::vector<std::string>& words : planned.commands()) {
      WarmPlan run{"warmup", planned.recording, std::move(words)};
      if (in_shard(shard, run)) work.runs.push_back(std::move(run));
    }
  }
  return work;
}

// One report of several; of a key that occurs twice the last word counts.
void add(const WarmReport& part, WarmReport& sum) {
  sum.seconds += part.seconds;
  if (sum.status.value_or(0) == 0 && part.status) sum.status = part.status;
  for (const client::ActionOutcome& outcome : part.outcomes) {
    std::erase_if(sum.outcomes, [&](const auto& known) { return known.key == outcome.key; });
    sum.outcomes.push_back(outcome);
  }
  sum.uncached.insert(sum.uncached.end(), part.uncached.begin(), part.uncached.end());
}

Result<int> do_work(Context& context) {
  Shard shard;
  if (const auto part = context.option("shard")) {
    NC_ASSIGN(shard, parse_shard(*part));
  }
  const auto plan = context.option("plan");
  NC_ASSIGN(const Work work, plan ? work_of_plan(*plan, shard) : work_of_recording(context));
  RebuildOrder order;
  order.recording = work.name;
  order.queue = context.flag("queue");
  order.cluster = context.flag("cluster");
  if (order.cluster && !order.queue)
    return Error{Code::kInvalid, "--cluster says which queue, and there is no --queue",
                 "give both, or neither"};
  NC_ASSIGN(order.jobs, jobs_option(context));
  const bool dry = context.flag("dry-run");
  WarmReport report;
  report.verb = "warmup";
  report.recording = work.name;
  for (const WarmPlan& run : work.runs) {
    if (dry) {
      order.commands.push_back(run.command);
      continue;
    }
    auto part = run_recorded(context, run);
    if (part.ok()) {
      add(*part, report);
    } else {  // the others need not wait for its mending
      note(fmt::format("{}: {}", cc::quote_words(run.command), part.error().text()));
      if (report.status.value_or(0) == 0) report.status = kFailed;
    }
  }
  NC_ASSIGN(Session session,
            Session::open(context, dry ? Session::Need::kRead : Session::Need::kChange));
  if (session.source() == Session::Source::kNone && !work.builds.empty())
    return Error{Code::kNotFound, "there is no store, and so no recording", ""};
  if (!work.builds.empty()) {
    const cc::CompilerSearch search = workshop_of(context).search;
    NC_ASSIGN(order.items,
              plan_rebuild(session.client(), search, work.builds, shard, !order.queue));
  }
  if (dry) {
    print_dry_run(context, order);
    return kOk;
  }
  if (!work.builds.empty()) {
    NC_ASSIGN(const WarmReport part, run_rebuild(context, session, std::move(order)));
    add(part, report);
  }
  NC_TRY(print_report(context, report));
  return status_of(report);
}

Result<int> write_plan(Context& context) {
  constexpr std::uint32_t kMode = 0644;
  const std::string recording = context.option("recording").value_or(kRecording);
  const std::string file = *context.option("write-plan");
  if (real_filesystem().stat(file).ok())
    return Error{Code::kConflict, fmt::format("{} is there already", file),
                 "name another file, or remove it; plans are edited by hand, so none is replaced"};
  NC_ASSIGN(Session session, Session::open(context, Session::Need::kRead));
  if (session.source() == Session::Source::kNone)
    return Error{Code::kNotFound, "there is no store, and so no recording", ""};
  NC_ASSIGN(const auto actions, recorded_actions(session.client(), recording));
  const std::string text = plan_text(recording, actions);
  NC_TRY(real_filesystem().write_atomically(file, as_bytes(text), kMode));
  note(fmt::format("{} has {} actions of '{}'", file, actions.size(), recording));
  return kOk;
}

// What goes together: the ways to say what to do, and the options of each.
struct Way {
  std::string_view name;  // of its option; "" for a command
  std::string_view options;
};
constexpr Way kWays[] = {
    {"", "recording junit"},
    {"recorded", "recording compiler target shard jobs queue cluster dry-run junit"},
    {"plan", "shard jobs queue cluster dry-run junit"},
    {"write-plan", "recording"},
};

bool lists(std::string_view words, std::string_view word) {
  for (std::size_t begin = 0; begin < words.size();) {
    const std::size_t end = std::min(words.find(' ', begin), words.size());
    if (words.substr(begin, end - begin) == word) return true;
    begin = end + 1;
  }
  return false;
}

Result<const Way*> way_of(const Context& context) {
  const Way* chosen = nullptr;
  for (const Way& way : kWays) {
    const bool given = way.name.empty() ? !context.all("COMMAND").empty() : context.flag(way.name);
    if (!given) continue;
    if (chosen != nullptr)
      return Error{Code::kInvalid, "warmup is told several things to do",
                   "give a command, --recorded, --plan, or --write-plan"};
    chosen = &way;
  }
  if (chosen == nullptr)
    return Error{Code::kInvalid, "warmup needs a command behind --, --recorded or --plan",
                 "as in `neuroncache warmup -- python train.py --steps 3`"};
  for (const OptionSpec& option : context.verb().options) {
    const bool fits = option.name == chosen->name || lists(chosen->options, option.name);
    if (context.flag(option.name) && !fits)
      return Error{Code::kInvalid,
                   fmt::format("--{} does not go with {}", option.name,
                               chosen->name.empty() ? std::string("a command")
                                                    : fmt::format("--{}", chosen->name)),
                   "see `neuroncache warmup --help`"};
  }
  return chosen;
}

Result<int> run(Context& context) {
  NC_ASSIGN(const Way* way, way_of(context));
  NC_TRY(check_report_file(context));
  if (way->name.empty()) return run_command_of(context);
  return way->name == "write-plan" ? write_plan(context) : do_work(context);
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
    {"plan", "FILE", "Do what this file says (TOML; see docs/warmup.md).", ""},
    {"write-plan", "FILE", "Write such a file for a recording.", ""},
    {"shard", "I/N", "Of what is recorded or planned only part I of N, from 1.", ""},
    {"jobs", "N", "How many recorded actions to build at once (default one for each core).", ""},
    {"queue", "", "Leave the building to workers, and wait for them.", ""},
    {"cluster", "",
     "With --queue: to workers of any host that shares the tier (`worker --queue --cluster`).", ""},
    {"dry-run", "", "Say what would be done and how long it takes.", ""},
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
        "that each was recorded with or for another. --plan does that for several recordings, "
        "compilers and targets, and runs commands for several sizes.\n\n"
        "The exit status is the command's own unless that is 0; then it is 0 only if nothing "
        "failed and nothing was left undone, else 1. With --format json or tab the command's "
        "standard output goes to standard error.",
    .arguments = kArguments,
    .options = kOptions,
    .examples =
        "neuroncache warmup -- python train.py --steps 3 # fill the cache\n"
        "neuroncache warmup --junit warmup.xml -- ./serve.sh --dry-run # for CI\n"
        "neuroncache warmup --recorded --compiler 2.21 --shard 1/4 # the same for a new compiler\n"
        "neuroncache warmup --plan nightly.toml --dry-run # what it would cost",
    .run = run};

}  // namespace nc::cli
