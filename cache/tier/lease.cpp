#include "cache/tier/lease.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "cache/tier/layout.hpp"

namespace nc::tier {
namespace {

constexpr Millis kKeepMs = Millis{7} * 24 * 3600 * 1000;
constexpr std::string_view kGarbage = "garbage";
constexpr std::uint64_t kMaxCleared = 256;  // the rest is left to prune

bool for_good(Code code) {
  return code == Code::kDenied || code == Code::kReadOnly || code == Code::kUnsupported;
}

}  // namespace

ClusterLease::ClusterLease(Deps deps, Options options, const ActionKey& key, Who who)
    : deps_(std::move(deps)),
      options_(options),
      key_(key),
      who_(std::move(who)),
      id_(deps_.random.hex_id()) {}

ClusterLease::~ClusterLease() {
  become(State::kEnded);
}

// ---- What is due ----

std::optional<Millis> ClusterLease::step() {
  Millis next = 0;
  switch (state()) {
    case State::kSeeking:
    case State::kWaiting:
      next = taking_up_ ? take_up() : seek();
      break;
    case State::kHeld:
      next = taking_up_ ? take_up() : renew();
      break;
    default:
      return std::nullopt;
  }
  switch (state()) {
    case State::kSeeking:
    case State::kWaiting:
    case State::kHeld:
      return std::max(next, now() + 1);
    default:
      return std::nullopt;
  }
}

Millis ClusterLease::seek() {
  for (int round = 0; round < 4; ++round) {
    if (last_ == 0) {
      const Millis begun = now();
      const auto made = create(1);
      if (!made.ok()) return trouble(made.error());
      if (*made) return won(1, begun, false);
      const auto last = find_last();
      if (!last.ok()) return trouble(last.error());
      if (*last == 0) continue;  // removed this very moment
      follow(*last);
    }
    const auto seen = look(last_);
    if (!seen.ok()) return trouble(seen.error());
    if (const auto next = judge(*seen)) return *next;
  }
  return next_poll(now() + options_.period_ms);
}

std::optional<Millis> ClusterLease::judge(const Seen& seen) {
  if (!seen.there) {  // removed after its entry became visible, or forgotten
    if (const auto next = look_for_entry()) return next;
    follow(0);
    return std::nullopt;
  }
  if (seen.record && seen.record->holder == id_) {  // our own create(), which came late
    taking_up_ = true;
    since_ = now();
    MutexLock lock(mutex_);
    fence_ = last_;
    return now();
  }
  if (!mark_since_ || seen.mark != mark_) {
    mark_ = seen.mark;
    mark_since_ = now();
    if (!seen.record) ++deps_.counters.garbage;
  }
  bool silent = false;
  if (!seen.record || seen.record->state == LeaseRecord::State::kHeld) {
    const Millis period =
        std::max(options_.period_ms, seen.record ? seen.record->period_ms : options_.period_ms);
    const Millis expires = *mark_since_ + period;
    silent = now() >= expires;
    if (!silent) {
      note_ok();
      followed_ = followed_ || seen.record;
      {
        MutexLock lock(mutex_);
        holder_ = seen.record;
      }
      become(State::kWaiting);
      return next_poll(expires);
    }
  } else if (seen.record->state == LeaseRecord::State::kApart && followed_) {
    ++deps_.counters.apart;
    become(State::kAlone, "host " + seen.record->host + " built it and could not share it");
    return 0;
  }
  if (const auto next = look_for_entry()) return next;
  const Millis begun = now();
  const auto made = create(last_ + 1);
  if (!made.ok()) return trouble(made.error());
  if (*made) return won(last_ + 1, begun, silent);
  follow(last_ + 1);
  return std::nullopt;
}

// Nothing: there is none, as far as can be seen.
std::optional<Millis> ClusterLease::look_for_entry() {
  const auto there = deps_.entry_there();
  if (!there.ok()) return trouble(there.error());
  note_ok();
  if (*there) return settle(), 0;
  return std::nullopt;
}

// fence is ours since a moment after `begun`.
Millis ClusterLease::won(std::uint64_t fence, Millis begun, bool after_silence) {
  note_ok();
  {
    MutexLock lock(mutex_);
    fence_ = fence;
  }
  since_ = begun;
  wait_until_ = 0;
  if (after_silence) {
    ++deps_.counters.takeovers;
    const auto before = look(fence - 1);
    const bool unchanged = before.ok() && before->there && before->mark == mark_;
    if (!unchanged) wait_until_ = now() + options_.period_ms;
  }
  const auto beyond = look(fence + 1);
  if (beyond.ok() && beyond->there) {
    follow(fence + 1);
    return now();
  }
  if (!beyond.ok() || wait_until_ != 0) {
    taking_up_ = true;
    return now() + options_.period_ms / 16;
  }
  return hold(begun);
}

// What is ours is kept by beats until it can be believed.
Millis ClusterLease::take_up() {
  const Millis begun = now();
  const bool held = resumed_;
  const auto kept = beat();
  if (!kept.ok()) {
    if (!held) return trouble(kept.error());
    ++failures_;
    return now() + options_.period_ms / 16 + random_below(options_.period_ms / 16);
  }
  if (*kept == Beat::kKept && begun >= wait_until_) return hold(begun);
  note_ok();
  if (*kept == Beat::kKept) return std::min(wait_until_, begun + options_.period_ms / 4);
  taking_up_ = false;
  if (held) return lose(), 0;
  follow(*kept == Beat::kTaken ? fence() + 1 : 0);
  return now();
}

Millis ClusterLease::hold(Millis begun) {
  taking_up_ = false;
  if (!resumed_) {
    const auto there = deps_.entry_there();
    if (!there.ok()) {
      taking_up_ = true;  // failing_since_ stays: an entry that cannot be looked for is no progress
      return trouble(there.error());
    }
    if (*there) {
      clear_row();
      return settle(), 0;
    }
    ++deps_.counters.taken;
  }
  note_ok();
  believe_until(begun + options_.period_ms / 8 * 7);
  become(State::kHeld);
  next_beat_ = begun + options_.period_ms / 4 - random_below(options_.period_ms / 16);
  return next_beat_;
}

Millis ClusterLease::renew() {
  const Millis begun = now();
  if (begun < next_beat_) return next_beat_;
  auto kept = beat();
  if (kept.ok() && *kept == Beat::kGone) kept = make_again();
  if (!kept.ok()) {
    ++failures_;
    next_beat_ = now() + options_.period_ms / 16 + random_below(options_.period_ms / 16);
    return next_beat_;
  }
  if (*kept != Beat::kKept) return lose(), 0;
  note_ok();
  believe_until(begun + options_.period_ms / 8 * 7);
  next_beat_ = begun + options_.period_ms / 4 - random_below(options_.period_ms / 16);
  return next_beat_;
}

void ClusterLease::give_up(std::string reason) {
  switch (state()) {
    case State::kSeeking:
    case State::kWaiting:
      become(State::kAlone, std::move(reason));
      break;
    default:
      break;
  }
}

void ClusterLease::end(End how) {
  const State was = state();
  become(State::kEnded);
  // What still waits to be believed is left to fall silent: a release would let others in too soon.
  if (was != State::kHeld || now() < wait_until_) return;
  if (taking_up_) {  // after a restart, not yet confirmed
    const auto own = look(fence());
    if (!own.ok() || !own->record || own->record->holder != id_) return;
    beat_ = own->record->beat + 1;
  }
  if (how == End::kPublished && deps_.engine.capabilities().remove) {
    clear_row();
    return;
  }
  ignore_error(
      write(how == End::kApart ? LeaseRecord::State::kApart : LeaseRecord::State::kReleased),
      "others wait for a period then");
}

void ClusterLease::resume(const std::string& holder, std::uint64_t fence) {
  id_ = holder;
  since_ = now();
  resumed_ = taking_up_ = true;
  {
    MutexLock lock(mutex_);
    fence_ = fence;
  }
  become(State::kHeld);
}

void ClusterLease::lose() {
  ++deps_.counters.lost;
  const auto other = look(fence() + 1);
  {
    MutexLock lock(mutex_);
    holder_ = other.ok() ? other->record : std::nullopt;
  }
  become(State::kLost, "another host took the lease over");
}

void ClusterLease::settle() {
  ++deps_.counters.settled;
  become(State::kSettled);
}

// ---- Failures and time ----

Millis ClusterLease::trouble(const Error& error) {
  const Millis at = now();
  if (!failing_since_) failing_since_ = at;
  const Millis patience = state() == State::kWaiting ? options_.period_ms : options_.patience_ms;
  if (for_good(error.code) || at - *failing_since_ >= patience) {
    ++deps_.counters.alone;
    become(State::kAlone, error.text());
    return 0;
  }
  const Millis pause =
      std::min(Millis{100} << std::min(failures_++, 10), std::max<Millis>(patience / 4, 1));
  return at + pause / 2 + random_below(pause);
}

Millis ClusterLease::next_poll(Millis expires) {
  const Millis longest = options_.period_ms / 4;
  if (poll_ms_ == 0) {
    poll_ms_ = std::min(longest, std::max<Millis>(100, options_.period_ms / 32));
  } else {
    poll_ms_ = std::min(longest, poll_ms_ * 3 / 2);
  }
  const Millis wanted = now() + poll_ms_ * 3 / 4 + random_below(poll_ms_ / 2);
  const Millis soonest = now() + deps_.pace.shortest_ms();
  const Millis check = expires + random_below(options_.period_ms / 16);
  return std::max(std::min(wanted, check), soonest);
}

void ClusterLease::note_ok() {
  failing_since_.reset();
  failures_ = 0;
}

Millis ClusterLease::random_below(Millis ms) {
  return ms <= 0 ? 0 : static_cast<Millis>(deps_.random.next() % static_cast<std::uint64_t>(ms));
}

// ---- Requests ----

Result<bool> ClusterLease::create(std::uint64_t fence) {
  ++deps_.counters.requests;
  beat_ = 1;
  if (state() != State::kHeld) since_ = now();
  const std::string bytes = text(LeaseRecord::State::kHeld);
  auto made = deps_.engine.create(lease_name(key_, fence), as_bytes(bytes), kKeepMs);
  if (made.ok()) return made;
  ++deps_.counters.errors;
  if (for_good(made.error().code)) return made;
  // The answer may be what failed.
  const auto seen = look(fence);
  if (!seen.ok() || !seen->there) return made;
  return seen->record && seen->record->holder == id_;
}

Result<ClusterLease::Seen> ClusterLease::look(std::uint64_t fence) {
  ++deps_.counters.requests;
  Seen seen;
  auto bytes = deps_.engine.get(lease_name(key_, fence), LeaseRecord::kMaxBytes);
  if (!bytes.ok() && bytes.is(Code::kNotFound)) return seen;
  if (!bytes.ok() && !bytes.is(Code::kTooLarge) && !bytes.is(Code::kCorrupt)) {
    ++deps_.counters.errors;
    return bytes.error();
  }
  seen.there = true;
  seen.mark = kGarbage;
  if (!bytes.ok()) return seen;
  auto record = LeaseRecord::parse(*bytes);
  if (!record.ok()) return seen;
  seen.record = std::move(*record);
  seen.mark = std::move(*bytes);
  return seen;
}

// Of a row that begins at 1; 0: there is none.
Result<std::uint64_t> ClusterLease::find_last() {
  std::uint64_t there = 0;
  std::uint64_t absent = 1;
  for (;; absent *= 2) {
    NC_ASSIGN(const Seen seen, look(absent));
    if (!seen.there) break;
    there = absent;
    if (absent >= std::uint64_t{1} << 40) {
      return Error{Code::kUnavailable, "the tier says that every lease exists", ""};
    }
  }
  while (there + 1 < absent) {
    const std::uint64_t middle = there + (absent - there) / 2;
    NC_ASSIGN(const Seen seen, look(middle));
    (seen.there ? there : absent) = middle;
  }
  return there;
}

Result<ClusterLease::Beat> ClusterLease::beat() {
  const std::uint64_t fence = this->fence();
  NC_ASSIGN(const Seen own, look(fence));
  if (!own.there) return Beat::kGone;
  if (own.record && own.record->holder != id_) return Beat::kTaken;
  if (own.record) beat_ = std::max(beat_, own.record->beat);
  if (!own.record) ++deps_.counters.garbage;
  ++beat_;
  NC_TRY(write(LeaseRecord::State::kHeld));
  NC_ASSIGN(const Seen beyond, look(fence + 1));
  return beyond.there ? Beat::kTaken : Beat::kKept;
}

// The engine forgot our object, or somebody removed the row because the entry is there.
Result<ClusterLease::Beat> ClusterLease::make_again() {
  NC_ASSIGN(const bool there, deps_.entry_there());
  if (there) return Beat::kTaken;
  NC_ASSIGN(const bool made, create(fence()));
  if (!made) return Beat::kTaken;
  NC_ASSIGN(const Seen beyond, look(fence() + 1));
  return beyond.there ? Beat::kTaken : Beat::kKept;
}

Status ClusterLease::write(LeaseRecord::State state) {
  ++deps_.counters.requests;
  const std::string bytes = text(state);
  Status written = deps_.engine.put(lease_name(key_, fence()), as_bytes(bytes));
  if (!written.ok()) ++deps_.counters.errors;
  return written;
}

// From the end, so that what a crash leaves is still a row.
void ClusterLease::clear_row() {
  const std::uint64_t from = fence();
  if (!deps_.engine.capabilities().remove) {
    ignore_error(write(LeaseRecord::State::kReleased), "others wait for a period then");
    return;
  }
  for (std::uint64_t n = from; n > 0 && from - n < kMaxCleared; --n) {
    ++deps_.counters.requests;
    Status removed = deps_.engine.remove(lease_name(key_, n));
    if (removed.ok()) continue;
    ++deps_.counters.errors;
    log::debug("lease", "a lease object stays until it is pruned: {}", removed.error().text());
    return;
  }
}

std::string ClusterLease::text(LeaseRecord::State state) {
  LeaseRecord record;
  record.state = state;
  record.holder = id_;
  record.beat = beat_;
  record.period_ms = options_.period_ms;
  record.host = who_.host;
  record.program = who_.program;
  record.label = who_.label;
  record.pid = who_.pid;
  record.building_ms = now() - since_;
  MutexLock lock(mutex_);
  record.progress = progress_;
  return record.to_text();
}

// ---- State ----

void ClusterLease::follow(std::uint64_t fence) {
  last_ = fence;
  mark_since_.reset();
  poll_ms_ = 0;
}

void ClusterLease::become(State state, std::string reason) {
  MutexLock lock(mutex_);
  if (state_ == state) return;
  if (state_ == State::kWaiting) deps_.pace.leave();
  if (state == State::kWaiting) deps_.pace.enter();
  state_ = state;
  reason_ = std::move(reason);
  if (state != State::kHeld) believed_until_ = 0;
}

void ClusterLease::believe_until(Millis until) {
  MutexLock lock(mutex_);
  believed_until_ = until;
}

ClusterLease::State ClusterLease::state() const {
  MutexLock lock(mutex_);
  return state_;
}

bool ClusterLease::believed() const {
  MutexLock lock(mutex_);
  return state_ == State::kHeld && now() < believed_until_;
}

std::optional<LeaseRecord> ClusterLease::holder() const {
  MutexLock lock(mutex_);
  return holder_;
}

std::string ClusterLease::reason() const {
  MutexLock lock(mutex_);
  return reason_;
}

std::uint64_t ClusterLease::fence() const {
  MutexLock lock(mutex_);
  return fence_;
}

void ClusterLease::set_progress(std::string text) {
  MutexLock lock(mutex_);
  progress_ = std::move(text);
}

}  // namespace nc::tier
