// queue: what waits for workers, here or in the cluster.
#include <fmt/format.h>

#include "client/cli/output.hpp"
#include "client/cli/render.hpp"
#include "client/cli/session.hpp"

namespace nc::cli {
namespace {

struct Row {
  std::string key, state, label, compiler, host, failure_class, message, log, problem;
  std::uint64_t attempts = 0;
};

struct Shown {
  std::string where;  // of the cluster's: the tier
  std::uint64_t queued = 0, building = 0, built = 0, failed = 0;
  std::vector<Row> rows;
};

Result<Shown> of_daemon(client::Client& client) {
  constexpr std::size_t kPage = 1000;
  Shown shown;
  std::uint64_t after = 0;
  for (;;) {
    NC_ASSIGN(const client::QueuePage page, client.queue("", after, kPage));
    shown.queued = page.counts.queued;
    shown.building = page.counts.building;
    shown.built = page.counts.built;
    shown.failed = page.counts.failed;
    for (const auto& job : page.jobs) {
      shown.rows.push_back({job.key, job.state, job.label, job.compiler, "", job.failure_class,
                            job.message, "", "", job.attempts});
    }
    if (!page.next) return shown;
    after = *page.next;
  }
}

Result<Shown> of_cluster(client::Client& client) {
  Shown shown;
  std::string after;
  for (;;) {
    NC_ASSIGN(const client::ClusterQueuePage page, client.cluster_queue(after));
    shown.where = page.tier;
    shown.queued = page.queued;
    shown.building = page.building;
    shown.failed = page.failed;
    for (const auto& job : page.jobs) {
      shown.rows.push_back({job.key, job.state, job.label, job.compiler, job.host,
                            job.failure_class, job.message, job.log, job.problem, job.attempts});
    }
    if (!page.next) return shown;
    after = *page.next;
  }
}

void print_shown(const Context& context, const Shown& shown, const std::string& state) {
  bj::array jobs;
  Table table({{"key", "key"},
               {"", "state"},
               {"tried", "attempts", Table::Align::kRight},
               {"label", "label", Table::Align::kLeft, true},
               {"compiler", "compiler", Table::Align::kLeft, true},
               {"host", "host"},
               {"", "class"},
               {"", "message", Table::Align::kLeft, true}});
  for (const Row& row : shown.rows) {
    if (!state.empty() && row.state != state) continue;
    const std::string& message = row.problem.empty() ? row.message : row.problem;
    table.add({key_cell(row.key),
               row.state,
               fmt::format("{}", row.attempts),
               {printable(row.label), row.label},
               row.compiler,
               row.host,
               row.failure_class,
               {printable(message), message}});
    jobs.push_back(bj::object{{"key", row.key},
                              {"state", row.state},
                              {"attempts", row.attempts},
                              {"label", row.label},
                              {"compiler", row.compiler},
                              {"host", row.host},
                              {"class", row.failure_class},
                              {"message", row.message},
                              {"log", row.log},
                              {"problem", row.problem}});
  }
  if (context.format() == Format::kJson) {
    return print_json(bj::object{{"tier", shown.where},
                                 {"counts",
                                  {{"queued", shown.queued},
                                   {"building", shown.building},
                                   {"built", shown.built},
                                   {"failed", shown.failed}}},
                                 {"jobs", std::move(jobs)}});
  }
  if (context.format() == Format::kTab) return print(table.tab());
  if (!table.empty()) print(table.text(terminal_width()));
  std::string sums =
      fmt::format("{} queued, {} begun, {} failed", shown.queued, shown.building, shown.failed);
  if (shown.where.empty())
    sums += fmt::format(", {} built", shown.built);
  else
    sums += fmt::format(", in {}", shown.where);
  print(sums + ".\n");
}

Result<int> clear(const Context& context, Session& session, bool cluster,
                  const std::string& state) {
  const bool dry_run = context.flag("dry-run");
  if (!state.empty() && state != "queued" && !(cluster && state == "failed")) {
    return Error{Code::kInvalid,
                 "--clear removes what is queued" + std::string(cluster ? ", or failed" : ""),
                 cluster ? "give --state queued or failed" : "leave --state out"};
  }
  std::uint64_t removed = 0;
  if (cluster) {
    NC_ASSIGN(removed, session.client().clear_cluster_queue(state == "failed", dry_run));
  } else if (dry_run) {
    NC_ASSIGN(const client::QueuePage page, session.client().queue("queued", 0, 1));
    removed = page.counts.queued;
  } else {
    NC_ASSIGN(removed, session.client().clear_queue());
  }
  if (context.format() == Format::kJson) {
    print_json(bj::object{{"removed", removed}, {"dry_run", dry_run}});
  } else if (context.format() == Format::kTab) {
    print(fmt::format("{}\n", removed));
  } else {
    print(fmt::format("{} {}.\n", removed, dry_run ? "would be removed" : "removed"));
  }
  return kOk;
}

Result<int> run(Context& context) {
  const bool cluster = context.flag("cluster");
  const bool clearing = context.flag("clear");
  const std::string state = context.option("state").value_or("");
  if (context.flag("dry-run") && !clearing) {
    return Error{Code::kInvalid, "--dry-run goes with --clear", "without it nothing is changed"};
  }
  // A daemon that only reads has no part in the cluster.
  NC_ASSIGN(Session session, Session::open(context, clearing || cluster ? Session::Need::kChange
                                                                        : Session::Need::kRead));
  if (session.source() == Session::Source::kNone) {
    print_shown(context, {}, state);
    return kOk;
  }
  if (clearing) return clear(context, session, cluster, state);
  NC_ASSIGN(const Shown shown,
            cluster ? of_cluster(session.client()) : of_daemon(session.client()));
  print_shown(context, shown, state);
  return kOk;
}

constexpr OptionSpec kOptions[] = {
    {"cluster", "", "That of the cluster, in the shared tier, instead of this daemon's.", ""},
    {"state", "STATE", "Only jobs in this state.", "queued|building|built|failed"},
    {"clear", "",
     "Remove what is queued; with --cluster and --state failed what failed, so that it can be "
     "queued anew from nothing.",
     ""},
    {"dry-run", "", "With --clear: only say how many.", ""},
};

}  // namespace

extern constinit const Verb kQueueVerb{
    .name = "queue",
    .summary = "Show or clear what waits for workers.",
    .details =
        "The daemon's own queue, or with --cluster the one that lies in the shared tier and is "
        "served by `worker --queue --cluster` on any host. A job is queued, being built, or failed "
        "for good, with the class and the message of its last failure (its log with --format "
        "json). In the cluster's queue a job that was begun stays `building` when its host dies, "
        "until another takes it; what is built is in the queue no more.",
    .arguments = {},
    .options = kOptions,
    .examples =
        "neuroncache queue # what waits here\n"
        "neuroncache queue --cluster --state failed\n"
        "neuroncache queue --cluster --clear --dry-run",
    .run = run};

}  // namespace nc::cli
