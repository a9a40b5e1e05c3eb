// A cluster in virtual time: hosts that run one at a time, hand over at every request to the tier,
// and have clocks that differ in offset and rate. Equal seeds give equal runs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cache/tier/engine.hpp"
#include "tests/unit/tier/simulated_stack.hpp"

namespace nc::tier::sim {

struct Crash {};  // unwinds a host that died

class World {
 public:
  explicit World(std::uint64_t seed) : random_(seed) {}
  Millis now() const { return now_; }
  std::uint64_t random(std::uint64_t below) { return below == 0 ? 0 : random_() % below; }
  bool chance(double p) { return static_cast<double>(random_() % 1'000'000) < p * 1e6; }

  // Runs `body` from now on, when run() gets to it.
  void spawn(std::function<void()> body) {
    stacks_.push_back(std::make_unique<Stack>(std::move(body)));
    at(now_, [this, stack = stacks_.back().get()] { resume(stack); });
  }
  // Called on a host's stack.
  void sleep_until(Millis time) {
    Stack* self = running_;
    at(std::max(time, now_), [this, self] { resume(self); });
    self->pause();
  }
  void at(Millis time, std::function<void()> event) {
    events_.push({time, random_(), std::move(event)});
  }
  // Until nothing is left to happen.
  void run(const std::function<void()>& after_each) {
    while (!events_.empty()) {
      Event event = events_.top();
      events_.pop();
      now_ = std::max(now_, event.time);
      event.what();
      after_each();
    }
  }

 private:
  struct Event {
    Millis time;
    std::uint64_t order;  // of those at one time: any
    std::function<void()> what;
    bool operator<(const Event& other) const {
      return std::pair(time, order) > std::pair(other.time, other.order);
    }
  };
  void resume(Stack* stack) {
    running_ = stack;
    stack->resume();
  }

  std::mt19937_64 random_;
  Millis now_ = 0;
  std::priority_queue<Event> events_;
  std::vector<std::unique_ptr<Stack>> stacks_;
  Stack* running_ = nullptr;
};

class SkewedClock final : public Clock {
 public:
  SkewedClock(const World& world, Millis offset, double rate, Millis wall_skew)
      : world_(world), offset_(offset), rate_(rate), wall_skew_(wall_skew) {}
  Millis wall_ms() const override { return 1'700'000'000'000 + wall_skew_ + world_.now(); }
  Millis monotonic_ms() const override {
    return offset_ + static_cast<Millis>(static_cast<double>(world_.now()) * rate_);
  }
  Millis world_time(Millis monotonic) const {
    return static_cast<Millis>(static_cast<double>(monotonic - offset_) / rate_) + 1;
  }

 private:
  const World& world_;
  const Millis offset_;
  const double rate_;
  const Millis wall_skew_;
};

struct Objects {
  std::map<std::string, std::string> bytes;
};

// One host's way to the objects.
class Link final : public Engine {
 public:
  struct Faults {
    double lost = 0;   // carried out, but the answer does not come
    double late = 0;   // carried out long after the caller has given up
    double error = 0;  // not carried out
    Millis late_by_ms = 0;
    Millis latency_ms = 40;
    Millis timeout_ms = 400;
  };
  Link(World& world, Objects& objects) : world_(world), objects_(objects) {}

  Faults faults;
  Millis cut_until = 0;  // no request gets through
  Millis dies_at = -1;   // >= 0: the host crashes then
  std::uint64_t requests = 0;

  void rest_until(Millis time) {
    if (dies_at >= 0 && time >= dies_at) {
      world_.sleep_until(dies_at);
      dies_at = -1;
      throw Crash{};
    }
    world_.sleep_until(time);
  }

  const std::string& address() const override { return address_; }
  Capabilities capabilities() const override { return {true, true, true}; }
  Result<std::string> get(const std::string& name, std::uint64_t) override {
    std::string found;
    bool there = false;
    NC_TRY(request(false, [this, name, &found, &there] {
      const auto it = objects_.bytes.find(name);
      there = it != objects_.bytes.end();
      if (there) found = it->second;
    }));
    if (!there) return Error{Code::kNotFound, "no " + name, ""};
    return found;
  }
  Result<std::uint64_t> fetch(const std::string&, std::uint64_t, std::uint64_t,
                              const Sink&) override {
    return Error{Code::kUnsupported, "not simulated", ""};
  }
  Result<ObjectInfo> head(const std::string& name) override {
    NC_ASSIGN(const std::string bytes, get(name, 0));
    return ObjectInfo{name, bytes.size(), 0};
  }
  Status put(const std::string& name, Bytes bytes) override {
    return request(true, [&objects = objects_, name, text = std::string(as_text(bytes))] {
      objects.bytes[name] = text;
    });
  }
  Status store(const std::string&, Source&) override {
    return Error{Code::kUnsupported, "not simulated", ""};
  }
  Result<bool> create(const std::string& name, Bytes bytes, Millis) override {
    auto made = std::make_shared<bool>(false);
    NC_TRY(request(true, [&objects = objects_, name, made, text = std::string(as_text(bytes))] {
      *made = objects.bytes.emplace(name, text).second;
    }));
    return *made;
  }
  Status remove(const std::string& name) override {
    return request(true, [&objects = objects_, name] { objects.bytes.erase(name); });
  }
  Result<Page> list(const std::string&, const std::string&, std::size_t) override {
    return Error{Code::kUnsupported, "not simulated", ""};
  }

 private:
  // What writes may come late, after this host's end: its effect knows of the objects only.
  Status request(bool writes, std::function<void()> effect) {
    ++requests;
    const Millis begun = world_.now();
    const auto late = static_cast<std::uint64_t>(faults.late_by_ms);
    const auto latency = static_cast<std::uint64_t>(faults.latency_ms) + 1;
    rest_until(begun + static_cast<Millis>(world_.random(latency)));
    const bool cut = world_.now() < cut_until;
    if (writes && world_.chance(faults.late)) {
      world_.at(world_.now() + static_cast<Millis>(world_.random(late)), std::move(effect));
      return fail(begun);
    }
    if (cut || world_.chance(faults.error)) return fail(begun);
    effect();
    if (world_.chance(faults.lost)) return fail(begun);
    rest_until(world_.now() + static_cast<Millis>(world_.random(latency)));
    return {};
  }
  Status fail(Millis begun) {
    rest_until(begun + faults.timeout_ms);
    return Error{Code::kTimeout, "no answer", ""};
  }

  World& world_;
  Objects& objects_;
  const std::string address_ = "sim:";
};

}  // namespace nc::tier::sim
