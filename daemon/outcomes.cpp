#include "daemon/outcomes.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <boost/json.hpp>

#include "base/log.hpp"
#include "cache/json_fields.hpp"

namespace nc::daemon {
namespace {

namespace js = boost::json;

constexpr std::string_view kTable = "outcomes";
constexpr int kVersion = 1;
constexpr std::size_t kMaxRecord = 64 << 10;
constexpr std::size_t kMaxMessage = 1000;
constexpr std::array<std::string_view, 5> kNames = {"unfinished", "hit", "built", "waited",
                                                    "failed"};

// Cut between characters, so that UTF-8 stays UTF-8.
std::string cut(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0) == 0x80) --most;
  return std::string(text.substr(0, most)) + "...";
}

std::string row_key(const std::string& recording, const ActionKey& key) {
  std::string row = recording;
  row.push_back('\0');
  return row += key.hex();
}

bool read_differs(const js::object& object, std::vector<Miss::Differs>& out) {
  const js::value* list = object.if_contains("differs");
  if (list == nullptr || !list->is_array()) return false;
  for (const js::value& item : list->get_array()) {
    const js::array* three = item.if_array();
    if (three == nullptr || three->size() != 3) return false;
    Miss::Differs differs;
    std::string* const into[] = {&differs.name, &differs.wanted, &differs.have};
    for (std::size_t i = 0; i < 3; ++i) {
      if (!(*three)[i].is_string()) return false;
      *into[i] = std::string((*three)[i].get_string());
    }
    out.push_back(std::move(differs));
  }
  return true;
}

}  // namespace

std::string_view outcome_state_name(OutcomeState state) {
  return kNames[static_cast<std::size_t>(state)];
}

std::string first_log_line(std::string_view log) {
  std::string_view first;
  while (!log.empty()) {
    const std::size_t end = std::min(log.find('\n'), log.size());
    std::string_view line = log.substr(0, end);
    log.remove_prefix(std::min(end + 1, log.size()));
    const std::size_t start = line.find_first_not_of(" \t\r.");
    if (start == std::string_view::npos) continue;
    line = line.substr(start, line.find_last_not_of(" \t\r") - start + 1);
    // Between the parts of a log that is made of several.
    if (line.starts_with("[standard ") && line.ends_with("]")) continue;
    if (line.find("ERROR") != std::string_view::npos ||
        line.find("rror:") != std::string_view::npos)
      return cut(line, Outcome::kMaxLogLine);
    if (first.empty()) first = line;
  }
  return cut(first, Outcome::kMaxLogLine);
}

std::string Outcome::encode() const {
  js::array three;
  for (const Miss::Differs& d : differs) three.push_back(js::array{d.name, d.wanted, d.have});
  return js::serialize(js::object{{"v", kVersion},
                                  {"state", static_cast<int>(state)},
                                  {"kind", kind},
                                  {"label", label},
                                  {"program", program},
                                  {"compiler", compiler},
                                  {"build_ms", build_ms},
                                  {"class", failure_class},
                                  {"message", message},
                                  {"log_line", log_line},
                                  {"cause", cause},
                                  {"nearest", nearest},
                                  {"differs", std::move(three)},
                                  {"waiting", waiting ? 1 : 0},
                                  {"first_ms", first_ms},
                                  {"last_ms", last_ms}});
}

std::optional<Outcome> Outcome::decode(std::string_view text) {
  const auto object = parse_json_object(text, kMaxRecord, "the record");
  if (!object.ok()) return std::nullopt;
  Outcome out;
  int version = 0;
  int state = 0;
  int waits = 0;
  JsonFields fields(*object, "the record");
  fields.require("v").require("state");
  fields.integer("v", version, 1, 1000)
      .integer("state", state, 0, static_cast<std::int64_t>(kNames.size()) - 1)
      .text("kind", out.kind)
      .text("label", out.label)
      .text("program", out.program)
      .text("compiler", out.compiler)
      .integer("build_ms", out.build_ms, 0, JsonFields::kMaxInteger)
      .text("class", out.failure_class)
      .text("message", out.message, 2 * kMaxMessage)
      .text("log_line", out.log_line)
      .text("cause", out.cause)
      .text("nearest", out.nearest)
      .integer("waiting", waits, 0, 1)
      .integer("first_ms", out.first_ms, 0, JsonFields::kMaxInteger)
      .integer("last_ms", out.last_ms, 0, JsonFields::kMaxInteger);
  if (!fields.done().ok() || version != kVersion || !read_differs(*object, out.differs))
    return std::nullopt;
  out.state = static_cast<OutcomeState>(state);
  out.waiting = waits == 1;
  return out;
}

