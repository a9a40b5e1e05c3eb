#include "cache/tier/link.hpp"

#include "base/log.hpp"
#include "cache/manifest.hpp"
#include "cache/tier/layout.hpp"

namespace nc::tier {
namespace {

constexpr Millis kMeasurePauseMs = 15 * 60'000;
constexpr Millis kTellPauseMs = 10 * 60'000;
constexpr std::size_t kPage = 1000;

template <class T>
Status status_of(const Result<T>& result) {
  return result.ok() ? Status() : Status(result.error());
}

}  // namespace

void count_failure(LinkCounters& counters, const Error& error) {
  switch (error.code) {
    case Code::kDenied:
    case Code::kReadOnly:
      ++counters.denied;
      break;
    case Code::kTimeout:
      ++counters.timed_out;
      break;
    case Code::kCorrupt:
    case Code::kTooLarge:
    case Code::kDigestMismatch:
    case Code::kKeyMismatch:
    case Code::kInvalid:
      ++counters.corrupt;
      break;
    default:
      ++counters.failed;
  }
}

Status each_object(Engine& engine, std::string_view prefix,
                   const std::function<Status(const ObjectInfo&)>& each) {
  std::string after;
  do {
    NC_ASSIGN(auto page, engine.list(std::string(prefix), after, kPage));
    for (const auto& object : page.objects) NC_TRY(each(object));
    after = std::move(page.next);
  } while (!after.empty());
  return {};
}

Result<std::uint64_t> measure(Engine& engine, const std::string& prefix) {
  std::uint64_t bytes = 0;
  NC_TRY(each_object(engine, prefix, [&](const ObjectInfo& object) -> Status {
    bytes += object.size;
    return {};
  }));
  return bytes;
}

template <class Call>
auto Link::timed(Breaker& breaker, Call&& call) {
  const auto begin = clock_.monotonic_ms();
  auto result = call();
  tell(breaker, status_of(result), clock_.monotonic_ms() - begin);
  return result;
}

void Link::tell(Breaker& breaker, const Status& outcome, Millis took_ms) {
  if (!breaker.done(outcome, took_ms)) return;
  log::warn("tiers", "{} cannot be {}, and is left alone for a while: {}: {}", name(),
            &breaker == &writing_ ? "written" : "read", code_name(outcome.error().code),
            outcome.error().text());
}

void Link::tell_refused(const ActionKey& key, const Error& error) {
  const Millis now = clock_.monotonic_ms();
  Millis again = tell_again_ms_;
  if (now < again || !tell_again_ms_.compare_exchange_strong(again, now + kTellPauseMs)) return;
  log::warn("tiers", "{} does not take {} (and maybe others): {}", name(), key.hex(), error.text());
}

class Link::Told final : public Engine {
  template <class Call>
  auto read(Call&& call) {
    return link_.timed(link_.reading_, call);
  }
  template <class Call>
  auto write(Call&& call) {
    return link_.timed(link_.writing_, call);
  }

 public:
  explicit Told(Link& link) : link_(link), engine_(*link.engine_) {}

  const std::string& address() const override { return link_.name(); }
  Capabilities capabilities() const override { return engine_.capabilities(); }
  Result<std::string> get(const std::string& name, std::uint64_t limit) override {
    return read([&] { return engine_.get(name, limit); });
  }
  Result<std::uint64_t> fetch(const std::string& name, std::uint64_t offset, std::uint64_t limit,
                              const Sink& sink) override {
    return link_.fetch(name, offset, limit, sink);
  }
  Result<ObjectInfo> head(const std::string& name) override {
    return read([&] { return engine_.head(name); });
  }
  Status put(const std::string& name, Bytes bytes) override {
    return write([&] { return engine_.put(name, bytes); });
  }
  Status store(const std::string& name, Source& source) override {
    return link_.store(name, source);
  }
  Result<bool> create(const std::string& name, Bytes bytes, Millis keep_ms) override {
    return write([&] { return engine_.create(name, bytes, keep_ms); });
  }
  Status remove(const std::string& name) override {
    return write([&] { return engine_.remove(name); });
  }
  Result<Page> list(const std::string& prefix, const std::string& after,
                    std::size_t limit) override {
    return read([&] { return engine_.list(prefix, after, limit); });
  }

