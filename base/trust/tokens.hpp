// Who may come in over TCP, and for what: bearer tokens, of which only a hash is kept, and client
// certificates by their common name. One text file:
//
//   tokens  = "neuroncache-tokens 1\n" entry*             at most 1 MiB and 1024 entries
//   entry   = "\n" ("token " 64 hex digits | "client " name) "\n" field*
//   field   = "scope " ("read" | "write" | "admin") "\n"  must be there
//           | "namespaces " namespaces "\n"               must be there; as in a keyring
//           | "expires " time "\n" | "comment " text "\n"
//
// Each field comes at most once, what is not known is an error. `token` is followed by
// SHA-256("neuroncache-token-v1" NUL token): a token is 256 random bits, so that a slow hash would
// add nothing. The id of an entry is the first 12 hex digits of that, or the client's name.
//
// A token is "nct_" and 64 lower-case hex digits.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/trust/keyring.hpp"

namespace nc::trust {

enum class Scope { kRead, kWrite, kAdmin };  // each includes those before it
std::string_view scope_name(Scope scope);
std::optional<Scope> parse_scope(std::string_view name);

struct Grant {
  std::string hash;    // of a token; "" for a client
  std::string client;  // common name of a client's certificate; "" for a token
  Scope scope = Scope::kRead;
  NamespaceSet namespaces;
  std::optional<Millis> expires_ms;
  std::string comment;

  std::string id() const { return client.empty() ? hash.substr(0, 12) : client; }
  bool expired(Millis now) const { return expires_ms && now >= *expires_ms; }
};

std::string token_hash(std::string_view token);
// A new token from the system's randomness.
Result<std::string> make_token();

class TokenFile {
 public:
  static constexpr std::size_t kMaxGrants = 1024;
  static constexpr std::size_t kMaxBytes = 1 << 20;

  static Result<TokenFile> parse(std::string_view text);  // kInvalid with the line
  // kNotFound; kDenied: others can change it.
  static Result<TokenFile> load(FileSystem& fs, const std::string& path);
  std::string text() const;
  Status save(FileSystem& fs, const std::string& path) const;  // 0600

  const std::vector<Grant>& grants() const { return grants_; }
  // Takes as long whatever is sent: every hash is compared whole. Says nothing about expiry.
  const Grant* find_token(std::string_view token) const;
  const Grant* find_client(std::string_view name) const;
  Status add(Grant grant);             // kConflict, kInvalid, kTooLarge
  Status remove(std::string_view id);  // an unambiguous beginning; kNotFound, kInvalid

 private:
  std::vector<Grant> grants_;
};

std::string default_tokens_path(const std::string& config_path);

}  // namespace nc::trust
