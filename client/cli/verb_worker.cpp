// worker: a process that builds what is queued.
#include <array>
#include <deque>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "client/cli/build_site.hpp"
#include "client/cli/output.hpp"
#include "client/cli/session.hpp"

namespace nc::cli {
namespace {

using End = cc::BuildReport::End;

constexpr Millis kLookMs = 500;          // between two looks at an empty queue
constexpr Millis kPatienceMs = 60'000;   // with a daemon or a compiler that is away
constexpr std::size_t kListed = 10'000;  // of the jobs that a report names

std::string_view end_name(End end) {
  switch (end) {
    case End::kBuilt:
      return "built";
    case End::kGivenBack:
      return "given_back";
    case End::kFailed:
      break;
  }
  return "failed";
}

struct Done {
  std::string key, label, compiler;
  cc::BuildReport report;
  double seconds = 0;  // all of it, not only the compiler's
};

class Worker {
 public:
  Worker(const Context& context, Session session, std::size_t jobs,
         std::optional<double> idle_seconds)
      : context_(context),
        session_(std::make_unique<Session>(std::move(session))),
        shop_(workshop_of(context)),
        wanted_(context.option("compiler").value_or("")),
        cluster_(context.flag("cluster")),
        once_(context.flag("once")),
        idle_seconds_(idle_seconds),
        pool_(jobs) {}

  Result<int> run() {
    NC_TRY(know_compiler());
    if (cluster_) {
      const auto there = session_->client().cluster_queue();
      if (there.is(Code::kNotFound) || there.is(Code::kDenied)) return there.error();
    }
    note(fmt::format("serving the queue{} with {} ({})", cluster_ ? " and the cluster's" : "",
                     compiler_text(), known_->compiler.path));
    const Millis started = system_clock().monotonic_ms();
    busy_ms_ = started;
    while (!finished()) {
      if (!pool_.stop_soon()) NC_TRY(fill());
      if (pool_.running() > 0) busy_ms_ = system_clock().monotonic_ms();
      if (finished()) break;
      pool_.wait(kLookMs);
      if (pool_.stop_now() && !ended_all_) {
        ended_all_ = true;
        pool_.end_all();
      }
    }
    print_result(static_cast<double>(system_clock().monotonic_ms() - started) / 1000);
    const bool asked_for_end = once_ || idle_seconds_;
    return asked_for_end && (counts_[1] > 0 || counts_[2] > 0) ? kFailed : kOk;
  }

 private:
  bool finished() const {
    if (pool_.running() > 0) return false;
    if (pool_.stop_soon()) return true;
    if (!empty_) return false;
    if (once_) return true;
    const Millis idle = system_clock().monotonic_ms() - busy_ms_;
    return idle_seconds_ && static_cast<double>(idle) >= *idle_seconds_ * 1000;
  }

  std::string compiler_text() const { return "neuronx-cc " + known_->identity.version(); }

  // It may have been replaced since; what was recorded with another is not for us.
  Status know_compiler() {
    NC_ASSIGN(known_, cc::choose_compiler(shop_.search, wanted_));
    return {};
  }

  // Takes what there is to take. An error that may pass is waited out for a while.
  Status fill() {
    Status done = take_all();
    const Millis now = system_clock().monotonic_ms();
    if (done.ok()) {
      trouble_since_.reset();
      return done;
    }
    empty_ = false;
    if (!trouble_since_) {
      trouble_since_ = now;
      note(fmt::format("waiting: {}", done.error().text()));
    }
    if (now - *trouble_since_ > kPatienceMs) return done;
    if (done.is(Code::kUnavailable)) reopen();
    return {};
  }

  void reopen() {
    auto session = Session::open(context_, Session::Need::kChange);
    if (session.ok()) session_ = std::make_unique<Session>(*std::move(session));
  }

