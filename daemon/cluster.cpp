#include "daemon/cluster.hpp"

#include <algorithm>
#include <chrono>

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include "base/log.hpp"
#include "cache/json_fields.hpp"
#include "daemon/disk_pool.hpp"

namespace nc::daemon {
namespace {

constexpr std::string_view kRecords = "cluster_leases";
constexpr Millis kUnclaimedMs = 60'000;  // what nobody asks for any more is given back
constexpr Millis kHandOverMs = 1'000;    // between two local leases of one key
constexpr Millis kFirstLookMs = 20;
constexpr Millis kLongestLookMs = 2'000;
constexpr Millis kPublishPeriods = 10;

struct Written {
  std::string holder;
  std::string local;
  std::uint64_t fence = 0;
};

Result<Written> parse_written(std::string_view record) {
  NC_ASSIGN(const auto object, parse_json_object(record, 4096, "the record of a cluster lease"));
  Written written;
  JsonFields fields(object, "the record of a cluster lease");
  fields.require("holder").require("fence").require("local");
  fields.text("holder", written.holder, 32, [](std::string_view s) { return is_hex(s, 32); })
      .text("local", written.local, 32)
      .integer("fence", written.fence, 1, JsonFields::kMaxInteger);
  NC_TRY(fields.done());
  return written;
}

}  // namespace

Cluster::Cluster(Deps deps, std::unique_ptr<ClusterDoor> door, Options options)
    : deps_(deps),
      door_(std::move(door)),
      options_(std::move(options)),
      pace_(options_.polls_per_s) {}

Cluster::~Cluster() {
  stop();
}

Status Cluster::restore() {
  NC_ASSIGN(const auto records, deps_.store.records(kRecords));
  for (const auto& [name, record] : records) {
    const auto key = ActionKey::from_hex(name);
    const auto written = parse_written(record);
    if (!key || !written.ok()) {
      ignore_error(deps_.store.erase_record(kRecords, name), "it is dropped at the next start");
      continue;
    }
    auto slot = std::make_shared<Slot>();
    slot->request.key = *key;
    slot->since = now();
    slot->written = true;
    if (const auto local = deps_.table.find(written->local)) {
      slot->request = local->request;
      slot->phase = Phase::kBound;
      slot->bound = written->local;
    } else {
      const auto entry = deps_.store.peek(*key);
      slot->phase = entry.ok() && *entry ? Phase::kPublishing : Phase::kOver;
      slot->until = now() + kPublishPeriods * options_.lease.period_ms;
    }
    slot->lease = make_lease(slot->request);
    slot->lease->resume(written->holder, written->fence);
    MutexLock lock(mutex_);
    if (!slot->bound.empty()) by_bound_[slot->bound] = *key;
    slots_[*key] = slot;
    schedule(*key, *slot, now());
  }
  return {};
}

void Cluster::start() {
  for (std::size_t i = 0; i < options_.threads; ++i) {
    threads_.emplace_back([this] { run(); });
  }
}

void Cluster::stop() {
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    stopping_ = true;
  }
  wake_.notify_all();
  door_->stop();
  for (auto& thread : threads_) thread.join();
  MutexLock lock(mutex_);
  // What is built or on its way is known to the next process; the rest goes to other hosts.
  for (const auto& [key, slot] : slots_) {
    if (slot->phase == Phase::kReady && slot->lease) slot->lease->end(End::kReleased);
  }
}

// ---- What requests bring about: nothing here blocks but for a record ----

