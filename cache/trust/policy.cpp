#include "cache/trust/policy.hpp"

#include <map>
#include <optional>

#include <fmt/format.h>

#include "base/log.hpp"
#include "base/thread_annotations.hpp"
#include "base/trust/keyring.hpp"
#include "base/trust/time_text.hpp"
#include "cache/trust/envelope.hpp"

namespace nc::trust {
namespace {

constexpr Millis kLookAgainMs = 1'000;
constexpr Millis kLogAgainMs = 600'000;
constexpr std::size_t kMaxLogged = 1024;  // origins and reasons that are remembered

constexpr std::array<std::string_view, kRefusals> kNames = {
    "unsigned", "unknown_key", "revoked", "expired", "role", "bad_signature", "wrong_key"};

// A file that is read again when it changed.
struct Watched {
  std::string path;
  std::optional<FileInfo> info = std::nullopt;
  bool looked = false;

  // True when it has to be read (again).
  bool changed(FileSystem& fs) {
    if (path.empty()) return false;
    auto now = fs.stat(path);
    const std::optional<FileInfo> fresh = now.ok() ? std::optional(*now) : std::nullopt;
    const auto identity = [](const FileInfo& i) {
      return std::tuple(i.inode, i.size, i.mtime_ms, i.mode, i.uid);
    };
    const bool same =
        fresh.has_value() == info.has_value() && (!fresh || identity(*fresh) == identity(*info));
    info = fresh;
    if (same && looked) return false;
    looked = true;
    return true;
  }
};

// What is in force; never changed once it is made.
struct Loaded {
  std::shared_ptr<const Keyring> ring;
  std::shared_ptr<const PrivateKey> key;
  std::string ring_problem, key_problem;  // "" while there is none
};

struct Reason {
  Refusal refusal;
  Error error;
};

class FilePolicy final : public Policy {
 public:
  FilePolicy(FileSystem& fs, Clock& clock, PolicyOptions options)
      : fs_(fs),
        clock_(clock),
        need_signature_(options.need_signature),
        ring_file_{std::move(options.keyring)},
        key_file_{std::move(options.sign_key)} {}

  Status sign(Manifest& manifest) const override {
    const std::shared_ptr<const Loaded> now = loaded();
    if (!manifest.signature.empty()) return check(manifest, "the local store");
    if (!now->key) {
      if (!need_signature_) return {};
      return Error{
          Code::kDenied,
          now->key_problem.empty() ? "this host has no key to sign with" : now->key_problem,
          "make one with `neuroncache keys init`, and have the other hosts trust it"};
    }
    if (Status allowed = may_sign(*now, manifest.name_space); need_signature_ && !allowed.ok()) {
      return allowed;
    }
    NC_TRY(sign_manifest(manifest, *now->key, clock_.wall_ms()));
    MutexLock lock(mutex_);
    ++signed_;
    return {};
  }

  Status check(const Manifest& manifest, std::string_view origin) const override {
    const std::shared_ptr<const Loaded> now = loaded();
    std::optional<Reason> reason = judge(*now, manifest);
    MutexLock lock(mutex_);
    if (!reason) {
      ++believed_;
      return {};
    }
    ++refused_[static_cast<std::size_t>(reason->refusal)];
    tell(reason->refusal, origin, reason->error, manifest);
    return std::move(reason->error);
  }

  Status serves(const Manifest& manifest, std::string_view asked,
                std::string_view origin) const override {
    if (manifest.signature.empty() || !need_signature_) return {};  // built here, or all the same
    const std::shared_ptr<const Loaded> now = loaded();
    std::optional<Reason> reason = judge_signer(*now, manifest, asked);
    if (!reason) return {};
    MutexLock lock(mutex_);
    ++refused_[static_cast<std::size_t>(reason->refusal)];
    tell(reason->refusal, origin, reason->error, manifest);
    return std::move(reason->error);
  }

  bool disowns(const Manifest& manifest) const override {
    const auto signature = Signature::parse(manifest.signature);
    if (!signature.ok()) return false;
    const std::shared_ptr<const Loaded> now = loaded();
    const TrustedKey* key = now->ring ? now->ring->find(signature->key_id) : nullptr;
    return key != nullptr && judge_revoked(*key);
  }

  void misplaced(const Manifest& manifest, const ActionKey& found_under,
                 std::string_view origin) const override {
    const Error error{
        Code::kKeyMismatch, "it lies under the name of another key, " + found_under.hex(),
        "somebody put it there, or the place is damaged: `neuroncache verify --tier`"};
    MutexLock lock(mutex_);
    ++refused_[static_cast<std::size_t>(Refusal::kWrongKey)];
    tell(Refusal::kWrongKey, origin, error, manifest);
  }