  Status take_all() {
    if (pool_.full()) return {};
    NC_TRY(know_compiler());
    const KeyParts parts = cc::compiler_parts(known_->identity);
    empty_ = false;
    while (!pool_.full()) {
      NC_ASSIGN(client::Taken taken, session_->client().take_job(compiler_text(), parts, cluster_));
      if (!taken.job) {
        empty_ = taken.pending == 0 && taken.problem.empty();
        // Who serves for good waits until the tier is well; who is to end cannot tell whether it
        // may.
        if (once_ && !taken.problem.empty())
          return Error{Code::kBusy, "the cluster's queue: " + taken.problem, ""};
        if (taken.problem != problem_ && !taken.problem.empty())
          note("the cluster's queue: " + taken.problem);
        problem_ = taken.problem;
        return {};
      }
      NC_TRY(start(*std::move(taken.job)));
    }
    return {};
  }

  Status start(client::TakenJob job) {
    auto scratch = ScratchDir::make();
    if (!scratch.ok()) {
      ignore_error(session_->client().release(job.lease), "it ends with this process");
      return std::move(scratch).error();
    }
    cc::Workshop shop = shop_;
    shop.compiler = known_->compiler;
    shop.directory = scratch->work();
    const auto kept = std::make_shared<client::TakenJob>(std::move(job));
    const auto held = std::make_shared<ScratchDir>(*std::move(scratch));
    const Millis began = system_clock().monotonic_ms();
    Status started = pool_.start(
        [shop, kept](std::string& text) {
          client::Client client(shop.client_options);
          const auto report = cc::build_recorded(shop, kept->record, client, kept->lease);
          text = report_text(report);
          return report.end == End::kBuilt ? 0 : 1;
        },
        [this, kept, held, began](const ChildPool::End& end) { ended(*kept, began, end); });
    if (!started.ok())
      ignore_error(session_->client().release(kept->lease), "it ends with this process");
    return started;
  }

  void ended(const client::TakenJob& job, Millis began, const ChildPool::End& end) {
    Done done{job.record.key.hex(), job.record.label, job.record.compiler, report_of(end), 0};
    done.seconds = static_cast<double>(system_clock().monotonic_ms() - began) / 1000;
    if (end.text.empty()) give_up(job, done.report);
    empty_ = false;  // it may be in the queue again
    ++counts_[static_cast<std::size_t>(done.report.end)];
    if (context_.format() == Format::kText) print(line(done));
    ignore_error(flush_output(), "told at the end");
    done_.push_back(std::move(done));
    if (done_.size() > kListed) done_.pop_front();
  }

  // The child could say nothing to the daemon any more.
  void give_up(const client::TakenJob& job, const cc::BuildReport& report) {
    if (report.end == End::kGivenBack) {
      ignore_error(session_->client().release(job.lease), "it ends when no heartbeat comes");
      return;
    }
    client::FailReport failure;
    failure.failure_class = report.failure_class;
    failure.message = report.message;
    const auto told = session_->client().fail(job.lease, failure);
    if (!told.ok()) note("a lost build was not reported: " + told.error().text());
  }

  static std::string line(const Done& done) {
    const cc::BuildReport& report = done.report;
    std::string out = fmt::format(
        "{} {} {} ({})", report.end == End::kGivenBack ? "given back" : end_name(report.end),
        short_key(done.key), printable(done.label), format_duration(done.seconds));
    if (report.end == End::kFailed)
      out += fmt::format(": {}: {}", report.failure_class, printable(report.message));
    return out + "\n";
  }

