#include "daemon/guest_leases.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/log.hpp"
#include "cache/tier/layout.hpp"
#include "cache/tier/lease_record.hpp"

namespace nc::daemon {
namespace {

constexpr std::string_view kTable = "guest_leases";

Error absent(const std::string& name) {
  return {Code::kNotFound, "there is no lease " + name, ""};
}

Error leases_only() {
  return {Code::kUnsupported, "a daemon keeps leases for other hosts, and nothing else of a tier",
          "name a tier in `tiers`"};
}

}  // namespace

Status GuestLeases::restore() {
  NC_ASSIGN(auto rows, store_.records(kTable));
  MutexLock lock(mutex_);
  const Millis now = clock_.monotonic_ms();
  for (auto& [name, bytes] : rows) {
    if (!check(name).ok() || bytes.size() > tier::LeaseRecord::kMaxBytes) {
      log::warn("cluster", "a record that is no lease is ignored: {}", name);
      continue;
    }
    bytes_ += name.size() + bytes.size();
    leases_[name] = {std::move(bytes), now};
  }
  return {};
}

void GuestLeases::forget_old() {
  MutexLock lock(mutex_);
  const Millis now = clock_.monotonic_ms();
  for (auto row = leases_.begin(); row != leases_.end();) {
    const auto key = tier::parse_lease(row->first)->key;
    auto end = row;
    Millis changed = row->second.changed_ms;
    for (; end != leases_.end() && tier::parse_lease(end->first)->key == key; ++end) {
      changed = std::max(changed, end->second.changed_ms);
    }
    if (now - changed < kForgetMs) {
      row = end;
      continue;
    }
    std::vector<Store::RecordChange> gone;
    for (auto each = row; each != end; ++each) gone.push_back({each->first, std::nullopt});
    if (Status erased = store_.change_records(kTable, std::move(gone)); !erased.ok()) {
      log::debug("cluster", "old leases of other hosts stay: {}", erased.error().text());
      return;
    }
    for (auto each = row; each != end; ++each) {
      bytes_ -= each->first.size() + each->second.bytes.size();
    }
    row = leases_.erase(row, end);
  }
}

std::size_t GuestLeases::size() const {
  MutexLock lock(mutex_);
  return leases_.size();
}

const std::string& GuestLeases::address() const {
  static const std::string kHere = "this daemon";
  return kHere;
}

Status GuestLeases::check(const std::string& name) const {
  if (tier::parse_lease(name)) return {};
  return leases_only();
}

Status GuestLeases::keep(const std::string& name, Bytes bytes) {
  if (bytes.size() > tier::LeaseRecord::kMaxBytes) {
    return Error{Code::kTooLarge, fmt::format("a lease of {} bytes", bytes.size()), ""};
  }
  const auto old = leases_.find(name);
  const std::uint64_t before = old == leases_.end() ? 0 : name.size() + old->second.bytes.size();
  const std::uint64_t after = name.size() + bytes.size();
  if ((before == 0 && leases_.size() >= kMaxLeases) || bytes_ - before + after > kMaxBytes) {
    return Error{Code::kNoSpace, "too many leases of other hosts are kept here",
                 "they go as builds end, at the latest a day after their hosts died"};
  }
  NC_TRY(store_.put_record(kTable, name, as_text(bytes)));
  bytes_ += after - before;
  leases_[name] = {std::string(as_text(bytes)), clock_.monotonic_ms()};
  return {};
}

Result<std::string> GuestLeases::get(const std::string& name, std::uint64_t limit) {
  NC_TRY(check(name));
  MutexLock lock(mutex_);
  const auto found = leases_.find(name);
  if (found == leases_.end()) return absent(name);
  if (found->second.bytes.size() > limit) {
    return Error{Code::kTooLarge, "the lease " + name + " is larger than it may be", ""};
  }
  return found->second.bytes;
}

Result<tier::ObjectInfo> GuestLeases::head(const std::string& name) {
  NC_TRY(check(name));
  MutexLock lock(mutex_);
  const auto found = leases_.find(name);
  if (found == leases_.end()) return absent(name);
  return tier::ObjectInfo{name, found->second.bytes.size(), 0};
}

Status GuestLeases::put(const std::string& name, Bytes bytes) {
  NC_TRY(check(name));
  MutexLock lock(mutex_);
  return keep(name, bytes);
}

Result<bool> GuestLeases::create(const std::string& name, Bytes bytes, Millis /*keep_ms*/) {
  NC_TRY(check(name));
  MutexLock lock(mutex_);
  if (leases_.contains(name)) return false;
  NC_TRY(keep(name, bytes));
  return true;
}

Status GuestLeases::remove(const std::string& name) {
  NC_TRY(check(name));
  MutexLock lock(mutex_);
  const auto found = leases_.find(name);
  if (found == leases_.end()) return {};
  NC_TRY(store_.erase_record(kTable, name));
  bytes_ -= name.size() + found->second.bytes.size();
  leases_.erase(found);
  return {};
}

Result<std::uint64_t> GuestLeases::fetch(const std::string& name, std::uint64_t offset,
                                         std::uint64_t limit, const tier::Sink& sink) {
  NC_ASSIGN(const std::string bytes, get(name, limit));
  if (offset < bytes.size()) NC_TRY(sink(as_bytes(bytes).subspan(offset)));
  return bytes.size();
}

Status GuestLeases::store(const std::string& /*name*/, tier::Source& /*source*/) {
  return leases_only();
}

Result<tier::Page> GuestLeases::list(const std::string& /*prefix*/, const std::string& /*after*/,
                                     std::size_t /*limit*/) {
  return leases_only();
}

}  // namespace nc::daemon
