// POST /v1/queue/take: the next job for a worker, from the daemon's queue or, where the worker
// serves the cluster, from that of the tier. A worker never waits long here: what other hosts build
// is looked at again the next time.
#include <deque>
#include <memory>
#include <utility>

#include "base/log.hpp"
#include "cache/json_fields.hpp"
#include "daemon/answers.hpp"
#include "daemon/service.hpp"

namespace nc::daemon {
namespace {

namespace js = boost::json;

// A lease of the cluster is a matter of a few requests to the tier, unless another host has it.
constexpr Millis kLeaseWaitMs = 1'000;
// So many are asked for in one call at most, so that none lies here unused.
constexpr std::size_t kMaxAsked = 2;
// Of the cluster's jobs that other hosts build, so many are waited for, to take over should their
// hosts die.
constexpr std::size_t kMaxWatched = 16;

Request request_of(const ActionRecord& record) {
  Request request;
  request.key = record.key;
  request.name_space = record.name_space;
  request.kind = record.kind;
  request.label = record.label;
  request.program = record.program;
  request.compiler = record.compiler;
  request.model = record.model;
  request.parts = record.parts;
  return request;
}

class TakeJob : public std::enable_shared_from_this<TakeJob> {
 public:
  TakeJob(Service& service, Call call, std::string compiler, KeyParts parts, bool cluster)
      : service_(service),
        call_(std::move(call)),
        compiler_(std::move(compiler)),
        parts_(std::move(parts)),
        cluster_(cluster) {}

  void run() {
    for (Job& job : service_.work.queue().next(WorkQueue::kMaxJobs)) {
      if (job.compiler.find(compiler_) != std::string::npos) todo_.push_back(job.key);
    }
    step();
  }

 private:
  // Goes on until there is an answer, or something to wait for.
  void step() {
    while (!todo_.empty() && asked_ < kMaxAsked && (!of_cluster_ || pending_ < kMaxWatched)) {
      const ActionKey key = todo_.front();
      todo_.pop_front();
      const auto record = of_cluster_ ? of_cluster(key) : of_daemon(key);
      if (record && ask(*record, 0)) return;
    }
    if (todo_.empty() && cluster_ && !of_cluster_) return go_on_to_cluster();
    pending_ += todo_.size();
    answer_empty();
  }

  // True: it is in hand, or there is an answer.
  bool ask(const ActionRecord& record, Millis wait_ms) {
    LeaseTable::Ask ask;
    ask.request = request_of(record);
    ask.who = builder_of(service_, call_.request);
    ask.connection = call_.request.connection->id();
    ask.wait_ms = wait_ms;
    if (wait_ms > 0) {
      call_.request.connection->watch_hangup();
      ask.wake = [self = shared_from_this(), record](Wake wake) {
        self->later([self, record, wake = std::move(wake)] { self->woken(record, wake); });
      };
    }
    auto asked = service_.leases.ask(std::move(ask));
    service_.keeper.apply(asked.effects);
    switch (asked.kind) {
      case LeaseTable::Answer::Kind::kGranted:
        return granted(record, asked.lease);
      case LeaseTable::Answer::Kind::kRefused:
        call_.reply(HttpResponse::error(asked.error));
        return true;
      case LeaseTable::Answer::Kind::kParked:
        service_.keeper.nudge();
        return true;
      case LeaseTable::Answer::Kind::kBusy:  // built without having been taken, or elsewhere
        service_.keeper.apply(service_.leases.forget_ticket(asked.progress.ticket));
        ++pending_;
        return false;
    }
    return false;
  }

  void woken(const ActionRecord& record, const Wake& wake) {
    switch (wake.kind) {
      case Wake::Kind::kGranted:
        if (granted(record, wake.lease)) return;
        break;
      case Wake::Kind::kStillBusy:
        service_.keeper.apply(service_.leases.forget_ticket(wake.progress.ticket));
        ++pending_;
        break;
      case Wake::Kind::kEnded:  // the next look finds why
        ++pending_;
        break;
      case Wake::Kind::kGone:
        return call_.reply(HttpResponse::error({Code::kUnavailable, "the client hung up", ""}));
    }
    step();
  }

  bool granted(const ActionRecord& record, const Lease& lease) {
    // Published between our look and the grant?
    if (const auto entry = service_.store.peek(record.key); entry.ok() && *entry) {
      service_.keeper.apply(service_.leases.settled(record.key));
      there(record.key);
      return false;
    }
    if (service_.cluster && !service_.cluster->granted(lease)) {
      ++asked_;
      return ask(record, kLeaseWaitMs);
    }
    if (!take(record, lease)) {
      service_.keeper.apply(service_.leases.end(lease.id, LeaseTable::End::kReleased));
      return false;
    }
    service_.keeper.follow(lease);
    service_.store.count(record.name_space, "builds", 1);
    answer_job(record, lease);
    return true;
  }

  bool take(const ActionRecord& record, const Lease& lease) {
    if (!of_cluster_) return service_.work.take(record.key, lease.id);
    auto begun = service_.jobs->begin(record, lease.id, [this, &lease](std::uint64_t) {
      service_.leases.touch(lease.id);
      return !service_.draining;
    });
    if (begun.ok()) return *begun;
    log::warn("cluster", "the queued build {} is not taken: {}", record.key.hex().substr(0, 12),
              begun.error().text());
    return false;
  }