bool Cluster::granted(const Lease& lease) {
  const ActionKey& key = lease.request.key;
  std::shared_ptr<tier::ClusterLease> held;
  {
    MutexLock lock(mutex_);
    auto it = slots_.find(key);
    if (it != slots_.end() && it->second->lease && it->second->lease->state() == State::kLost) {
      drop(key, *it->second);
      it = slots_.end();
    }
    if (it == slots_.end()) {
      if (stopping_) return true;
      if (!door_->well()) {
        ++counters_.alone;
        return true;
      }
      const Lease waits = stand_in(lease.request);
      if (!deps_.table.replace(lease.id, waits)) return true;  // over already
      const SlotPtr slot = open(lease.request);
      slot->stand_in = waits.id;
      slot->lease = make_lease(lease.request);
      schedule(key, *slot, now());
      return false;
    }
    Slot& slot = *it->second;
    if (slot.phase != Phase::kReady && slot.phase != Phase::kBound) return true;
    if (!slot.bound.empty()) by_bound_.erase(slot.bound);
    by_bound_[lease.id] = key;
    slot.phase = Phase::kBound;
    slot.bound = lease.id;
    slot.how = End::kReleased;
    if (slot.lease && slot.lease->state() == State::kHeld) {
      held = slot.lease;
      slot.written = options_.persist;
    }
    kick(key, slot);
  }
  if (held && options_.persist) write(key, lease.id, *held);
  return true;
}

bool Cluster::published(const std::string& lease, bool shared) {
  MutexLock lock(mutex_);
  const SlotPtr slot = bound_to(lease);
  if (!slot) return true;
  if (slot->lease && slot->lease->state() == State::kLost) return false;
  slot->how = shared ? End::kPublished : End::kApart;
  return true;
}

void Cluster::failed(const std::string& lease) {
  MutexLock lock(mutex_);
  if (const SlotPtr slot = bound_to(lease)) slot->how = End::kApart;
}

void Cluster::lease_ended(const std::string& lease) {
  MutexLock lock(mutex_);
  if (const SlotPtr slot = bound_to(lease)) {
    const ActionKey key = slot->request.key;
    by_bound_.erase(lease);
    slot->bound.clear();
    switch (slot->how) {
      case End::kPublished:
        slot->phase = Phase::kPublishing;
        slot->until = now() + kPublishPeriods * options_.lease.period_ms;
        slot->pause = kFirstLookMs;
        break;
      case End::kReleased:  // a local waiter may go on with it
        slot->phase = Phase::kReady;
        slot->until = now() + kHandOverMs;
        break;
      case End::kApart:
        slot->phase = Phase::kOver;
        break;
    }
    return kick(key, *slot);
  }
  for (const auto& [key, slot] : slots_) {
    if (slot->stand_in != lease) continue;  // the entry came by another way
    slot->stand_in.clear();
    slot->phase = Phase::kOver;
    return kick(key, *slot);
  }
}

Cluster::View Cluster::view() const {
  MutexLock lock(mutex_);
  View view;
  view.tier = door_->engine().address();
  for (const auto& [key, slot] : slots_) {
    view.waiting += slot->phase == Phase::kAsking ? 1 : 0;
    view.publishing += slot->phase == Phase::kPublishing ? 1 : 0;
    view.held += slot->lease && slot->lease->state() == State::kHeld ? 1 : 0;
  }
  return view;
}

// ---- What blocks ----

