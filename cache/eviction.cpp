#include "cache/eviction.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace nc {
namespace {

constexpr double kLeastSeconds = 1e-3;
constexpr double kLeastBytes = 4096;  // an entry's records take about that much
constexpr double kFirstAge = 1e-12;   // so that an age that is known is never 0

}  // namespace

double rebuild_value(std::uint64_t build_ms, std::uint64_t uses, std::uint64_t bytes) {
  const double seconds = std::max(static_cast<double>(build_ms) / 1000, kLeastSeconds);
  const double times = static_cast<double>(std::max<std::uint64_t>(uses, 1));
  return seconds * times / std::max(static_cast<double>(bytes), kLeastBytes);
}

std::string Victim::text() const {
  const std::string entry =
      fmt::format("{} of building, used {} times, {}",
                  format_duration(static_cast<double>(build_ms) / 1000), uses, format_size(bytes));
  if (why == Why::kQuota) {
    return fmt::format(
        "namespace {} holds {} of its quota of {}; its cheapest entry to rebuild: {}", name_space,
        format_size(quota_used), format_size(quota), entry);
  }
  return fmt::format("the cheapest entry to rebuild for the room it takes: {}", entry);
}

// ---- Items and their order ----

struct EvictionQueue::Item {
  ActionKey key;
  Space* space = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t build_ms = 0;
  std::uint64_t uses = 0;
  Millis used_ms = 0;
  double age = 0;
  double priority = 0;
  std::uint64_t turn = 0;  // of the last use; tells equal priorities apart
  // Its place in space->order. A use does not move it, as that would cost every hit a walk through
  // memory that is in no CPU cache: uses only ever raise a priority, so its place is at most too
  // early, and it moves when it has come first, or when settle() has time for it.
  double placed = 0;
  std::uint64_t placed_turn = 0;
  bool pinned = false;
  bool linked = false;  // in space->order

  bool in_place() const { return placed == priority && placed_turn == turn; }
};

struct EvictionQueue::Order {
  bool operator()(const Item* a, const Item* b) const {
    return a->placed != b->placed ? a->placed < b->placed : a->placed_turn < b->placed_turn;
  }
};

struct EvictionQueue::Space {
  std::string name;
  std::uint64_t bytes = 0;
  std::size_t items = 0;
  std::optional<std::uint64_t> quota;
  double extra_age = 0;          // what its own quota added to the store-wide age
  std::set<Item*, Order> order;  // what may go, cheapest first
  std::optional<std::pair<double, std::uint64_t>> ranked;  // its place in State::ranks
};

struct EvictionQueue::State {
  std::unordered_map<ActionKey, Item, Sha256Hash> items;
  std::unordered_map<ActionKey, std::uint32_t, Sha256Hash> holds;
  std::map<std::string, Space, std::less<>> spaces;
  // Namespaces with something to give, by their cheapest entry. Priorities of two namespaces
  // compare without what their own quotas added.
  std::map<std::pair<double, std::uint64_t>, Space*> ranks;
  std::set<Space*> limited;  // those with a quota
  std::map<std::string, std::uint64_t> quotas;
  std::uint64_t bytes = 0;
  std::uint64_t turn = 0;
  double age = kFirstAge;
};

EvictionQueue::EvictionQueue() : state_(std::make_unique<State>()) {}
EvictionQueue::~EvictionQueue() = default;

EvictionQueue::Space& EvictionQueue::space(std::string_view name) {
  if (auto it = state_->spaces.find(name); it != state_->spaces.end()) return it->second;
  Space& made = state_->spaces.try_emplace(std::string(name)).first->second;
  made.name = name;
  if (auto quota = state_->quotas.find(made.name); quota != state_->quotas.end()) {
    made.quota = quota->second;
    state_->limited.insert(&made);
  }
  return made;
}

void EvictionQueue::rank(Space& space) {
  if (space.ranked) state_->ranks.erase(*space.ranked);
  space.ranked.reset();
  if (space.order.empty()) return;
  const Item& first = **space.order.begin();
  space.ranked = {first.placed - space.extra_age, first.placed_turn};
  state_->ranks.emplace(*space.ranked, &space);
}