 private:
  Link& link_;
  Engine& engine_;
};

Link::Link(TierAddress address, std::unique_ptr<Engine> engine, Clock& clock, Random& random)
    : address_(std::move(address)),
      engine_(std::move(engine)),
      told_(std::make_unique<Told>(*this)),
      clock_(clock),
      reading_(clock, random),
      writing_(clock, random) {}

Link::~Link() = default;

Result<std::string> Link::get(const std::string& name, std::uint64_t limit) {
  {
    MutexLock lock(mutex_);
    last_name_ = name;
  }
  const auto begin = clock_.monotonic_ms();
  auto result = timed(reading_, [&] { return engine_->get(name, limit); });
  counters_.entry_ms += clock_.monotonic_ms() - begin;
  if (result.ok()) counters_.bytes_in += result->size();
  return result;
}

void Link::probe() {
  std::string name;
  {
    MutexLock lock(mutex_);
    name = last_name_.empty() ? entry_name({}) : last_name_;
  }
  ignore_error(timed(reading_, [&] { return engine_->get(name, Manifest::kMaxBytes); }),
               "the breaker knows");
}

Result<std::uint64_t> Link::fetch(const std::string& name, std::uint64_t offset,
                                  std::uint64_t limit, const Sink& sink) {
  // Local disks are slow at times; only a transfer that failed is held against the tier, and only
  // with the time in which nothing came.
  Millis last = clock_.monotonic_ms();
  Status taken;
  auto result = engine_->fetch(name, offset, limit, [&](Bytes piece) -> Status {
    counters_.bytes_in += piece.size();
    taken = sink(piece);
    last = clock_.monotonic_ms();
    return taken;
  });
  tell(reading_, taken.ok() ? status_of(result) : Status(), clock_.monotonic_ms() - last);
  if (!taken.ok()) return std::move(taken).error();
  return result;
}

template <class T>
Result<T> Link::asked(Result<T> result) {
  if (!address_.write_only || !result.is(Code::kDenied)) return result;
  return Error{Code::kNotFound, result.error().message, ""};
}

Result<std::string> Link::peek(const std::string& name, std::uint64_t limit) {
  return timed(writing_, [&] { return asked(engine_->get(name, limit)); });
}

Result<ObjectInfo> Link::head(const std::string& name) {
  return timed(writing_, [&] { return asked(engine_->head(name)); });
}

Status Link::put(const std::string& name, Bytes bytes) {
  auto result = timed(writing_, [&] { return engine_->put(name, bytes); });
  if (result.ok()) counters_.bytes_out += bytes.size();
  return result;
}

Status Link::store(const std::string& name, Source& source) {
  auto result = timed(writing_, [&] { return engine_->store(name, source); });
  if (!result.ok()) return result;
  counters_.bytes_out += source.size();
  since_ += source.size();
  return result;
}

void Link::forget(const std::string& name) {
  if (!engine_->capabilities().remove) return;
  // Some may write and not remove: that says nothing about the tier's health.
  ignore_error(engine_->remove(name), "what is left is looked at again by the next collection");
}

void Link::note_damaged(const Digest& digest) {
  constexpr std::size_t kMost = 1000;
  MutexLock lock(mutex_);
  if (damaged_.size() < kMost) damaged_.insert(digest);
}

void Link::note_mended(const Digest& digest) {
  MutexLock lock(mutex_);
  damaged_.erase(digest);
}

bool Link::damaged(const Digest& digest) {
  MutexLock lock(mutex_);
  return damaged_.contains(digest);
}

Status Link::within_budget() {
  if (address_.max_bytes == 0) return {};
  const auto now = clock_.monotonic_ms();
  if (measured_ms_ < 0 || now - measured_ms_ >= kMeasurePauseMs) {
    auto bytes = timed(writing_, [&] { return measure(*engine_, std::string(kBlobs)); });
    if (!bytes.ok()) return std::move(bytes).error().context("counting what the tier holds");
    used_ = *bytes;
    since_ = 0;
    measured_ms_ = now;
  }
  if (used_ + since_ < address_.max_bytes) return {};
  Error full{Code::kNoSpace,
             "the tier " + name() + " holds " + format_size(used_ + since_) +
                 ", its budget (max_bytes) is " + format_size(address_.max_bytes),
             "run `neuroncache prune --tier`, or raise max_bytes"};
  tell(writing_, full, 0);
  return full;
}

}  // namespace nc::tier