  void print_result(double seconds) const {
    if (context_.format() == Format::kText) {
      print(
          fmt::format("{} built, {} failed, {} given back.\n", counts_[0], counts_[1], counts_[2]));
      return;
    }
    if (context_.format() == Format::kTab) {
      Table table({{"", "key"},
                   {"", "outcome"},
                   {"", "label"},
                   {"", "compiler"},
                   {"", "seconds"},
                   {"", "class"},
                   {"", "message"}});
      for (const Done& d : done_) {
        table.add({d.key, std::string(end_name(d.report.end)), d.label, d.compiler,
                   fmt::format("{}", d.seconds), d.report.failure_class, d.report.message});
      }
      print(table.tab());
      return;
    }
    bj::array jobs;
    for (const Done& d : done_) {
      jobs.push_back(bj::object{{"key", d.key},
                                {"outcome", std::string(end_name(d.report.end))},
                                {"label", d.label},
                                {"compiler", d.compiler},
                                {"seconds", d.seconds},
                                {"class", d.report.failure_class},
                                {"message", d.report.message}});
    }
    print_json(bj::object{
        {"compiler", compiler_text()},
        {"seconds", seconds},
        {"counts",
         bj::object{{"built", counts_[0]}, {"failed", counts_[1]}, {"given_back", counts_[2]}}},
        {"jobs", std::move(jobs)}});
  }

  const Context& context_;
  std::unique_ptr<Session> session_;
  const cc::Workshop shop_;
  const std::string wanted_;
  const bool cluster_;
  const bool once_;
  const std::optional<double> idle_seconds_;
  std::optional<cc::KnownCompiler> known_;
  std::array<std::size_t, 3> counts_{};  // by End
  std::deque<Done> done_;
  bool empty_ = false;      // there was nothing for us at the last look
  bool ended_all_ = false;  // what ran was asked to end
  Millis busy_ms_ = 0;
  std::optional<Millis> trouble_since_;
  std::string problem_;  // with the cluster's queue, as it was told last
  ChildPool pool_;       // the last: its end calls what is above
};

Result<int> run(Context& context) {
  if (!context.flag("queue"))
    return Error{Code::kInvalid, "worker is not told what to serve", "give --queue"};
  NC_ASSIGN(const std::size_t jobs, jobs_option(context));
  NC_ASSIGN(const auto idle, context.duration_option("idle"));
  NC_ASSIGN(Session session, Session::open(context, Session::Need::kChange));
  Worker worker(context, std::move(session), jobs, idle);
  return worker.run();
}

constexpr OptionSpec kOptions[] = {
    {"queue", "", "Serve the daemon's queue (needed).", ""},
    {"cluster", "",
     "Serve the cluster's queue, too: builds that other hosts have put into the shared tier.", ""},
    {"jobs", "N", "How many builds at once (default one for each core).", ""},
    {"compiler", "PATH|VERSION",
     "The compiler to build with, and so whose jobs to take: a path, or the beginning of a "
     "version.",
     ""},
    {"once", "", "End when there is nothing left to take.", ""},
    {"idle", "DURATION", "End after so long without a job.", ""},
};

}  // namespace

extern constinit const Verb kWorkerVerb{
    .name = "worker",
    .summary = "Build what is queued.",
    .details =
        "Takes jobs from the daemon's queue (`warmup --recorded --queue` fills it) and runs each "
        "under its lease, in a process of its own, with the recorded inputs, flags and variables. "
        "Only jobs of the compiler that is here are taken: by its version and its package. A build "
        "starts when the daemon has room for it.\n\n"
        "With --cluster it also takes what any host that shares the tier has queued "
        "(`warmup --recorded --queue --cluster`), if the job is signed by a key that is trusted "
        "here. What is built goes to the tier.\n\n"
        "SIGTERM lets running builds finish and takes no more; SIGINT or a second SIGTERM ends "
        "them and gives their jobs back. The jobs of a worker that is killed go back as well.\n\n"
        "With --once or --idle the exit status is 1 when a build failed or was given back.",
    .arguments = {},
    .options = kOptions,
    .examples =
        "neuroncache worker --queue --jobs 4 # until it is told to stop\n"
        "neuroncache worker --queue --cluster # a host of the cluster's compile farm\n"
        "neuroncache worker --queue --once --format json # what there is, for CI",
    .run = run};

}  // namespace nc::cli