void EvictionQueue::link(Item& item) {
  if (item.linked || item.pinned || held(item.key)) return;
  item.linked = true;
  item.placed = item.priority;
  item.placed_turn = item.turn;
  const auto place = item.space->order.insert(&item).first;
  if (place == item.space->order.begin()) rank(*item.space);
}

void EvictionQueue::unlink(Item& item) {
  if (!item.linked) return;
  item.linked = false;
  const auto place = item.space->order.find(&item);
  const bool first = place == item.space->order.begin();
  item.space->order.erase(place);
  if (first) rank(*item.space);
}

// ---- Changes ----

void EvictionQueue::insert(const EvictionEntry& entry) {
  erase(entry.key);
  Space& home = space(entry.name_space);
  const double now_age = state_->age + home.extra_age;
  // A higher age than ours was reached before a restart: go on from there.
  if (entry.age > now_age) {
    home.extra_age = entry.age - state_->age;
    rank(home);
  }
  Item& item = state_->items[entry.key];
  item.key = entry.key;
  item.space = &home;
  item.bytes = entry.bytes;
  item.build_ms = entry.build_ms;
  item.uses = entry.uses;
  item.used_ms = entry.used_ms;
  item.age = entry.age > 0 ? entry.age : now_age;
  item.priority = item.age + rebuild_value(item.build_ms, item.uses, item.bytes);
  item.turn = ++state_->turn;
  item.pinned = entry.pinned;
  home.bytes += item.bytes;
  home.items += 1;
  state_->bytes += item.bytes;
  link(item);
}

bool EvictionQueue::erase(const ActionKey& key) {
  const auto it = state_->items.find(key);
  if (it == state_->items.end()) return false;
  Item& item = it->second;
  unlink(item);
  Space& home = *item.space;
  home.bytes -= item.bytes;
  home.items -= 1;
  state_->bytes -= item.bytes;
  state_->items.erase(it);
  // Empty namespaces are forgotten: callers choose the names.
  if (home.items == 0 && !home.quota) state_->spaces.erase(state_->spaces.find(home.name));
  return true;
}

bool EvictionQueue::touch(const ActionKey& key, Millis now) {
  const auto it = state_->items.find(key);
  if (it == state_->items.end()) return false;
  Item& item = it->second;
  item.uses += 1;
  item.used_ms = now;
  item.age = state_->age + item.space->extra_age;
  item.priority = item.age + rebuild_value(item.build_ms, item.uses, item.bytes);
  item.turn = ++state_->turn;
  if (item.priority < item.placed) replace(item);
  return true;
}

void EvictionQueue::settle(const ActionKey& key) {
  const auto it = state_->items.find(key);
  if (it != state_->items.end()) replace(it->second);
}

void EvictionQueue::replace(Item& item) {
  if (!item.linked || item.in_place()) return;
  unlink(item);
  link(item);
}

const EvictionQueue::Item& EvictionQueue::first(Space& space) {
  while (!(*space.order.begin())->in_place()) replace(**space.order.begin());
  return **space.order.begin();
}

bool EvictionQueue::set_pinned(const ActionKey& key, bool pinned) {
  const auto it = state_->items.find(key);
  if (it == state_->items.end()) return false;
  it->second.pinned = pinned;
  if (pinned) {
    unlink(it->second);
  } else {
    link(it->second);
  }
  return true;
}

bool EvictionQueue::set_bytes(const ActionKey& key, std::uint64_t bytes) {
  const auto it = state_->items.find(key);
  if (it == state_->items.end()) return false;
  Item& item = it->second;
  unlink(item);
  item.space->bytes += bytes - item.bytes;
  state_->bytes += bytes - item.bytes;
  item.bytes = bytes;
  item.priority = item.age + rebuild_value(item.build_ms, item.uses, item.bytes);
  link(item);
  return true;
}

std::optional<EvictionEntry> EvictionQueue::find(const ActionKey& key) const {
  const auto it = state_->items.find(key);
  if (it == state_->items.end()) return std::nullopt;
  const Item& item = it->second;
  return EvictionEntry{item.key,  item.space->name, item.bytes, item.build_ms,
                       item.uses, item.used_ms,     item.age,   item.pinned};
}

