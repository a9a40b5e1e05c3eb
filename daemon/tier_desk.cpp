#include "daemon/tier_desk.hpp"

#include <atomic>
#include <chrono>
#include <thread>

#include <fmt/format.h>

#include "base/log.hpp"
#include "cache/tier/open_engine.hpp"

namespace nc::daemon {
namespace {

constexpr std::size_t kThreads = 8;
constexpr std::size_t kMaxWork = 2'000;
constexpr Millis kAbsentMs = 5'000;  // so long is a tier that had nothing not asked again
constexpr Millis kFoundMs = 60'000;  // so long is an entry known as one that came from a tier
constexpr Millis kLookMs = 10'000;   // the most that who does not build waits
constexpr std::size_t kMaxAnswers = 100'000;

}  // namespace

std::unique_ptr<tier::Chain> open_chain(const Settings& settings, Store& store,
                                        const trust::Policy& policy, bool read_only,
                                        std::vector<TierDesk::Problem>& problems) {
  std::vector<std::unique_ptr<tier::Link>> links;
  const SettingSpec& spec = *find_setting("tiers");
  for (const auto& text : settings.addresses("tiers")) {
    auto address = tier::parse_tier_url(text);
    auto engine = address.ok() ? tier::open_engine(*address)
                               : Result<std::unique_ptr<tier::Engine>>(address.error());
    if (!engine.ok()) {
      problems.push_back(
          {address.ok() ? address->shown : shown_value(spec, text), engine.error().text()});
      log::error("tiers", "{} is not used: {}", problems.back().address, problems.back().problem);
      continue;
    }
    if (read_only) address->read_only = true;
    links.push_back(std::make_unique<tier::Link>(*address, *std::move(engine), system_clock(),
                                                 system_random()));
  }
  tier::Trust trust{
      [&policy](const Manifest& manifest, std::string_view origin) {
        return policy.check(manifest, origin);
      },
      [&policy](Manifest& manifest) { return policy.sign(manifest); },
      [&policy](const Manifest& manifest, std::string_view asked, std::string_view origin) {
        return policy.serves(manifest, asked, origin);
      },
      [&policy](const Manifest& manifest) { return policy.disowns(manifest); },
      [&policy](const Manifest& manifest, const ActionKey& found_under, std::string_view origin) {
        policy.misplaced(manifest, found_under, origin);
      }};
  tier::TransferDeps transfer{
      store,
      real_filesystem(),
      system_random(),
      std::move(trust),
      join(settings.text("dir"), "staging"),
      [](Millis ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }};
  return std::make_unique<tier::Chain>(std::move(links),
                                       tier::Chain::Deps{system_clock(), std::move(transfer), {}});
}

TierDesk::~TierDesk() {
  stop();
}

void TierDesk::open(std::unique_ptr<tier::Chain> chain, std::vector<Problem> problems,
                    Builder self) {
  chain_ = std::move(chain);
  problems_ = std::move(problems);
  self_ = std::move(self);
}

Status TierDesk::restore() {
  return any() ? chain_->restore() : Status();
}

void TierDesk::start() {
  if (!any()) return;
  chain_->start();
  pool_ = std::make_unique<DiskPool>(kThreads, kMaxWork);
}

void TierDesk::stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  if (pool_) pool_->stop();
  if (any()) chain_->stop();
}

// ---- Flights ----

bool TierDesk::begin(const Request& request) {
  // It takes off when the lock is given back.
  if (stopping_ || !post([this, key = request.key] { fly(key); })) return false;
  Flight& flight = flights_[request.key];
  flight.request = request;
  flight.bytes = std::make_shared<std::atomic<std::uint64_t>>(0);
  return true;
}

void TierDesk::before_build(const Request& request) {
  if (!any() || !chain_->readable()) return;
  MutexLock lock(mutex_);
  if (const auto it = answers_.find(request.key); it != answers_.end()) {
    if (deps_.clock.monotonic_ms() - it->second.at_ms < kAbsentMs) return;
  }
  auto it = flights_.find(request.key);
  if (it != flights_.end() && it->second.lease) return;
  Request ours = request;
  ours.program = "neuroncached";
  auto lease = deps_.leases.take(std::move(ours), self_);
  if (!lease) return;  // somebody builds it already
  if (it == flights_.end() && !begin(request)) {
    deps_.keeper.apply(deps_.leases.end(lease->id, LeaseTable::End::kNotThere));
    return;
  }
  flights_.at(request.key).lease = std::move(lease);
}

