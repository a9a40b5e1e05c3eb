#include "daemon/admission.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace nc::daemon {
namespace {

constexpr Millis kLookAgainMs = 500;  // looking at all processes costs milliseconds
constexpr Millis kTryAgainMs = 1'000;
constexpr std::uint64_t kSharePercent = 80;

}  // namespace

AdmissionQueue::Answer AdmissionQueue::ask(const std::string& lease, std::int64_t pid,
                                           const Demand& demand, Millis wait_ms, Wake wake,
                                           Wakes& wakes) {
  MutexLock lock(mutex_);
  Answer answer;
  if (auto it = running_.find(lease); it != running_.end()) {
    const Demand& has = it->second.demand;
    const bool enough = demand.bytes <= has.bytes && (has.alone || !demand.alone);
    if (enough) return admitted_answer(it->second);
    stop(it);
    line_.push_front({lease, demand, pid, clock_.monotonic_ms(), 0, nullptr, 0});
  }
  auto at = find(lease);
  const bool joined = at == line_.end();
  if (joined) {
    if (line_.size() >= kMaxWaiting) return answer;
    at = line_.insert(line_.end(), {lease, demand, pid, clock_.monotonic_ms(), 0, nullptr, 0});
  } else {
    unpark(at, wakes);  // asked again elsewhere: the older request is answered now
    at->demand = demand;
    at->pid = pid;
  }
  pump(wakes);
  if (auto it = running_.find(lease); it != running_.end()) return admitted_answer(it->second);
  at = find(lease);
  answer = waiting_answer(at);
  answer.joined = joined;
  if (wait_ms > 0 && !draining_) {
    at->wake = std::move(wake);
    at->deadline = clock_.monotonic_ms() + wait_ms;
    answer.kind = Answer::Kind::kParked;
  }
  return answer;
}

void AdmissionQueue::adopt(const std::string& lease, std::int64_t pid, const Demand& demand) {
  MutexLock lock(mutex_);
  if (running_.contains(lease)) return;
  if (auto at = find(lease); at != line_.end()) return;  // it asked, and so does not run yet
  start(lease, pid, demand);
}

AdmissionQueue::Wakes AdmissionQueue::release(const std::string& lease) {
  MutexLock lock(mutex_);
  Wakes wakes;
  if (auto at = find(lease); at != line_.end()) {
    unpark(at, wakes);
    line_.erase(at);
  } else if (auto it = running_.find(lease); it != running_.end()) {
    stop(it);
  } else {
    return wakes;
  }
  pump(wakes);
  return wakes;
}

AdmissionQueue::Wakes AdmissionQueue::set_limits(Limits limits) {
  MutexLock lock(mutex_);
  Wakes wakes;
  limits_ = limits;
  limits_.cores = std::max(limits_.cores, 1U);
  pump(wakes);
  return wakes;
}

AdmissionQueue::Wakes AdmissionQueue::tick() {
  MutexLock lock(mutex_);
  Wakes wakes;
  pump(wakes);
  const Millis now = clock_.monotonic_ms();
  for (auto at = line_.begin(); at != line_.end(); ++at) {
    if (at->wake && at->deadline <= now) unpark(at, wakes);
  }
  return wakes;
}

std::optional<Millis> AdmissionQueue::next_deadline() const {
  MutexLock lock(mutex_);
  if (line_.empty()) return std::nullopt;
  std::optional<Millis> next;
  // Memory that others give back is not announced.
  if (limits_.memory == 0 && !draining_) next = clock_.monotonic_ms() + kTryAgainMs;
  for (const Waiting& one : line_) {
    if (one.wake) next = std::min(next.value_or(one.deadline), one.deadline);
  }
  return next;
}

AdmissionQueue::Wakes AdmissionQueue::drain() {
  MutexLock lock(mutex_);
  Wakes wakes;
  draining_ = true;
  for (auto at = line_.begin(); at != line_.end(); ++at) unpark(at, wakes);
  return wakes;
}

bool AdmissionQueue::admitted(const std::string& lease) const {
  MutexLock lock(mutex_);
  return running_.contains(lease);
}

AdmissionQueue::View AdmissionQueue::view() {
  MutexLock lock(mutex_);
  look();
  View view;
  const Millis now = clock_.monotonic_ms();
  view.budget = budget();
  view.reserved = reserved_;
  view.available = available_;
  view.automatic = limits_.memory == 0;
  view.cores = limits_.cores;
  view.cores_used = cores_used_;
  for (const auto& [lease, one] : running_) {
    view.running.push_back({lease, one.demand, now - one.since, one.taken, 0});
  }
  for (const Waiting& one : line_) {
    view.waiting.push_back({one.lease, one.demand, now - one.since, 0, one.overtaken});
  }
  return view;
}

