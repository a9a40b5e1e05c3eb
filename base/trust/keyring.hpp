// The keys that a host believes, and for what. One text file, the same on every host of a fleet:
//
//   keyring = "neuroncache-keyring 1\n" entry*            at most 1 MiB and 1024 entries
//   entry   = "\n" "key " public key "\n" field*          key and id as in base/trust/keys.hpp
//   field   = "id " 32 hex digits "\n"                    must be there, and be the key's
//           | "comment " text "\n"
//           | "write " namespaces "\n"                    entries of these are believed
//           | "read " namespaces "\n"                     its holder takes entries of these
//           | "not-before " time "\n" | "not-after " time "\n" | "revoked " time "\n"
//   namespaces = name ["*"] ("," name ["*"])* | "*"       "team-*": all that begin with team-
//
// Each field comes at most once; what is not known is an error, since it could be a restriction.
// A role that is not there allows nothing. `not-before` and `not-after` bound the time at which an
// entry was signed, so that what a retired key signed while it was in use stays good; from
// `revoked` on nothing that the key ever signed is believed, whatever time it says.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "base/filesystem.hpp"
#include "base/result.hpp"
#include "base/trust/keys.hpp"

namespace nc::trust {

class NamespaceSet {
 public:
  static Result<NamespaceSet> parse(std::string_view text);
  static NamespaceSet all() { return *parse("*"); }
  bool contains(std::string_view name) const;
  bool empty() const { return patterns_.empty(); }
  bool is_all() const;
  std::string text() const;  // "" when empty

 private:
  std::vector<std::string> patterns_;
};

struct TrustedKey {
  PublicKey key;
  std::string id;
  std::string comment;
  NamespaceSet write, read;
  std::optional<Millis> not_before_ms, not_after_ms, revoked_ms;

  // At `now`: "active", "revoked", "expired" (signs nothing more) or "not yet".
  std::string_view state(Millis now) const;
};

class Keyring {
 public:
  static constexpr std::size_t kMaxKeys = 1024;
  static constexpr std::size_t kMaxBytes = 1 << 20;

  static Result<Keyring> parse(std::string_view text);  // kInvalid with the line
  // kNotFound; kDenied: it or its directory can be changed by others.
  static Result<Keyring> load(FileSystem& fs, const std::string& path);
  std::string text() const;
  Status save(FileSystem& fs, const std::string& path) const;

  const std::vector<TrustedKey>& keys() const { return keys_; }
  const TrustedKey* find(std::string_view id) const;
  // The one whose id begins with `prefix`; kNotFound; kInvalid when there are several.
  Result<TrustedKey*> pick(std::string_view prefix);
  Status add(TrustedKey key);  // kConflict when it is there, kTooLarge

 private:
  std::vector<TrustedKey> keys_;
};

// kDenied when anybody but root and ourselves can change the file: it or its directory belongs to
// another user, or group or others may write there.
Status check_ours(FileSystem& fs, const std::string& path);

// Where keys lie unless set: beside the settings file. "" when that has no absolute path.
std::string default_keyring_path(const std::string& config_path);
std::string default_sign_key_path(const std::string& config_path);

}  // namespace nc::trust
