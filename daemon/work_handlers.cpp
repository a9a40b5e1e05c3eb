// Recorded actions and the queue of those that somebody is to build.
#include <algorithm>

#include "base/log.hpp"
#include "base/number.hpp"
#include "cache/json_fields.hpp"
#include "daemon/answers.hpp"
#include "daemon/service.hpp"

namespace nc::daemon {
namespace {

namespace js = boost::json;

constexpr std::size_t kPage = 1000;
// The recording of what was queued with its record.
const std::string kQueueRecording = "queue";

Result<js::object> body_of(const HttpRequest& request) {
  return parse_json_object(request.body, request.body.size(), "the body");
}

// A number of the query, `otherwise` when it is not there.
Result<std::uint64_t> number_of(const HttpRequest& request, const std::string& name,
                                std::uint64_t otherwise) {
  const std::string_view text = request.query(name);
  if (text.empty()) return otherwise;
  if (const auto value = whole_number<std::uint64_t>(text)) return *value;
  return Error{Code::kInvalid, name + " is not a number", "send a whole number"};
}

Result<std::string> recording_name(const std::string& name) {
  if (is_namespace_name(name)) return name;
  return Error{Code::kInvalid, "'" + name.substr(0, 80) + "' cannot name a recording",
               "use up to 64 letters, digits and . _ -"};
}

js::object job_json(const Job& job) {
  return {{"key", job.key.hex()},
          {"number", job.number},
          {"state", std::string(job_state_name(job.state))},
          {"attempts", job.attempts},
          {"label", job.label},
          {"compiler", job.compiler},
          {"class", job.failure_class},
          {"message", job.message},
          {"queued_ms", job.queued_ms},
          {"ended_ms", job.ended_ms}};
}

js::object counts_json(const WorkQueue::Counts& counts) {
  return {{"queued", counts.queued},
          {"building", counts.building},
          {"built", counts.built},
          {"failed", counts.failed}};
}

struct Enqueued {
  std::size_t queued = 0, already = 0, built = 0, lost = 0;
};

Status enqueue(Service& service, const ActionKey& key, const std::string& label,
               const std::string& compiler, Enqueued& sums) {
  NC_ASSIGN(const auto entry, service.store.peek(key));
  if (entry) {
    ++sums.built;
    return {};
  }
  switch (service.work.enqueue(key, label, compiler)) {
    case WorkQueue::Added::kQueued:
      ++sums.queued;
      break;
    case WorkQueue::Added::kAlready:
      ++sums.already;
      break;
    case WorkQueue::Added::kFull:
      return Error{Code::kBusy, "the queue is full",
                   "wait until workers have built some of it, or clear it"};
  }
  return {};
}

Status enqueue_recording(Service& service, const std::string& name, Enqueued& sums) {
  std::optional<ActionKey> after;
  for (;;) {
    NC_ASSIGN(const auto page, service.work.actions(name, after, kPage));
    for (const RecordedAction& action : page) {
      const auto there = service.store.peek(action.key);
      if (!action.lost.empty() && there.ok() && !*there) {
        ++sums.lost;
        continue;
      }
      NC_TRY(enqueue(service, action.key, action.label, action.compiler, sums));
    }
    if (page.size() < kPage) return {};
    after = page.back().key;
  }
}

// Who takes a job builds it: the process at the other end.
Builder builder_of(Service& service, const HttpRequest& request) {
  Builder who;
  who.host = service.host;
  const pid_t pid = request.connection->peer().pid;
  if (pid <= 0) return who;
  if (auto process = service.processes.identify(pid); process.ok()) who.process = *process;
  return who;
}

HttpResponse job_answer(Service& service, const ActionRecord& record, const Lease& lease) {
  const Millis ttl = service.leases.lease_ttl();
  js::error_code ignored;
  HttpResponse response = answer({{"state", "job"},
                                  {"key", record.key.hex()},
                                  {"record", js::parse(record.to_json(), ignored)},
                                  {"lease", lease_json(lease, ttl)}});
  response.undelivered = [&service, id = lease.id] {
    service.pool.post(Lane::kQuick, [&service, id] {
      service.work.given_back(id);
      service.keeper.apply(service.leases.end(id, LeaseTable::End::kReleased));
    });
  };
  return response;
}

bool has_parts(const ActionRecord& record, const KeyParts& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const auto& part) {
    return std::find(record.parts.begin(), record.parts.end(), part) != record.parts.end();
  });
}