// ---- Inside ----

// Memory that is available and memory that builds have taken are looked at together: of what moves
// from one to the other nothing is counted twice.
void AdmissionQueue::look() {
  const Millis now = clock_.monotonic_ms();
  if (looked_ && now - *looked_ < kLookAgainMs) return;
  looked_ = now;
  std::vector<std::int64_t> pids;
  for (const auto& [lease, one] : running_) pids.push_back(one.pid);
  const std::vector<std::uint64_t> taken = door_.taken(pids);
  std::size_t at = 0;
  for (auto& [lease, one] : running_) {
    one.taken = at < taken.size() ? taken[at] : 0;
    ++at;
  }
  available_ = door_.available();
}

std::uint64_t AdmissionQueue::budget() const {
  if (limits_.memory > 0) return limits_.memory;
  if (!available_) return 0;  // one at a time
  std::uint64_t free = *available_;
  // No more than was reserved for it: what it took beyond is not to be had.
  for (const auto& [lease, one] : running_) free += std::min(one.taken, one.demand.bytes);
  return free / 100 * kSharePercent;
}

bool AdmissionQueue::fits(const Demand& demand) const {
  if (running_.empty()) return true;
  if (demand.alone || running_alone_ > 0) return false;
  const std::uint64_t most = budget();
  if (reserved_ > most || demand.bytes > most - reserved_) return false;
  const unsigned cores = std::min(demand.cores, limits_.cores);
  return cores_used_ <= limits_.cores && cores <= limits_.cores - cores_used_;
}

AdmissionQueue::Running& AdmissionQueue::start(const std::string& lease, std::int64_t pid,
                                               const Demand& demand) {
  Running one{demand, pid, clock_.monotonic_ms(), 0, 0};
  one.demand.cores = std::min(demand.cores, limits_.cores);
  reserved_ += one.demand.bytes;
  cores_used_ += one.demand.cores;
  running_alone_ += one.demand.alone ? 1 : 0;
  return running_.emplace(lease, one).first->second;
}

AdmissionQueue::Answer AdmissionQueue::admitted_answer(Running& one) {
  Answer answer;
  answer.kind = Answer::Kind::kAdmitted;
  answer.granted = one.demand;
  answer.waited_ms = std::exchange(one.waited, 0);
  return answer;
}

void AdmissionQueue::stop(std::map<std::string, Running>::iterator at) {
  const Demand& had = at->second.demand;
  reserved_ -= had.bytes;
  cores_used_ -= had.cores;
  running_alone_ -= had.alone ? 1 : 0;
  running_.erase(at);
}

void AdmissionQueue::pump(Wakes& wakes) {
  if (line_.empty() || draining_) return;
  if (limits_.memory == 0) look();
  for (auto at = line_.begin(); at != line_.end();) {
    if (!fits(at->demand)) {
      if (at->overtaken >= kMaxOvertakes) return;
      ++at;
      continue;
    }
    bool enough = false;  // no more may pass one of those before
    for (auto passed = line_.begin(); passed != at; ++passed) {
      enough = ++passed->overtaken >= kMaxOvertakes || enough;
    }
    Running& one = start(at->lease, at->pid, at->demand);
    one.waited = clock_.monotonic_ms() - at->since;
    if (at->wake) {
      wakes.push_back(
          [wake = std::move(at->wake), answer = admitted_answer(one)] { wake(answer); });
    }
    at = line_.erase(at);
    if (enough) return;
  }
}

AdmissionQueue::Line::iterator AdmissionQueue::find(const std::string& lease) {
  return std::find_if(line_.begin(), line_.end(),
                      [&lease](const Waiting& one) { return one.lease == lease; });
}

AdmissionQueue::Answer AdmissionQueue::waiting_answer(Line::const_iterator at) const {
  Answer answer;
  answer.kind = Answer::Kind::kWaiting;
  answer.waited_ms = clock_.monotonic_ms() - at->since;
  answer.ahead = static_cast<std::size_t>(std::distance(line_.begin(), at));
  answer.running = running_.size();
  answer.budget = budget();
  answer.reserved = reserved_;
  return answer;
}

void AdmissionQueue::unpark(Line::iterator at, Wakes& wakes) {
  if (!at->wake) return;
  wakes.push_back([wake = std::move(at->wake), answer = waiting_answer(at)] { wake(answer); });
  at->wake = nullptr;
}

}  // namespace nc::daemon
