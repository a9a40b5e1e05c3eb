#include "cache/tier/job_queue.hpp"

#include <algorithm>

#include "cache/tier/layout.hpp"

namespace nc::tier {
namespace {

constexpr std::string_view kFailed = ".failed";
constexpr std::string_view kTried = ".tried";

std::string job_name(const ActionKey& key) {
  return queue_name(key.hex());
}

std::string note_name(const ActionKey& key, std::string_view kind) {
  return queue_name(key.hex() + std::string(kind));
}

}  // namespace

std::optional<ActionKey> parse_job(std::string_view name) {
  const auto id = parse_queue(name);
  return id ? ActionKey::from_hex(*id) : std::nullopt;
}

Result<std::vector<JobQueue::Listed>> JobQueue::list() {
  std::vector<Listed> jobs;
  // A job's notes come right after it.
  Status done = each_object(engine_, kQueue, [&](const ObjectInfo& object) -> Status {
    if (const auto key = parse_job(object.name)) {
      if (jobs.size() >= kMaxJobs) return Error{Code::kTooLarge, "", ""};
      jobs.push_back({*key});
    } else if (!jobs.empty()) {
      Listed& last = jobs.back();
      last.failed = last.failed || object.name == note_name(last.key, kFailed);
      last.tried = last.tried || object.name == note_name(last.key, kTried);
    }
    return {};
  });
  if (!done.ok() && jobs.size() < kMaxJobs) return std::move(done).error();
  return jobs;
}

Result<bool> JobQueue::exists(const std::string& name) {
  const auto info = engine_.head(name);
  if (info.is(Code::kNotFound)) return false;
  if (!info.ok()) return info.error();
  return true;
}

Result<bool> JobQueue::there(const ActionKey& key) {
  return exists(job_name(key));
}

Result<JobQueue::Added> JobQueue::add(const ActionKey& key, const ActionKey& entry) {
  NC_ASSIGN(const bool had_failed, exists(note_name(key, kFailed)));
  NC_ASSIGN(const bool known, there(key));
  if (had_failed || !known) {
    NC_TRY(engine_.remove(note_name(key, kTried)));
    NC_TRY(engine_.remove(note_name(key, kFailed)));
  }
  NC_ASSIGN(const auto sent, transfer_.send_as(link_, entry, job_name(key)));
  switch (sent) {
    case Transfer::Sent::kSent:
      break;
    case Transfer::Sent::kKnown:
      return had_failed ? Added::kQueued : Added::kAlready;
    case Transfer::Sent::kGone:
      return Error{Code::kNotFound, "no action is recorded for key " + key.hex(), "record it"};
    case Transfer::Sent::kCrowded:
      return Error{Code::kConflict, "another job is in the place of that of " + key.hex(),
                   "clear the queue of the host that put it there"};
    case Transfer::Sent::kUnsigned:
      return Error{Code::kDenied,
                   "this host may not queue builds of that namespace: it cannot sign them",
                   "make a key with `neuroncache keys init`, and have the other hosts trust it"};
  }
  return Added::kQueued;
}

Result<Manifest> JobQueue::job(const ActionKey& key, const ActionKey& entry, bool* refused) {
  NC_ASSIGN(const auto text, engine_.get(job_name(key), Manifest::kMaxBytes));
  Transfer::Blame blame;
  auto believed = transfer_.believe(link_, entry, text, blame);
  if (refused != nullptr) *refused = !believed.ok();
  return believed;
}

Status JobQueue::bring(const Manifest& job, const Progress& progress) {
  Transfer::Blame blame;
  return transfer_.fetch(link_, job, progress, blame);
}

Result<JobNote> JobQueue::note(const ActionKey& key, bool failed) {
  const auto text = engine_.get(note_name(key, failed ? kFailed : kTried), JobNote::kMaxBytes);
  if (!text.ok() && sick(text.error())) return text.error();
  auto note = text.ok() ? JobNote::parse(*text) : Result<JobNote>(text.error());
  if (note.ok()) return note;
  JobNote none;
  none.state = failed ? JobNote::State::kFailed : JobNote::State::kAgain;
  return none;
}

Result<bool> JobQueue::begin(const ActionKey& key, const std::string& host,
                             const std::string& compiler) {
  // What failed for good since the queue was listed is not tried by each host in turn.
  NC_ASSIGN(const bool ended, exists(note_name(key, kFailed)));
  if (ended) return false;
  NC_ASSIGN(JobNote note, this->note(key, false));
  if (note.attempts >= kMaxAttempts) {
    if (note.state == JobNote::State::kBuilding) {
      note.failure_class = "killed";
      note.message = "its builder died, the last time on " + note.host;
    }
    NC_TRY(fail(key, std::move(note)));
    return false;
  }
  ++note.attempts;
  note.state = JobNote::State::kBuilding;
  note.host = host;
  note.compiler = compiler;
  NC_TRY(put(note_name(key, kTried), note));
  return true;
}

Status JobQueue::given_back(const ActionKey& key) {
  NC_ASSIGN(JobNote note, this->note(key, false));
  note.attempts = note.attempts > 0 ? note.attempts - 1 : 0;
  note.state = JobNote::State::kAgain;
  if (note.attempts == 0) return engine_.remove(note_name(key, kTried));
  return put(note_name(key, kTried), note);
}

Status JobQueue::failed(const ActionKey& key, JobNote why, bool again) {
  NC_ASSIGN(const JobNote before, note(key, false));
  why.attempts = std::max(before.attempts, 1U);
  if (!again || why.attempts >= kMaxAttempts) return fail(key, std::move(why));
  why.state = JobNote::State::kAgain;
  return put(note_name(key, kTried), why);
}

Status JobQueue::remove(const ActionKey& key) {
  NC_TRY(engine_.remove(note_name(key, kTried)));
  NC_TRY(engine_.remove(note_name(key, kFailed)));
  return engine_.remove(job_name(key));
}

Status JobQueue::put(const std::string& name, const JobNote& note) {
  const auto text = note.to_text();
  return engine_.put(name, as_bytes(text));
}

Status JobQueue::fail(const ActionKey& key, JobNote note) {
  note.state = JobNote::State::kFailed;
  NC_TRY(put(note_name(key, kFailed), note));
  return engine_.remove(note_name(key, kTried));
}

}  // namespace nc::tier