// The lease of a queued action, if it is to be had and nothing speaks against building.
Result<std::optional<Lease>> lease_for(Service& service, const HttpRequest& http,
                                       const ActionRecord& record) {
  LeaseTable::Ask ask;
  ask.request.key = record.key;
  ask.request.name_space = record.name_space;
  ask.request.kind = record.kind;
  ask.request.label = record.label;
  ask.request.program = record.program;
  ask.request.compiler = record.compiler;
  ask.request.model = record.model;
  ask.request.parts = record.parts;
  ask.who = builder_of(service, http);
  ask.connection = http.connection->id();
  auto asked = service.leases.ask(std::move(ask));
  service.keeper.apply(asked.effects);
  switch (asked.kind) {
    case LeaseTable::Answer::Kind::kGranted:
      break;
    case LeaseTable::Answer::Kind::kRefused:
      return asked.error;
    case LeaseTable::Answer::Kind::kParked:
    case LeaseTable::Answer::Kind::kBusy:  // somebody builds it without having taken it from here
      service.keeper.apply(service.leases.forget_ticket(asked.progress.ticket));
      return std::optional<Lease>();
  }
  // Published between our look and the grant?
  if (const auto entry = service.store.peek(record.key); entry.ok() && *entry) {
    service.keeper.apply(service.leases.settled(record.key));
    service.work.built(record.key);
    return std::optional<Lease>();
  }
  if (!service.work.take(record.key, asked.lease.id)) {
    service.keeper.apply(service.leases.end(asked.lease.id, LeaseTable::End::kReleased));
    return std::optional<Lease>();
  }
  service.keeper.follow(asked.lease);
  service.store.count(record.name_space, "builds", 1);
  return std::optional(asked.lease);
}

}  // namespace

HttpResponse record_action(Service& service, const HttpRequest& request) {
  auto name = recording_name(request.outer);
  if (!name.ok()) return HttpResponse::error(name.error());
  auto record = ActionRecord::parse(request.body);
  if (!record.ok()) return HttpResponse::error(record.error());
  if (record->key.hex() != request.arg) {
    return HttpResponse::error(
        {Code::kKeyMismatch,
         "the record is of key " + record->key.hex() + ", the path of " + request.arg,
         "send both for the same key"});
  }
  auto fresh = service.work.record(*name, *record);
  if (!fresh.ok()) return HttpResponse::error(fresh.error());
  return answer({{"recorded", *fresh}}, *fresh ? 201 : 200);
}

HttpResponse record_lost(Service& service, const HttpRequest& request) {
  auto name = recording_name(request.outer);
  if (!name.ok()) return HttpResponse::error(name.error());
  auto object = body_of(request);
  if (!object.ok()) return HttpResponse::error(object.error());
  RecordedAction action;
  action.key = *ActionKey::from_hex(request.arg);
  JsonFields fields(*object, "the body");
  fields.require("lost");
  fields.text("label", action.label).text("compiler", action.compiler).text("lost", action.lost);
  if (Status ok = fields.done(); !ok.ok()) return HttpResponse::error(ok.error());
  if (action.lost.empty()) {
    return HttpResponse::error({Code::kInvalid, "the body does not say why the action is lost",
                                "send the reason, or PUT the whole record"});
  }
  return answer({{"noted", service.work.record_lost(*name, std::move(action))}});
}

HttpResponse get_recorded(Service& service, const HttpRequest& request) {
  auto record = service.work.find(*ActionKey::from_hex(request.arg));
  if (!record.ok()) return HttpResponse::error(record.error());
  return HttpResponse::json(record->to_json());
}

HttpResponse list_recordings(Service& service, const HttpRequest&) {
  js::array out;
  for (const auto& one : service.work.recordings()) {
    out.push_back(js::object{{"name", one.name},
                             {"actions", one.actions},
                             {"bytes", one.bytes},
                             {"first_ms", one.first_ms},
                             {"last_ms", one.last_ms}});
  }
  return answer({{"recordings", std::move(out)}});
}

HttpResponse list_recorded(Service& service, const HttpRequest& request) {
  auto limit = number_of(request, "limit", kPage);
  if (!limit.ok()) return HttpResponse::error(limit.error());
  std::optional<ActionKey> after;
  if (const std::string_view text = request.query("after"); !text.empty()) {
    after = ActionKey::from_hex(text);
    if (!after) {
      return HttpResponse::error({Code::kInvalid, "after is not a key", "send `next` as it came"});
    }
  }
  const std::size_t most = std::clamp<std::size_t>(*limit, 1, kPage);
  auto page = service.work.actions(request.arg, after, most);
  if (!page.ok()) return HttpResponse::error(page.error());
  js::array out;
  for (const RecordedAction& one : *page) {
    const auto entry = service.store.peek(one.key);
    out.push_back(js::object{{"key", one.key.hex()},
                             {"label", one.label},
                             {"compiler", one.compiler},
                             {"bytes", one.bytes},
                             {"build_ms", one.build_ms},
                             {"recorded_ms", one.recorded_ms},
                             {"lost", one.lost},
                             {"built", entry.ok() && entry->has_value()}});
  }
  js::value next;
  if (page->size() == most) next = page->back().key.hex();
  return answer({{"actions", std::move(out)}, {"next", std::move(next)}});
}