  PolicyState state() const override {
    const std::shared_ptr<const Loaded> now = loaded();
    PolicyState state;
    state.need_signature = need_signature_;
    if (now->key) state.key_id = now->key->id();
    if (now->ring) {
      for (const TrustedKey& key : now->ring->keys()) {
        if (key.state(clock_.wall_ms()) != "revoked") ++state.trusted;
      }
    }
    state.problem = now->ring_problem.empty() ? now->key_problem : now->ring_problem;
    MutexLock lock(mutex_);
    state.signed_count = signed_;
    state.believed = believed_;
    state.refused = refused_;
    return state;
  }

 private:
  std::shared_ptr<const Loaded> loaded() const {
    MutexLock lock(mutex_);
    const Millis now = clock_.monotonic_ms();
    if (loaded_ && now < look_again_ms_) return loaded_;
    look_again_ms_ = now + kLookAgainMs;
    Loaded fresh = loaded_ ? *loaded_ : Loaded{};
    if (ring_file_.changed(fs_)) load_ring(fresh);
    if (key_file_.changed(fs_)) load_key(fresh);
    loaded_ = std::make_shared<const Loaded>(std::move(fresh));
    return loaded_;
  }

  // A keyring that went bad is as none: the change may have been a revocation.
  void load_ring(Loaded& fresh) const NC_REQUIRES(mutex_) {
    fresh.ring.reset();
    fresh.ring_problem.clear();
    auto ring = Keyring::load(fs_, ring_file_.path);
    if (ring.ok()) {
      log::info("trust", "{} keys are trusted ({})", ring->keys().size(), ring_file_.path);
      fresh.ring = std::make_shared<const Keyring>(std::move(*ring));
    } else if (!ring.is(Code::kNotFound)) {
      fresh.ring_problem = ring.error().text();
      log::error("trust", "no key is trusted: {}", fresh.ring_problem);
    }
  }

  void load_key(Loaded& fresh) const NC_REQUIRES(mutex_) {
    fresh.key.reset();
    fresh.key_problem.clear();
    auto key = PrivateKey::load(fs_, key_file_.path);
    if (key.ok()) {
      log::info("trust", "entries are signed with the key {}", key->id());
      fresh.key = std::make_shared<const PrivateKey>(std::move(*key));
    } else if (!key.is(Code::kNotFound)) {
      fresh.key_problem = key.error().text();
      log::error("trust", "nothing is signed: {}", fresh.key_problem);
    }
  }

  Status may_sign(const Loaded& now, const std::string& name_space) const {
    const TrustedKey* own = now.ring ? now.ring->find(now.key->id()) : nullptr;
    std::string problem;
    if (own == nullptr) {
      problem = "is not in the keyring";
    } else if (const auto state = own->state(clock_.wall_ms()); state != "active") {
      problem = fmt::format("is {}", state == "not yet" ? "not in force yet" : state);
    } else if (!own->write.contains(name_space)) {
      problem = fmt::format("may not write the namespace {}", name_space);
    } else {
      return {};
    }
    return Error{Code::kDenied, fmt::format("the key {} of this host {}", now.key->id(), problem),
                 "see `neuroncache keys list`; a new key: `neuroncache keys rotate`"};
  }

  static Reason refuse(Refusal refusal, Code code, std::string message, std::string action) {
    return Reason{refusal, {code, std::move(message), std::move(action)}};
  }

  std::optional<Reason> judge(const Loaded& now, const Manifest& manifest) const {
    if (manifest.signature.empty()) {
      if (!need_signature_) return judge_reader(now, manifest);
      return refuse(Refusal::kUnsigned, Code::kDenied, "the entry is not signed",
                    "whoever writes there needs a key: `neuroncache keys init`");
    }
    auto signature = Signature::parse(manifest.signature);
    if (!signature.ok()) {
      const Code code = signature.is(Code::kUnsupported) ? Code::kUnsupported : Code::kCorrupt;
      return refuse(Refusal::kBadSignature, code, signature.error().message, "");
    }
    const TrustedKey* key = now.ring ? now.ring->find(signature->key_id) : nullptr;
    if (key == nullptr && !need_signature_) return judge_reader(now, manifest);
    if (key == nullptr) return stranger(now, *signature);
    if (auto reason = judge_revoked(*key)) return reason;
    const std::string bytes = signed_bytes(manifest, signature->key_id, signature->signed_ms);
    if (!key->key.verify(as_bytes(bytes), as_bytes(signature->bytes))) {
      return refuse(Refusal::kBadSignature, Code::kCorrupt,
                    fmt::format("the signature with the key {} is not over this entry", key->id),
                    "somebody changed the entry, or it is damaged");
    }
    if ((key->not_before_ms && signature->signed_ms < *key->not_before_ms) ||
        (key->not_after_ms && signature->signed_ms > *key->not_after_ms)) {
      return refuse(Refusal::kExpired, Code::kDenied,
                    fmt::format("the entry was signed on {}, when the key {} might not sign",
                                time_text(signature->signed_ms), key->id),
                    "see `neuroncache keys list`, and the clock of whoever wrote it");
    }
    if (auto reason = judge_role(*key, manifest.name_space)) return reason;
    if (now.key && now.key->id() == key->id) return std::nullopt;  // built here: for others to read
    return judge_reader(now, manifest);
  }

