#include "daemon/cluster_jobs.hpp"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "base/log.hpp"
#include "cache/tier/layout.hpp"
#include "daemon/cluster_door.hpp"
#include "daemon/service.hpp"
#include "daemon/startup.hpp"

namespace nc::daemon {
namespace {

constexpr Millis kPutOffMs = 5 * 60'000;  // what cannot be used is not looked at again for so long
constexpr Millis kLeastLookMs = 500;
constexpr Millis kMostLookMs = 10'000;
constexpr Millis kLooksInPeriod = 6;

bool is_compiler_part(std::string_view name) {
  return name == "compiler" || name.starts_with("compiler.");
}

KeyParts compiler_parts_of(const KeyParts& parts) {
  KeyParts out;
  std::ranges::copy_if(parts, std::back_inserter(out),
                       [](const auto& part) { return is_compiler_part(part.first); });
  return out;
}

// The action, if it is all that was signed: the signature is over the manifest, and so the record
// must say nothing else.
Result<ActionRecord> action_of(const Manifest& job, const ActionKey& key) {
  NC_ASSIGN(ActionRecord action, ActionRecord::from_entry(job));
  if (action.key == key && action.name_space == job.name_space && action.inputs == job.outputs) {
    return action;
  }
  return Error{Code::kKeyMismatch, "the job is not what its name says", ""};
}

}  // namespace

ClusterJobs::ClusterJobs(Deps deps, Options options)
    : deps_(deps),
      options_(std::move(options)),
      queue_(deps_.link.told(), deps_.link, deps_.chain.transfer()),
      origin_(Sha256::of(as_bytes(options_.host + deps_.random.hex_id()))) {}

// ---- What is known of the queue ----

Result<std::vector<tier::JobQueue::Listed>> ClusterJobs::listed(Millis at_most_ms) {
  const Millis now = deps_.clock.monotonic_ms();
  {
    MutexLock lock(mutex_);
    if (jobs_at_ && now - *jobs_at_ < at_most_ms) return jobs_;
  }
  if (!deps_.link.reading().may_call()) {
    return Error{Code::kUnavailable, "the tier " + tier() + " fails",
                 "see `neuroncache tiers`; it is asked again by itself"};
  }
  auto jobs = queue_.list();
  if (!jobs.ok()) {
    ++counters_.errors;
    return jobs;
  }
  MutexLock lock(mutex_);
  jobs_ = *jobs;
  jobs_at_ = now;
  std::set<ActionKey> there;
  for (const auto& job : jobs_) there.insert(job.key);
  std::erase_if(known_, [&](const auto& item) { return !there.contains(item.first); });
  std::erase_if(put_off_, [&](const auto& item) { return item.second.until_ms <= now; });
  return jobs;
}

Result<ActionRecord> ClusterJobs::read(const ActionKey& key) {
  bool refused = false;
  auto job = queue_.job(key, ActionRecord::entry_key(key), &refused);
  auto action = job.ok() ? action_of(*job, key) : Result<ActionRecord>(job.error());
  if (!action.ok()) {
    if (job.ok() || refused) {
      ++counters_.refused;
      put_off(key, action.error().text());
      log::warn("cluster", "the queued build {} in {} is not taken: {}", key.hex().substr(0, 12),
                tier(), action.error().text());
    } else if (!action.is(Code::kNotFound)) {
      ++counters_.errors;
    }
    return action;
  }
  MutexLock lock(mutex_);
  known_[key] = {action->label, action->compiler, compiler_parts_of(action->parts)};
  return action;
}

void ClusterJobs::put_off(const ActionKey& key, std::string why) {
  MutexLock lock(mutex_);
  put_off_[key] = {deps_.clock.monotonic_ms() + kPutOffMs, std::move(why)};
}

Result<ClusterJobs::Known> ClusterJobs::known(const ActionKey& key) {
  {
    MutexLock lock(mutex_);
    if (const auto at = put_off_.find(key); at != put_off_.end()) {
      return Error{Code::kDenied, at->second.why, ""};
    }
    if (const auto at = known_.find(key); at != known_.end()) return at->second;
  }
  NC_ASSIGN(const auto action, read(key));
  return Known{action.label, action.compiler, compiler_parts_of(action.parts)};
}

void ClusterJobs::forget(const ActionKey& key) {
  MutexLock lock(mutex_);
  std::erase_if(jobs_, [&](const auto& job) { return job.key == key; });
  built_.erase(key);
  known_.erase(key);
}

// ---- For people ----

Result<ClusterJobs::Added> ClusterJobs::add(const ActionKey& action) {
  NC_ASSIGN(const auto jobs, listed(options_.look_ms));
  if (jobs.size() >= tier::JobQueue::kMaxJobs) {
    return Error{Code::kBusy, "the cluster's queue in " + tier() + " is full",
                 "wait until workers have built some of it, or clear it"};
  }
  tier::Transfer::Blame blame;
  if (deps_.chain.transfer().read_entry(deps_.link, action, blame).ok()) return Added::kBuilt;
  NC_ASSIGN(const auto added, queue_.add(action, ActionRecord::entry_key(action)));
  const bool fresh = added == tier::JobQueue::Added::kQueued;
  if (fresh) ++counters_.added;
  MutexLock lock(mutex_);
  put_off_.erase(action);
  const auto at = std::ranges::lower_bound(jobs_, action, {}, &tier::JobQueue::Listed::key);
  if (at == jobs_.end() || at->key != action) {
    jobs_.insert(at, {action});
  } else if (fresh) {
    at->failed = at->tried = false;
  }
  return fresh ? Added::kQueued : Added::kAlready;
}

Result<ClusterJobs::Page> ClusterJobs::page(const std::optional<ActionKey>& after,
                                            std::size_t limit) {
  NC_ASSIGN(const auto jobs, listed(std::min(options_.look_ms, kLeastLookMs)));
  Page page;
  for (const auto& job : jobs) {
    ++(job.failed ? page.counts.failed : job.tried ? page.counts.building : page.counts.queued);
    if ((after && job.key <= *after) || page.jobs.size() >= limit) continue;
    Shown shown;
    shown.key = job.key;
    shown.state = job.failed ? "failed" : "queued";
    if (job.failed || job.tried) {
      NC_ASSIGN(shown.note, queue_.note(job.key, job.failed));
      if (shown.note.state == tier::JobNote::State::kBuilding) shown.state = "building";
    }
    const auto action = known(job.key);
    if (action.ok()) {
      shown.label = action->label;
      shown.compiler = action->compiler;
    } else if (action.is(Code::kNotFound)) {
      continue;  // done meanwhile
    } else {
      shown.problem = action.error().text();
    }
    page.jobs.push_back(std::move(shown));
    if (page.jobs.size() == limit) page.next = job.key;
  }
  return page;
}

Result<std::size_t> ClusterJobs::clear(bool failed, bool dry_run) {
  NC_ASSIGN(const auto jobs, listed(0));
  std::size_t removed = 0;
  for (const auto& job : jobs) {
    if (failed ? !job.failed : job.failed || job.tried) continue;
    ++removed;
    if (dry_run) continue;
    NC_TRY(queue_.remove(job.key));
    forget(job.key);
  }
  return removed;
}

// ---- For workers ----

Result<std::vector<ActionKey>> ClusterJobs::candidates() {
  NC_ASSIGN(const auto all, listed(options_.look_ms));
  std::vector<tier::JobQueue::Listed> jobs;
  {
    MutexLock lock(mutex_);
    for (const auto& job : all) {
      if (!job.failed && !put_off_.contains(job.key) && !built_.contains(job.key))
        jobs.push_back(job);
    }
  }
  // Each host begins elsewhere, and with what nobody has begun: so few hosts want the same.
  std::ranges::sort(
      jobs, {}, [&](const auto& job) { return std::tuple(job.tried, job.key < origin_, job.key); });
  std::vector<ActionKey> keys;
  keys.reserve(jobs.size());
  for (const auto& job : jobs) keys.push_back(job.key);
  return keys;
}

std::optional<ActionRecord> ClusterJobs::offer(const ActionKey& key, std::string_view compiler,
                                               const KeyParts& parts) {
  {
    MutexLock lock(mutex_);
    if (const auto known = known_.find(key); known != known_.end()) {
      const bool fits = known->second.compiler.find(compiler) != std::string::npos &&
                        has_parts(known->second.compiler_parts, compiler_parts_of(parts));
      if (!fits) return std::nullopt;
    }
  }
  auto action = read(key);
  if (!action.ok()) {
    if (action.is(Code::kNotFound)) forget(key);
    return std::nullopt;
  }
  if (action->compiler.find(compiler) == std::string::npos || !has_parts(action->parts, parts)) {
    return std::nullopt;
  }
  return *std::move(action);
}

Result<bool> ClusterJobs::begin(const ActionRecord& job, const std::string& lease,
                                const tier::Progress& progress) {
  // Read once more now that nobody else may end it.
  const ActionKey entry = ActionRecord::entry_key(job.key);
  auto manifest = queue_.job(job.key, entry);
  if (manifest.is(Code::kNotFound)) {
    forget(job.key);
    return false;
  }
  if (!manifest.ok()) return std::move(manifest).error();
  auto hold = deps_.store.hold(entry);
  NC_ASSIGN(const bool begun, queue_.begin(job.key, options_.host, job.compiler));
  {
    MutexLock lock(mutex_);
    for (auto& listed : jobs_) {
      if (listed.key == job.key) (begun ? listed.tried : listed.failed) = true;
    }
  }
  if (!begun) {
    ++counters_.failed;
    return false;
  }
  if (Status came = queue_.bring(*manifest, progress); !came.ok()) {
    put_off(job.key, came.error().text());
    Failure why;
    why.failure_class = FailureClass::kEnvironment;
    why.message = "its inputs did not come: " + came.error().text();
    told(job.key, queue_.failed(job.key, note_of(why, job.compiler), true));
    return false;
  }
  MutexLock lock(mutex_);
  ++counters_.taken;
  taken_[lease] = {job.key, job.compiler, std::move(hold)};
  return true;
}

bool ClusterJobs::holds(const std::string& lease) const {
  MutexLock lock(mutex_);
  return taken_.contains(lease);
}

std::optional<ClusterJobs::Taken> ClusterJobs::release(const std::string& lease) {
  MutexLock lock(mutex_);
  auto node = taken_.extract(lease);
  if (node.empty()) return std::nullopt;
  return std::move(node.mapped());
}

tier::JobNote ClusterJobs::note_of(const Failure& failure, const std::string& compiler) const {
  tier::JobNote note;
  note.host = options_.host;
  note.compiler = compiler;
  note.failure_class = failure_class_name(failure.failure_class);
  note.message = failure.message;
  note.log = failure.log;
  return note;
}

void ClusterJobs::told(const ActionKey& key, const Status& status) {
  if (status.ok()) return;
  ++counters_.errors;
  log::warn("cluster", "the queue in {} was not told how {} went: {}", tier(),
            key.hex().substr(0, 12), status.error().text());
}

void ClusterJobs::failed(const std::string& lease, const Failure& failure) {
  const auto taken = release(lease);
  if (!taken) return;
  ++counters_.failed;
  const bool again = !remembered(failure.failure_class);
  told(taken->key, queue_.failed(taken->key, note_of(failure, taken->compiler), again));
  MutexLock lock(mutex_);
  jobs_at_.reset();
}

void ClusterJobs::known_failure(const ActionKey& key, const Failure& failure) {
  ++counters_.failed;
  told(key, queue_.failed(key, note_of(failure, failure.compiler), false));
  MutexLock lock(mutex_);
  jobs_at_.reset();
}

void ClusterJobs::given_back(const std::string& lease) {
  const auto taken = release(lease);
  if (!taken) return;
  told(taken->key, queue_.given_back(taken->key));
  MutexLock lock(mutex_);
  jobs_at_.reset();
}

void ClusterJobs::lease_ended(const std::string& lease) {
  // Unless its end was told, whoever takes it next finds that it was begun and not finished.
  release(lease);
}

// ---- What was built ----

void ClusterJobs::built(const ActionKey& key) {
  MutexLock lock(mutex_);
  const bool ours =
      std::ranges::any_of(taken_, [&](const auto& item) { return item.second.key == key; });
  const auto at = std::ranges::lower_bound(jobs_, key, {}, &tier::JobQueue::Listed::key);
  if (ours || (at != jobs_.end() && at->key == key)) built_.insert(key);
}

bool ClusterJobs::unsettled() const {
  MutexLock lock(mutex_);
  return !built_.empty();
}

void ClusterJobs::settle() {
  std::set<ActionKey> built;
  {
    MutexLock lock(mutex_);
    built = built_;
  }
  for (const ActionKey& key : built) {
    if (!deps_.link.writing().may_call()) return;
    if (deps_.chain.pending(key, deps_.link)) continue;
    const auto there = deps_.link.told().head(tier::entry_name(key));
    if (there.ok()) {
      if (Status gone = queue_.remove(key); !gone.ok()) {
        told(key, gone);
        return;
      }
      ++counters_.removed;
      forget(key);
    } else if (there.is(Code::kNotFound)) {
      // Nobody else can have it: it is for another host to build.
      tier::JobNote note;
      note.host = options_.host;
      note.failure_class = "environment";
      note.message =
          "it was built on " + options_.host + ", and its entry did not get into the tier";
      put_off(key, note.message);
      told(key, queue_.failed(key, std::move(note), true));
      MutexLock lock(mutex_);
      built_.erase(key);
      jobs_at_.reset();
    }
  }
}

std::unique_ptr<ClusterJobs> open_cluster_jobs(Service& service, const Settings& settings) {
  if (!service.cluster || !service.tiers.any()) return nullptr;
  auto link = service.tiers.chain().link(service.cluster->view().tier);
  if (!link.ok()) return nullptr;
  const auto can = (*link)->engine().capabilities();
  if (!can.list || !can.remove) return nullptr;
  ClusterJobs::Options options;
  options.host = service.host;
  options.look_ms = std::clamp(millis(settings, "cluster_lease_period") / kLooksInPeriod,
                               kLeastLookMs, kMostLookMs);
  auto jobs =
      std::make_unique<ClusterJobs>(ClusterJobs::Deps{service.tiers.chain(), **link, service.store,
                                                      service.clock, system_random()},
                                    std::move(options));
  service.keeper.add_follower(*jobs);
  return jobs;
}

}  // namespace nc::daemon