void EvictionQueue::hold(const ActionKey& key) {
  if (++state_->holds[key] > 1) return;
  if (auto it = state_->items.find(key); it != state_->items.end()) unlink(it->second);
}

void EvictionQueue::release(const ActionKey& key) {
  const auto hold = state_->holds.find(key);
  if (hold == state_->holds.end() || --hold->second > 0) return;
  state_->holds.erase(hold);
  if (auto it = state_->items.find(key); it != state_->items.end()) link(it->second);
}

bool EvictionQueue::held(const ActionKey& key) const {
  return !state_->holds.empty() && state_->holds.count(key) != 0;
}

void EvictionQueue::set_quotas(std::map<std::string, std::uint64_t> quotas) {
  state_->quotas = std::move(quotas);
  state_->limited.clear();
  for (auto it = state_->spaces.begin(); it != state_->spaces.end();) {
    Space& space = it->second;
    const auto quota = state_->quotas.find(space.name);
    space.quota.reset();
    if (quota != state_->quotas.end()) {
      space.quota = quota->second;
      state_->limited.insert(&space);
    } else if (space.items == 0) {
      it = state_->spaces.erase(it);  // only its quota has kept it, and its age
      continue;
    }
    ++it;
  }
}

// ---- Choosing ----

Victim EvictionQueue::describe(const Item& item, Victim::Why why) const {
  Victim v;
  v.key = item.key;
  v.name_space = item.space->name;
  v.bytes = item.bytes;
  v.build_ms = item.build_ms;
  v.uses = item.uses;
  v.used_ms = item.used_ms;
  v.why = why;
  v.quota = item.space->quota.value_or(0);
  v.quota_used = item.space->bytes;
  return v;
}

std::optional<Victim> EvictionQueue::over_quota(std::string_view name_space, std::uint64_t adding) {
  Space* worst = nullptr;
  std::uint64_t worst_over = 0;
  for (Space* space : state_->limited) {
    const std::uint64_t held_bytes = space->bytes + (space->name == name_space ? adding : 0);
    if (held_bytes <= *space->quota || space->order.empty()) continue;
    const std::uint64_t over = held_bytes - *space->quota;
    // By name between equals: `limited` is ordered by address.
    if (worst == nullptr || over > worst_over ||
        (over == worst_over && space->name < worst->name)) {
      worst = space;
      worst_over = over;
    }
  }
  if (worst == nullptr) return std::nullopt;
  return describe(first(*worst), Victim::Why::kQuota);
}

std::optional<std::uint64_t> EvictionQueue::quota(std::string_view name_space) const {
  const auto it = state_->quotas.find(std::string(name_space));
  if (it == state_->quotas.end()) return std::nullopt;
  return it->second;
}

std::optional<Victim> EvictionQueue::victim() {
  if (auto own = over_quota()) return own;
  if (state_->ranks.empty()) return std::nullopt;
  for (;;) {
    Item& cheapest = **state_->ranks.begin()->second->order.begin();
    if (cheapest.in_place()) return describe(cheapest, Victim::Why::kStore);
    replace(cheapest);  // and its namespace gets another rank
  }
}

void EvictionQueue::evicted(const Victim& victim) {
  const auto it = state_->items.find(victim.key);
  if (it == state_->items.end()) return;
  const double priority = it->second.priority;
  Space& home = *it->second.space;
  if (victim.why == Victim::Why::kQuota) {
    home.extra_age = std::max(home.extra_age, priority - state_->age);
    rank(home);
  } else {
    state_->age = std::max(state_->age, priority - home.extra_age);
  }
  erase(victim.key);
}

std::size_t EvictionQueue::size() const {
  return state_->items.size();
}
std::uint64_t EvictionQueue::bytes() const {
  return state_->bytes;
}

std::uint64_t EvictionQueue::namespace_bytes(std::string_view name_space) const {
  const auto it = state_->spaces.find(name_space);
  return it == state_->spaces.end() ? 0 : it->second.bytes;
}

double EvictionQueue::age() const {
  return state_->age;
}
void EvictionQueue::set_age(double age) {
  state_->age = std::max(age, kFirstAge);
}

}  // namespace nc
