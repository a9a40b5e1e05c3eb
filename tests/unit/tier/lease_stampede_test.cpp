// An upgrade: every host wants every key anew, at the same time. In virtual time, with real leases
// on a tier that counts requests.
#include <queue>
#include <random>
#include <unordered_map>

#include <gtest/gtest.h>

#include "cache/tier/layout.hpp"
#include "cache/tier/lease.hpp"
#include "tests/unit/tier/simulated_stack.hpp"

namespace nc::tier {
namespace {

constexpr bool kFullSize = NC_FULL_STAMPEDE == 1 && !sim::kSanitized;

struct Size {
  std::size_t keys;
  std::size_t hosts;
  std::size_t ranks;  // of a host, each of which wants all keys, one after the other
};
// A tenth of the keys and hosts where code runs many times slower: under sanitizers, in debug
// builds.
constexpr Size kFull = kFullSize ? Size{10'000, 1'000, 8} : Size{1'000, 100, 8};
constexpr Size kInOrder = kFullSize ? Size{20, 200, 8} : Size{8, 25, 8};
constexpr Millis kPeriod = 60'000;
constexpr Millis kShortest = 20'000;  // of a build
constexpr Millis kLongest = 180'000;

class Table final : public Engine {
 public:
  std::uint64_t requests = 0;
  std::unordered_map<std::string, std::string> objects;

  const std::string& address() const override { return address_; }
  Capabilities capabilities() const override { return {true, false, true}; }
  Result<std::string> get(const std::string& name, std::uint64_t) override {
    ++requests;
    const auto it = objects.find(name);
    if (it == objects.end()) return Error{Code::kNotFound, "absent", ""};
    return it->second;
  }
  Status put(const std::string& name, Bytes bytes) override {
    ++requests;
    objects[name] = as_text(bytes);
    return {};
  }
  Result<bool> create(const std::string& name, Bytes bytes, Millis) override {
    ++requests;
    return objects.emplace(name, as_text(bytes)).second;
  }
  Status remove(const std::string& name) override {
    ++requests;
    objects.erase(name);
    return {};
  }
  Result<std::uint64_t> fetch(const std::string&, std::uint64_t, std::uint64_t,
                              const Sink&) override {
    return Error{Code::kUnsupported, "not used", ""};
  }
  Result<ObjectInfo> head(const std::string&) override {
    return Error{Code::kUnsupported, "not used", ""};
  }
  Status store(const std::string&, Source&) override {
    return Error{Code::kUnsupported, "not used", ""};
  }
  Result<Page> list(const std::string&, const std::string&, std::size_t) override {
    return Error{Code::kUnsupported, "not used", ""};
  }

 private:
  const std::string address_ = "table:";
};

class SeededRandom final : public Random {
 public:
  std::uint64_t next() override { return random_(); }

 private:
  std::mt19937_64 random_{20'240'601};
};

class Stampede {
 public:
  Stampede(Size size, bool shuffled) : size_(size), shuffled_(shuffled), entries_(size.keys) {
    for (std::size_t i = 0; i < size.keys; ++i) {
      keys_.push_back(Sha256::of(as_bytes("key " + std::to_string(i))));
    }
    for (std::size_t i = 0; i < size.hosts; ++i) hosts_.push_back(std::make_unique<Host>());
    for (std::size_t i = 0; i < size.hosts * size.ranks; ++i) {
      Rank rank;
      rank.host = hosts_[i / size.ranks].get();
      rank.offset = random_.next() % size.keys;
      rank.stride = 1 + 2 * (random_.next() % (size.keys / 2));
      while (size.keys % rank.stride == 0 || rank.stride % 5 == 0) rank.stride += 2;
      ranks_.push_back(std::move(rank));
      at(static_cast<Millis>(random_.next() % 10'000), i);
    }
  }

  void run() {
    while (!events_.empty()) {
      const auto [time, index] = events_.top();
      events_.pop();
      clock_.advance(time - clock_.monotonic_ms());
      go_on(index);
    }
  }

  struct Host {
    LeaseCounters counters;
    LeasePace pace{50};
    std::uint64_t waits = 0;
    Millis waited_ms = 0;
    Millis held_ms = 0;
    std::uint64_t requests = 0;
  };
  const std::vector<std::unique_ptr<Host>>& hosts() const { return hosts_; }
  std::uint64_t builds() const { return builds_; }
  std::size_t objects_left() const { return table_.objects.size(); }
  Millis took_ms() const { return clock_.monotonic_ms(); }

 private:
  struct Rank {
    Host* host = nullptr;
    std::size_t offset = 0, stride = 1, at = 0;
    std::unique_ptr<ClusterLease> lease;
    Millis since = 0;
    Millis built = 0;  // > 0: builds until then
    bool waited = false;
  };

  void at(Millis time, std::size_t rank) { events_.push({time, rank}); }
  std::size_t key_of(const Rank& rank) const {
    return shuffled_ ? (rank.offset + rank.at * rank.stride) % size_.keys : rank.at;
  }

  void go_on(std::size_t index) {
    Rank& rank = ranks_[index];
    const Millis now = clock_.monotonic_ms();
    while (!rank.lease) {
      while (rank.at < size_.keys && entries_[key_of(rank)]) ++rank.at;
      if (rank.at == size_.keys) return;
      const std::size_t key = key_of(rank);
      rank.lease = std::make_unique<ClusterLease>(
          ClusterLease::Deps{table_, clock_, random_, rank.host->counters, rank.host->pace,
                             [this, key] { return Result<bool>(entries_[key] != 0); }},
          ClusterLease::Options{kPeriod, 5'000}, keys_[key], ClusterLease::Who{"host", "", "", 1});
      rank.since = now;
      rank.built = 0;
      rank.waited = false;
    }
    if (rank.built > 0 && now >= rank.built) {
      entries_[key_of(rank)] = 1;
      finish(rank, true);
      return at(now, index);
    }
    const auto next = rank.lease->step();
    switch (rank.lease->state()) {
      case ClusterLease::State::kHeld:
        if (rank.built == 0) {
          ++builds_;
          rank.built =
              now + kShortest + static_cast<Millis>(random_.next() % (kLongest - kShortest));
        }
        return at(std::min(*next, rank.built), index);
      case ClusterLease::State::kWaiting:
        rank.waited = true;
        return at(*next, index);
      case ClusterLease::State::kSettled:
        finish(rank, false);
        return at(now, index);
      default:
        ADD_FAILURE() << "a lease came to " << static_cast<int>(rank.lease->state());
    }
  }

  void finish(Rank& rank, bool built) {
    Host& host = *rank.host;
    const Millis took = clock_.monotonic_ms() - rank.since;
    (built ? host.held_ms : host.waited_ms) += took;
    host.waits += rank.waited ? 1 : 0;
    rank.lease->end(ClusterLease::End::kPublished);
    rank.lease.reset();
  }

  const Size size_;
  const bool shuffled_;
  FakeClock clock_;
  SeededRandom random_;
  Table table_;
  std::vector<ActionKey> keys_;
  std::vector<char> entries_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<Rank> ranks_;
  using Event = std::pair<Millis, std::size_t>;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t builds_ = 0;
};

// What cache/tier/lease.hpp and docs/cluster.md state, host by host.
std::uint64_t check(const Stampede& stampede, const Size& size) {
  EXPECT_EQ(stampede.builds(), size.keys);
  EXPECT_EQ(stampede.objects_left(), 0U);
  std::uint64_t most = 0;
  std::uint64_t all = 0;
  for (const auto& host : stampede.hosts()) {
    const double held = static_cast<double>(host->held_ms) / kPeriod;
    const double waited = static_cast<double>(host->waited_ms) / kPeriod;
    const double bound = 4.0 * static_cast<double>(host->counters.taken) + 3 * 16.0 / 3 * held +
                         static_cast<double>(host->waits) * 16 + 6 * waited +
                         4.0 * static_cast<double>(host->counters.settled);
    EXPECT_LE(static_cast<double>(host->counters.requests), bound);
    EXPECT_EQ(host->counters.alone + host->counters.lost + host->counters.takeovers, 0U);
    most = std::max<std::uint64_t>(most, host->counters.requests);
    all += host->counters.requests;
  }
  std::printf("%zu keys, %zu hosts: %llu requests in all, at most %llu by one host, in %.0f s\n",
              size.keys, size.hosts, static_cast<unsigned long long>(all),
              static_cast<unsigned long long>(most),
              static_cast<double>(stampede.took_ms()) / 1000);
  return most;
}

TEST(LeaseStampede, EveryHostWantsEveryKeyInAnOrderOfItsOwn) {
  Stampede stampede(kFull, true);
  stampede.run();
  EXPECT_LE(check(stampede, kFull), 1'100U);
}

TEST(LeaseStampede, EveryHostWantsEveryKeyInTheSameOrder) {
  Stampede stampede(kInOrder, false);
  stampede.run();
  check(stampede, kInOrder);
}

}  // namespace
}  // namespace nc::tier