  // Whether the signer is one for look-ups in `asked`.
  std::optional<Reason> judge_signer(const Loaded& now, const Manifest& manifest,
                                     std::string_view asked) const {
    auto signature = Signature::parse(manifest.signature);
    if (!signature.ok()) {
      return refuse(Refusal::kBadSignature, Code::kDenied, signature.error().message, "");
    }
    const TrustedKey* key = now.ring ? now.ring->find(signature->key_id) : nullptr;
    const bool own = now.key && now.key->id() == signature->key_id;
    if (key == nullptr && !own) return stranger(now, *signature);
    if (key != nullptr) {
      if (auto reason = judge_revoked(*key)) return reason;
    }
    // What this host built itself is its own in every namespace, whatever the keyring says of it.
    return own ? std::nullopt : judge_role(*key, asked);
  }

  static Reason stranger(const Loaded& now, const Signature& signature) {
    return refuse(
        Refusal::kUnknownKey, Code::kDenied,
        fmt::format("the entry is signed with the key {}, which is not trusted here{}",
                    signature.key_id, now.ring_problem.empty() ? "" : "; " + now.ring_problem),
        "if you know whose it is: `neuroncache keys trust`");
  }
  std::optional<Reason> judge_revoked(const TrustedKey& key) const {
    if (!key.revoked_ms || clock_.wall_ms() < *key.revoked_ms) return std::nullopt;
    return refuse(Refusal::kRevoked, Code::kDenied,
                  fmt::format("the key {} was revoked on {}", key.id, time_text(*key.revoked_ms)),
                  "the entry has to be built again");
  }
  static std::optional<Reason> judge_role(const TrustedKey& key, std::string_view name_space) {
    if (key.write.contains(name_space)) return std::nullopt;
    return refuse(Refusal::kRole, Code::kDenied,
                  fmt::format("the key {} may not write the namespace {}", key.id, name_space),
                  "`neuroncache keys trust --write` changes its role");
  }

  // What this host itself may take.
  std::optional<Reason> judge_reader(const Loaded& now, const Manifest& manifest) const {
    const TrustedKey* own = now.ring && now.key ? now.ring->find(now.key->id()) : nullptr;
    if (own == nullptr || own->read.contains(manifest.name_space)) return std::nullopt;
    return Reason{Refusal::kRole,
                  {Code::kDenied,
                   fmt::format("this host, with the key {}, may not read the namespace {}", own->id,
                               manifest.name_space),
                   "`neuroncache keys trust --read` changes its role"}};
  }

  void tell(Refusal refusal, std::string_view origin, const Error& error,
            const Manifest& manifest) const NC_REQUIRES(mutex_) {
    const Millis now = clock_.monotonic_ms();
    if (logged_.size() >= kMaxLogged) logged_.clear();
    auto [at, fresh] = logged_.try_emplace({std::string(origin), refusal}, Told{});
    Told& told = at->second;
    if (!fresh && now < told.again_ms) {
      ++told.silent;
      return;
    }
    log::warn("trust", "{}: entry {} (made on {}) is not believed: {}{}", origin,
              manifest.key.hex(), manifest.producer.host, error.text(),
              told.silent == 0 ? "" : fmt::format("; so were {} more", told.silent));
    told = {now + kLogAgainMs, 0};
  }

  struct Told {
    Millis again_ms = 0;
    std::uint64_t silent = 0;
  };

  FileSystem& fs_;
  Clock& clock_;
  const bool need_signature_;

  mutable Mutex mutex_;
  mutable Watched ring_file_ NC_GUARDED_BY(mutex_);
  mutable Watched key_file_ NC_GUARDED_BY(mutex_);
  mutable std::shared_ptr<const Loaded> loaded_ NC_GUARDED_BY(mutex_);
  mutable Millis look_again_ms_ NC_GUARDED_BY(mutex_) = 0;
  mutable std::uint64_t signed_ NC_GUARDED_BY(mutex_) = 0;
  mutable std::uint64_t believed_ NC_GUARDED_BY(mutex_) = 0;
  mutable std::array<std::uint64_t, kRefusals> refused_ NC_GUARDED_BY(mutex_){};
  mutable std::map<std::pair<std::string, Refusal>, Told> logged_ NC_GUARDED_BY(mutex_);
};

}  // namespace

std::string_view refusal_name(Refusal refusal) {
  return kNames[static_cast<std::size_t>(refusal)];
}

std::unique_ptr<Policy> make_policy(FileSystem& fs, Clock& clock, PolicyOptions options) {
  if (!options.need_signature) {
    log::warn("trust",
              "trust = any: entries of shared tiers are believed whoever wrote them; anybody who "
              "can write there can run code here");
  }
  return std::make_unique<FilePolicy>(fs, clock, std::move(options));
}

}  // namespace nc::trust
