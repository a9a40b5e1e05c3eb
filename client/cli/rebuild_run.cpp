#include "client/cli/rebuild_run.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "client/cc/words.hpp"
#include "client/cli/build_site.hpp"
#include "client/cli/live_line.hpp"
#include "client/cli/output.hpp"
#include "client/cli/warm_run.hpp"

namespace nc::cli {
namespace {

using client::ActionOutcome;
using BuildEnd = cc::BuildReport::End;

constexpr Millis kLookMs = 500;
constexpr Millis kMostLookMs = 30'000;  // at the cluster's
constexpr int kLooksForGone = 20;       // at a job that is gone, until its entry can be seen
constexpr Millis kWaitStepMs = 2'000;   // of one request for a lease

client::AcquireRequest request_for(const client::RecordedAction& action, const std::string& run) {
  client::AcquireRequest request;
  request.key = action.key;
  request.parts = action.parts;
  request.name_space = action.name_space;
  request.kind = action.kind;
  request.label = action.label;
  request.program = action.program;
  request.compiler = action.compiler;
  request.model = action.model;
  request.recording = run;
  return request;
}

// What an action is in the report when nobody could ask for it, or before its outcome is known.
ActionOutcome outcome_of(const client::RecordedAction& action, std::string outcome,
                         std::string message = "") {
  ActionOutcome out;
  out.key = action.key.hex();
  out.outcome = std::move(outcome);
  out.kind = action.kind;
  out.label = action.label;
  out.program = action.program;
  out.compiler = action.compiler;
  out.message = std::move(message);
  return out;
}

// In a child: until there is an entry or a failure.
cc::BuildReport build_item(const cc::Workshop& shop, const client::RecordedAction& action,
                           const std::string& run) {
  client::Client client(shop.client_options);
  client::AcquireRequest request = request_for(action, run);
  request.wait_ms = kWaitStepMs;
  request.retry = shop.settings.boolean("retry_failed");
  auto answer = client.acquire_and_wait(std::move(request), 0,
                                        [](const client::BuildingInfo&) { return true; });
  cc::BuildReport report;
  if (!answer.ok()) {
    report.message = answer.error().text();
    return report;
  }
  switch (answer->state) {
    case client::Acquired::State::kHit:
      report.end = BuildEnd::kBuilt;
      break;
    case client::Acquired::State::kLease:
      return cc::build_recorded(shop, action, client, answer->lease);
    case client::Acquired::State::kFailed:
      report.failure_class = answer->failure.failure_class;
      report.message = answer->failure.message;
      break;
    case client::Acquired::State::kMiss:
    case client::Acquired::State::kBuilding:
      report.message = "the daemon gives nobody the right to build it";
      break;
  }
  return report;
}

std::string progress_text(std::size_t done, std::size_t failed, std::size_t all, double elapsed_s) {
  std::string out = fmt::format("{} of {} done", done, all);
  if (failed > 0) out += fmt::format(", {} failed", failed);
  if (done > 0 && done < all) {
    const double left = elapsed_s * static_cast<double>(all - done) / static_cast<double>(done);
    out += fmt::format("; about {} left", format_duration(left));
  }
  return out;
}

class Run {
 public:
  Run(const Context& context, Session& session, RebuildOrder order)
      : context_(context),
        session_(session),
        order_(std::move(order)),
        run_(run_name(order_.recording)) {}

  Result<WarmReport> run() {
    const Millis started = system_clock().monotonic_ms();
    NC_TRY(look_up());
    NC_TRY(order_.queue ? by_workers() : here());
    WarmReport report;
    report.verb = "warmup";
    report.recording = order_.recording;
    report.seconds = static_cast<double>(system_clock().monotonic_ms() - started) / 1000;
    NC_ASSIGN(const auto told, end_run(context_, run_, order_.recording));
    for (const ActionOutcome& outcome : told) {
      // What a worker did is known from its job only.
      if (order_.queue && outcome.outcome != "hit") continue;
      ActionOutcome& known = outcomes_[outcome.key];
      const std::string obstacle = outcome.outcome == "unfinished" ? known.message : "";
      known = outcome;
      if (known.message.empty()) known.message = obstacle;
    }
    for (const RebuildItem& item : order_.items)
      report.outcomes.push_back(outcomes_.at(item.action.key.hex()));
    return report;
  }

 private:
  bool to_build(const RebuildItem& item) const { return !item.there && item.obstacle.empty(); }

  // What is there counts as used, so that it stays.
  Status look_up() {
    for (RebuildItem& item : order_.items) {
      ActionOutcome& outcome = outcomes_[item.action.key.hex()];
      outcome = outcome_of(item.action, "unfinished", item.obstacle);
      if (!item.there) continue;
      client::AcquireRequest request = request_for(item.action, run_);
      request.lookup_only = true;
      NC_ASSIGN(const client::Acquired answer, session_.client().acquire(request));
      if (answer.state == client::Acquired::State::kHit) {
        outcome.outcome = "hit";
        continue;
      }
      // Its bytes were damaged or gone, and so is it: it is missing like others.
      item.there = false;
      item.obstacle = outcome.message = item.otherwise;
    }
    return {};
  }

