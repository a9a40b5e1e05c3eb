// keys init | list | trust | revoke | rotate: this host's own key, and whom it believes. Works on
// the two files alone; a running daemon sees the change within a second.
#include <algorithm>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/trust/keyring.hpp"
#include "base/trust/time_text.hpp"
#include "client/cli/output.hpp"

namespace nc::cli {
namespace {

using trust::Keyring;
using trust::NamespaceSet;
using trust::PrivateKey;
using trust::PublicKey;
using trust::TrustedKey;

constexpr std::string_view kNextMark = ".next";

// Keyring and key as this call sees them.
struct Files {
  std::string ring_path, key_path;
  Keyring ring;
  std::optional<PrivateKey> own;

  static Result<Files> open(const Context& context) {
    const Settings& settings = context.settings();
    Files files;
    files.ring_path = settings.text("trust_keys");
    files.key_path = settings.text("sign_key");
    const std::string& config = settings.config_path();
    if (files.ring_path.empty()) files.ring_path = trust::default_keyring_path(config);
    if (files.key_path.empty()) files.key_path = trust::default_sign_key_path(config);
    if (files.ring_path.empty() || files.key_path.empty()) {
      return Error{Code::kInvalid, "there is no place for keys",
                   "set trust_keys and sign_key, or give the settings file by its absolute path"};
    }
    auto ring = Keyring::load(real_filesystem(), files.ring_path);
    if (ring.ok()) {
      files.ring = std::move(*ring);
    } else if (!ring.is(Code::kNotFound)) {
      return std::move(ring).error();
    }
    auto own = PrivateKey::load(real_filesystem(), files.key_path);
    if (own.ok()) {
      files.own.emplace(std::move(*own));
    } else if (!own.is(Code::kNotFound)) {
      return std::move(own).error();
    }
    return files;
  }

