// Recorded actions and the queue of those that somebody is to build.
#include <algorithm>

#include "cache/json_fields.hpp"
#include "daemon/answers.hpp"
#include "daemon/paging.hpp"
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

Result<std::vector<ChosenAction>> of_recording(Service& service, const std::string& name) {
  std::vector<ChosenAction> chosen;
  std::optional<ActionKey> after;
  for (;;) {
    NC_ASSIGN(const auto page, service.work.actions(name, after, kPage));
    for (const RecordedAction& action : page) {
      const auto there = service.store.peek(action.key);
      const bool lost = !action.lost.empty() && there.ok() && !*there;
      chosen.push_back({action.key, action.label, action.compiler, lost});
    }
    if (page.size() < kPage) return chosen;
    after = page.back().key;
  }
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
  const auto limit = page_limit(request, kPage);
  if (!limit.ok()) return HttpResponse::error(limit.error());
  const auto after = page_after(request);
  if (!after.ok()) return HttpResponse::error(after.error());
  auto page = service.work.actions(request.arg, *after, *limit);
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
  if (page->size() == *limit) next = page->back().key.hex();
  return answer({{"actions", std::move(out)}, {"next", std::move(next)}});
}

HttpResponse forget_recording(Service& service, const HttpRequest& request) {
  if (Status ok = service.work.forget(request.arg); !ok.ok()) {
    return HttpResponse::error(ok.error());
  }
  return answer({{"forgotten", true}});
}

Result<std::vector<ChosenAction>> chosen_actions(Service& service, const HttpRequest& request) {
  NC_ASSIGN(const auto object, body_of(request));
  std::string recording;
  ActionKey key;
  JsonFields fields(object, "the body");
  fields.text("recording", recording, 64, is_namespace_name).digest("key", key);
  NC_TRY(fields.done());
  const js::value* given = object.if_contains("record");
  const int said =
      (recording.empty() ? 0 : 1) + (object.contains("key") ? 1 : 0) + (given != nullptr ? 1 : 0);
  if (said != 1) {
    return Error{Code::kInvalid, "the body says nothing to queue, or too much",
                 "send one of key, recording, record"};
  }
  if (!recording.empty()) return of_recording(service, recording);
  NC_ASSIGN(const ActionRecord record,
            given != nullptr ? ActionRecord::parse(js::serialize(*given)) : service.work.find(key));
  if (given != nullptr) {
    if (auto kept = service.work.record(kQueueRecording, record); !kept.ok()) {
      return std::move(kept).error();
    }
  }
  return std::vector<ChosenAction>{{record.key, record.label, record.compiler}};
}

HttpResponse enqueue_work(Service& service, const HttpRequest& request) {
  const auto chosen = chosen_actions(service, request);
  if (!chosen.ok()) return HttpResponse::error(chosen.error());
  Enqueued sums;
  for (const ChosenAction& action : *chosen) {
    if (action.lost) {
      ++sums.lost;
      continue;
    }
    const auto entry = service.store.peek(action.key);
    if (!entry.ok()) return HttpResponse::error(entry.error());
    if (*entry) {
      ++sums.built;
      continue;
    }
    switch (service.work.enqueue(action.key, action.label, action.compiler)) {
      case WorkQueue::Added::kQueued:
        ++sums.queued;
        break;
      case WorkQueue::Added::kAlready:
        ++sums.already;
        break;
      case WorkQueue::Added::kFull:
        return HttpResponse::error({Code::kBusy, "the queue is full",
                                    "wait until workers have built some of it, or clear it"});
    }
  }
  return enqueued_answer(sums);
}

HttpResponse list_queue(Service& service, const HttpRequest& request) {
  const auto limit = page_limit(request, kPage);
  const auto after = query_number(request, "after", 0);
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
  const auto jobs = service.work.queue().list(state, *after, *limit);
  js::array out;
  for (const Job& job : jobs) out.push_back(job_json(job));
  js::value next;
  if (jobs.size() == *limit) next = jobs.back().number;
  return answer({{"counts", counts_json(service.work.queue().counts())},
                 {"jobs", std::move(out)},
                 {"next", std::move(next)}});
}

HttpResponse clear_queue(Service& service, const HttpRequest&) {
  return answer({{"removed", service.work.clear_queue()}});
}

}  // namespace nc::daemon