  // ---- Here ----

  Status here() {
    const auto all = static_cast<std::size_t>(
        std::count_if(order_.items.begin(), order_.items.end(),
                      [this](const RebuildItem& item) { return to_build(item); }));
    LiveLine line;
    ChildPool pool(order_.jobs);
    auto next = order_.items.begin();
    bool ended_all = false;
    for (;;) {
      while (!pool.stop_soon() && !pool.full() && next != order_.items.end()) {
        const RebuildItem& item = *next++;
        if (to_build(item)) NC_TRY(start(pool, item));
      }
      if (pool.running() == 0 && (pool.stop_soon() || next == order_.items.end())) return {};
      pool.wait(kLookMs);
      if (pool.stop_soon() && !std::exchange(ended_all, true)) pool.end_all();
      if (line.due()) line.show(progress_text(done_, failed_, all, line.elapsed_s()));
    }
  }

  Status start(ChildPool& pool, const RebuildItem& item) {
    NC_ASSIGN(ScratchDir scratch, ScratchDir::make());
    cc::Workshop shop = workshop_of(context_);
    shop.compiler = *item.compiler;
    shop.directory = scratch.work();
    const auto held = std::make_shared<ScratchDir>(std::move(scratch));
    return pool.start(
        [this, shop, &item](std::string& text) {
          const cc::BuildReport report = build_item(shop, item.action, run_);
          text = report_text(report);
          return report.end == BuildEnd::kBuilt ? 0 : 1;
        },
        [this, held, &item](const ChildPool::End& end) { ended(item, end); });
  }

  void ended(const RebuildItem& item, const ChildPool::End& end) {
    const cc::BuildReport report = report_of(end);
    ++done_;
    if (report.end == BuildEnd::kFailed) ++failed_;
    outcomes_[item.action.key.hex()].message = report.message;
  }

  // ---- By workers ----

  Status by_workers() {
    std::map<std::string, const RebuildItem*> waiting;
    for (const RebuildItem& item : order_.items) {
      if (!to_build(item)) continue;
      NC_TRY(enqueue(item));
      waiting[item.action.key.hex()] = &item;
    }
    const std::size_t all = waiting.size();
    LiveLine line;
    ChildPool signals(1);  // for its signals
    while (!waiting.empty() && !signals.stop_soon()) {
      signals.wait(kLookMs);
      NC_TRY(order_.cluster ? look_at_cluster(waiting) : look_at_jobs(waiting));
      if (line.due())
        line.show(progress_text(all - waiting.size(), failed_, all, line.elapsed_s()));
    }
    return {};
  }

  Status enqueue(const RebuildItem& item) {
    const auto queued = session_.client().enqueue(item.action, order_.cluster);
    return queued.ok() ? Status() : Status(queued.error());
  }

  Status look_at_jobs(std::map<std::string, const RebuildItem*>& waiting) {
    constexpr std::size_t kPage = 1000;
    std::uint64_t after = 0;
    for (;;) {
      NC_ASSIGN(const client::QueuePage page, session_.client().queue("", after, kPage));
      for (const auto& job : page.jobs) {
        const auto item = waiting.find(job.key);
        if (item == waiting.end() || (job.state != "built" && job.state != "failed")) continue;
        ActionOutcome& outcome = outcomes_[job.key];
        outcome.outcome = job.state;
        outcome.failure_class = job.failure_class;
        outcome.message = job.message;
        if (job.state == "failed") ++failed_;
        waiting.erase(item);
      }
      if (!page.next) return {};
      after = *page.next;
    }
  }

  // What is in the queue no more has an entry, or nobody wants it: a look-up tells.
  Status look_at_cluster(std::map<std::string, const RebuildItem*>& waiting) {
    const Millis now = system_clock().monotonic_ms();
    if (now < next_look_) return {};
    std::set<std::string> there;
    std::string after;
    for (;;) {
      NC_ASSIGN(const client::ClusterQueuePage page, session_.client().cluster_queue(after));
      for (const auto& job : page.jobs) {
        const auto item = waiting.find(job.key);
        if (item == waiting.end()) continue;
        there.insert(job.key);
        if (job.state == "failed") end_job(waiting, item, "failed", job.failure_class, job.message);
      }
      if (!page.next) break;
      after = *page.next;
    }
    for (auto it = waiting.begin(); it != waiting.end();) {
      const auto item = it++;
      if (there.contains(item->first)) continue;
      client::AcquireRequest request = request_for(item->second->action, "");
      request.lookup_only = true;
      NC_ASSIGN(const client::Acquired answer, session_.client().acquire(request));
      if (answer.state == client::Acquired::State::kHit) {
        end_job(waiting, item, "built");
      } else if (++gone_[item->first] >= kLooksForGone) {
        end_job(waiting, item, "unfinished", "", "it was removed from the cluster's queue");
      }
    }
    // The more there is, the more a look costs.
    next_look_ = system_clock().monotonic_ms() +
                 std::clamp((system_clock().monotonic_ms() - now) * 10, kLookMs, kMostLookMs);
    return {};
  }

