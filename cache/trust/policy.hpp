// Who is believed. Whoever can write an entry can run code in whoever loads it, so every manifest
// that comes from or goes to a place outside of this store passes here: one that comes is checked
// before anything of it is used, one that goes is signed.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "base/filesystem.hpp"
#include "base/result.hpp"
#include "cache/manifest.hpp"

namespace nc::trust {

// Why an entry was not believed. The names are those of the counters.
enum class Refusal {
  kUnsigned,      // "unsigned"
  kUnknownKey,    // "unknown_key": the keyring does not have it, or there is no keyring
  kRevoked,       // "revoked"
  kExpired,       // "expired": signed outside of the time in which the key may sign
  kRole,          // "role": the key may not write this namespace, or this host may not read it
  kBadSignature,  // "bad_signature": it is not over this manifest, or no signature at all
  kWrongKey,      // "wrong_key": it lay under the name of another key
};
inline constexpr std::size_t kRefusals = 7;
std::string_view refusal_name(Refusal refusal);

struct PolicyState {
  bool need_signature = true;  // false: trust = any
  std::string key_id;          // that signs here; "": none
  std::size_t trusted = 0;     // keys of the keyring that are not revoked
  std::string problem;         // why keyring or key cannot be used, or ""
  std::uint64_t signed_count = 0, believed = 0;
  std::array<std::uint64_t, kRefusals> refused{};
};

// Thread-safe. Calls may read two small files; not for I/O threads.
class Policy {
 public:
  virtual ~Policy() = default;

  // Before an entry leaves. One that was built here is signed with this host's key; one that bears
  // a signature keeps it, and has to pass check(): what came from elsewhere is never signed anew.
  // kDenied: there is no key, or it may not write this namespace (any more); or as check().
  virtual Status sign(Manifest& manifest) const = 0;

  // Before an entry that came from `origin` (for people: a tier's address, never a secret) is used.
  // kDenied: unsigned, unknown key, revoked, expired, or outside of the key's role. kUnsupported: a
  // newer kind of signature. kCorrupt: the signature is not over this manifest. A refusal says
  // nothing about what other places have under this key: go on with the next. Counted, and logged
  // once per origin and reason in ten minutes.
  virtual Status check(const Manifest& manifest, std::string_view origin) const = 0;

  // Keys are the same in all namespaces, so whoever may write one namespace could otherwise make
  // entries for all: what was signed elsewhere is given to a look-up in `asked` only when its
  // signer may write that namespace, too, and is trusted still. kDenied as above, counted and
  // logged likewise. Looks at no bytes: for entries that have passed check(). What bears this
  // host's own key may be given in all, unless the key is revoked.
  virtual Status serves(const Manifest& manifest, std::string_view asked,
                        std::string_view origin) const = 0;

  // Whether the key that it claims to be signed with is revoked here.
  virtual bool disowns(const Manifest& manifest) const = 0;

  // An entry of another key than `found_under`, the one that was asked for: counts and logs it.
  virtual void misplaced(const Manifest& manifest, const ActionKey& found_under,
                         std::string_view origin) const = 0;

  virtual PolicyState state() const = 0;
};

struct PolicyOptions {
  bool need_signature = true;  // false: what is unsigned or signed by strangers is believed, too
  std::string keyring;         // file of trusted keys; "": there is none
  std::string sign_key;        // file of this host's private key; "": there is none
};

// Never fails: without a usable keyring nothing is believed, without a usable key nothing is
// signed, and both are told in the log. Looks at most once a second whether the files have changed,
// so that trust and revocation take effect without a restart. `fs` and `clock` outlive it.
std::unique_ptr<Policy> make_policy(FileSystem& fs, Clock& clock, PolicyOptions options);

}  // namespace nc::trust
