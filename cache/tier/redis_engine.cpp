#include "cache/tier/redis_engine.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "base/thread_annotations.hpp"
#include "cache/tier/layout.hpp"
#include "cache/tier/loopback.hpp"
#include "cache/tier/net_stream.hpp"
#include "cache/tier/resp.hpp"
#include "cache/tier/retry.hpp"

namespace nc::tier {
namespace {

using Kind = RespReply::Kind;
using Words = std::vector<std::string_view>;

constexpr std::size_t kIdleConnections = 16;
constexpr std::uint64_t kSmall = 64 << 10;  // answers that hold no object
constexpr std::uint64_t kScanAnswer = 4 << 20;
constexpr std::size_t kPiece = 256 << 10;
constexpr std::uint16_t kPort = 6379;

struct Known {
  std::string_view word;
  Code code;
  const char* action;
};
constexpr std::array kKnown = {
    Known{"NOAUTH", Code::kDenied, "write redis://user:password@host"},
    Known{"WRONGPASS", Code::kDenied, "check the address's user and password"},
    Known{"NOPERM", Code::kDenied, "let the user run the commands that docs/tiers.md lists"},
    Known{"WRONGTYPE", Code::kCorrupt, "remove the key: neuroncache keeps strings only"},
    Known{"OOM", Code::kNoSpace, "raise Redis's maxmemory or give it a maxmemory-policy"},
    Known{"READONLY", Code::kReadOnly, "use the primary's address"},
    Known{"LOADING", Code::kUnavailable, ""},
    Known{"MASTERDOWN", Code::kUnavailable, ""},
    Known{"BUSY", Code::kUnavailable, ""},
    Known{"MISCONF", Code::kIo, "see Redis's log: it cannot save"},
    Known{"MOVED", Code::kUnsupported, "use a server that is not part of a Redis Cluster"},
    Known{"ASK", Code::kUnsupported, "use a server that is not part of a Redis Cluster"},
    Known{"CROSSSLOT", Code::kUnsupported, "use a server that is not part of a Redis Cluster"},
};

// One connection, in step: each command's reply is read to its end, or the connection is given up.
class Connection {
 public:
  explicit Connection(std::unique_ptr<NetStream> stream)
      : stream_(std::move(stream)),
        reader_([this](std::span<std::byte> out) { return stream_->read(out); }) {}

  Status write(std::string_view text) { return stream_->write(as_bytes(text)); }
  Status write(Bytes bytes) { return stream_->write(bytes); }
  RespReader& reader() { return reader_; }
  Status stream(std::uint64_t size, const Sink& sink) {
    auto status = reader_.stream(size, sink);
    in_step_ = status.ok();  // else the rest of the string is still to come
    return status;
  }
  bool usable() const { return in_step_ && reader_.empty() && !stream_->stale(); }

 private:
  const std::unique_ptr<NetStream> stream_;
  RespReader reader_;
  bool in_step_ = true;
};

class RedisEngine final : public Engine {
 public:
  RedisEngine(const TierAddress& address, EngineDeps deps)
      : address_(address),
        deps_(std::move(deps)),
        prefix_(address.option("prefix", "neuroncache/")),
        target_{
            address.host,
            address.port == 0 ? kPort : address.port,
            address.tls,
            address.timeout_ms,
            {address.option("ca_file"), address.option("cert_file"), address.option("key_file")}} {}

  const std::string& address() const override { return address_.shown; }
  Capabilities capabilities() const override { return {true, true, true}; }

  Result<std::string> get(const std::string& name, std::uint64_t limit) override {
    NC_TRY(check_name(name));
    return repeated<std::string>([&](Connection& redis) -> Result<std::string> {
      NC_TRY(redis.write(resp_command({"GET", prefix_ + name})));
      std::string bytes;
      NC_TRY(body(redis, name, limit, [&](Bytes piece) {
        bytes += as_text(piece);
        return Status();
      }));
      return bytes;
    });
  }

  Result<std::uint64_t> fetch(const std::string& name, std::uint64_t offset, std::uint64_t limit,
                              const Sink& sink) override {
    NC_TRY(check_name(name));
    // A second attempt might bring the bytes of another version: only before the first byte.
    bool begun = false;
    const Sink watched = [&](Bytes piece) {
      begun = true;
      return sink(piece);
    };
    Retry retry(deps_);
    while (true) {
      auto size = once<std::uint64_t>([&](Connection& redis) -> Result<std::uint64_t> {
        if (offset > 0) return part(redis, name, offset, limit, watched);
        NC_TRY(redis.write(resp_command({"GET", prefix_ + name})));
        return body(redis, name, limit, watched);
      });
      if (size.ok() || begun || !retry.again(size.error())) return size;
    }
  }