  Status save() const { return ring.save(real_filesystem(), led_to(ring_path)); }
  bool is_own(const TrustedKey& key) const { return own && own->id() == key.id; }
};

bj::value time_json(const std::optional<Millis>& ms) {
  return ms ? bj::value(*ms) : bj::value(nullptr);
}

std::string day(const std::optional<Millis>& ms) {
  return ms ? trust::time_text(*ms) : "-";
}

bj::object key_json(const Files& files, const TrustedKey& key, Millis now) {
  return {{"id", key.id},
          {"key", key.key.text()},
          {"comment", key.comment},
          {"own", files.is_own(key)},
          {"state", std::string(key.state(now))},
          {"write", key.write.text()},
          {"read", key.read.text()},
          {"not_before_ms", time_json(key.not_before_ms)},
          {"not_after_ms", time_json(key.not_after_ms)},
          {"revoked_ms", time_json(key.revoked_ms)}};
}

// The keys that `wanted` names (all: every key), then what is to be done now.
int report(const Context& context, const Files& files, const std::vector<std::string>& wanted,
           bool all, std::string_view advice) {
  const Millis now = system_clock().wall_ms();
  Table table({{"ID", "id"},
               {"STATE", "state"},
               {"OWN", "own"},
               {"WRITE", "write"},
               {"READ", "read"},
               {"SIGNS UNTIL", "not_after"},
               {"REVOKED", "revoked"},
               {"COMMENT", "comment", Table::Align::kLeft, true},
               {"PUBLIC KEY", "key"}});
  bj::array keys;
  for (const TrustedKey& key : files.ring.keys()) {
    if (!all && std::find(wanted.begin(), wanted.end(), key.id) == wanted.end()) continue;
    keys.push_back(key_json(files, key, now));
    const bool own = files.is_own(key);
    table.add({{key.id.substr(0, 12), key.id},
               std::string(key.state(now)),
               {own ? "yes" : "", own ? "1" : "0"},
               key.write.text(),
               key.read.text(),
               day(key.not_after_ms),
               day(key.revoked_ms),
               printable(key.comment),
               key.key.text()});
  }
  switch (context.format()) {
    case Format::kJson:
      print_json(bj::object{{"keyring", files.ring_path},
                            {"sign_key", files.key_path},
                            {"own", files.own ? bj::value(files.own->id()) : bj::value(nullptr)},
                            {"keys", std::move(keys)}});
      break;
    case Format::kTab:
      print(table.tab());
      break;
    case Format::kText:
      if (!table.empty()) print(table.text(0) + "\n");
      print(advice);
      break;
  }
  return kOk;
}

Status set_namespaces(const Context& context, std::string_view option, NamespaceSet& out) {
  const auto text = context.option(option);
  if (!text) return {};
  auto set = NamespaceSet::parse(*text);
  if (!set.ok()) return std::move(set).error().context(fmt::format("--{}", option));
  out = std::move(*set);
  return {};
}

Status set_time(const Context& context, std::string_view option, std::optional<Millis>& out) {
  const auto text = context.option(option);
  if (!text) return {};
  out = trust::parse_time(*text);
  if (out) return {};
  return Error{Code::kInvalid, fmt::format("--{}: '{}' is not a time", option, *text),
               "write it as 2026-01-31T12:00:00Z"};
}

Status apply_options(const Context& context, TrustedKey& key) {
  if (const auto comment = context.option("comment")) {
    if (!trust::is_comment(*comment)) {
      return Error{Code::kInvalid, "--comment: not plain text of 1 to 200 bytes", ""};
    }
    key.comment = *comment;
  }
  NC_TRY(set_namespaces(context, "write", key.write));
  NC_TRY(set_namespaces(context, "read", key.read));
  NC_TRY(set_time(context, "not-before", key.not_before_ms));
  return set_time(context, "not-after", key.not_after_ms);
}

TrustedKey entry_for(const PublicKey& key) {
  TrustedKey entry;
  entry.key = key;
  entry.id = key.id();
  entry.write = entry.read = NamespaceSet::all();
  return entry;
}

Result<int> run_init(Context& context) {
  NC_ASSIGN(Files files, Files::open(context));
  if (files.own) {
    return Error{Code::kConflict, fmt::format("{} holds a key already", files.key_path),
                 "`neuroncache keys rotate` makes a new one"};
  }
  NC_ASSIGN(PrivateKey key, PrivateKey::generate());
  TrustedKey entry = entry_for(key.public_key());
  NC_TRY(apply_options(context, entry));
  NC_TRY(key.save(real_filesystem(), files.key_path, system_clock().wall_ms(), entry.comment));
  const std::string id = entry.id;
  const std::string text = key.public_key().text();
  NC_TRY(files.ring.add(std::move(entry)));
  files.own.emplace(std::move(key));
  NC_TRY(files.save());
  return report(context, files, {id}, false,
                fmt::format("On the other hosts: neuroncache keys trust {}\nor copy {} there.\n",
                            text, files.ring_path));
}

Result<int> run_list(Context& context) {
  NC_ASSIGN(const Files files, Files::open(context));
  std::string advice;
  if (files.ring.keys().empty()) {
    advice = "No key is trusted: nothing that comes from a shared tier is believed.\n";
  }
  if (!files.own) {
    advice +=
        "This host has no key of its own and sends nothing to a shared tier; `neuroncache keys "
        "init` makes one.\n";
  } else if (files.ring.find(files.own->id()) == nullptr) {
    advice += fmt::format("The key of this host is not in the keyring: neuroncache keys trust {}\n",
                          files.own->public_key().text());
  }
  return report(context, files, {}, true, advice);
}

Result<int> run_trust(Context& context) {
  NC_ASSIGN(Files files, Files::open(context));
  const std::string wanted = *context.option("KEY");
  TrustedKey* key = nullptr;
  if (wanted.find(':') == std::string::npos) {
    NC_ASSIGN(key, files.ring.pick(wanted));
  } else {
    NC_ASSIGN(const PublicKey parsed, PublicKey::parse(wanted));
    if (files.ring.find(parsed.id()) == nullptr) NC_TRY(files.ring.add(entry_for(parsed)));
    NC_ASSIGN(key, files.ring.pick(parsed.id()));
  }
  if (key->revoked_ms) {
    return Error{Code::kConflict, fmt::format("the key {} is revoked", key->id),
                 "a revoked key stays so; its holder makes a new one with `neuroncache keys "
                 "rotate`"};
  }
  NC_TRY(apply_options(context, *key));
  NC_TRY(files.save());
  return report(context, files, {key->id}, false, "");
}

Result<int> run_revoke(Context& context) {
  NC_ASSIGN(Files files, Files::open(context));
  NC_ASSIGN(TrustedKey * key, files.ring.pick(*context.option("ID")));
  NC_ASSIGN(const auto after, context.duration_option("after"));
  const Millis when =
      system_clock().wall_ms() + static_cast<Millis>(after.value_or(0) * 1000) / 1000 * 1000;
  // Never later than it is already.
  if (!key->revoked_ms || when < *key->revoked_ms) key->revoked_ms = when;
  NC_TRY(files.save());
  return report(context, files, {key->id}, false,
                fmt::format("Copy {} to the other hosts: each believes the key until it knows.\n",
                            files.ring_path));
}

Status finish_rotation(Files& files, const std::string& next_path, PrivateKey next,
                       double overlap_s) {
  if (files.own && files.own->id() != next.id()) {
    if (auto old = files.ring.pick(files.own->id()); old.ok()) {
      const Millis until = system_clock().wall_ms() + static_cast<Millis>(overlap_s * 1000);
      if (!(*old)->not_after_ms || until < *(*old)->not_after_ms) (*old)->not_after_ms = until;
    }
  }
  NC_TRY(files.save());
  NC_TRY(real_filesystem().rename(next_path, files.key_path));
  NC_TRY(real_filesystem().sync_dir(parent_dir(files.key_path)));
  files.own.emplace(std::move(next));
  return {};
}

Result<int> run_rotate(Context& context) {
  NC_ASSIGN(Files files, Files::open(context));
  NC_ASSIGN(const auto overlap, context.duration_option("overlap"));
  constexpr double kWeek = 7.0 * 24 * 3600;
  const std::string next_path = files.key_path + std::string(kNextMark);
  if (!files.own) {
    return Error{Code::kNotFound, fmt::format("{} holds no key", files.key_path),
                 "`neuroncache keys init` makes the first one"};
  }
  auto next = PrivateKey::load(real_filesystem(), next_path);
  if (!next.ok() && !next.is(Code::kNotFound)) return std::move(next).error();
  const bool finish = context.flag("finish") || context.flag("now");
  if (!next.ok()) {
    if (context.flag("finish")) {
      return Error{Code::kNotFound, "no rotation has begun",
                   "first `neuroncache keys rotate`, then copy the keyring to the other hosts"};
    }
    next = PrivateKey::generate();
    if (!next.ok()) return std::move(next).error();
    // What the old key may do the new one may, too.
    TrustedKey entry = entry_for(next->public_key());
    if (const TrustedKey* old = files.ring.find(files.own->id())) {
      entry.comment = old->comment;
      entry.write = old->write;
      entry.read = old->read;
    }
    NC_TRY(apply_options(context, entry));
    NC_TRY(next->save(real_filesystem(), next_path, system_clock().wall_ms(), entry.comment));
    NC_TRY(files.ring.add(std::move(entry)));
    NC_TRY(files.save());
  } else if (files.ring.find(next->id()) == nullptr) {
    // Whoever made it was ended before it came into the keyring.
    NC_TRY(files.ring.add(entry_for(next->public_key())));
    NC_TRY(files.save());
  }
  const std::vector<std::string> both = {files.own->id(), next->id()};
  if (!finish) {
    return report(
        context, files, both, false,
        fmt::format("The old key signs on. Copy {} to the other hosts (or there: "
                    "neuroncache keys trust {}), then: neuroncache keys rotate --finish\n",
                    files.ring_path, next->public_key().text()));
  }
  NC_TRY(finish_rotation(files, next_path, std::move(*next), overlap.value_or(kWeek)));
  return report(context, files, both, false,
                fmt::format("The new key signs from now on. What the old one signed stays good. "
                            "Copy {} to the other hosts.\n",
                            files.ring_path));
}

constexpr OptionSpec kComment{"comment", "TEXT", "What the key is for.", ""};
constexpr OptionSpec kWrite{
    "write", "NAMESPACES",
    "Entries of these namespaces are believed: names, beginnings with a star, or * (the default).",
    ""};
constexpr OptionSpec kRead{"read", "NAMESPACES",
                           "The key's holder takes entries of these namespaces; default: *.", ""};

constexpr OptionSpec kInitOptions[] = {kComment, kWrite, kRead};
constexpr OptionSpec kTrustOptions[] = {
    kComment,
    kWrite,
    kRead,
    {"not-before", "TIME", "What it signed before is not believed: 2026-01-31T12:00:00Z.", ""},
    {"not-after", "TIME", "What it signs later is not believed.", ""},
};
constexpr OptionSpec kRevokeOptions[] = {
    {"after", "DURATION", "Only after this time, so that entries can be built again before.", ""},
};
constexpr OptionSpec kRotateOptions[] = {
    {"finish", "", "The other hosts know the new key: sign with it.", ""},
    {"now", "", "Make a new key and sign with it at once.", ""},
    {"overlap", "DURATION", "How long the old key may still sign elsewhere; default: 7d.", ""},
    kComment,
};
constexpr ArgumentSpec kTrustArguments[] = {
    {"KEY",
     "A public key (ed25519:...), or the beginning of the id of one that is trusted already.", true,
     false, ""}};
constexpr ArgumentSpec kRevokeArguments[] = {{"ID", "The beginning of its id.", true, false, ""}};

}  // namespace

extern constinit const Verb kKeysInitVerb{
    .name = "keys init",
    .summary = "Make this host's key for signing what goes to shared tiers.",
    .details =
        "The private key is written to the setting sign_key, readable by you alone, and its public "
        "half is put into the keyring, the setting trust_keys. docs/security.md says what signing "
        "is for.",
    .arguments = {},
    .options = kInitOptions,
    .examples = "neuroncache keys init --comment \"ci builders\" # a first key",
    .run = run_init};

extern constinit const Verb kKeysListVerb{.name = "keys list",
                                          .summary = "Show whose entries are believed.",
                                          .details = "",
                                          .arguments = {},
                                          .options = {},
                                          .examples = "",
                                          .run = run_list};

extern constinit const Verb kKeysTrustVerb{
    .name = "keys trust",
    .summary = "Believe another host's key, or change what a key may do.",
    .details =
        "Ask the other host's people for the key (`neuroncache keys list` there), over a way that "
        "you trust: whoever holds it can run code here.",
    .arguments = kTrustArguments,
    .options = kTrustOptions,
    .examples =
        "neuroncache keys trust ed25519:... --write team-a # believe it in one namespace\n"
        "neuroncache keys trust 3f2a --write \"*\" # and now in all",
    .run = run_trust};

extern constinit const Verb kKeysRevokeVerb{
    .name = "keys revoke",
    .summary = "Believe nothing any more that a key has ever signed.",
    .details =
        "For a key that got into wrong hands. One that is only replaced is retired by `keys "
        "rotate`: what it signed stays good.",
    .arguments = kRevokeArguments,
    .options = kRevokeOptions,
    .examples = "neuroncache keys revoke 3f2a # at once",
    .run = run_revoke};

extern constinit const Verb kKeysRotateVerb{
    .name = "keys rotate",
    .summary = "Replace this host's key without losing what it signed.",
    .details =
        "In two steps, so that no host meets a key that it does not know: the first makes the new "
        "key and puts it into the keyring, while the old one signs on; when the other hosts have "
        "the keyring, --finish changes over. The old private key is removed.",
    .arguments = {},
    .options = kRotateOptions,
    .examples =
        "neuroncache keys rotate # then copy the keyring\n"
        "neuroncache keys rotate --finish # sign with the new key",
    .run = run_rotate};

}  // namespace nc::cli
