#include "daemon/lease_keeper.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <utility>

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include "base/log.hpp"
#include "cache/json_fields.hpp"
#include "daemon/disk_pool.hpp"

namespace nc::daemon {
namespace {

constexpr std::string_view kLeaseRecords = "leases";
constexpr std::string_view kDaemonRecords = "daemon";
constexpr std::string_view kFenceRecord = "fence_limit";
constexpr std::uint64_t kFenceStep = 65'536;
constexpr int kUnwatchablePollMs = 1'000;

}  // namespace

std::string lease_to_record(const Lease& lease) {
  namespace js = boost::json;
  const Request& request = lease.request;
  return js::serialize(js::value{{"id", lease.id},
                                 {"fence", lease.fence},
                                 {"key", request.key.hex()},
                                 {"namespace", request.name_space},
                                 {"kind", request.kind},
                                 {"label", request.label},
                                 {"program", request.program},
                                 {"compiler", request.compiler},
                                 {"model", request.model},
                                 {"pid", lease.builder.process.pid},
                                 {"start_ticks", lease.builder.process.start_ticks},
                                 {"host", lease.builder.host},
                                 {"granted_ms", lease.granted_ms}});
}

Result<Lease> lease_from_record(std::string_view record) {
  NC_ASSIGN(const auto object, parse_json_object(record, 64 << 10, "the record of a lease"));
  Lease lease;
  Request& request = lease.request;
  constexpr std::int64_t kMax = JsonFields::kMaxInteger;
  JsonFields fields(object, "the record of a lease");
  fields.require("id").require("fence").require("key");
  fields.text("id", lease.id)
      .integer("fence", lease.fence, 1, kMax)
      .digest("key", request.key)
      .text("namespace", request.name_space)
      .text("kind", request.kind)
      .text("label", request.label)
      .text("program", request.program)
      .text("compiler", request.compiler)
      .text("model", request.model)
      .integer("pid", lease.builder.process.pid, 0, std::int64_t{1} << 30)
      .integer("start_ticks", lease.builder.process.start_ticks, 0, kMax)
      .text("host", lease.builder.host)
      .integer("granted_ms", lease.granted_ms, 0, kMax);
  NC_TRY(fields.done());
  return lease;
}

LeaseKeeper::LeaseKeeper(Deps deps, bool persist) : deps_(deps), persist_(persist) {}

LeaseKeeper::~LeaseKeeper() {
  stop();
}

Status LeaseKeeper::restore() {
  NC_ASSIGN(const auto records, deps_.store.records(kDaemonRecords));
  std::uint64_t floor = 1;
  if (auto it = records.find(std::string(kFenceRecord)); it != records.end()) {
    std::from_chars(it->second.data(), it->second.data() + it->second.size(), floor);
  }
  deps_.table.raise_fence(floor);
  NC_ASSIGN(const auto leases, deps_.store.records(kLeaseRecords));
  std::vector<Lease> known;
  for (const auto& [id, record] : leases) {
    auto lease = lease_from_record(record);
    const bool lives = lease.ok() && (lease->builder.process.pid == 0 ||
                                      deps_.processes.alive(lease->builder.process));
    if (lives) {
      known.push_back(std::move(*lease));
    } else if (persist_) {
      ignore_error(deps_.store.erase_record(kLeaseRecords, id), "it is dropped at the next start");
    }
  }
  // Of two leases of one key the later one counts.
  std::sort(known.begin(), known.end(),
            [](const auto& a, const auto& b) { return a.fence > b.fence; });
  std::size_t taken = 0;
  for (Lease& lease : known) {
    if (!deps_.table.adopt(lease)) continue;
    follow(lease);
    ++taken;
  }
  if (taken > 0) log::info("leases", "{} taken up again after a restart", taken);
  extend_fence(deps_.table.next_fence());
  return {};
}

Status LeaseKeeper::start() {
  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  nudge_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_.valid() || !nudge_.valid()) return errno_error(errno, "cannot watch builders", "");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = nudge_.get();
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, nudge_.get(), &event) != 0) {
    return errno_error(errno, "cannot watch builders", "");
  }
  for (const auto& listed : deps_.table.list()) watch(listed.lease);
  thread_ = std::thread([this] { run(); });
  return {};
}

void LeaseKeeper::stop() {
  stopping_ = true;
  nudge();
  if (thread_.joinable()) thread_.join();
}

void LeaseKeeper::nudge() {
  if (!nudge_.valid()) return;
  const std::uint64_t one = 1;
  // A full counter wakes the thread all the same.
  [[maybe_unused]] const auto written = ::write(nudge_.get(), &one, sizeof one);
}

void LeaseKeeper::follow(const Lease& lease) {
  if (persist_) {
    Status written = deps_.store.put_record(kLeaseRecords, lease.id, lease_to_record(lease));
    if (!written.ok()) {
      log::warn("leases", "a lease will not survive a restart: {}", written.error().text());
    }
    extend_fence(lease.fence);
  }
  deps_.table.attach(lease.id, deps_.store.hold(lease.request.key));
  watch(lease);
  // It may have ended meanwhile; then the clean-up came too early.
  if (!deps_.table.find(lease.id)) {
    unwatch(lease.id);
    if (persist_) {
      ignore_error(deps_.store.erase_record(kLeaseRecords, lease.id), "the next start drops it");
    }
  }
  nudge();
}