  // ---- Where jobs come from ----

  std::optional<ActionRecord> of_daemon(const ActionKey& key) {
    const auto entry = service_.store.peek(key);
    if (entry.ok() && *entry) {
      there(key);
      return std::nullopt;
    }
    if (const auto failure = service_.store.failure(key); failure.ok() && *failure) {
      service_.work.failed(key, (*failure)->failure_class, (*failure)->message);
      return std::nullopt;
    }
    auto record = service_.work.find(key);
    if (!record.ok()) {
      service_.work.failed(key, FailureClass::kUncacheable, record.error().message);
      return std::nullopt;
    }
    if (!has_parts(record->parts, parts_)) return std::nullopt;
    return *std::move(record);
  }

  std::optional<ActionRecord> of_cluster(const ActionKey& key) {
    const auto entry = service_.store.peek(key);
    if (entry.ok() && *entry) {
      there(key);
      return std::nullopt;
    }
    auto record = service_.jobs->offer(key, compiler_, parts_);
    if (!record) return std::nullopt;
    if (const auto failure = service_.store.failure(key); failure.ok() && *failure) {
      service_.jobs->known_failure(key, **failure);
      return std::nullopt;
    }
    return record;
  }

  void there(const ActionKey& key) {
    service_.work.built(key);
    if (service_.jobs) service_.jobs->built(key);
  }

  // From here on threads that may wait for the tier.
  void go_on_to_cluster() {
    of_cluster_ = true;
    later([self = shared_from_this()] {
      auto keys = self->service_.jobs->candidates();
      if (keys.ok()) {
        self->todo_.assign(keys->begin(), keys->end());
      } else {
        self->problem_ = keys.error().text();
      }
      self->cluster_ = false;  // it was asked
      self->step();
    });
  }

  void later(std::function<void()> work) {
    const bool posted = of_cluster_ ? service_.tiers.post(std::move(work))
                                    : service_.pool.post(Lane::kQuick, std::move(work));
    if (posted) return;
    call_.reply(
        HttpResponse::error({Code::kBusy, "too much is asked of the daemon", "try again later"}));
  }

  // ---- Answers ----

  void answer_job(const ActionRecord& record, const Lease& lease) {
    const Millis ttl = service_.leases.lease_ttl();
    js::error_code ignored;
    HttpResponse response = answer({{"state", "job"},
                                    {"key", record.key.hex()},
                                    {"record", js::parse(record.to_json(), ignored)},
                                    {"lease", lease_json(lease, ttl)}});
    response.undelivered = [&service = service_, id = lease.id] { give_back(service, id); };
    call_.reply(std::move(response));
  }

  static void give_back(Service& service, const std::string& lease) {
    const auto end = [&service, lease] {
      service.work.given_back(lease);
      if (service.jobs) service.jobs->given_back(lease);
      service.keeper.apply(service.leases.end(lease, LeaseTable::End::kReleased));
    };
    if (service.jobs && service.jobs->holds(lease) && service.tiers.post(end)) return;
    service.pool.post(Lane::kQuick, end);
  }

  void answer_empty() {
    const auto counts = service_.work.queue().counts();
    call_.reply(answer({{"state", "empty"},
                        {"pending", pending_},
                        {"problem", problem_},
                        {"counts",
                         {{"queued", counts.queued},
                          {"building", counts.building},
                          {"built", counts.built},
                          {"failed", counts.failed}}}}));
  }

  Service& service_;
  Call call_;
  const std::string compiler_;
  const KeyParts parts_;
  bool cluster_;             // is still to be asked
  bool of_cluster_ = false;  // what `todo_` is of
  std::deque<ActionKey> todo_;
  std::size_t asked_ = 0;    // leases of the cluster
  std::string problem_;      // with the cluster's queue
  std::size_t pending_ = 0;  // jobs that may be for this worker later
};

}  // namespace

void take_work(Service& service, Call call) {
  auto object = parse_json_object(call.request.body, call.request.body.size(), "the body");
  if (!object.ok()) return call.reply(HttpResponse::error(object.error()));
  std::string compiler;
  KeyParts parts;
  bool cluster = false;
  JsonFields fields(*object, "the body");
  fields.text("compiler", compiler).parts("parts", parts);
  if (const auto* given = fields.member("cluster"); given != nullptr) {
    if (given->is_bool()) {
      cluster = given->get_bool();
    } else {
      fields.fail(Code::kInvalid, "cluster", "is not true or false");
    }
  }
  if (Status ok = fields.done(); !ok.ok()) return call.reply(HttpResponse::error(ok.error()));
  if (service.read_only) {
    return call.reply(HttpResponse::error(
        {Code::kReadOnly, "the store is open for reading only", "ask a daemon that may write"}));
  }
  if (cluster) {
    if (Status may = may_use_cluster_queue(service, call.request); !may.ok()) {
      return call.reply(HttpResponse::error(may.error()));
    }
  }
  std::make_shared<TakeJob>(service, std::move(call), std::move(compiler), std::move(parts),
                            cluster)
      ->run();
}

}  // namespace nc::daemon
