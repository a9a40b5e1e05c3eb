#include "daemon/builds.hpp"

#include <algorithm>
#include <utility>

#include <boost/json.hpp>

#include "base/host_memory.hpp"
#include "base/log.hpp"
#include "cache/json_fields.hpp"
#include "daemon/disk_pool.hpp"

namespace nc::daemon {
namespace {

namespace js = boost::json;

constexpr std::string_view kAdmissionTable = "admissions";
constexpr std::string_view kPeakTable = "peaks";
constexpr int kVersion = 1;

struct Record {
  Demand demand;
  std::string compiler;
  unsigned size = 0;  // 0: not known
};

std::string encode(const Record& record) {
  return js::serialize(js::object{{"v", kVersion},
                                  {"bytes", record.demand.bytes},
                                  {"cores", record.demand.cores},
                                  {"alone", record.demand.alone ? 1 : 0},
                                  {"compiler", record.compiler},
                                  {"size", record.size}});
}

std::optional<Record> decode(std::string_view text) {
  constexpr std::size_t kMaxRecord = 16 << 10;
  const auto object = parse_json_object(text, kMaxRecord, "the record");
  if (!object.ok()) return std::nullopt;
  Record record;
  int version = 0;
  int alone = 0;
  JsonFields fields(*object, "the record");
  fields.integer("v", version, 1, 1000)
      .integer("bytes", record.demand.bytes, 0, JsonFields::kMaxInteger)
      .integer("cores", record.demand.cores, 0, 1 << 20)
      .integer("alone", alone, 0, 1)
      .text("compiler", record.compiler)
      .integer("size", record.size, 0, 64);
  record.demand.alone = alone == 1;
  if (!fields.done().ok() || version != kVersion) return std::nullopt;
  return record;
}

void run(const AdmissionQueue::Wakes& wakes) {
  for (const auto& wake : wakes) guarded("waking a build", wake);
}

AdmissionQueue::Limits limits_of(const Settings& settings) {
  AdmissionQueue::Limits limits;
  limits.memory = settings.size("build_memory");
  limits.cores = static_cast<unsigned>(settings.integer("build_cores"));
  if (limits.cores == 0) limits.cores = usable_cores(real_filesystem());
  return limits;
}

}  // namespace

std::optional<std::uint64_t> HostDoor::available() {
  const auto memory = read_host_memory(fs_);
  if (!memory.ok()) return std::nullopt;
  return memory->available;
}

std::vector<std::uint64_t> HostDoor::taken(std::span<const std::int64_t> pids) {
  return tree_memory(fs_, pids);
}

MemoryDoor& host_memory_door() {
  static HostDoor door(real_filesystem());
  return door;
}

Status Builds::restore(const LeaseTable& leases, const Settings& settings, bool persist) {
  persist_ = persist;
  configure(settings);
  NC_ASSIGN(const auto peaks, store_.records(kPeakTable));
  for (const auto& [key, value] : peaks) {
    if (!peaks_.load(key, value) && persist) {
      ignore_error(store_.erase_record(kPeakTable, key), "it is not read the next time either");
    }
  }
  NC_ASSIGN(const auto records, store_.records(kAdmissionTable));
  for (const auto& [lease, text] : records) {
    const auto held = leases.find(lease);
    const auto record = decode(text);
    if (!held || !record) {
      if (persist) {
        ignore_error(store_.erase_record(kAdmissionTable, lease), "the next start drops it");
      }
      continue;
    }
    Known known;
    known.granted = record->demand;
    known.written = true;
    if (record->size > 0) known.of = PeakClass{record->compiler, record->size};
    admission_.adopt(lease, held->builder.process.pid, record->demand);
    MutexLock lock(mutex_);
    known_[lease] = std::move(known);
  }
  return {};
}

void Builds::configure(const Settings& settings) {
  run(admission_.set_limits(limits_of(settings)));
}

void Builds::drain() {
  run(admission_.drain());
}

PeakBook::Estimate Builds::expect(const Ask& ask) const {
  return peaks_.estimate(PeakClass::of(ask.compiler, ask.input_bytes), ask.guess);
}

AdmissionQueue::Answer Builds::ask(const Ask& ask, std::uint64_t expected,
                                   AdmissionQueue::Wake wake) {
  {
    MutexLock lock(mutex_);
    known_[ask.lease].of = PeakClass::of(ask.compiler, ask.input_bytes);
  }
  const Demand demand{std::max(expected, ask.minimum_bytes), ask.cores, ask.alone};
  AdmissionQueue::Wakes wakes;
  AdmissionQueue::Answer answer =
      admission_.ask(ask.lease, ask.pid, demand, ask.wait_ms, std::move(wake), wakes);
  run(wakes);
  return answer;
}

void Builds::told(const std::string& lease, const Demand& granted) {
  Known now;
  {
    MutexLock lock(mutex_);
    Known& known = known_[lease];
    if (known.written && known.granted == granted) return;
    known.granted = granted;
    known.written = persist_;
    now = known;
  }
  write(lease, now);
}

void Builds::adopt(const std::string& lease, std::int64_t pid, const Demand& demand) {
  if (admission_.admitted(lease)) return;
  admission_.adopt(lease, pid, demand);
  if (admission_.admitted(lease)) told(lease, demand);
}

void Builds::learn(const std::string& lease, std::uint64_t peak_bytes) {
  std::optional<PeakClass> of;
  {
    MutexLock lock(mutex_);
    const auto it = known_.find(lease);
    if (it != known_.end()) of = it->second.of;
  }
  if (!of || peak_bytes == 0) return;
  std::vector<Store::RecordChange> changes;
  for (auto& [key, value] : peaks_.add(*of, peak_bytes, clock_.wall_ms())) {
    changes.push_back({key, std::move(value)});
  }
  if (!persist_) return;
  if (Status written = store_.change_records(kPeakTable, std::move(changes)); !written.ok()) {
    log::debug("builds", "a measured peak is not written: {}", written.error().text());
  }
}

std::uint64_t Builds::reserved(const std::string& lease) {
  MutexLock lock(mutex_);
  const auto it = known_.find(lease);
  return it == known_.end() ? 0 : it->second.granted.bytes;
}

void Builds::lease_ended(const std::string& lease) {
  bool written = false;
  {
    MutexLock lock(mutex_);
    const auto it = known_.find(lease);
    if (it != known_.end()) {
      written = it->second.written;
      known_.erase(it);
    }
  }
  if (written) {
    ignore_error(store_.erase_record(kAdmissionTable, lease), "the next start drops it");
  }
  run(admission_.release(lease));
}

void Builds::tick() {
  run(admission_.tick());
}

void Builds::write(const std::string& lease, const Known& known) {
  if (!known.written) return;
  Record record;
  record.demand = known.granted;
  if (known.of) {
    record.compiler = known.of->compiler;
    record.size = known.of->size;
  }
  Status written = store_.put_record(kAdmissionTable, lease, encode(record));
  if (!written.ok()) {
    log::warn("builds", "a reservation will not survive a restart: {}", written.error().text());
  }
}

}  // namespace nc::daemon