bool is_run_name(std::string_view text) {
  const std::size_t mark = text.find('~');
  return is_namespace_name(text.substr(0, mark)) &&
         (mark == std::string_view::npos || is_namespace_name(text.substr(mark + 1)));
}

Status Outcomes::restore(bool persist) {
  NC_ASSIGN(const auto rows, store_.records(kTable));
  Changes changes;
  {
    MutexLock lock(mutex_);
    persist_ = persist;
    for (const auto& [row, text] : rows) {
      const std::size_t end = std::min(row.find('\0'), row.size());
      const std::string name = row.substr(0, end);
      const auto key =
          ActionKey::from_hex(std::string_view(row).substr(std::min(end + 1, row.size())));
      auto outcome = Outcome::decode(text);
      if (!key || !outcome || !is_run_name(name)) {
        changes.push_back({row, std::nullopt});
        continue;
      }
      outcome->key = *key;
      if (recordings_[name].emplace(*key, *std::move(outcome)).second) ++rows_;
    }
  }
  write(std::move(changes));
  return {};
}

void Outcomes::configure(const Settings& settings) {
  {
    MutexLock lock(mutex_);
    ttl_ms_ = static_cast<Millis>(settings.seconds("recordings_ttl") * 1000);
  }
  maintain();
}

void Outcomes::maintain() {
  Changes changes;
  {
    MutexLock lock(mutex_);
    bound(changes);
  }
  write(std::move(changes));
}

void Outcomes::hit(const std::string& recording, const Request& request, std::uint64_t build_ms,
                   bool waited) {
  Changes changes;
  {
    MutexLock lock(mutex_);
    Outcome& outcome = row(recording, request, changes);
    if (outcome.first_ms == 0) {
      outcome.state = waited ? OutcomeState::kWaited : OutcomeState::kHit;
    } else if (outcome.state == OutcomeState::kFailed ||
               outcome.state == OutcomeState::kUnfinished) {
      outcome.state = OutcomeState::kWaited;  // it was needed before it was there
    }
    outcome.build_ms = build_ms;
    outcome.waiting = false;
    touch(recording, outcome, changes);
  }
  write(std::move(changes));
}

void Outcomes::missed(const std::string& recording, const Request& request,
                      const std::optional<Miss>& miss) {
  Changes changes;
  {
    MutexLock lock(mutex_);
    Outcome& outcome = row(recording, request, changes);
    outcome.state = OutcomeState::kUnfinished;
    outcome.waiting = false;
    if (miss) {
      outcome.cause = miss->cause;
      outcome.nearest = miss->nearest ? miss->nearest->key.hex() : "";
      outcome.differs.clear();
      if (miss->nearest) {
        for (const Miss::Differs& d : miss->nearest->differs) {
          if (outcome.differs.size() == Outcome::kMaxDiffers) break;
          outcome.differs.push_back({cut(d.name, Outcome::kMaxValue),
                                     cut(d.wanted, Outcome::kMaxValue),
                                     cut(d.have, Outcome::kMaxValue)});
        }
      }
    }
    touch(recording, outcome, changes);
  }
  write(std::move(changes));
}

void Outcomes::waiting(const std::string& recording, const Request& request) {
  Changes changes;
  {
    MutexLock lock(mutex_);
    Outcome& outcome = row(recording, request, changes);
    // Known as unfinished: it is built in this recording, or waited for already.
    if (outcome.first_ms != 0 && outcome.state == OutcomeState::kUnfinished) return;
    outcome.state = OutcomeState::kUnfinished;
    outcome.waiting = true;
    touch(recording, outcome, changes);
  }
  write(std::move(changes));
}

void Outcomes::refused(const std::string& recording, const Request& request,
                       const Failure& failure) {
  Changes changes;
  {
    MutexLock lock(mutex_);
    Outcome& outcome = row(recording, request, changes);
    outcome.state = OutcomeState::kFailed;
    outcome.waiting = false;
    outcome.failure_class = failure_class_name(failure.failure_class);
    outcome.message = cut(failure.message, kMaxMessage);
    outcome.log_line = first_log_line(failure.log);
    touch(recording, outcome, changes);
  }
  write(std::move(changes));
}

void Outcomes::built(const ActionKey& key, std::uint64_t build_ms) {
  Changes changes;
  {
    MutexLock lock(mutex_);
    for (auto& [name, rows] : recordings_) {
      const auto it = rows.find(key);
      if (it == rows.end() || it->second.waiting || it->second.state != OutcomeState::kUnfinished)
        continue;
      it->second.state = OutcomeState::kBuilt;
      it->second.build_ms = build_ms;
      touch(name, it->second, changes);
    }
  }
  write(std::move(changes));
}

