// A tier in memory, for tests: several clients (MemoryEngine) of one set of objects
// (MemoryObjects), each with its own faults. A fault is scripted for the next calls of a kind and
// used up by them in the order in which it was scripted.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/thread_annotations.hpp"
#include "cache/tier/engine.hpp"

namespace nc::tier {

enum class Call { kGet, kFetch, kHead, kPut, kStore, kCreate, kRemove, kList };
inline constexpr std::size_t kCalls = 8;

// What the engine's other side holds. Its clock is the server's, and may differ from any client's.
class MemoryObjects {
 public:
  explicit MemoryObjects(Clock& clock) : clock_(clock) {}

  struct Object {
    std::string bytes;
    Millis modified_ms = 0;
  };
  std::optional<Object> get(const std::string& name) NC_EXCLUDES(mutex_);
  void put(const std::string& name, std::string bytes) NC_EXCLUDES(mutex_);
  bool create(const std::string& name, std::string bytes, Millis keep_ms) NC_EXCLUDES(mutex_);
  void remove(const std::string& name) NC_EXCLUDES(mutex_);
  Page list(const std::string& prefix, const std::string& after, std::size_t limit)
      NC_EXCLUDES(mutex_);
  std::vector<std::string> names() NC_EXCLUDES(mutex_);
  std::uint64_t bytes() NC_EXCLUDES(mutex_);

 private:
  struct Kept {
    Object object;
    Millis until_ms = 0;  // of the clock's monotonic time; 0: for ever
  };
  void forget_expired() NC_REQUIRES(mutex_);

  Clock& clock_;
  Mutex mutex_;
  std::map<std::string, Kept> objects_ NC_GUARDED_BY(mutex_);
};

struct Fault {
  enum class Kind {
    kFail,   // `code`; nothing happens
    kLost,   // it happens, and then `code`: the answer got lost on its way
    kDelay,  // wait(delay_ms), then as usual; kTimeout when that is the client's timeout or more
    kShort,  // half of the body, then kCorrupt: the transport noticed
    kTruncated,  // half of the body as if it were all
    kGarbage,    // a body of the right size that is something else
    kLonger,     // the body, and more
    kOther,      // the body of the object named `other`
    kAbsent      // kNotFound though it is there, as an eventually consistent engine does
  };
  Kind kind = Kind::kFail;
  Code code = Code::kUnavailable;
  Millis delay_ms = 0;
  std::string other = {};
};

class MemoryEngine final : public Engine {
 public:
  struct Options {
    std::string address = "memory:";
    Capabilities capabilities{true, true, true};
    Millis timeout_ms = 5'000;
    std::uint64_t max_bytes = 0;         // kNoSpace over that much in all; 0: no limit
    std::function<void(Millis)> wait{};  // how a delay passes: FakeClock::advance, a sleep, nothing
  };
  explicit MemoryEngine(std::shared_ptr<MemoryObjects> objects)
      : MemoryEngine(objects, Options()) {}
  MemoryEngine(std::shared_ptr<MemoryObjects> objects, Options options);

  void script(Call call, Fault fault, std::size_t times = 1) NC_EXCLUDES(mutex_);
  void script_all(const Fault& fault, std::size_t times = 1) NC_EXCLUDES(mutex_);  // of every kind
  void clear_script() NC_EXCLUDES(mutex_);
  // While set, every call fails like this (after scripted faults): the tier is down, or refuses us.
  void set_down(std::optional<Code> code) NC_EXCLUDES(mutex_);
  void set_read_only(bool read_only) { read_only_ = read_only; }
  std::uint64_t calls(Call call) const { return counts_[static_cast<std::size_t>(call)]; }
  std::uint64_t calls() const;
  MemoryObjects& objects() { return *objects_; }

  const std::string& address() const override { return options_.address; }
  Capabilities capabilities() const override { return options_.capabilities; }
  Result<std::string> get(const std::string& name, std::uint64_t limit) override;
  Result<std::uint64_t> fetch(const std::string& name, std::uint64_t offset, std::uint64_t limit,
                              const Sink& sink) override;
  Result<ObjectInfo> head(const std::string& name) override;
  Status put(const std::string& name, Bytes bytes) override;
  Status store(const std::string& name, Source& source) override;
  Result<bool> create(const std::string& name, Bytes bytes, Millis keep_ms) override;
  Status remove(const std::string& name) override;
  Result<Page> list(const std::string& prefix, const std::string& after,
                    std::size_t limit) override;

 private:
  // Counts the call and takes its fault; an error: that is the call's answer.
  Result<std::optional<Fault>> begin(Call call) NC_EXCLUDES(mutex_);
  Result<std::string> body(Call call, const std::string& name, std::uint64_t limit, bool* broken);
  Status may_write(std::uint64_t size);

  const std::shared_ptr<MemoryObjects> objects_;
  const Options options_;
  std::array<std::atomic<std::uint64_t>, kCalls> counts_{};
  std::atomic<bool> read_only_ = false;
  Mutex mutex_;
  std::array<std::deque<Fault>, kCalls> script_ NC_GUARDED_BY(mutex_);
  std::optional<Code> down_ NC_GUARDED_BY(mutex_);
};

}  // namespace nc::tier
