#include "base/trust/keyring.hpp"

#include <unistd.h>

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "base/trust/field_file.hpp"
#include "base/trust/time_text.hpp"

namespace nc::trust {
namespace {

constexpr std::string_view kMagic = "neuroncache-keyring 1";
constexpr std::size_t kMaxName = 64;
constexpr std::size_t kMaxPatterns = 64;

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

bool is_pattern(std::string_view text) {
  if (text.ends_with('*')) {
    text.remove_suffix(1);
  } else if (text.empty() || text == "." || text == "..") {
    return false;
  }
  return text.size() <= kMaxName && std::all_of(text.begin(), text.end(), is_name_char);
}

// Sets one field of `key`; the problem, or "".
std::string set_field(TrustedKey& key, std::string_view name, std::string_view value,
                      std::set<std::string, std::less<>>& seen) {
  if (!seen.emplace(name).second) return fmt::format("'{}' comes twice", name.substr(0, 40));
  if (name == "id") {
    return value == key.id ? "" : "the id is not that of the key above";
  }
  if (name == "comment") {
    if (!is_comment(value)) return "the comment is not plain text of 1 to 200 bytes";
    key.comment = value;
    return "";
  }
  if (name == "write" || name == "read") {
    auto set = NamespaceSet::parse(value);
    if (!set.ok()) return set.error().message;
    (name == "write" ? key.write : key.read) = std::move(*set);
    return "";
  }
  std::optional<Millis>* time = name == "not-before"  ? &key.not_before_ms
                                : name == "not-after" ? &key.not_after_ms
                                : name == "revoked"   ? &key.revoked_ms
                                                      : nullptr;
  if (time == nullptr) return fmt::format("'{}' is not known", name.substr(0, 40));
  *time = parse_time(value);
  return time->has_value() ? "" : "the time is not of the form 2026-01-31T12:00:00Z";
}

}  // namespace

// ---- Namespaces ----

Result<NamespaceSet> NamespaceSet::parse(std::string_view text) {
  NamespaceSet set;
  while (true) {
    const auto comma = text.find(',');
    const std::string_view pattern = text.substr(0, comma);
    if (!is_pattern(pattern) || set.patterns_.size() >= kMaxPatterns) {
      return Error{Code::kInvalid,
                   fmt::format("'{}' is no list of namespaces", text.substr(0, 100)),
                   "write names with commas between: default,team-*; or * for all"};
    }
    set.patterns_.emplace_back(pattern);
    if (comma == std::string_view::npos) return set;
    text.remove_prefix(comma + 1);
  }
}

bool NamespaceSet::contains(std::string_view name) const {
  return std::any_of(patterns_.begin(), patterns_.end(), [name](std::string_view pattern) {
    if (!pattern.ends_with('*')) return name == pattern;
    pattern.remove_suffix(1);
    return name.starts_with(pattern);
  });
}

bool NamespaceSet::is_all() const {
  return std::find(patterns_.begin(), patterns_.end(), "*") != patterns_.end();
}

std::string NamespaceSet::text() const {
  return fmt::format("{}", fmt::join(patterns_, ","));
}

// ---- Keys ----

std::string_view TrustedKey::state(Millis now) const {
  if (revoked_ms && now >= *revoked_ms) return "revoked";
  if (not_after_ms && now > *not_after_ms) return "expired";
  if (not_before_ms && now < *not_before_ms) return "not yet";
  return "active";
}

Result<Keyring> Keyring::parse(std::string_view text) {
  Keyring ring;
  std::set<std::string, std::less<>> seen;
  const auto complete = [&] { return ring.keys_.empty() || seen.contains("id"); };
  const auto line = [&](std::string_view name, std::string_view value) -> std::string {
    if (name != "key") {
      if (ring.keys_.empty()) return "a field without a key above it";
      return set_field(ring.keys_.back(), name, value, seen);
    }
    if (!complete()) return "the key above has no id";
    auto key = PublicKey::parse(value);
    if (!key.ok()) return key.error().message;
    TrustedKey entry;
    entry.key = *key;
    entry.id = key->id();
    seen.clear();
    Status added = ring.add(std::move(entry));
    return added.ok() ? "" : added.error().message;
  };
  NC_TRY(read_fields({"keyring", kMagic, "neuroncache keys", kMaxBytes}, text, line,
                     [&] { return std::string(complete() ? "" : "the last key has no id"); }));
  return ring;
}

Result<Keyring> Keyring::load(FileSystem& fs, const std::string& path) {
  NC_TRY(check_ours(fs, path));
  NC_ASSIGN(const std::string text, fs.read_all(path, kMaxBytes));
  auto ring = parse(text);
  if (!ring.ok()) return std::move(ring).error().context(path);
  return ring;
}

std::string Keyring::text() const {
  std::string out = std::string(kMagic) + "\n";
  for (const TrustedKey& key : keys_) {
    out += fmt::format("\nkey {}\nid {}\n", key.key.text(), key.id);
    if (!key.comment.empty()) out += fmt::format("comment {}\n", key.comment);
    if (!key.write.empty()) out += fmt::format("write {}\n", key.write.text());
    if (!key.read.empty()) out += fmt::format("read {}\n", key.read.text());
    if (key.not_before_ms) out += fmt::format("not-before {}\n", time_text(*key.not_before_ms));
    if (key.not_after_ms) out += fmt::format("not-after {}\n", time_text(*key.not_after_ms));
    if (key.revoked_ms) out += fmt::format("revoked {}\n", time_text(*key.revoked_ms));
  }
  return out;
}

Status Keyring::save(FileSystem& fs, const std::string& path) const {
  NC_TRY(fs.make_dirs(parent_dir(path), 0700));
  return fs.write_atomically(path, as_bytes(text()), 0644);
}

const TrustedKey* Keyring::find(std::string_view id) const {
  const auto at = std::find_if(keys_.begin(), keys_.end(),
                               [id](const TrustedKey& key) { return key.id == id; });
  return at == keys_.end() ? nullptr : &*at;
}

Result<TrustedKey*> Keyring::pick(std::string_view prefix) {
  TrustedKey* found = nullptr;
  for (TrustedKey& key : keys_) {
    if (prefix.empty() || !key.id.starts_with(prefix)) continue;
    if (found != nullptr) {
      return Error{Code::kInvalid, fmt::format("several keys begin with {}", prefix),
                   "give more digits of the id"};
    }
    found = &key;
  }
  if (found != nullptr) return found;
  return Error{Code::kNotFound, fmt::format("no key of the keyring begins with '{}'", prefix),
               "`neuroncache keys list` shows them"};
}

Status Keyring::add(TrustedKey key) {
  if (find(key.id) != nullptr) {
    return Error{Code::kConflict, fmt::format("the key {} is there already", key.id), ""};
  }
  if (keys_.size() >= kMaxKeys) {
    return Error{Code::kTooLarge, fmt::format("more than {} keys", kMaxKeys),
                 "take out old ones that are revoked"};
  }
  keys_.push_back(std::move(key));
  return {};
}

// ---- Places ----

Status check_ours(FileSystem& fs, const std::string& path) {
  for (const std::string& name : {path, parent_dir(path)}) {
    NC_ASSIGN(const FileInfo info, fs.stat(name));
    if (info.uid != ::geteuid() && info.uid != 0) {
      return Error{Code::kDenied, fmt::format("{} belongs to uid {}", name, info.uid),
                   "what decides who is believed must belong to you or to root"};
    }
    if ((info.mode & 022) != 0) {
      return Error{Code::kDenied,
                   fmt::format("others may write to {} (mode {:04o})", name, info.mode),
                   fmt::format("chmod go-w {}", name)};
    }
  }
  return {};
}

std::string default_keyring_path(const std::string& config_path) {
  return config_path.starts_with('/') ? join(parent_dir(config_path), "trusted_keys")
                                      : std::string();
}

std::string default_sign_key_path(const std::string& config_path) {
  return config_path.starts_with('/') ? join(parent_dir(config_path), "sign.key") : std::string();
}

}  // namespace nc::trust
