#include "daemon/self_check.hpp"

#include <thread>

#include <boost/json.hpp>
#include <fmt/format.h>

#include "base/random.hpp"
#include "base/trust/keyring.hpp"
#include "base/trust/time_text.hpp"
#include "base/trust/tokens.hpp"
#include "cache/manifest.hpp"
#include "cache/tier/breaker.hpp"
#include "cache/tier/layout.hpp"
#include "cache/tier/open_engine.hpp"
#include "daemon/startup.hpp"
#include "daemon/tcp_listener.hpp"

namespace nc::daemon {
namespace {

namespace js = boost::json;
using Level = Checked::Level;

constexpr Millis kDayMs = 24 * 3'600'000;
constexpr Millis kSoonMs = 14 * kDayMs;

struct Tier {
  tier::TierAddress address;
  std::unique_ptr<tier::Engine> engine;
};

class Checks {
 public:
  Checks(const Settings& settings, FileSystem& fs, Clock& clock)
      : settings_(settings), fs_(fs), clock_(clock), now_(clock.wall_ms()) {}

  std::vector<Checked> run() {
    open_tiers();
    if (!tiers_.empty() || listens()) check_trust();
    if (listens()) {
      check_tokens();
      check_tls();
    }
    ask_tiers();
    return std::move(found_);
  }

 private:
  bool listens() const { return !settings_.text("listen").empty(); }
  void say(Level level, std::string check, std::string detail, std::string fix = "") {
    found_.push_back({level, std::move(check), std::move(detail), std::move(fix)});
  }
  void say(std::string check, const Error& error) {
    say(Level::kProblem, std::move(check), error.message,
        error.action.empty() ? "see docs/tiers.md and docs/security.md" : error.action);
  }

  void open_tiers() {
    const bool read_only = settings_.boolean("read_only");
    for (const auto& text : settings_.addresses("tiers")) {
      auto address = tier::parse_tier_url(text);
      if (!address.ok()) {
        say("tier", address.error());
        continue;
      }
      if (read_only) address->read_only = true;
      auto engine = tier::open_engine(*address);
      if (!engine.ok()) {
        say("tier", std::move(engine).error().context(address->shown));
        continue;
      }
      writes_ = writes_ || !address->read_only;
      tiers_.push_back({*std::move(address), *std::move(engine)});
    }
  }

  // ---- Keys ----

  void check_trust() {
    if (settings_.text("trust") == "any") {
      say(Level::kWarning, "trust",
          "trust = any: whoever can write to a shared tier can run code on this host",
          "make keys (`neuroncache keys init`) and set trust to signed");
      return;
    }
    const std::string& path = settings_.text("trust_keys");
    const auto ring = trust::Keyring::load(fs_, path);
    if (ring.is(Code::kNotFound)) {
      say(Level::kProblem, "trust",
          fmt::format("there is no keyring at {}: nothing from elsewhere is believed", path),
          "copy the keyring of your other hosts there, or begin with `neuroncache keys init`");
    } else if (!ring.ok()) {
      say("trust", ring.error());
    } else {
      count_keys(*ring);
    }
    if (writes_) check_own_key(ring.ok() ? &*ring : nullptr);
  }

  void count_keys(const trust::Keyring& ring) {
    std::size_t good = 0;
    std::size_t revoked = 0;
    std::string expired;
    for (const auto& key : ring.keys()) {
      const auto state = key.state(now_);
      good += state == "active" && !key.write.empty() ? 1 : 0;
      revoked += state == "revoked" ? 1 : 0;
      if (state == "expired") expired += (expired.empty() ? "" : ", ") + key.id.substr(0, 12);
    }
    if (good == 0) {
      say(Level::kProblem, "trust",
          fmt::format("of the {} keys in {} none may sign now: nothing new from elsewhere is "
                      "believed",
                      ring.keys().size(), settings_.text("trust_keys")),
          "trust the keys that your hosts sign with: `neuroncache keys trust`");
      return;
    }
    say(Level::kOk, "trust",
        fmt::format("{} of {} keys may sign, {} revoked{}", good, ring.keys().size(), revoked,
                    expired.empty() ? "" : "; retired: " + expired));
  }

  void check_own_key(const trust::Keyring* ring) {
    const std::string& path = settings_.text("sign_key");
    const auto key = trust::PrivateKey::load(fs_, path);
    if (key.is(Code::kNotFound)) {
      return say(Level::kProblem, "key",
                 fmt::format("there is no key at {}: what is built here is not sent", path),
                 "`neuroncache keys init`, and have the other hosts trust it; or add "
                 "read_only=true to the tiers' addresses");
    }
    if (!key.ok()) return say("key", key.error());
    const trust::TrustedKey* own = ring == nullptr ? nullptr : ring->find(key->id());
    if (own == nullptr) {
      return say(Level::kProblem, "key",
                 fmt::format("the key of this host, {}, is not in its keyring", key->id()),
                 "neuroncache keys trust " + key->public_key().text());
    }
    const auto state = own->state(now_);
    if (state != "active") {
      return say(Level::kProblem, "key",
                 fmt::format("the key of this host, {}, is {}: nothing is signed", own->id,
                             state == "not yet" ? "not in force yet" : state),
                 "make a new one: `neuroncache keys rotate`");
    }
    if (own->write.empty()) {
      return say(Level::kProblem, "key",
                 fmt::format("the key of this host, {}, may write no namespace", own->id),
                 "`neuroncache keys trust " + own->id.substr(0, 12) + " --write NAMESPACES`");
    }
    if (fs_.stat(path + ".next").ok()) {
      say(Level::kWarning, "key", "a rotation has begun and is not finished",
          "copy the keyring to the other hosts, then `neuroncache keys rotate --finish`");
    }
    if (own->not_after_ms && *own->not_after_ms - now_ < kSoonMs) {
      return say(
          Level::kWarning, "key",
          fmt::format("the key of this host signs until {}", trust::time_text(*own->not_after_ms)),
          "make a new one: `neuroncache keys rotate`");
    }
    say(Level::kOk, "key",
        fmt::format("{} signs for the namespaces {}", own->id.substr(0, 12), own->write.text()));
  }

