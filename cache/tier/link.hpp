// One tier of the chain: its engine, its breakers (reading and writing are sick or well on their
// own) and its counters. Every call to the engine on behalf of look-ups and write-backs goes
// through here. Thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "base/hash.hpp"
#include "base/thread_annotations.hpp"
#include "cache/tier/breaker.hpp"
#include "cache/tier/engine.hpp"
#include "cache/tier/tier_url.hpp"

namespace nc::tier {

struct LinkCounters {
  // Look-ups, each counted once in asked and once in one of hits .. skipped.
  std::atomic<std::uint64_t> hits{0};
  std::atomic<std::uint64_t> absent{0};
  std::atomic<std::uint64_t> denied{0};
  std::atomic<std::uint64_t> failed{0};
  std::atomic<std::uint64_t> timed_out{0};
  std::atomic<std::uint64_t> refused{0};  // not signed as it must be
  std::atomic<std::uint64_t> corrupt{
      0};  // not what it should be: garbage, cut off, another's bytes
  std::atomic<std::uint64_t> skipped{0};  // not asked: the breaker is open
  // Write-backs.
  std::atomic<std::uint64_t> sent{0};
  std::atomic<std::uint64_t> known{0};  // it had them already
  std::atomic<std::uint64_t> send_failed{0};
  std::atomic<std::uint64_t> unsigned_kept{0};  // not sent: this host may not sign them
  std::atomic<std::uint64_t> bytes_in{0};
  std::atomic<std::uint64_t> bytes_out{0};
  std::atomic<Millis> entry_ms{0};  // of asking for entries, in total
};

class Link {
 public:
  Link(TierAddress address, std::unique_ptr<Engine> engine, Clock& clock, Random& random);
  ~Link();

  const TierAddress& address() const { return address_; }
  const std::string& name() const { return address_.shown; }
  bool readable() const { return !address_.write_only; }
  bool writable() const { return !address_.read_only; }
  // For what people ask for by hand: no breaker, no counters.
  Engine& engine() { return *engine_; }
  // The same with breakers, which each call tells how it went; for leases and the queue.
  Engine& told() { return *told_; }
  Breaker& reading() { return reading_; }
  Breaker& writing() { return writing_; }
  LinkCounters& counters() { return counters_; }

  // Ask reading().may_call() / writing().may_call() once before a series of these; each tells the
  // breaker how it went.
  Result<std::string> get(const std::string& name, std::uint64_t limit);
  // Asks again for what was asked for last.
  void probe();
  // An error of `sink` is given back as it is, and is none of the tier's.
  Result<std::uint64_t> fetch(const std::string& name, std::uint64_t offset, std::uint64_t limit,
                              const Sink& sink);
  // As parts of writing; a tier that is only written, and refuses to tell, has nothing.
  Result<std::string> peek(const std::string& name, std::uint64_t limit);
  Result<ObjectInfo> head(const std::string& name);
  Status put(const std::string& name, Bytes bytes);
  Status store(const std::string& name, Source& source);
  void forget(const std::string& name);  // removes it, where that can be done

  // Which form of blobs was found here last; a guess for the next.
  std::atomic<bool> compressed_likely{true};

  // Blobs that came damaged from here, so that whoever has them whole writes them anew. The first
  // thousand that are not mended yet are known.
  void note_damaged(const Digest& digest) NC_EXCLUDES(mutex_);
  void note_mended(const Digest& digest) NC_EXCLUDES(mutex_);
  bool damaged(const Digest& digest) NC_EXCLUDES(mutex_);

  // kNoSpace when the tier is over its budget (max_bytes); looked at anew every quarter of an hour.
  Status within_budget();

  // Logs that the tier, which is well, does not take this entry: once in ten minutes.
  void tell_refused(const ActionKey& key, const Error& error);

 private:
  class Told;
  template <class T>
  Result<T> asked(Result<T> result);
  template <class Call>
  auto timed(Breaker& breaker, Call&& call);
  void tell(Breaker& breaker, const Status& outcome, Millis took_ms);

  const TierAddress address_;
  const std::unique_ptr<Engine> engine_;
  const std::unique_ptr<Engine> told_;
  Clock& clock_;
  Breaker reading_, writing_;
  LinkCounters counters_;
  Mutex mutex_;
  std::string last_name_ NC_GUARDED_BY(mutex_);
  std::set<Digest> damaged_ NC_GUARDED_BY(mutex_);
  std::atomic<std::uint64_t> used_{0};   // bytes in the tier when they were counted
  std::atomic<std::uint64_t> since_{0};  // sent since
  std::atomic<Millis> measured_ms_{-1};  // monotonic; -1: never
  std::atomic<Millis> tell_again_ms_{0};
};

// All that lies under `prefix`, in order, to the first error. kUnsupported where the engine cannot
// list.
Status each_object(Engine& engine, std::string_view prefix,
                   const std::function<Status(const ObjectInfo&)>& each);
// Their bytes.
Result<std::uint64_t> measure(Engine& engine, const std::string& prefix);

// Adds the failure to the counter that it belongs to.
void count_failure(LinkCounters& counters, const Error& error);

}  // namespace nc::tier