  Result<ObjectInfo> head(const std::string& name) override {
    NC_TRY(check_name(name));
    return repeated<ObjectInfo>([&](Connection& redis) -> Result<ObjectInfo> {
      const auto key = prefix_ + name;
      NC_TRY(redis.write(resp_command({"MULTI"}) + resp_command({"EXISTS", key}) +
                         resp_command({"STRLEN", key}) + resp_command({"EXEC"})));
      NC_ASSIGN(const auto items, queued(redis, 2));
      NC_TRY(expect(items, 2));
      NC_ASSIGN(const auto there, integer(redis));
      NC_ASSIGN(const auto size, integer(redis));
      if (there == 0) return absent(name);
      return ObjectInfo{name, static_cast<std::uint64_t>(size), 0};
    });
  }

  Status put(const std::string& name, Bytes bytes) override {
    NC_TRY(check_name(name));
    NC_TRY(check_size(name, bytes.size()));
    return status(repeated<bool>([&](Connection& redis) -> Result<bool> {
      return set(redis, {"SET", prefix_ + name, as_text(bytes)});
    }));
  }

  Status store(const std::string& name, Source& source) override {
    NC_TRY(check_name(name));
    const auto size = source.size();
    NC_TRY(check_size(name, size));
    return status(repeated<bool>([&](Connection& redis) -> Result<bool> {
      NC_TRY(redis.write(resp_head({"SET", prefix_ + name}, size)));
      std::vector<std::byte> buffer(std::min<std::uint64_t>(kPiece, size));
      for (std::uint64_t at = 0; at < size;) {
        const auto want = std::span(buffer).first(std::min<std::uint64_t>(kPiece, size - at));
        NC_ASSIGN(const auto got, source.read_at(at, want));
        if (got == 0) {
          // The connection is given up, and with it what was sent.
          return Error{Code::kIo, "what is sent is shorter than it said", ""};
        }
        NC_TRY(redis.write(Bytes(want.first(got))));
        at += got;
      }
      NC_TRY(redis.write(std::string_view("\r\n")));
      return stored(redis);
    }));
  }

  Result<bool> create(const std::string& name, Bytes bytes, Millis keep_ms) override {
    NC_TRY(check_name(name));
    NC_TRY(check_size(name, bytes.size()));
    const auto key = prefix_ + name;
    const auto keep = fmt::format("{}", keep_ms);
    Words words{"SET", key, as_text(bytes), "NX"};
    if (keep_ms > 0) words.insert(words.end(), {"PX", keep});
    // Only the connection is tried again: an answer that got lost is an error.
    NC_ASSIGN(auto redis, with_retries(deps_, [&] { return connection(); }));
    NC_ASSIGN(const bool made, set(*redis, words));
    give_back(std::move(redis));
    return made;
  }

  Status remove(const std::string& name) override {
    NC_TRY(check_name(name));
    return status(repeated<std::int64_t>([&](Connection& redis) -> Result<std::int64_t> {
      NC_TRY(redis.write(resp_command({"DEL", prefix_ + name})));
      return integer(redis);
    }));
  }

  Result<Page> list(const std::string& prefix, const std::string& after,
                    std::size_t limit) override {
    NC_TRY(check_prefix(prefix));
    return repeated<Page>([&](Connection& redis) -> Result<Page> {
      NC_ASSIGN(const auto names, smallest(redis, prefix, after, limit));
      return sized(redis, names, limit);
    });
  }

 private:
  // ---- Connections ----

  Result<std::unique_ptr<Connection>> connection() NC_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      while (!idle_.empty()) {
        auto redis = std::move(idle_.back());
        idle_.pop_back();
        if (redis->usable()) return redis;
      }
    }
    auto stream = NetStream::connect(target_);
    if (!stream.ok()) return std::move(stream).error().context(address());
    auto redis = std::make_unique<Connection>(*std::move(stream));
    const auto& [user, password] = std::tie(address_.user, address_.password);
    if (!password.empty()) {
      NC_TRY(
          accepted(*redis, user.empty() ? Words{"AUTH", password} : Words{"AUTH", user, password}));
    }
    if (!address_.path.empty()) NC_TRY(accepted(*redis, {"SELECT", address_.path}));
    return redis;
  }