  // ---- The listener ----

  void check_tokens() {
    const std::string& path = settings_.text("listen_tokens");
    const auto tokens = trust::TokenFile::load(fs_, path);
    if (!tokens.ok()) {
      if (!tokens.is(Code::kNotFound)) return say("tokens", tokens.error());
      return say(Level::kProblem, "tokens",
                 fmt::format("there is no {}: nobody may come in over TCP", path),
                 "`neuroncache tokens add`, or take `listen` out of the settings");
    }
    std::string expired;
    for (const auto& grant : tokens->grants()) {
      if (grant.expired(now_)) expired += (expired.empty() ? "" : ", ") + grant.id();
    }
    if (expired.empty()) {
      return say(Level::kOk, "tokens",
                 fmt::format("{} tokens and clients may come in", tokens->grants().size()));
    }
    say(Level::kWarning, "tokens", "have expired: " + expired,
        "`neuroncache tokens remove`, and add new ones for those who still need them");
  }

  void check_tls() {
    const TcpListener::Options options = tcp_options(settings_);
    const auto until = TcpListener::check(fs_, options);
    if (!until.ok()) return say("tls", until.error());
    if (!*until) {
      return say(Level::kWarning, "tls", options.address + " speaks plain text",
                 "for tests on one host only");
    }
    if (**until < now_) {
      return say(
          Level::kProblem, "tls",
          fmt::format("the certificate {} ended on {}", options.cert, trust::time_text(**until)),
          "put a new one there, then send the daemon SIGHUP, or restart it");
    }
    say(**until - now_ < kSoonMs ? Level::kWarning : Level::kOk, "tls",
        fmt::format("the certificate {} is good until {}", options.cert, trust::time_text(**until)),
        **until - now_ < kSoonMs ? "put a new one there in time" : "");
  }

  // ---- Tiers ----

  void ask_tiers() {
    std::vector<std::vector<Checked>> answers(tiers_.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < tiers_.size(); ++i) {
      threads.emplace_back([&, i] { answers[i] = ask(tiers_[i]); });
    }
    for (auto& thread : threads) thread.join();
    for (auto& answer : answers) found_.insert(found_.end(), answer.begin(), answer.end());
  }

  std::vector<Checked> ask(const Tier& tier) const {
    const std::string& name = tier.address.shown;
    std::vector<Checked> out;
    const auto trouble = [&](std::string_view what, const Error& error,
                             std::string_view otherwise) {
      out.push_back({Level::kProblem, "tier", fmt::format("{}: {}: {}", name, what, error.message),
                     error.action.empty() ? std::string(otherwise) : error.action});
    };
    const Millis begun = clock_.monotonic_ms();
    std::string can;
    if (!tier.address.write_only) {
      const auto got = tier.engine->get(tier::entry_name({}), Manifest::kMaxBytes);
      if (!got.ok() && tier::sick(got.error())) {
        trouble("cannot be read", got.error(), "check the address, the network and the server");
        return out;
      }
      can = "is read";
    }
    const auto capabilities = tier.engine->capabilities();
    if (!tier.address.read_only && capabilities.remove && !capabilities.one_entry) {
      // A mark that no blob belongs to: should it stay, the next collection removes it.
      const auto mark = tier::mark_name(Digest::of(as_bytes(system_random().hex_id())));
      const auto text = std::to_string(now_);
      Status put = tier.engine->put(mark, as_bytes(text));
      if (!put.ok()) {
        trouble("cannot be written", put.error(), "add read_only=true to the address if so meant");
        return out;
      }
      if (Status gone = tier.engine->remove(mark); !gone.ok()) {
        out.push_back({Level::kWarning, "tier",
                       fmt::format("{}: nothing can be removed: {}", name, gone.error().message),
                       "leases and `prune --tier` need it"});
      }
      can += can.empty() ? "is written" : " and written";
    }
    if (can.empty()) can = "is written only, which shows when something is sent";
    out.push_back({Level::kOk, "tier",
                   fmt::format("{} {} ({} ms)", name, can, clock_.monotonic_ms() - begun), ""});
    return out;
  }

  const Settings& settings_;
  FileSystem& fs_;
  Clock& clock_;
  const Millis now_;
  bool writes_ = false;
  std::vector<Tier> tiers_;
  std::vector<Checked> found_;
};

std::string_view level_name(Level level) {
  switch (level) {
    case Level::kOk:
      return "ok";
    case Level::kWarning:
      return "warning";
    case Level::kProblem:
      break;
  }
  return "problem";
}

}  // namespace

std::vector<Checked> check_all(const Settings& settings, FileSystem& fs, Clock& clock) {
  return Checks(settings, fs, clock).run();
}

std::string to_json(const std::vector<Checked>& found) {
  js::array out;
  for (const Checked& one : found) {
    out.push_back(js::object{{"level", std::string(level_name(one.level))},
                             {"check", one.check},
                             {"detail", one.detail},
                             {"fix", one.fix}});
  }
  return js::serialize(js::object{{"findings", std::move(out)}});
}

}  // namespace nc::daemon
