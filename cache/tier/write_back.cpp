#include "cache/tier/write_back.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "base/log.hpp"
#include "cache/tier/breaker.hpp"

namespace nc::tier {
namespace {

constexpr std::string_view kTable = "tier_queue";
constexpr int kNice = 10;       // look-ups go first
constexpr int kStuckAfter = 5;  // failures: half a minute with the usual pauses

std::string record_key(const ActionKey& key, const std::string& tier) {
  return key.hex() + " " + tier;
}

}  // namespace

WriteBack::WriteBack(Store& store, Clock& clock, Random& random, Send send, Options options)
    : store_(store), clock_(clock), random_(random), send_(std::move(send)), options_(options) {}

WriteBack::~WriteBack() {
  stop();
}

Status WriteBack::restore(const std::vector<std::string>& tiers) {
  NC_ASSIGN(const auto records, store_.records(kTable));
  std::vector<Store::RecordChange> gone;
  MutexLock lock(mutex_);
  for (const auto& [name, value] : records) {
    const auto key = ActionKey::from_hex(std::string_view(name).substr(0, 64));
    const auto tier = name.size() > 65 ? name.substr(65) : std::string();
    if (!key || std::ranges::find(tiers, tier) == tiers.end()) {
      gone.push_back({name, std::nullopt});
      continue;
    }
    Queue& queue = queues_[tier];
    if (!queue.known.insert(*key).second) continue;
    queue.ready.push_back({*key});
    ++size_;
  }
  if (size_ > 0) log::info("tiers", "{} entries are still to be sent to tiers", size_);
  if (gone.empty()) return {};
  log::warn("tiers", "{} entries were to be sent to tiers that are not in the settings any more",
            gone.size());
  return store_.change_records(kTable, std::move(gone));
}

void WriteBack::start() {
  for (std::size_t i = 0; i < options_.threads; ++i) threads_.emplace_back([this] { run(); });
}

void WriteBack::stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (auto& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
  threads_.clear();
}

bool WriteBack::add(const ActionKey& key, const std::string& tier) {
  {
    MutexLock lock(mutex_);
    const auto& queue = queues_[tier];
    if (!queue.known.contains(key) && size_ >= options_.max_items) {
      if (dropped_++ == 0) {
        log::warn("tiers", "more than {} entries wait to be sent to tiers: some are not sent",
                  options_.max_items);
      }
      return false;
    }
  }
  if (Status written = store_.put_record(kTable, record_key(key, tier), ""); !written.ok()) {
    log::debug("tiers", "{} is not queued for {}: {}", key.hex(), tier, written.error().text());
    return false;
  }
  {
    MutexLock lock(mutex_);
    Queue& queue = queues_[tier];
    if (queue.known.insert(key).second) {
      queue.ready.push_back({key});
      ++size_;
    } else if (!begin_anew(queue, key)) {
      queue.again.insert(key);
    }
  }
  wake_.notify_one();
  return true;
}

// True when it waits for another attempt: what was built anew does not wait for that.
bool WriteBack::begin_anew(Queue& queue, const ActionKey& key) {
  const auto later = std::ranges::find_if(
      queue.later, [&key](const auto& waiting) { return waiting.second.key == key; });
  if (later == queue.later.end()) return false;
  queue.later.erase(later);
  queue.stuck.erase(key);
  queue.ready.push_back({key});
  return true;
}

void WriteBack::hurry(const ActionKey& key, const std::string& tier) {
  {
    MutexLock lock(mutex_);
    Queue& queue = queues_[tier];
    const auto ready =
        std::ranges::find_if(queue.ready, [&key](const Item& item) { return item.key == key; });
    if (ready == queue.ready.end()) return;
    const Item item = *ready;
    queue.ready.erase(ready);
    queue.ready.push_front(item);
  }
  wake_.notify_one();
}

bool WriteBack::pending(const ActionKey& key, const std::string& tier) const {
  MutexLock lock(mutex_);
  const auto it = queues_.find(tier);
  return it != queues_.end() && it->second.known.contains(key);
}

bool WriteBack::stuck(const ActionKey& key, const std::string& tier) const {
  MutexLock lock(mutex_);
  const auto it = queues_.find(tier);
  if (it == queues_.end() || !it->second.known.contains(key)) return false;
  return it->second.refuses || it->second.stuck.contains(key);
}

bool WriteBack::step() {
  std::string tier;
  Item item;
  {
    MutexLock lock(mutex_);
    if (stopping_) return false;
    const auto now = clock_.monotonic_ms();
    const auto due = [&](Queue& queue) {
      if (queue.blocked_until > now) return false;
      while (!queue.later.empty() && queue.later.begin()->first <= now) {
        queue.ready.push_back(queue.later.begin()->second);
        queue.later.erase(queue.later.begin());
      }
      return !queue.ready.empty();
    };
    auto it = queues_.upper_bound(last_);
    for (std::size_t i = 0; i < queues_.size(); ++i, ++it) {
      if (it == queues_.end()) it = queues_.begin();
      if (due(it->second)) break;
    }
    if (it == queues_.end()) it = queues_.begin();
    if (it == queues_.end() || !due(it->second)) return false;
    tier = last_ = it->first;
    Queue& queue = it->second;
    item = queue.ready.front();
    queue.ready.pop_front();
    queue.again.erase(item.key);
    ++queue.sending;
  }
  settle(tier, item, send_(item.key, tier));
  return true;
}

void WriteBack::settle(const std::string& tier, Item item, const Outcome& outcome) {
  bool over = false;
  {
    MutexLock lock(mutex_);
    Queue& queue = queues_[tier];
    --queue.sending;
    const auto now = clock_.monotonic_ms();
    if (outcome.wait_ms == 0) queue.refuses = outcome.refusal == Refusal::kAll;
    if (outcome.done) queue.stuck.erase(item.key);
    if (outcome.done && queue.again.erase(item.key) > 0) {
      queue.ready.push_back({item.key});  // it may have been built anew since
    } else if (outcome.done) {
      over = true;
      queue.known.erase(item.key);
      --size_;
    } else if (outcome.wait_ms > 0) {
      queue.blocked_until = now + outcome.wait_ms;
      queue.ready.push_front(item);
    } else {
      const int doublings = std::min(item.attempts, 20);
      const auto pause = std::min(options_.first_pause_ms << doublings, options_.longest_pause_ms);
      ++item.attempts;
      if (outcome.refusal == Refusal::kThis || item.attempts >= kStuckAfter) {
        queue.stuck.insert(item.key);
      }
      queue.later.emplace(now + jittered(pause, random_), item);
    }
  }
  if (!over) return;
  // Should this get lost, it is sent once more after a restart, and the tier has it already.
  ignore_error(store_.erase_record(kTable, record_key(item.key, tier)), "see above");
}

void WriteBack::run() {
  // On Linux this is of the thread.
  ignore_error(::setpriority(PRIO_PROCESS, 0, kNice) == 0 ? Status() : Status(Error{}),
               "it works without");
  for (;;) {
    if (step()) continue;
    MutexLock lock(mutex_);
    if (stopping_) return;
    wake_.wait_for(mutex_, std::chrono::milliseconds(200));
  }
}

WriteBack::Counts WriteBack::counts(const std::string& tier) const {
  MutexLock lock(mutex_);
  const auto it = queues_.find(tier);
  if (it == queues_.end()) return {};
  return {it->second.ready.size() + it->second.later.size(), it->second.sending};
}

std::uint64_t WriteBack::dropped() const {
  MutexLock lock(mutex_);
  return dropped_;
}

}  // namespace nc::tier