void Cluster::run() {
  // Bringing an entry may take long: a thread is left for the beats of what is held meanwhile.
  const std::size_t most_asking = std::max<std::size_t>(options_.threads, 2) - 1;
  for (;;) {
    ActionKey key;
    SlotPtr slot;
    {
      MutexLock lock(mutex_);
      while (!slot) {
        if (stopping_) return;
        auto next = due_.begin();
        if (next != due_.end() && slots_.at(next->second)->phase == Phase::kAsking) {
          std::size_t asking = 0;
          for (const auto& [_, one] : slots_) {
            asking += one->busy && one->phase == Phase::kAsking ? 1 : 0;
          }
          while (asking >= most_asking && next != due_.end() &&
                 slots_.at(next->second)->phase == Phase::kAsking) {
            ++next;
          }
        }
        if (next == due_.end()) {  // those who ask look again when they have done
          wake_.wait(mutex_);
          continue;
        }
        const auto [time, first] = *next;
        const Millis wait = time - now();
        if (wait > 0) {
          wake_.wait_for(mutex_, std::chrono::milliseconds(std::min<Millis>(wait, 60'000)));
          continue;
        }
        due_.erase(next);
        key = first;
        slot = slots_.at(key);
        slot->due.reset();
        slot->busy = true;
        slot->again = false;
      }
    }
    guarded("the cluster's leases", [&] { work(key, slot); });
  }
}

void Cluster::work(const ActionKey& key, const SlotPtr& slot) {
  Phase phase{};
  {
    MutexLock lock(mutex_);
    phase = slot->phase;
    if (phase == Phase::kReady && now() >= slot->until) slot->phase = phase = Phase::kOver;
  }
  std::optional<Millis> next;
  switch (phase) {
    case Phase::kAsking:
      next = asking(key, *slot);
      break;
    case Phase::kReady:
    case Phase::kBound:
      next = keep(*slot);
      break;
    case Phase::kPublishing:
      next = publishing(key, *slot);
      break;
    case Phase::kOver:
      finish(key, *slot, slot->how);
      break;
  }
  MutexLock lock(mutex_);
  slot->busy = false;
  const auto it = slots_.find(key);
  if (it == slots_.end() || it->second != slot) return;
  if (slot->phase == Phase::kReady) next = std::min(next.value_or(slot->until), slot->until);
  schedule(key, *slot, slot->again ? std::optional(now()) : next);
}

std::optional<Millis> Cluster::asking(const ActionKey& key, Slot& slot) {
  tier::ClusterLease& lease = *slot.lease;
  const auto next = lease.step();
  const State state = lease.state();
  const Millis limit = wait_ms_;
  if (state == State::kSeeking && !door_->well()) {
    ++counters_.alone;
    lease.give_up("the tier fails");
  } else if (state == State::kWaiting && limit > 0 && now() - slot.since >= limit) {
    ++counters_.alone;
    lease.give_up("waited for cluster_wait");
  } else if (state == State::kSeeking || state == State::kWaiting) {
    describe(slot, lease);
    return limit > 0 ? std::min(next.value_or(slot.since + limit), slot.since + limit) : next;
  }
  std::string placeholder;
  {
    MutexLock lock(mutex_);
    if (slot.phase != Phase::kAsking) return now();
    placeholder.swap(slot.stand_in);
    slot.phase = state == State::kSettled ? Phase::kOver : Phase::kReady;
    slot.until = now() + kUnclaimedMs;
    if (state == State::kSettled) drop(key, slot);
  }
  if (state == State::kSettled) {
    deps_.keeper.apply(deps_.table.settled(key));
    return std::nullopt;
  }
  if (lease.state() == State::kAlone) {
    log::info("cluster", "{} is built without the cluster's lease: {}", key.hex().substr(0, 12),
              lease.reason());
  }
  deps_.keeper.apply(deps_.table.end(placeholder, LeaseTable::End::kNotThere));
  return now();
}

// Beats, as long as it is held.
std::optional<Millis> Cluster::keep(Slot& slot) {
  std::shared_ptr<tier::ClusterLease> lease;
  std::string bound;
  {
    MutexLock lock(mutex_);
    lease = slot.lease;
    bound = slot.bound;
  }
  if (!lease) return std::nullopt;
  if (!bound.empty()) {
    if (const auto local = deps_.table.find(bound)) lease->set_progress(local->progress);
  }
  const bool was_held = lease->state() == State::kHeld;
  const auto next = lease->step();
  if (was_held && lease->state() == State::kLost) {
    log::warn("cluster", "another host took over {} while it is built here",
              slot.request.key.hex().substr(0, 12));
  }
  return next;
}

std::optional<Millis> Cluster::publishing(const ActionKey& key, Slot& slot) {
  if (!slot.lease || slot.lease->state() != State::kHeld) {
    finish(key, slot, End::kReleased);
    return std::nullopt;
  }
  const auto sent = door_->sent(key);
  if (sent || now() >= slot.until) {
    finish(key, slot, !sent ? End::kReleased : *sent ? End::kPublished : End::kApart);
    return std::nullopt;
  }
  const auto beat = keep(slot);
  slot.pause = std::clamp(slot.pause * 3 / 2, kFirstLookMs, kLongestLookMs);
  const Millis look = now() + slot.pause;
  return std::min(beat.value_or(look), look);
}

void Cluster::finish(const ActionKey& key, Slot& slot, End how) {
  if (slot.lease) slot.lease->end(how);
  bool written = false;
  {
    MutexLock lock(mutex_);
    written = slot.written;
    drop(key, slot);
  }
  if (written) erase(key);
}

// ---- Small things ----

Cluster::SlotPtr Cluster::open(const Request& request) {
  auto slot = std::make_shared<Slot>();
  slot->request = request;
  slot->since = now();
  slots_[request.key] = slot;
  return slot;
}

std::unique_ptr<tier::ClusterLease> Cluster::make_lease(const Request& request) {
  const ActionKey key = request.key;
  return std::make_unique<tier::ClusterLease>(
      tier::ClusterLease::Deps{door_->engine(), deps_.clock, deps_.random, counters_, pace_,
                               [this, key] { return door_->bring(key); }},
      options_.lease, key,
      tier::ClusterLease::Who{options_.host, request.program, request.label, 0});
}

Lease Cluster::stand_in(const Request& request) {
  Lease lease;
  lease.id = deps_.random.hex_id();
  lease.request = request;
  lease.request.program = "neuroncached";  // until it is known who builds
  lease.builder.host = options_.host;
  lease.granted_ms = deps_.clock.wall_ms();
  lease.progress = "asking the cluster";
  return lease;
}

// What the waiters are told.
void Cluster::describe(const Slot& slot, const tier::ClusterLease& lease) {
  const auto holder = lease.holder();
  if (!holder) return;
  std::string id;
  {
    MutexLock lock(mutex_);
    id = slot.stand_in;
  }
  Lease shown;
  shown.id = id;
  shown.builder.host = holder->host;
  shown.builder.process.pid = static_cast<pid_t>(holder->pid);
  shown.request.program = holder->program;
  shown.progress = holder->progress;
  deps_.table.describe(shown, holder->building_ms);
}

Cluster::SlotPtr Cluster::bound_to(const std::string& lease) {
  const auto it = by_bound_.find(lease);
  if (it == by_bound_.end()) return nullptr;
  const auto slot = slots_.find(it->second);
  return slot == slots_.end() ? nullptr : slot->second;
}

void Cluster::drop(const ActionKey& key, Slot& slot) {
  schedule(key, slot, std::nullopt);
  if (!slot.bound.empty()) by_bound_.erase(slot.bound);
  const auto it = slots_.find(key);
  if (it != slots_.end() && it->second.get() == &slot) slots_.erase(it);
}

void Cluster::schedule(const ActionKey& key, Slot& slot, std::optional<Millis> due) {
  if (slot.due) due_.erase({*slot.due, key});
  slot.due = due;
  if (!due) return;
  due_.insert({*due, key});
  wake_.notify_one();
}

void Cluster::kick(const ActionKey& key, Slot& slot) {
  if (slot.busy) {
    slot.again = true;
  } else {
    schedule(key, slot, now());
  }
}

void Cluster::write(const ActionKey& key, const std::string& local,
                    const tier::ClusterLease& lease) {
  const std::string record = boost::json::serialize(
      boost::json::value{{"holder", lease.id()}, {"fence", lease.fence()}, {"local", local}});
  Status written = deps_.store.put_record(kRecords, key.hex(), record);
  if (!written.ok()) {
    log::warn("cluster", "a restart will not know a lease: {}", written.error().text());
  }
}

void Cluster::erase(const ActionKey& key) {
  ignore_error(deps_.store.erase_record(kRecords, key.hex()), "the next start gives it back");
}

}  // namespace nc::daemon
