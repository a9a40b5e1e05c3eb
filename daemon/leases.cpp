#include "daemon/leases.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace nc::daemon {
namespace {

constexpr Millis kGraveMs = 60'000;
constexpr Millis kNever = Millis{1} << 60;

template <class T>
void append(std::vector<T>& to, std::vector<T>&& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

void Effects::add(Effects&& other) {
  append(wakes, std::move(other.wakes));
  append(ended, std::move(other.ended));
  append(abandoned, std::move(other.abandoned));
  append(takeovers, std::move(other.takeovers));
}

LeaseTable::LeaseTable(Clock& clock, Random& random, Options options)
    : clock_(clock), random_(random), options_(options) {}

// ---- Asking ----

LeaseTable::Answer LeaseTable::ask(Ask ask) {
  MutexLock lock(mutex_);
  Answer answer;
  const ActionKey key = ask.request.key;
  const Millis now = clock_.monotonic_ms();

  if (auto it = by_ticket_.find(ask.ticket); it != by_ticket_.end() && it->second.key != key) {
    answer.error = {Code::kInvalid, "the ticket belongs to another key",
                    "send the ticket that was given for this key, or none"};
    return answer;
  }
  Slot& slot = slots_[key];
  if (!slot.held) {
    if (draining_) {
      answer.error = {Code::kDraining, "the daemon is shutting down", "start it again and retry"};
    } else {
      if (auto it = by_ticket_.find(ask.ticket); it != by_ticket_.end()) {
        remove_waiter(slot, it->second.arrival);
      }
      answer.kind = Answer::Kind::kGranted;
      answer.lease = grant(slot, std::move(ask.request), std::move(ask.who));
    }
    drop_if_empty(key);
    return answer;
  }

  auto place = by_ticket_.find(ask.ticket);
  if (place == by_ticket_.end()) {
    if (by_ticket_.size() >= options_.max_tickets) {
      answer.error = {Code::kBusy, "too many look-ups are waiting", "try again later"};
      return answer;
    }
    const std::string ticket = is_hex(ask.ticket, 32) ? ask.ticket : random_.hex_id();
    place = by_ticket_.insert_or_assign(ticket, Place{key, ++arrivals_}).first;
    slot.waiters[arrivals_].ticket = ticket;
    slot.waiters[arrivals_].arrival = arrivals_;
    slot.held->waited_for = true;
  }
  Waiter& waiter = slot.waiters.at(place->second.arrival);
  unpark(slot, waiter, answer.effects);  // asked again elsewhere: the older request is answered now
  waiter.request = std::move(ask.request);
  waiter.who = std::move(ask.who);
  waiter.connection = ask.connection;
  if (ask.wait_ms > 0 && !draining_) {
    waiter.wake = std::move(ask.wake);
    waiter.deadline = now + ask.wait_ms;
    answer.kind = Answer::Kind::kParked;
  } else {
    waiter.deadline = now + options_.ticket_ttl_ms;
    answer.kind = Answer::Kind::kBusy;
    answer.progress = progress_of(slot, waiter);
  }
  return answer;
}

Effects LeaseTable::forget_ticket(std::string_view ticket) {
  MutexLock lock(mutex_);
  Effects effects;
  auto it = by_ticket_.find(ticket);
  if (it == by_ticket_.end()) return effects;
  const Place place = it->second;
  Slot& slot = slots_.at(place.key);
  unpark(slot, slot.waiters.at(place.arrival), effects);
  remove_waiter(slot, place.arrival);
  drop_if_empty(place.key);
  return effects;
}

// ---- Holding ----

LeaseTable::Beat LeaseTable::heartbeat(const std::string& id, const ActionKey& key,
                                       std::uint64_t fence, std::string_view progress) {
  MutexLock lock(mutex_);
  auto slot = slots_.find(key);
  if (slot == slots_.end() || !slot->second.held) {
    return graves_.contains(id) ? Beat::kLost : Beat::kUnknown;
  }
  Held& held = *slot->second.held;
  if (held.lease.id != id || held.lease.fence != fence) return Beat::kLost;
  held.deadline = clock_.monotonic_ms() + options_.lease_ttl_ms;
  if (!progress.empty()) held.lease.progress = progress;
  return Beat::kExtended;
}

void LeaseTable::touch(std::string_view id) {
  MutexLock lock(mutex_);
  if (Slot* slot = slot_of_lease(id)) {
    slot->held->deadline = clock_.monotonic_ms() + options_.lease_ttl_ms;
  }
}

bool LeaseTable::adopt(Lease lease) {
  MutexLock lock(mutex_);
  if (by_id_.contains(lease.id) || graves_.contains(lease.id)) return false;
  Slot& slot = slots_[lease.request.key];
  if (slot.held) return false;
  next_fence_ = std::max(next_fence_, lease.fence + 1);
  const Millis now = clock_.monotonic_ms();
  const Millis age = std::max<Millis>(0, clock_.wall_ms() - lease.granted_ms);
  by_id_[lease.id] = lease.request.key;
  slot.held = Held{std::move(lease), now + options_.lease_ttl_ms, now - age, nullptr, false};
  return true;
}

bool LeaseTable::replace(const std::string& id, Lease lease) {
  MutexLock lock(mutex_);
  Slot* slot = slot_of_lease(id);
  if (slot == nullptr) return false;
  by_id_.erase(id);
  bury(id);
  by_id_[lease.id] = lease.request.key;
  slot->held = Held{std::move(lease), kNever, clock_.monotonic_ms(), nullptr, false};
  return true;
}

void LeaseTable::describe(const Lease& lease, Millis building_ms) {
  MutexLock lock(mutex_);
  Slot* slot = slot_of_lease(lease.id);
  if (slot == nullptr) return;
  Held& held = *slot->held;
  held.lease.builder = lease.builder;
  held.lease.request.program = lease.request.program;
  held.lease.progress = lease.progress;
  held.since = clock_.monotonic_ms() - building_ms;
}

LeaseTable::Interest LeaseTable::interest(const std::string& id) const {
  MutexLock lock(mutex_);
  const auto it = by_id_.find(id);
  if (it == by_id_.end()) return {};
  const Slot& slot = slots_.at(it->second);
  return {slot.waiters.size(), slot.held->waited_for};
}

void LeaseTable::attach(const std::string& id, std::shared_ptr<void> hold) {
  MutexLock lock(mutex_);
  if (Slot* slot = slot_of_lease(id)) slot->held->hold = std::move(hold);
}

Status LeaseTable::may_commit(const ActionKey& key, const std::string& id) {
  MutexLock lock(mutex_);
  auto slot = slots_.find(key);
  if (slot == slots_.end() || !slot->second.held) return {};
  Held& held = *slot->second.held;
  if (held.lease.id != id) {
    return Error{Code::kLeaseLost,
                 "another builder (pid " + std::to_string(held.lease.builder.process.pid) +
                     ") holds the lease of this key now",
                 "drop this build and look the key up again"};
  }
  held.deadline = clock_.monotonic_ms() + options_.lease_ttl_ms;
  return {};
}

Effects LeaseTable::settled(const ActionKey& key) {
  MutexLock lock(mutex_);
  Effects effects;
  auto it = slots_.find(key);
  if (it == slots_.end()) return effects;
  Slot& slot = it->second;
  if (slot.held) end_held(slot, true, effects);
  for (auto waiter = slot.waiters.begin(); waiter != slot.waiters.end();) {
    if (waiter->second.wake) {
      effects.wakes.emplace_back([wake = std::move(waiter->second.wake)] {
        wake({Wake::Kind::kEnded, {}, {}});
      });
      by_ticket_.erase(waiter->second.ticket);
      waiter = slot.waiters.erase(waiter);
    } else {
      ++waiter;  // will come back and find the entry
    }
  }
  drop_if_empty(key);
  return effects;
}

std::optional<Lease> LeaseTable::take(Request request, Builder who) {
  MutexLock lock(mutex_);
  if (draining_) return std::nullopt;
  Slot& slot = slots_[request.key];
  if (slot.held) return std::nullopt;
  return grant(slot, std::move(request), std::move(who));
}

Effects LeaseTable::end(const std::string& id, End why) {
  MutexLock lock(mutex_);
  Effects effects;
  Slot* slot = slot_of_lease(id);
  if (slot == nullptr) return effects;
  const ActionKey key = slot->held->lease.request.key;
  end_held(*slot, why != End::kDied, effects);
  hand_over(*slot, effects);
  if (why == End::kNotThere) effects.takeovers.clear();
  drop_if_empty(key);
  return effects;
}

std::optional<Lease> LeaseTable::find(const std::string& id) const {
  MutexLock lock(mutex_);
  auto it = by_id_.find(id);
  if (it == by_id_.end()) return std::nullopt;
  return slots_.at(it->second).held->lease;
}

// ---- Time and hang-ups ----

Effects LeaseTable::connection_closed(std::uint64_t connection) {
  MutexLock lock(mutex_);
  Effects effects;
  if (by_ticket_.empty()) return effects;
  std::vector<std::pair<ActionKey, std::uint64_t>> gone;
  for (auto& [key, slot] : slots_) {
    for (auto& [arrival, waiter] : slot.waiters) {
      if (waiter.connection == connection) gone.emplace_back(key, arrival);
    }
  }
  for (const auto& [key, arrival] : gone) {
    Slot& slot = slots_.at(key);
    Waiter& waiter = slot.waiters.at(arrival);
    effects.abandoned.push_back(waiter.request.name_space);
    if (waiter.wake) {
      effects.wakes.emplace_back([wake = std::move(waiter.wake)] {
        wake({Wake::Kind::kGone, {}, {}});
      });
    }
    remove_waiter(slot, arrival);
    drop_if_empty(key);
  }
  return effects;
}

Effects LeaseTable::tick() {
  MutexLock lock(mutex_);
  Effects effects;
  const Millis now = clock_.monotonic_ms();
  std::erase_if(graves_, [now](const auto& grave) { return grave.second <= now; });

  std::vector<ActionKey> keys;
  for (const auto& [key, slot] : slots_) {
    const bool due = (slot.held && slot.held->deadline <= now) ||
                     std::any_of(slot.waiters.begin(), slot.waiters.end(),
                                 [now](const auto& w) { return w.second.deadline <= now; });
    if (due) keys.push_back(key);
  }
  for (const ActionKey& key : keys) {
    Slot& slot = slots_.at(key);
    if (slot.held && slot.held->deadline <= now) {
      end_held(slot, false, effects);  // a late heartbeat may bring it back
      hand_over(slot, effects);
    }
    std::vector<std::uint64_t> over;
    for (auto& [arrival, waiter] : slot.waiters) {
      if (waiter.deadline > now) continue;
      if (waiter.wake) {
        unpark(slot, waiter, effects);
      } else {
        effects.abandoned.push_back(waiter.request.name_space);
        over.push_back(arrival);
      }
    }
    for (const std::uint64_t arrival : over) remove_waiter(slot, arrival);
    drop_if_empty(key);
  }
  return effects;
}

std::optional<Millis> LeaseTable::next_deadline() const {
  MutexLock lock(mutex_);
  std::optional<Millis> next;
  const auto consider = [&next](Millis deadline) {
    next = std::min(next.value_or(deadline), deadline);
  };
  for (const auto& [key, slot] : slots_) {
    if (slot.held) consider(slot.held->deadline);
    for (const auto& [arrival, waiter] : slot.waiters) consider(waiter.deadline);
  }
  return next;
}

Effects LeaseTable::drain() {
  MutexLock lock(mutex_);
  Effects effects;
  draining_ = true;
  for (auto& [key, slot] : slots_) {
    for (auto& [arrival, waiter] : slot.waiters) {
      unpark(slot, waiter, effects);
    }
  }
  return effects;
}

// ---- Looking ----

void LeaseTable::set_lease_ttl(Millis ttl_ms) {
  MutexLock lock(mutex_);
  options_.lease_ttl_ms = ttl_ms;
}

Millis LeaseTable::lease_ttl() const {
  MutexLock lock(mutex_);
  return options_.lease_ttl_ms;
}

void LeaseTable::raise_fence(std::uint64_t floor) {
  MutexLock lock(mutex_);
  next_fence_ = std::max(next_fence_, floor);
}

std::uint64_t LeaseTable::next_fence() const {
  MutexLock lock(mutex_);
  return next_fence_;
}

std::vector<LeaseTable::Listed> LeaseTable::list() const {
  MutexLock lock(mutex_);
  std::vector<Listed> all;
  const Millis now = clock_.monotonic_ms();
  for (const auto& [id, key] : by_id_) {
    const Slot& slot = slots_.at(key);
    all.push_back({slot.held->lease, static_cast<double>(now - slot.held->since) / 1000,
                   slot.held->deadline - now, slot.waiters.size()});
  }
  return all;
}

std::size_t LeaseTable::leases() const {
  MutexLock lock(mutex_);
  return by_id_.size();
}

std::size_t LeaseTable::tickets() const {
  MutexLock lock(mutex_);
  return by_ticket_.size();
}

// ---- Inside ----

Lease LeaseTable::grant(Slot& slot, Request request, Builder who) {
  const Millis now = clock_.monotonic_ms();
  Lease lease;
  lease.id = random_.hex_id();
  lease.fence = next_fence_++;
  lease.request = std::move(request);
  lease.builder = std::move(who);
  lease.granted_ms = clock_.wall_ms();
  by_id_[lease.id] = lease.request.key;
  slot.held = Held{lease, now + options_.lease_ttl_ms, now, nullptr, !slot.waiters.empty()};
  return lease;
}

Progress LeaseTable::progress_of(const Slot& slot, const Waiter& waiter) const {
  Progress progress;
  progress.ticket = waiter.ticket;
  progress.waiters = slot.waiters.size();
  if (slot.held) {
    progress.lease = slot.held->lease;
    progress.elapsed_s = static_cast<double>(clock_.monotonic_ms() - slot.held->since) / 1000;
  }
  return progress;
}

void LeaseTable::unpark(const Slot& slot, Waiter& waiter, Effects& effects) {
  if (!waiter.wake) return;
  effects.wakes.emplace_back([wake = std::move(waiter.wake), progress = progress_of(slot, waiter)] {
    wake({Wake::Kind::kStillBusy, {}, progress});
  });
  waiter.wake = nullptr;
  waiter.deadline = clock_.monotonic_ms() + options_.ticket_ttl_ms;
}

void LeaseTable::end_held(Slot& slot, bool gone_for_good, Effects& effects) {
  by_id_.erase(slot.held->lease.id);
  effects.ended.push_back(slot.held->lease.id);
  if (gone_for_good) bury(std::move(slot.held->lease.id));
  slot.held.reset();
}

void LeaseTable::hand_over(Slot& slot, Effects& effects) {
  if (draining_) return;
  auto next = std::find_if(slot.waiters.begin(), slot.waiters.end(),
                           [](const auto& w) { return static_cast<bool>(w.second.wake); });
  if (next == slot.waiters.end()) return;
  Waiter waiter = std::move(next->second);
  by_ticket_.erase(waiter.ticket);
  slot.waiters.erase(next);
  Lease lease = grant(slot, std::move(waiter.request), std::move(waiter.who));
  effects.takeovers.push_back(lease.request.name_space);
  effects.wakes.emplace_back([wake = std::move(waiter.wake), lease = std::move(lease)] {
    wake({Wake::Kind::kGranted, lease, {}});
  });
}

void LeaseTable::remove_waiter(Slot& slot, std::uint64_t arrival) {
  auto it = slot.waiters.find(arrival);
  if (it == slot.waiters.end()) return;
  by_ticket_.erase(it->second.ticket);
  slot.waiters.erase(it);
}

void LeaseTable::drop_if_empty(const ActionKey& key) {
  auto it = slots_.find(key);
  if (it != slots_.end() && !it->second.held && it->second.waiters.empty()) slots_.erase(it);
}

LeaseTable::Slot* LeaseTable::slot_of_lease(std::string_view id) {
  auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : &slots_.at(it->second);
}

void LeaseTable::bury(std::string id) {
  graves_[std::move(id)] = clock_.monotonic_ms() + kGraveMs;
}

}  // namespace nc::daemon