  void give_back(std::unique_ptr<Connection> redis) NC_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (idle_.size() < kIdleConnections) idle_.push_back(std::move(redis));
  }

  // Runs `call` on a connection, which is kept only after a success or an answer like "absent".
  template <class T, class CallOn>
  Result<T> once(const CallOn& call) {
    NC_ASSIGN(auto redis, connection());
    auto result = call(*redis);
    if (result.ok() || result.is(Code::kNotFound)) give_back(std::move(redis));
    return result;
  }
  template <class T, class CallOn>
  Result<T> repeated(const CallOn& call) {
    return with_retries(deps_, [&] { return once<T>(call); });
  }

  // ---- Replies ----

  Error unexpected() const {
    return {Code::kCorrupt, fmt::format("{}: an answer that fits no question", address()), ""};
  }
  Error absent(const std::string& name) const {
    return {Code::kNotFound, fmt::format("{}: there is no {}", address(), name), ""};
  }
  Result<RespReply> checked(Result<RespReply> reply) const {
    if (!reply.ok()) return std::move(reply).error().context(address());
    if (reply->kind == Kind::kError) return redis_error(reply->text, address());
    return reply;
  }
  Status accepted(Connection& redis, const Words& words) const {
    NC_TRY(redis.write(resp_command(words)));
    const auto reply = checked(redis.reader().reply(kSmall));
    return reply.ok() ? Status() : Status(reply.error());
  }
  Result<std::int64_t> integer(Connection& redis) const {
    NC_ASSIGN(const auto reply, checked(redis.reader().head()));
    if (reply.kind != Kind::kInteger || reply.integer < 0) return unexpected();
    return reply.integer;
  }
  Result<bool> set(Connection& redis, const Words& words) const {
    NC_TRY(redis.write(resp_command(words)));
    return stored(redis);
  }
  // False: SET .. NX found something there.
  Result<bool> stored(Connection& redis) const {
    NC_ASSIGN(const auto reply, checked(redis.reader().reply(kSmall)));
    if (reply.kind == Kind::kNull) return false;
    if (reply.kind != Kind::kText) return unexpected();
    return true;
  }
  Status expect(const RespReply& array, std::int64_t items) const {
    if (array.kind != Kind::kArray || array.integer != items) return unexpected();
    return {};
  }
  // Reads what MULTI and `commands` in it answer; gives the head of EXEC's reply.
  Result<RespReply> queued(Connection& redis, int commands) const {
    for (int i = 0; i <= commands; ++i) {
      NC_ASSIGN(const auto reply, checked(redis.reader().reply(kSmall)));
      if (reply.kind != Kind::kText) return unexpected();
    }
    return checked(redis.reader().head());
  }
  template <class T>
  static Status status(const Result<T>& result) {
    return result.ok() ? Status() : Status(result.error());
  }

  Status check_size(const std::string& name, std::uint64_t size) const {
    if (size <= kRedisMaxObject) return {};
    return Error{Code::kTooLarge,
                 fmt::format("{}: {} has {} bytes, and Redis takes 512 MiB", address(), name, size),
                 "use another tier for artifacts of that size"};
  }
  Error over(const std::string& name, std::uint64_t size, std::uint64_t limit) const {
    return {Code::kTooLarge,
            fmt::format("{}: {} has {} bytes, over the limit of {}", address(), name, size, limit),
            ""};
  }

  // The reply to GET.
  Result<std::uint64_t> body(Connection& redis, const std::string& name, std::uint64_t limit,
                             const Sink& sink) const {
    NC_ASSIGN(const auto reply, checked(redis.reader().head()));
    if (reply.kind == Kind::kNull) return absent(name);
    if (reply.kind != Kind::kBulk) return unexpected();
    const auto size = static_cast<std::uint64_t>(reply.integer);
    if (size > limit) return over(name, size, limit);
    NC_TRY(redis.stream(size, sink));
    return size;
  }

  // All in one transaction: the rest and the whole size are those of one version.
  Result<std::uint64_t> part(Connection& redis, const std::string& name, std::uint64_t offset,
                             std::uint64_t limit, const Sink& sink) const {
    const auto key = prefix_ + name;
    NC_TRY(redis.write(
        resp_command({"MULTI"}) + resp_command({"EXISTS", key}) + resp_command({"STRLEN", key}) +
        resp_command({"GETRANGE", key, fmt::format("{}", offset), "-1"}) + resp_command({"EXEC"})));
    NC_ASSIGN(const auto items, queued(redis, 3));
    NC_TRY(expect(items, 3));
    NC_ASSIGN(const auto there, integer(redis));
    NC_ASSIGN(const auto whole, integer(redis));
    NC_ASSIGN(const auto rest, checked(redis.reader().head()));
    if (rest.kind != Kind::kBulk) return unexpected();
    const auto size = static_cast<std::uint64_t>(whole);
    const auto left = static_cast<std::uint64_t>(rest.integer);
    if (there != 0 && size > limit) return over(name, size, limit);
    if (there != 0 && (size < offset || left != size - offset)) {
      return Error{Code::kCorrupt, fmt::format("{}: {} is shorter than it was", address(), name),
                   ""};
    }
    NC_TRY(redis.stream(left, sink));
    if (there == 0) return absent(name);
    return size;
  }

  // ---- Lists ----

  // The first limit + 1 names in order; SCAN gives them in none, and some twice.
  Result<std::set<std::string>> smallest(Connection& redis, const std::string& prefix,
                                         const std::string& after, std::size_t limit) const {
    std::set<std::string> names;
    std::string cursor = "0";
    const auto pattern = escaped(prefix_ + prefix) + "*";
    do {
      NC_TRY(redis.write(resp_command({"SCAN", cursor, "MATCH", pattern, "COUNT", "1000"})));
      NC_ASSIGN(auto reply, checked(redis.reader().reply(kScanAnswer)));
      if (reply.items.size() != 2 || reply.items[0].kind != Kind::kBulk ||
          reply.items[1].kind != Kind::kArray) {
        return unexpected();
      }
      cursor = std::move(reply.items[0].text);
      for (auto& item : reply.items[1].items) {
        if (!item.text.starts_with(prefix_ + prefix)) continue;
        auto name = item.text.substr(prefix_.size());
        if (name <= after || !check_name(name).ok()) continue;
        names.insert(std::move(name));
        if (names.size() > limit + 1) names.erase(std::prev(names.end()));
      }
    } while (cursor != "0");
    return names;
  }

  Result<Page> sized(Connection& redis, const std::set<std::string>& names,
                     std::size_t limit) const {
    Page page;
    std::string commands;
    for (const auto& name : names) {
      if (page.objects.size() == limit) {
        page.next = page.objects.empty() ? "" : page.objects.back().name;
        break;
      }
      page.objects.push_back({name, 0, 0});
      commands += resp_command({"STRLEN", prefix_ + name});
    }
    NC_TRY(redis.write(commands));
    for (auto& object : page.objects) {
      NC_ASSIGN(const auto size, integer(redis));
      object.size = static_cast<std::uint64_t>(size);
    }
    return page;
  }

  static std::string escaped(std::string_view text) {
    std::string out;
    for (const char c : text) {
      if (c == '*' || c == '?' || c == '[' || c == ']' || c == '\\' || c == '^') out += '\\';
      out += c;
    }
    return out;
  }

  const TierAddress address_;
  const EngineDeps deps_;
  const std::string prefix_;
  const NetTarget target_;
  Mutex mutex_;
  std::vector<std::unique_ptr<Connection>> idle_ NC_GUARDED_BY(mutex_);
};

}  // namespace

