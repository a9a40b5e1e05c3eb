// /v1/queue/cluster: the cluster's queue of builds, for people and for who fills it.
#include <memory>
#include <utility>

#include "daemon/answers.hpp"
#include "daemon/paging.hpp"
#include "daemon/service.hpp"

namespace nc::daemon {
namespace {

namespace js = boost::json;

constexpr std::size_t kPage = 100;

js::object job_json(const ClusterJobs::Shown& job) {
  return {{"key", job.key.hex()},
          {"state", job.state},
          {"label", job.label},
          {"compiler", job.compiler},
          {"attempts", job.note.attempts},
          {"host", job.note.host},
          {"class", job.note.failure_class},
          {"message", job.note.message},
          {"log", job.note.log},
          {"problem", job.problem}};
}

// Runs `work(request)` where it may wait for the tier.
template <class Work>
void on_queue(Service& service, Call call, const Status& may, Work work) {
  if (!may.ok()) return call.reply(HttpResponse::error(may.error()));
  const auto shared = std::make_shared<Call>(std::move(call));
  const bool posted = service.tiers.post([shared, work] { shared->reply(work(shared->request)); });
  if (posted) return;
  shared->reply(
      HttpResponse::error({Code::kBusy, "too much is asked of the tiers", "try again later"}));
}

Status check_queue(Service& service) {
  if (service.jobs) return {};
  return Error{Code::kNotFound, "there is no tier here that holds the cluster's queue",
               "name a tier that is read and written and lists its objects in the setting "
               "`tiers`, and do not set cluster_leases to off"};
}

bool says_yes(const HttpRequest& request, const std::string& name) {
  return request.query(name) == "1";
}

}  // namespace

Status may_use_cluster_queue(Service& service, const HttpRequest& request) {
  // What is queued bears this host's signature, and what is built from the queue as well.
  if (request.rights) {
    return Error{Code::kDenied, request.rights->who + " may not use the cluster's queue",
                 "only the user whose daemon it is may: its key signs what is queued"};
  }
  return check_queue(service);
}

void enqueue_in_cluster(Service& service, Call call) {
  const Status may = may_use_cluster_queue(service, call.request);
  on_queue(service, std::move(call), may, [&service](const HttpRequest& request) {
    if (service.read_only) {
      return HttpResponse::error(
          {Code::kReadOnly, "the store is open for reading only", "ask a daemon that may write"});
    }
    const auto chosen = chosen_actions(service, request);
    if (!chosen.ok()) return HttpResponse::error(chosen.error());
    Enqueued sums;
    for (const ChosenAction& action : *chosen) {
      if (action.lost) {
        ++sums.lost;
        continue;
      }
      const auto added = service.jobs->add(action.key);
      if (!added.ok()) return HttpResponse::error(added.error());
      ++(*added == ClusterJobs::Added::kQueued    ? sums.queued
         : *added == ClusterJobs::Added::kAlready ? sums.already
                                                  : sums.built);
    }
    return enqueued_answer(sums);
  });
}

void list_cluster_queue(Service& service, Call call) {
  on_queue(service, std::move(call), check_queue(service), [&service](const HttpRequest& request) {
    const auto limit = page_limit(request, kPage);
    if (!limit.ok()) return HttpResponse::error(limit.error());
    const auto after = page_after(request);
    if (!after.ok()) return HttpResponse::error(after.error());
    const auto page = service.jobs->page(*after, *limit);
    if (!page.ok()) return HttpResponse::error(page.error());
    js::array jobs;
    for (const auto& job : page->jobs) jobs.push_back(job_json(job));
    const auto& counters = service.jobs->counters();
    return answer({{"tier", service.jobs->tier()},
                   {"counts",
                    {{"queued", page->counts.queued},
                     {"building", page->counts.building},
                     {"failed", page->counts.failed}}},
                   {"here",
                    {{"added", counters.added.load()},
                     {"taken", counters.taken.load()},
                     {"removed", counters.removed.load()},
                     {"failed", counters.failed.load()},
                     {"refused", counters.refused.load()},
                     {"errors", counters.errors.load()}}},
                   {"jobs", std::move(jobs)},
                   {"next", page->next ? js::value(page->next->hex()) : js::value(nullptr)}});
  });
}

void clear_cluster_queue(Service& service, Call call) {
  const Status may = may_use_cluster_queue(service, call.request);
  on_queue(service, std::move(call), may, [&service](const HttpRequest& request) {
    const auto removed =
        service.jobs->clear(says_yes(request, "failed"), says_yes(request, "dry_run"));
    if (!removed.ok()) return HttpResponse::error(removed.error());
    return answer({{"removed", *removed}});
  });
}

}  // namespace nc::daemon
