#include "daemon/work.hpp"

#include <algorithm>
#include <utility>

#include <boost/json.hpp>
#include <fmt/format.h>

#include "base/log.hpp"
#include "cache/json_fields.hpp"

namespace nc::daemon {
namespace {

namespace js = boost::json;

constexpr std::string_view kRecordingTable = "recordings";
constexpr std::string_view kQueueTable = "queue";
constexpr int kVersion = 1;
constexpr std::size_t kMaxRecord = 16 << 10;

std::string row_key(const std::string& name, const ActionKey& key) {
  std::string row = name;
  row.push_back('\0');
  return row += key.hex();
}

}  // namespace

std::string RecordedAction::encode() const {
  return js::serialize(js::object{{"v", kVersion},
                                  {"label", label},
                                  {"compiler", compiler},
                                  {"bytes", bytes},
                                  {"build_ms", build_ms},
                                  {"recorded_ms", recorded_ms},
                                  {"lost", lost}});
}

std::optional<RecordedAction> RecordedAction::decode(std::string_view text) {
  const auto object = parse_json_object(text, kMaxRecord, "the record");
  if (!object.ok()) return std::nullopt;
  RecordedAction action;
  int version = 0;
  JsonFields fields(*object, "the record");
  fields.integer("v", version, 1, 1000)
      .text("label", action.label)
      .text("compiler", action.compiler)
      .integer("bytes", action.bytes, 0, JsonFields::kMaxInteger)
      .integer("build_ms", action.build_ms, 0, JsonFields::kMaxInteger)
      .integer("recorded_ms", action.recorded_ms, 0, JsonFields::kMaxInteger)
      .text("lost", action.lost);
  if (!fields.done().ok() || version != kVersion) return std::nullopt;
  return action;
}

Status Work::restore(const LeaseTable& leases, bool persist) {
  persist_ = persist;
  Changes damaged;
  NC_ASSIGN(const auto rows, store_.records(kRecordingTable));
  {
    MutexLock lock(mutex_);
    for (const auto& [row, text] : rows) {
      const std::size_t end = std::min(row.find('\0'), row.size());
      const std::string name = row.substr(0, end);
      const auto key =
          ActionKey::from_hex(std::string_view(row).substr(std::min(end + 1, row.size())));
      auto action = RecordedAction::decode(text);
      if (!key || !action || !is_namespace_name(name)) {
        damaged.push_back({row, std::nullopt});
        continue;
      }
      action->key = *key;
      put(name, *std::move(action));
    }
  }
  write(kRecordingTable, std::move(damaged));

  std::map<ActionKey, std::string> held;
  for (const auto& listed : leases.list()) held[listed.lease.request.key] = listed.lease.id;
  NC_ASSIGN(const auto jobs, store_.records(kQueueTable));
  Changes unreadable;
  std::vector<Job> known;
  for (const auto& [key, text] : jobs) {
    auto job = Job::decode(text);
    if (job && job->key.hex() == key) {
      known.push_back(*std::move(job));
    } else {
      unreadable.push_back({key, std::nullopt});
    }
  }
  write(kQueueTable, std::move(unreadable));
  for (Job& job : known) {
    const auto lease = held.find(job.key);
    queue_.restore(std::move(job),
                   lease == held.end() ? std::nullopt : std::optional(lease->second));
  }
  return {};
}

void Work::configure(const Settings& settings) {
  Changes changes;
  {
    MutexLock lock(mutex_);
    max_bytes_ = settings.size("recordings_bytes");
    ttl_ms_ = static_cast<Millis>(settings.seconds("recordings_ttl") * 1000);
    bound(changes);
  }
  write(kRecordingTable, std::move(changes));
}

void Work::maintain() {
  Changes changes;
  {
    MutexLock lock(mutex_);
    bound(changes);
  }
  write(kRecordingTable, std::move(changes));
  WorkQueue::Changes old;
  queue_.forget_old(old);
  write_queue(std::move(old));
}

// ---- Recordings ----

Result<bool> Work::record(const std::string& name, const ActionRecord& action) {
  const Millis now = clock_.wall_ms();
  const ActionKey entry = ActionRecord::entry_key(action.key);
  // Before it is there, so that nothing evicts it in between.
  const auto hold = store_.hold(entry);
  auto published = store_.publish(action.to_entry(now));
  if (!published.ok()) {
    Error error = std::move(published).error();
    if (error.code == Code::kNotFound) error.action = "upload the inputs before the record";
    return error;
  }
  RecordedAction row{action.key, action.label, action.compiler, action.bytes(), 0, now, ""};
  if (const auto built = store_.peek(action.key); built.ok() && *built)
    row.build_ms = (*built)->build_ms;
  Changes changes;
  bool fresh = false;
  {
    MutexLock lock(mutex_);
    Actions& actions = recordings_[name];
    const auto known = actions.find(action.key);
    fresh = known == actions.end();
    if (!fresh && row.build_ms == 0) row.build_ms = known->second.build_ms;
    changes.push_back({row_key(name, action.key), row.encode()});
    put(name, std::move(row));
    bound(changes);
  }
  write(kRecordingTable, std::move(changes));
  return fresh;
}

bool Work::record_lost(const std::string& name, RecordedAction action) {
  action.recorded_ms = clock_.wall_ms();
  if (const auto built = store_.peek(action.key); built.ok() && *built)
    action.build_ms = (*built)->build_ms;
  Changes changes;
  {
    MutexLock lock(mutex_);
    const Actions& actions = recordings_[name];
    const auto known = actions.find(action.key);
    if (known != actions.end() && known->second.lost.empty()) return false;
    changes.push_back({row_key(name, action.key), action.encode()});
    put(name, std::move(action));
    bound(changes);
  }
  write(kRecordingTable, std::move(changes));
  return true;
}

Result<ActionRecord> Work::find(const ActionKey& key) {
  NC_ASSIGN(const auto entry, store_.peek(ActionRecord::entry_key(key)));
  if (!entry) {
    return Error{Code::kNotFound, "no action is recorded for key " + key.hex(),
                 "record it, or see `neuroncache misses` for why it is gone"};
  }
  return ActionRecord::from_entry(*entry);
}

std::vector<Work::Recording> Work::recordings() const {
  MutexLock lock(mutex_);
  std::vector<Recording> out;
  for (const auto& [name, actions] : recordings_) {
    Recording one{name, actions.size(), 0, 0, 0};
    for (const auto& [key, action] : actions) {
      one.bytes += action.bytes;
      one.first_ms =
          one.first_ms == 0 ? action.recorded_ms : std::min(one.first_ms, action.recorded_ms);
      one.last_ms = std::max(one.last_ms, action.recorded_ms);
    }
    out.push_back(std::move(one));
  }
  return out;
}

Result<std::vector<RecordedAction>> Work::actions(const std::string& name,
                                                  const std::optional<ActionKey>& after,
                                                  std::size_t limit) const {
  MutexLock lock(mutex_);
  const auto recording = recordings_.find(name);
  if (recording == recordings_.end()) {
    return Error{Code::kNotFound, "there is no recording '" + name + "'",
                 "record it with `neuroncache warmup --recording " + name + " -- COMMAND`"};
  }
  std::vector<RecordedAction> out;
  const Actions& actions = recording->second;
  for (auto it = after ? actions.upper_bound(*after) : actions.begin();
       it != actions.end() && out.size() < limit; ++it) {
    out.push_back(it->second);
  }
  return out;
}

Status Work::forget(const std::string& name) {
  Changes changes;
  {
    MutexLock lock(mutex_);
    const auto recording = recordings_.find(name);
    if (recording == recordings_.end()) {
      return Error{Code::kNotFound, "there is no recording '" + name + "'",
                   "record it with `neuroncache warmup --recording " + name + " -- COMMAND`"};
    }
    std::vector<ActionKey> keys;
    for (const auto& [key, action] : recording->second) keys.push_back(key);
    for (const ActionKey& key : keys) erase(name, key, changes);
  }
  write(kRecordingTable, std::move(changes));
  return {};
}

void Work::put(const std::string& name, RecordedAction action) {
  const ActionKey key = action.key;
  Actions& actions = recordings_[name];
  hold(action);  // before the old one lets go of the same
  if (const auto known = actions.find(key); known == actions.end()) {
    ++rows_;
  } else {
    let_go(known->second);
  }
  actions[key] = std::move(action);
}

void Work::hold(const RecordedAction& action) {
  if (!action.lost.empty()) return;
  Held& held = held_[action.key];
  if (held.recordings++ > 0) return;
  held.hold = store_.hold(ActionRecord::entry_key(action.key));
  held.bytes = action.bytes;
  bytes_ += action.bytes;
}

void Work::let_go(const RecordedAction& action) {
  if (!action.lost.empty()) return;
  const auto held = held_.find(action.key);
  if (--held->second.recordings > 0) return;
  bytes_ -= held->second.bytes;
  held_.erase(held);
}

void Work::erase(const std::string& name, const ActionKey& key, Changes& changes) {
  const auto recording = recordings_.find(name);
  const auto action = recording->second.find(key);
  let_go(action->second);
  recording->second.erase(action);
  if (recording->second.empty()) recordings_.erase(recording);
  --rows_;
  changes.push_back({row_key(name, key), std::nullopt});
}

void Work::bound(Changes& changes) {
  const Millis oldest_kept = clock_.wall_ms() - ttl_ms_;
  struct Row {
    Millis recorded_ms = 0;
    std::string name;
    ActionKey key;
  };
  std::vector<Row> rows;
  const bool over = bytes_ > max_bytes_ || rows_ > kMaxActions;
  for (const auto& [name, actions] : recordings_) {
    for (const auto& [key, action] : actions) {
      if (over || action.recorded_ms < oldest_kept) rows.push_back({action.recorded_ms, name, key});
    }
  }
  std::sort(rows.begin(), rows.end(),
            [](const Row& a, const Row& b) { return a.recorded_ms < b.recorded_ms; });
  for (const Row& row : rows) {
    if (row.recorded_ms < oldest_kept || rows_ > kMaxActions) {
      erase(row.name, row.key, changes);
    } else if (bytes_ > max_bytes_) {
      RecordedAction& action = recordings_[row.name][row.key];
      let_go(action);
      action.bytes = 0;
      action.lost = fmt::format("its inputs were dropped, as all together had more than {}",
                                format_size(max_bytes_));
      changes.push_back({row_key(row.name, row.key), action.encode()});
    } else {
      return;
    }
  }
}

// ---- The queue ----

WorkQueue::Added Work::enqueue(const ActionKey& key, const std::string& label,
                               const std::string& compiler) {
  WorkQueue::Changes changes;
  const auto added = queue_.add(key, label, compiler, changes);
  write_queue(std::move(changes));
  return added;
}

bool Work::take(const ActionKey& key, const std::string& lease) {
  WorkQueue::Changes changes;
  const bool taken = queue_.take(key, lease, changes);
  write_queue(std::move(changes));
  return taken;
}

void Work::built(const ActionKey& key) {
  WorkQueue::Changes changes;
  queue_.built(key, changes);
  write_queue(std::move(changes));
}

void Work::failed(const ActionKey& key, FailureClass failure_class, std::string_view message) {
  WorkQueue::Changes changes;
  queue_.failed(key, failure_class_name(failure_class), message, !remembered(failure_class),
                changes);
  write_queue(std::move(changes));
}

void Work::given_back(const std::string& lease) {
  WorkQueue::Changes changes;
  queue_.given_back(lease, changes);
  write_queue(std::move(changes));
}

std::size_t Work::clear_queue() {
  WorkQueue::Changes changes;
  const std::size_t removed = queue_.clear(changes);
  write_queue(std::move(changes));
  return removed;
}

void Work::lease_ended(const std::string& lease) {
  WorkQueue::Changes changes;
  queue_.lease_ended(lease, changes);
  write_queue(std::move(changes));
}

void Work::write(std::string_view table, Changes changes) {
  if (changes.empty() || !persist_) return;
  if (Status written = store_.change_records(table, std::move(changes)); !written.ok()) {
    log::warn("work", "{} will not survive a restart: {}", table, written.error().text());
  }
}

void Work::write_queue(WorkQueue::Changes changes) {
  Changes out;
  out.reserve(changes.size());
  for (auto& [key, value] : changes) out.push_back({std::move(key), std::move(value)});
  write(kQueueTable, std::move(out));
}

}  // namespace nc::daemon