void LeaseKeeper::apply(const Effects& effects) {
  for (const std::string& id : effects.ended) {
    unwatch(id);
    if (persist_) {
      ignore_error(deps_.store.erase_record(kLeaseRecords, id), "the next start drops it");
    }
    for (LeaseFollower* follower : followers_) follower->lease_ended(id);
  }
  for (const std::string& name_space : effects.abandoned) {
    deps_.store.count_bypass(name_space, "abandoned", 1);
  }
  for (const std::string& name_space : effects.takeovers) {
    deps_.store.count(name_space, "lease_takeovers", 1);
  }
  for (const auto& wake : effects.wakes) guarded("waking a waiter", wake);
  if (!effects.wakes.empty()) nudge();
}

void LeaseKeeper::extend_fence(std::uint64_t fence) {
  if (!persist_) return;
  std::uint64_t limit = 0;
  {
    MutexLock lock(mutex_);
    if (fence + kFenceStep / 2 < fence_limit_) return;
    limit = fence_limit_ = fence + kFenceStep;
  }
  Status written = deps_.store.put_record(kDaemonRecords, kFenceRecord, std::to_string(limit));
  if (!written.ok()) log::warn("leases", "cannot write the fence down: {}", written.error().text());
}

void LeaseKeeper::watch(const Lease& lease) {
  const ProcessId process = lease.builder.process;
  if (process.pid == 0 || !epoll_.valid()) return;
  auto fd = deps_.processes.exit_fd(process.pid);
  // Asked after the descriptor is there: from now on the pid cannot be another's unnoticed.
  if (fd.is(Code::kNotFound) || !deps_.processes.alive(process)) {
    if (fd.ok()) ::close(*fd);
    apply(deps_.table.end(lease.id, LeaseTable::End::kDied));
    return;
  }
  MutexLock lock(mutex_);
  if (!fd.ok()) {
    unwatchable_[lease.id] = process;
    return;
  }
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = *fd;
  UniqueFd owned(*fd);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, owned.get(), &event) != 0) {
    unwatchable_[lease.id] = process;
    return;
  }
  by_fd_[owned.get()] = lease.id;
  watched_[lease.id] = std::move(owned);
}

void LeaseKeeper::unwatch(const std::string& id) {
  MutexLock lock(mutex_);
  unwatchable_.erase(id);
  auto it = watched_.find(id);
  if (it == watched_.end()) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, it->second.get(), nullptr);
  by_fd_.erase(it->second.get());
  watched_.erase(it);
}

void LeaseKeeper::check_unwatchable() {
  std::map<std::string, ProcessId> asked;
  {
    MutexLock lock(mutex_);
    asked = unwatchable_;
  }
  for (const auto& [id, process] : asked) {
    if (!deps_.processes.alive(process)) apply(deps_.table.end(id, LeaseTable::End::kDied));
  }
}

int LeaseKeeper::timeout_ms() const {
  auto deadline = deps_.table.next_deadline();
  for (const LeaseFollower* follower : followers_) {
    if (const auto other = follower->next_deadline()) {
      deadline = std::min(deadline.value_or(*other), *other);
    }
  }
  Millis timeout = deadline ? std::max<Millis>(0, *deadline - deps_.clock.monotonic_ms()) : -1;
  MutexLock lock(mutex_);
  if (!unwatchable_.empty() && (timeout < 0 || timeout > kUnwatchablePollMs)) {
    timeout = kUnwatchablePollMs;
  }
  return static_cast<int>(std::min<Millis>(timeout, 60'000));
}

void LeaseKeeper::run() {
  while (!stopping_) guarded("lease thread", [this] { step(timeout_ms()); });
}

void LeaseKeeper::step(int timeout_ms) {
  std::array<epoll_event, 64> events;
  const int count =
      epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
  std::vector<std::string> died;
  for (int i = 0; i < count; ++i) {
    const int fd = events[static_cast<std::size_t>(i)].data.fd;
    if (fd == nudge_.get()) {
      std::uint64_t ignored = 0;
      [[maybe_unused]] const auto got = ::read(fd, &ignored, sizeof ignored);
      continue;
    }
    MutexLock lock(mutex_);
    if (auto it = by_fd_.find(fd); it != by_fd_.end()) died.push_back(it->second);
  }
  for (const std::string& id : died) {
    const auto lease = deps_.table.find(id);
    if (lease) {
      log::info("leases", "builder {} of {} died; the lease goes on", lease->builder.process.pid,
                lease->request.key.hex().substr(0, 12));
    }
    unwatch(id);
    apply(deps_.table.end(id, LeaseTable::End::kDied));
  }
  check_unwatchable();
  apply(deps_.table.tick());
  for (LeaseFollower* follower : followers_) follower->tick();
}

}  // namespace nc::daemon