  void end_job(std::map<std::string, const RebuildItem*>& waiting,
               std::map<std::string, const RebuildItem*>::iterator item, const char* outcome,
               const std::string& failure_class = "", const std::string& message = "") {
    ActionOutcome& out = outcomes_[item->first];
    out.outcome = outcome;
    out.failure_class = failure_class;
    out.message = message;
    if (out.outcome == "failed") ++failed_;
    waiting.erase(item);
  }

  const Context& context_;
  Session& session_;
  RebuildOrder order_;
  const std::string run_;
  std::map<std::string, ActionOutcome> outcomes_;
  std::size_t done_ = 0, failed_ = 0;
  Millis next_look_ = 0;
  std::map<std::string, int> gone_;  // how often it was neither queued nor there
};

std::string_view state_of(const RebuildItem& item) {
  return item.there ? "there" : item.obstacle.empty() ? "build" : "cannot";
}

std::string cost_text(const RebuildItem& item) {
  if (item.there || item.seconds == 0) return item.there ? "" : "?";
  return (item.guessed ? "~" : "") + format_duration(item.seconds);
}

std::string summary(const RebuildCost& cost, std::size_t jobs) {
  std::string out = fmt::format("{} to build, {} already there", cost.missing, cost.there);
  if (cost.blocked > 0) out += fmt::format(", {} cannot be built here", cost.blocked);
  if (cost.seconds > 0) {
    out += fmt::format("; {} of compiling", format_duration(cost.seconds));
    if (jobs > 1 && cost.missing > 1) {
      const auto beside = static_cast<double>(std::min(jobs, cost.missing));
      out += fmt::format(", at least {} with {} at once", format_duration(cost.seconds / beside),
                         jobs);
    }
  }
  if (cost.guessed > 0) out += fmt::format(", {} of them guessed", cost.guessed);
  if (cost.unknown > 0) out += fmt::format("; nothing is known of how long {} take", cost.unknown);
  return out + ".\n";
}

}  // namespace

Result<WarmReport> run_rebuild(const Context& context, Session& session, RebuildOrder order) {
  return Run(context, session, std::move(order)).run();
}

void print_dry_run(const Context& context, const RebuildOrder& order) {
  const RebuildCost cost = cost_of(order.items);
  if (context.format() == Format::kJson) {
    bj::array actions;
    for (const RebuildItem& item : order.items) {
      bj::value seconds;
      if (item.seconds > 0) seconds = item.seconds;
      actions.push_back(bj::object{{"key", item.action.key.hex()},
                                   {"label", item.action.label},
                                   {"compiler", item.action.compiler},
                                   {"target", item.target},
                                   {"state", std::string(state_of(item))},
                                   {"obstacle", item.obstacle},
                                   {"build_seconds", std::move(seconds)},
                                   {"guessed", item.guessed}});
    }
    bj::array commands;
    for (const auto& words : order.commands)
      commands.push_back(bj::array(words.begin(), words.end()));
    print_json(bj::object{{"recording", order.recording},
                          {"commands", std::move(commands)},
                          {"counts", bj::object{{"there", cost.there},
                                                {"build", cost.missing},
                                                {"cannot", cost.blocked},
                                                {"unknown", cost.unknown}}},
                          {"build_seconds", cost.seconds},
                          {"actions", std::move(actions)}});
    return;
  }
  Table table({{"key", "key"},
               {"", "state"},
               {"label", "label", Table::Align::kLeft, true},
               {"compiler", "compiler", Table::Align::kLeft, true},
               {"target", "target"},
               {"takes", "build_s", Table::Align::kRight},
               {"", "obstacle", Table::Align::kLeft, true}});
  for (const RebuildItem& item : order.items) {
    table.add({key_cell(item.action.key.hex()),
               std::string(state_of(item)),
               {printable(item.action.label), item.action.label},
               item.action.compiler,
               item.target,
               {cost_text(item), item.seconds > 0 ? fmt::format("{}", item.seconds) : ""},
               {printable(item.obstacle), item.obstacle}});
  }
  if (context.format() == Format::kTab) return print(table.tab());
  for (const auto& words : order.commands)
    print(fmt::format("run {}\n", printable(cc::quote_words(words))));
  if (!table.empty()) print(table.text(terminal_width()));
  print(summary(cost, order.jobs));
}

}  // namespace nc::cli
