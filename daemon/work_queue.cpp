#include "daemon/work_queue.hpp"

#include <algorithm>
#include <array>

#include <boost/json.hpp>

#include "cache/json_fields.hpp"

namespace nc::daemon {
namespace {

namespace js = boost::json;

constexpr int kVersion = 1;
constexpr std::size_t kMaxRecord = 16 << 10;
constexpr std::array<std::string_view, 4> kNames = {"queued", "building", "built", "failed"};

std::string cut(std::string_view text) {
  return std::string(text.substr(0, JsonFields::kMaxText));
}

}  // namespace

std::string_view job_state_name(JobState state) {
  return kNames[static_cast<std::size_t>(state)];
}

std::optional<JobState> parse_job_state(std::string_view name) {
  const auto it = std::find(kNames.begin(), kNames.end(), name);
  if (it == kNames.end()) return std::nullopt;
  return static_cast<JobState>(it - kNames.begin());
}

// ---- Records ----

std::string Job::encode() const {
  return js::serialize(js::object{{"v", kVersion},
                                  {"key", key.hex()},
                                  {"number", number},
                                  {"state", std::string(job_state_name(state))},
                                  {"attempts", attempts},
                                  {"label", label},
                                  {"compiler", compiler},
                                  {"class", failure_class},
                                  {"message", message},
                                  {"queued_ms", queued_ms},
                                  {"ended_ms", ended_ms}});
}

std::optional<Job> Job::decode(std::string_view text) {
  const auto object = parse_json_object(text, kMaxRecord, "the record");
  if (!object.ok()) return std::nullopt;
  Job job;
  int version = 0;
  std::string state;
  JsonFields fields(*object, "the record");
  fields.require("key").require("number").require("state");
  fields.integer("v", version, 1, 1000)
      .digest("key", job.key)
      .integer("number", job.number, 1, JsonFields::kMaxInteger)
      .text("state", state)
      .integer("attempts", job.attempts, 0, 1000)
      .text("label", job.label)
      .text("compiler", job.compiler)
      .text("class", job.failure_class)
      .text("message", job.message)
      .integer("queued_ms", job.queued_ms, 0, JsonFields::kMaxInteger)
      .integer("ended_ms", job.ended_ms, 0, JsonFields::kMaxInteger);
  const auto parsed = parse_job_state(state);
  if (!fields.done().ok() || version != kVersion || !parsed) return std::nullopt;
  job.state = *parsed;
  return job;
}

// ---- The queue ----

WorkQueue::Added WorkQueue::add(const ActionKey& key, std::string label, std::string compiler,
                                Changes& changes) {
  MutexLock lock(mutex_);
  if (auto it = jobs_.find(key); it != jobs_.end()) {
    const JobState state = it->second.state;
    if (state == JobState::kQueued || state == JobState::kBuilding) return Added::kAlready;
    order_.erase(it->second.number);
    jobs_.erase(it);
  }
  if (jobs_.size() >= kMaxJobs && !make_room(changes)) return Added::kFull;
  Job job;
  job.key = key;
  job.number = ++last_number_;
  job.label = cut(label);
  job.compiler = cut(compiler);
  job.queued_ms = clock_.wall_ms();
  order_[job.number] = key;
  put(jobs_[key] = std::move(job), changes);
  return Added::kQueued;
}

std::vector<Job> WorkQueue::next(std::size_t most) const {
  return list(JobState::kQueued, 0, most);
}

bool WorkQueue::take(const ActionKey& key, const std::string& lease, Changes& changes) {
  MutexLock lock(mutex_);
  const auto it = jobs_.find(key);
  if (it == jobs_.end() || it->second.state != JobState::kQueued) return false;
  Job& job = it->second;
  job.state = JobState::kBuilding;
  job.lease = lease;
  ++job.attempts;
  leases_[lease] = key;
  put(job, changes);
  return true;
}

void WorkQueue::built(const ActionKey& key, Changes& changes) {
  MutexLock lock(mutex_);
  const auto it = jobs_.find(key);
  if (it == jobs_.end() || it->second.state == JobState::kBuilt) return;
  end(it->second, JobState::kBuilt);
  put(it->second, changes);
}

void WorkQueue::failed(const ActionKey& key, std::string_view failure_class,
                       std::string_view message, bool again, Changes& changes) {
  MutexLock lock(mutex_);
  const auto it = jobs_.find(key);
  if (it == jobs_.end() || it->second.state == JobState::kBuilt) return;
  Job& job = it->second;
  if (again) {
    if (job.state != JobState::kBuilding) return;  // somebody else's bad luck
    back(job, failure_class, message);
  } else {
    job.failure_class = cut(failure_class);
    job.message = cut(message);
    end(job, JobState::kFailed);
  }
  put(job, changes);
}

void WorkQueue::lease_ended(const std::string& lease, Changes& changes) {
  MutexLock lock(mutex_);
  const auto at = leases_.find(lease);
  if (at == leases_.end()) return;
  Job& job = jobs_.at(at->second);
  back(job, "killed", "its builder died");
  put(job, changes);
}

void WorkQueue::given_back(const std::string& lease, Changes& changes) {
  MutexLock lock(mutex_);
  const auto at = leases_.find(lease);
  if (at == leases_.end()) return;
  Job& job = jobs_.at(at->second);
  if (job.attempts > 0) --job.attempts;
  back(job, "", "");
  put(job, changes);
}

std::size_t WorkQueue::clear(Changes& changes) {
  MutexLock lock(mutex_);
  std::size_t removed = 0;
  for (auto it = jobs_.begin(); it != jobs_.end();) {
    const auto at = it++;
    if (at->second.state != JobState::kQueued) continue;
    remove(at, changes);
    ++removed;
  }
  return removed;
}

void WorkQueue::forget_old(Changes& changes) {
  MutexLock lock(mutex_);
  const Millis now = clock_.wall_ms();
  for (auto it = jobs_.begin(); it != jobs_.end();) {
    const auto at = it++;
    const Millis ended = at->second.ended_ms;
    if (ended > 0 && ended + kKeepMs <= now) remove(at, changes);
  }
}

void WorkQueue::restore(Job job, std::optional<std::string> lease) {
  MutexLock lock(mutex_);
  if (jobs_.size() >= kMaxJobs || jobs_.contains(job.key) || order_.contains(job.number)) return;
  job.lease.clear();
  if (job.state == JobState::kBuilding) {
    if (lease) {
      job.lease = *lease;
      leases_[*lease] = job.key;
    } else {
      job.state = JobState::kQueued;
    }
  }
  last_number_ = std::max(last_number_, job.number);
  order_[job.number] = job.key;
  const ActionKey key = job.key;
  jobs_[key] = std::move(job);
}

WorkQueue::Counts WorkQueue::counts() const {
  MutexLock lock(mutex_);
  Counts counts;
  for (const auto& [key, job] : jobs_) {
    switch (job.state) {
      case JobState::kQueued:
        ++counts.queued;
        break;
      case JobState::kBuilding:
        ++counts.building;
        break;
      case JobState::kBuilt:
        ++counts.built;
        break;
      case JobState::kFailed:
        ++counts.failed;
        break;
    }
  }
  return counts;
}

std::vector<Job> WorkQueue::list(std::optional<JobState> state, std::uint64_t after,
                                 std::size_t limit) const {
  MutexLock lock(mutex_);
  std::vector<Job> out;
  for (auto it = order_.upper_bound(after); it != order_.end() && out.size() < limit; ++it) {
    const Job& job = jobs_.at(it->second);
    if (!state || job.state == *state) out.push_back(job);
  }
  return out;
}

// ---- Inside ----

void WorkQueue::put(Job& job, Changes& changes) {
  changes.emplace_back(job.key.hex(), job.encode());
}

void WorkQueue::back(Job& job, std::string_view failure_class, std::string_view message) {
  job.failure_class = cut(failure_class);
  job.message = cut(message);
  if (job.attempts >= kMaxAttempts) return end(job, JobState::kFailed);
  leases_.erase(job.lease);
  job.lease.clear();
  job.state = JobState::kQueued;
}

void WorkQueue::end(Job& job, JobState state) {
  leases_.erase(job.lease);
  job.lease.clear();
  job.state = state;
  job.ended_ms = std::max<Millis>(clock_.wall_ms(), 1);
  if (state == JobState::kBuilt) {
    job.failure_class.clear();
    job.message.clear();
  }
}

void WorkQueue::remove(Jobs::iterator at, Changes& changes) {
  changes.emplace_back(at->first.hex(), std::nullopt);
  order_.erase(at->second.number);
  leases_.erase(at->second.lease);
  jobs_.erase(at);
}

// The oldest of those that ended goes.
bool WorkQueue::make_room(Changes& changes) {
  for (const auto& [number, key] : order_) {
    const auto at = jobs_.find(key);
    if (at->second.ended_ms == 0) continue;
    remove(at, changes);
    return true;
  }
  return false;
}

}  // namespace nc::daemon