HttpResponse forget_recording(Service& service, const HttpRequest& request) {
  if (Status ok = service.work.forget(request.arg); !ok.ok()) {
    return HttpResponse::error(ok.error());
  }
  return answer({{"forgotten", true}});
}

HttpResponse enqueue_work(Service& service, const HttpRequest& request) {
  auto object = body_of(request);
  if (!object.ok()) return HttpResponse::error(object.error());
  std::string recording;
  ActionKey key;
  JsonFields fields(*object, "the body");
  fields.text("recording", recording, 64, is_namespace_name).digest("key", key);
  if (Status ok = fields.done(); !ok.ok()) return HttpResponse::error(ok.error());
  const js::value* given = object->if_contains("record");
  const int said =
      (recording.empty() ? 0 : 1) + (object->contains("key") ? 1 : 0) + (given != nullptr ? 1 : 0);
  if (said != 1) {
    return HttpResponse::error({Code::kInvalid, "the body says nothing to queue, or too much",
                                "send one of key, recording, record"});
  }
  Enqueued sums;
  Status done;
  if (!recording.empty()) {
    done = enqueue_recording(service, recording, sums);
  } else {
    auto record =
        given != nullptr ? ActionRecord::parse(js::serialize(*given)) : service.work.find(key);
    if (record.ok() && given != nullptr) {
      auto kept = service.work.record(kQueueRecording, *record);
      if (!kept.ok()) record = std::move(kept).error();
    }
    if (!record.ok()) return HttpResponse::error(record.error());
    done = enqueue(service, record->key, record->label, record->compiler, sums);
  }
  if (!done.ok()) return HttpResponse::error(done.error());
  return answer({{"queued", sums.queued},
                 {"already", sums.already},
                 {"built", sums.built},
                 {"lost", sums.lost}});
}

HttpResponse list_queue(Service& service, const HttpRequest& request) {
  auto limit = number_of(request, "limit", kPage);
  auto after = number_of(request, "after", 0);
  if (!limit.ok()) return HttpResponse::error(limit.error());
  if (!after.ok()) return HttpResponse::error(after.error());
  std::optional<JobState> state;
  if (const std::string_view text = request.query("state"); !text.empty()) {
    state = parse_job_state(text);
    if (!state) {
      return HttpResponse::error(
          {Code::kInvalid, "there is no such state", "ask for queued, building, built or failed"});
    }
  }
  const std::size_t most = std::clamp<std::size_t>(*limit, 1, kPage);
  const auto jobs = service.work.queue().list(state, *after, most);
  js::array out;
  for (const Job& job : jobs) out.push_back(job_json(job));
  js::value next;
  if (jobs.size() == most) next = jobs.back().number;
  return answer({{"counts", counts_json(service.work.queue().counts())},
                 {"jobs", std::move(out)},
                 {"next", std::move(next)}});
}

HttpResponse clear_queue(Service& service, const HttpRequest&) {
  return answer({{"removed", service.work.clear_queue()}});
}

HttpResponse take_work(Service& service, const HttpRequest& request) {
  auto object = body_of(request);
  if (!object.ok()) return HttpResponse::error(object.error());
  std::string compiler;
  KeyParts parts;
  JsonFields fields(*object, "the body");
  fields.text("compiler", compiler).parts("parts", parts);
  if (Status ok = fields.done(); !ok.ok()) return HttpResponse::error(ok.error());
  if (service.read_only) {
    return HttpResponse::error(
        {Code::kReadOnly, "the store is open for reading only", "ask a daemon that may write"});
  }
  for (const Job& job : service.work.queue().next(WorkQueue::kMaxJobs)) {
    if (job.compiler.find(compiler) == std::string::npos) continue;
    const auto entry = service.store.peek(job.key);
    if (entry.ok() && *entry) {
      service.work.built(job.key);
      continue;
    }
    if (const auto failure = service.store.failure(job.key); failure.ok() && *failure) {
      service.work.failed(job.key, (*failure)->failure_class, (*failure)->message);
      continue;
    }
    auto record = service.work.find(job.key);
    if (!record.ok()) {
      service.work.failed(job.key, FailureClass::kUncacheable, record.error().message);
      continue;
    }
    if (!has_parts(*record, parts)) continue;
    auto lease = lease_for(service, request, *record);
    if (!lease.ok()) return HttpResponse::error(lease.error());
    if (*lease) return job_answer(service, *record, **lease);
  }
  return answer({{"state", "empty"}, {"counts", counts_json(service.work.queue().counts())}});
}

}  // namespace nc::daemon