void TierDesk::look(const Request& request, std::function<void(bool)> then) {
  bool begun = false;
  if (any() && chain_->readable()) {
    MutexLock lock(mutex_);
    const auto now = deps_.clock.monotonic_ms();
    const auto answer = answers_.find(request.key);
    const bool absent =
        answer != answers_.end() && !answer->second.found && now - answer->second.at_ms < kAbsentMs;
    begun = flights_.contains(request.key) || (!absent && begin(request));
    if (begun) flights_.at(request.key).lookers.push_back({std::move(then), now + kLookMs});
  }
  if (!begun) then(false);
}

void TierDesk::fly(const ActionKey& key) {
  std::shared_ptr<std::atomic<std::uint64_t>> bytes;
  std::string asked;
  bool wanted = false;
  {
    MutexLock lock(mutex_);
    asked = flights_.at(key).request.name_space;
    bytes = flights_.at(key).bytes;
    wanted = !stopping_;
  }
  bool found = false;
  if (!wanted) return land(key, found);
  guarded("asking the tiers", [&] {
    found = chain_
                ->find(
                    key,
                    [&](std::uint64_t more) {
                      *bytes += more;
                      MutexLock lock(mutex_);
                      return !stopping_;
                    },
                    asked)
                .found;
  });
  land(key, found);
}

void TierDesk::land(const ActionKey& key, bool found) {
  Flight flight;
  {
    MutexLock lock(mutex_);
    auto node = flights_.extract(key);
    if (node.empty()) return;
    flight = std::move(node.mapped());
    remember(key, found);
  }
  if (found) deps_.store.count(flight.request.name_space, "tier_hits", 1);
  for (auto& looker : flight.lookers) looker.then(found);
  if (found) {
    deps_.keeper.apply(deps_.leases.settled(key));
  } else if (flight.lease) {
    deps_.keeper.apply(deps_.leases.end(flight.lease->id, LeaseTable::End::kNotThere));
  }
}

void TierDesk::remember(const ActionKey& key, bool found) {
  const auto now = deps_.clock.monotonic_ms();
  if (answers_.size() >= kMaxAnswers) {
    std::erase_if(answers_, [&](const auto& item) {
      return now - item.second.at_ms >= (item.second.found ? kFoundMs : kAbsentMs);
    });
    if (answers_.size() >= kMaxAnswers) answers_.clear();
  }
  answers_[key] = {found, now};
}

bool TierDesk::fetched(const ActionKey& key) const {
  if (chain_ == nullptr) return false;
  MutexLock lock(mutex_);
  const auto it = answers_.find(key);
  return it != answers_.end() && it->second.found &&
         deps_.clock.monotonic_ms() - it->second.at_ms < kFoundMs;
}

// ---- The rest ----

void TierDesk::published(const ActionKey& key) {
  if (any()) chain_->published(key);
}

bool TierDesk::post(std::function<void()> work) {
  return pool_ && pool_->post(Lane::kQuick, std::move(work));
}

void TierDesk::tick() {
  if (!any()) return;
  std::vector<std::function<void(bool)>> late;
  {
    MutexLock lock(mutex_);
    const auto now = deps_.clock.monotonic_ms();
    for (auto& [key, flight] : flights_) {
      std::erase_if(flight.lookers, [&](Flight::Looker& looker) {
        if (looker.until_ms > now) return false;
        late.push_back(std::move(looker.then));
        return true;
      });
      if (!flight.lease) continue;
      deps_.leases.heartbeat(
          flight.lease->id, key, flight.lease->fence,
          fmt::format("asking the tiers, {} came so far", format_size(flight.bytes->load())));
    }
  }
  for (auto& then : late) then(false);
  bool probe = false;
  {
    MutexLock lock(mutex_);
    probe = !std::exchange(probing_, true);
  }
  if (!probe) return;
  const bool posted = post([this] {
    guarded("probing the tiers", [this] { chain_->probe(); });
    MutexLock lock(mutex_);
    probing_ = false;
  });
  if (posted) return;
  MutexLock lock(mutex_);
  probing_ = false;
}

}  // namespace nc::daemon
