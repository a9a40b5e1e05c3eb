#include "base/trust/tokens.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>

#include "base/hash.hpp"
#include "base/trust/field_file.hpp"
#include "base/trust/time_text.hpp"

namespace nc::trust {
namespace {

constexpr std::string_view kMagic = "neuroncache-tokens 1";
constexpr std::string_view kHashTag{"neuroncache-token-v1\0", 21};
constexpr std::string_view kTokenPrefix = "nct_";
constexpr std::size_t kMaxToken = 256;

bool is_client_name(std::string_view name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-' || c == '@' || c == ':';
  });
}

std::string set_field(Grant& grant, std::string_view name, std::string_view value,
                      std::set<std::string, std::less<>>& seen) {
  if (!seen.emplace(name).second) return fmt::format("'{}' comes twice", name.substr(0, 40));
  if (name == "scope") {
    const auto scope = parse_scope(value);
    if (!scope) return "the scope is not read, write or admin";
    grant.scope = *scope;
    return "";
  }
  if (name == "namespaces") {
    auto set = NamespaceSet::parse(value);
    if (!set.ok()) return set.error().message;
    grant.namespaces = std::move(*set);
    return "";
  }
  if (name == "expires") {
    grant.expires_ms = parse_time(value);
    return grant.expires_ms ? "" : "the time is not of the form 2026-01-31T12:00:00Z";
  }
  if (name == "comment") {
    if (!is_comment(value)) return "the comment is not plain text of 1 to 200 bytes";
    grant.comment = value;
    return "";
  }
  return fmt::format("'{}' is not known", name.substr(0, 40));
}

}  // namespace

std::string_view scope_name(Scope scope) {
  switch (scope) {
    case Scope::kRead:
      return "read";
    case Scope::kWrite:
      return "write";
    case Scope::kAdmin:
      break;
  }
  return "admin";
}

std::optional<Scope> parse_scope(std::string_view name) {
  for (const Scope scope : {Scope::kRead, Scope::kWrite, Scope::kAdmin}) {
    if (name == scope_name(scope)) return scope;
  }
  return std::nullopt;
}

std::string token_hash(std::string_view token) {
  std::string tagged(kHashTag);
  tagged += token;
  std::string hash = Sha256::of(as_bytes(tagged)).hex();
  wipe(tagged);
  return hash;
}

Result<std::string> make_token() {
  std::array<std::byte, 32> bits{};
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bits.data()), bits.size()) != 1) {
    return Error{Code::kInternal, "there is no randomness to make a token of", ""};
  }
  std::string token = std::string(kTokenPrefix) + to_hex(bits);
  OPENSSL_cleanse(bits.data(), bits.size());
  return token;
}

Result<TokenFile> TokenFile::parse(std::string_view text) {
  TokenFile file;
  std::set<std::string, std::less<>> seen;
  const auto complete = [&] {
    return file.grants_.empty() || (seen.contains("scope") && seen.contains("namespaces"));
  };
  const auto line = [&](std::string_view name, std::string_view value) -> std::string {
    if (name != "token" && name != "client") {
      if (file.grants_.empty()) return "a field without an entry above it";
      return set_field(file.grants_.back(), name, value, seen);
    }
    if (!complete()) return "the entry above lacks its scope or namespaces";
    Grant grant;
    (name == "token" ? grant.hash : grant.client) = value;
    seen.clear();
    Status added = file.add(std::move(grant));
    return added.ok() ? "" : added.error().message;
  };
  NC_TRY(read_fields({"tokens", kMagic, "neuroncache tokens", kMaxBytes}, text, line, [&] {
    return std::string(complete() ? "" : "the last entry lacks its scope or namespaces");
  }));
  return file;
}

Result<TokenFile> TokenFile::load(FileSystem& fs, const std::string& path) {
  NC_TRY(check_ours(fs, path));
  NC_ASSIGN(const std::string text, fs.read_all(path, kMaxBytes));
  auto file = parse(text);
  if (!file.ok()) return std::move(file).error().context(path);
  return file;
}

std::string TokenFile::text() const {
  std::string out = std::string(kMagic) + "\n";
  for (const Grant& grant : grants_) {
    out += grant.client.empty() ? fmt::format("\ntoken {}\n", grant.hash)
                                : fmt::format("\nclient {}\n", grant.client);
    out +=
        fmt::format("scope {}\nnamespaces {}\n", scope_name(grant.scope), grant.namespaces.text());
    if (grant.expires_ms) out += fmt::format("expires {}\n", time_text(*grant.expires_ms));
    if (!grant.comment.empty()) out += fmt::format("comment {}\n", grant.comment);
  }
  return out;
}

Status TokenFile::save(FileSystem& fs, const std::string& path) const {
  NC_TRY(fs.make_dirs(parent_dir(path), 0700));
  return fs.write_atomically(path, as_bytes(text()), 0600);
}

const Grant* TokenFile::find_token(std::string_view token) const {
  if (token.size() > kMaxToken) return nullptr;
  const std::string hash = token_hash(token);
  const Grant* found = nullptr;
  for (const Grant& grant : grants_) {
    if (grant.hash.size() == hash.size() &&
        CRYPTO_memcmp(grant.hash.data(), hash.data(), hash.size()) == 0) {
      found = &grant;
    }
  }
  return found;
}

const Grant* TokenFile::find_client(std::string_view name) const {
  if (name.empty()) return nullptr;
  const auto at = std::find_if(grants_.begin(), grants_.end(),
                               [name](const Grant& grant) { return grant.client == name; });
  return at == grants_.end() ? nullptr : &*at;
}

Status TokenFile::add(Grant grant) {
  if (grant.client.empty() ? !is_hex(grant.hash, 64) : !is_client_name(grant.client)) {
    return Error{Code::kInvalid,
                 grant.client.empty() ? "not the hash of a token"
                                      : "not the name of a client: up to 64 of A-Z a-z 0-9 ._-@:",
                 ""};
  }
  for (const Grant& known : grants_) {
    if (known.hash == grant.hash && known.client == grant.client) {
      return Error{Code::kConflict, fmt::format("{} is there already", grant.id()),
                   "remove it first"};
    }
  }
  if (grants_.size() >= kMaxGrants) {
    return Error{Code::kTooLarge, fmt::format("more than {} entries", kMaxGrants),
                 "remove those that have expired"};
  }
  grants_.push_back(std::move(grant));
  return {};
}

Status TokenFile::remove(std::string_view id) {
  auto found = grants_.end();
  for (auto at = grants_.begin(); at != grants_.end(); ++at) {
    if (id.empty() || !at->id().starts_with(id)) continue;
    if (at->id() == id) {
      found = at;
      break;
    }
    if (found != grants_.end()) {
      return Error{Code::kInvalid, fmt::format("several ids begin with {}", id), "give more of it"};
    }
    found = at;
  }
  if (found == grants_.end()) {
    return Error{Code::kNotFound, fmt::format("no id begins with '{}'", id),
                 "`neuroncache tokens list` shows them"};
  }
  grants_.erase(found);
  return {};
}

std::string default_tokens_path(const std::string& config_path) {
  return config_path.starts_with('/') ? join(parent_dir(config_path), "tokens") : std::string();
}

}  // namespace nc::trust