void Outcomes::failed(const ActionKey& key, std::string_view failure_class,
                      std::string_view message, std::string_view log) {
  Changes changes;
  {
    MutexLock lock(mutex_);
    for (auto& [name, rows] : recordings_) {
      const auto it = rows.find(key);
      if (it == rows.end() || it->second.waiting || it->second.state != OutcomeState::kUnfinished)
        continue;
      it->second.state = OutcomeState::kFailed;
      it->second.failure_class = failure_class;
      it->second.message = cut(message, kMaxMessage);
      it->second.log_line = first_log_line(log);
      touch(name, it->second, changes);
    }
  }
  write(std::move(changes));
}

std::vector<Outcome> Outcomes::page(const std::string& recording,
                                    const std::optional<ActionKey>& after,
                                    std::size_t limit) const {
  MutexLock lock(mutex_);
  std::vector<Outcome> out;
  const auto rows = recordings_.find(recording);
  if (rows == recordings_.end()) return out;
  for (auto it = after ? rows->second.upper_bound(*after) : rows->second.begin();
       it != rows->second.end() && out.size() < limit; ++it) {
    out.push_back(it->second);
  }
  return out;
}

std::size_t Outcomes::forget(const std::string& recording) {
  Changes changes;
  {
    MutexLock lock(mutex_);
    const auto rows = recordings_.find(recording);
    if (rows == recordings_.end()) return 0;
    for (const auto& [key, outcome] : rows->second)
      changes.push_back({row_key(recording, key), std::nullopt});
    rows_ -= rows->second.size();
    recordings_.erase(rows);
  }
  const std::size_t forgotten = changes.size();
  write(std::move(changes));
  return forgotten;
}

std::size_t Outcomes::move(const std::string& from, const std::string& to) {
  if (from == to) return 0;
  Changes changes;
  std::size_t moved = 0;
  {
    MutexLock lock(mutex_);
    for (const std::string& name : {from, to}) {
      for (const auto& [key, outcome] : recordings_[name])
        changes.push_back({row_key(name, key), std::nullopt});
    }
    rows_ -= recordings_[to].size();
    recordings_[to] = std::move(recordings_[from]);
    recordings_.erase(from);
    moved = recordings_[to].size();
    for (const auto& [key, outcome] : recordings_[to])
      changes.push_back({row_key(to, key), outcome.encode()});
    if (moved == 0) recordings_.erase(to);
  }
  write(std::move(changes));
  return moved;
}

Outcome& Outcomes::row(const std::string& recording, const Request& request, Changes& changes) {
  const auto known = recordings_.find(recording);
  const bool fresh = known == recordings_.end() || !known->second.contains(request.key);
  if (fresh && ++rows_ > kMaxOutcomes) bound(changes);
  Outcome& outcome = recordings_[recording][request.key];
  outcome.key = request.key;
  outcome.kind = request.kind;
  outcome.label = request.label;
  outcome.program = request.program;
  outcome.compiler = request.compiler;
  return outcome;
}

void Outcomes::touch(const std::string& recording, Outcome& outcome, Changes& changes) {
  outcome.last_ms = clock_.wall_ms();
  if (outcome.first_ms == 0) outcome.first_ms = outcome.last_ms;
  changes.push_back({row_key(recording, outcome.key), outcome.encode()});
}

void Outcomes::bound(Changes& changes) {
  struct Old {
    Millis last_ms = 0;
    std::string recording;
    ActionKey key;
  };
  const Millis oldest_kept = clock_.wall_ms() - ttl_ms_;
  const bool over = rows_ > kMaxOutcomes;
  std::vector<Old> old;
  for (const auto& [name, rows] : recordings_) {
    for (const auto& [key, outcome] : rows) {
      if (over || outcome.last_ms < oldest_kept) old.push_back({outcome.last_ms, name, key});
    }
  }
  std::sort(old.begin(), old.end(),
            [](const Old& a, const Old& b) { return a.last_ms < b.last_ms; });
  // Some more than needed, so that not every new one has to look for the oldest.
  constexpr std::size_t kRoom = kMaxOutcomes / 100;
  const std::size_t most = over ? kMaxOutcomes - kRoom : kMaxOutcomes;
  for (const Old& one : old) {
    if (one.last_ms >= oldest_kept && rows_ <= most) return;
    const auto rows = recordings_.find(one.recording);
    rows->second.erase(one.key);
    if (rows->second.empty()) recordings_.erase(rows);
    --rows_;
    changes.push_back({row_key(one.recording, one.key), std::nullopt});
  }
}

void Outcomes::write(Changes changes) {
  {
    MutexLock lock(mutex_);
    if (changes.empty() || !persist_) return;
  }
  if (Status written = store_.change_records(kTable, std::move(changes)); !written.ok())
    log::warn("outcomes", "they will not survive a restart: {}", written.error().text());
}

}  // namespace nc::daemon