Error redis_error(std::string_view text, std::string_view what) {
  const auto word = text.substr(0, text.find(' '));
  std::string shown(text.substr(0, 200));
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
  }
  const auto message = fmt::format("{}: {}", what, shown);
  for (const auto& known : kKnown) {
    if (known.word == word) return {known.code, message, known.action};
  }
  if (word == "ERR" && (text.find("AUTH") != std::string_view::npos ||
                        text.find("invalid password") != std::string_view::npos)) {
    return {Code::kDenied, message, "check the address's user and password"};
  }
  if (text.find("max number of clients") != std::string_view::npos) {
    return {Code::kBusy, message, "raise Redis's maxclients"};
  }
  if (text.find("invalid bulk length") != std::string_view::npos) {
    return {Code::kTooLarge, message, "raise Redis's proto-max-bulk-len"};
  }
  return {Code::kIo, message, ""};
}

Result<std::unique_ptr<Engine>> open_redis(const TierAddress& address, EngineDeps deps) {
  if (!address.user.empty() && address.password.empty()) {
    return Error{Code::kInvalid,
                 fmt::format("{}: there is a user without a password", address.shown),
                 "write redis://:password@host or redis://user:password@host"};
  }
  if (!address.password.empty()) {
    NC_TRY(check_clear(address, address.host, address.tls, "the password"));
  }
  return std::unique_ptr<Engine>(std::make_unique<RedisEngine>(address, std::move(deps)));
}

}  // namespace nc::tier
