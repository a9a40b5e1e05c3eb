// The leases of a cluster whose tier is this daemon: small records that other hosts make, renew and
// remove over TCP (docs/protocol.md), and that the builds of this host respect like any other
// host's. An engine that keeps nothing else; cache/tier/lease.hpp says how little is asked of it.
//
// Everything is in memory, and in the store's table "guest_leases" (the object's name -> its bytes
// as they came; docs/formats.md). It survives a kill; what is lost with the power can cost a second
// build, never a wrong artifact. Bounded: kNoSpace beyond kMaxLeases or kMaxBytes, and hosts build
// for themselves until some have ended. Rows in which nothing has changed for a day are forgotten:
// their hosts are dead, and whoever wants the key had a thousand periods to take it over.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/clock.hpp"
#include "base/thread_annotations.hpp"
#include "cache/store.hpp"
#include "cache/tier/engine.hpp"

namespace nc::daemon {

// Thread-safe; what changes something waits for the disk.
class GuestLeases final : public tier::Engine {
 public:
  static constexpr std::size_t kMaxLeases = 100'000;
  static constexpr std::uint64_t kMaxBytes = 64 << 20;
  static constexpr Millis kForgetMs = 24 * 3'600'000;

  GuestLeases(Store& store, Clock& clock) : store_(store), clock_(clock) {}

  Status restore() NC_EXCLUDES(mutex_);
  void forget_old() NC_EXCLUDES(mutex_);
  std::size_t size() const NC_EXCLUDES(mutex_);

  // As Engine says, of names of leases (cache/tier/layout.hpp); of all others kUnsupported.
  const std::string& address() const override;
  tier::Capabilities capabilities() const override { return {true, false, true, true}; }
  Result<std::string> get(const std::string& name, std::uint64_t limit) override
      NC_EXCLUDES(mutex_);
  Result<std::uint64_t> fetch(const std::string& name, std::uint64_t offset, std::uint64_t limit,
                              const tier::Sink& sink) override;
  Result<tier::ObjectInfo> head(const std::string& name) override NC_EXCLUDES(mutex_);
  Status put(const std::string& name, Bytes bytes) override NC_EXCLUDES(mutex_);
  Status store(const std::string& name, tier::Source& source) override;
  Result<bool> create(const std::string& name, Bytes bytes, Millis keep_ms) override
      NC_EXCLUDES(mutex_);
  Status remove(const std::string& name) override NC_EXCLUDES(mutex_);
  Result<tier::Page> list(const std::string& prefix, const std::string& after,
                          std::size_t limit) override;

 private:
  struct Kept {
    std::string bytes;
    Millis changed_ms = 0;  // monotonic; of what was there before this process: its start
  };

  Status check(const std::string& name) const;
  Status keep(const std::string& name, Bytes bytes) NC_REQUIRES(mutex_);

  Store& store_;
  Clock& clock_;
  mutable Mutex mutex_;
  std::map<std::string, Kept> leases_ NC_GUARDED_BY(mutex_);
  std::uint64_t bytes_ NC_GUARDED_BY(mutex_) = 0;  // of names and records
};

}  // namespace nc::daemon
