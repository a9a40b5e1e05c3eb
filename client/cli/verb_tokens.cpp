// tokens add | list | remove: who may come in over TCP. Works on the file alone; a running daemon
// sees the change within two seconds.
#include <fmt/format.h>

#include "base/trust/time_text.hpp"
#include "base/trust/tokens.hpp"
#include "client/cli/output.hpp"

namespace nc::cli {
namespace {

using trust::Grant;
using trust::NamespaceSet;
using trust::TokenFile;

struct File {
  std::string path;
  TokenFile tokens;

  static Result<File> open(const Context& context) {
    File file;
    file.path = context.settings().text("listen_tokens");
    if (file.path.empty()) file.path = trust::default_tokens_path(context.settings().config_path());
    if (file.path.empty()) {
      return Error{Code::kInvalid, "there is no place for tokens",
                   "set listen_tokens, or give the settings file by its absolute path"};
    }
    auto loaded = TokenFile::load(real_filesystem(), file.path);
    if (loaded.ok()) {
      file.tokens = std::move(*loaded);
    } else if (!loaded.is(Code::kNotFound)) {
      return std::move(loaded).error();
    }
    return file;
  }
  Status save() const { return tokens.save(real_filesystem(), led_to(path)); }
};

bj::object grant_json(const Grant& grant, Millis now) {
  return {{"id", grant.id()},
          {"kind", grant.client.empty() ? "token" : "client"},
          {"scope", std::string(trust::scope_name(grant.scope))},
          {"namespaces", grant.namespaces.text()},
          {"expires_ms", grant.expires_ms ? bj::value(*grant.expires_ms) : bj::value(nullptr)},
          {"expired", grant.expired(now)},
          {"comment", grant.comment}};
}

// `secret`: a token that was made just now; told this once.
int report(const Context& context, const File& file, const std::string* id,
           const std::string& secret) {
  const Millis now = system_clock().wall_ms();
  Table table({{"ID", "id"},
               {"KIND", "kind"},
               {"SCOPE", "scope"},
               {"NAMESPACES", "namespaces"},
               {"EXPIRES", "expires"},
               {"COMMENT", "comment", Table::Align::kLeft, true}});
  bj::array grants;
  for (const Grant& grant : file.tokens.grants()) {
    if (id != nullptr && grant.id() != *id) continue;
    grants.push_back(grant_json(grant, now));
    std::string expires = grant.expires_ms ? trust::time_text(*grant.expires_ms) : "-";
    if (grant.expired(now)) expires += " (expired)";
    table.add({grant.id(), grant.client.empty() ? "token" : "client",
               std::string(trust::scope_name(grant.scope)), grant.namespaces.text(), expires,
               printable(grant.comment)});
  }
  switch (context.format()) {
    case Format::kJson:
      print_json(bj::object{{"file", file.path},
                            {"token", secret.empty() ? bj::value(nullptr) : bj::value(secret)},
                            {"grants", std::move(grants)}});
      break;
    case Format::kTab:
      print(table.tab());
      if (!secret.empty()) note("the token, shown this once: " + secret);
      break;
    case Format::kText:
      if (!table.empty()) print(table.text(0) + "\n");
      if (table.empty()) print("Nobody may come in over TCP.\n");
      if (!secret.empty()) {
        print(fmt::format(
            "{}\nThis is the token; only its hash is kept, it cannot be shown again.\n", secret));
      }
      break;
  }
  return kOk;
}

Result<int> run_add(Context& context) {
  NC_ASSIGN(File file, File::open(context));
  Grant grant;
  grant.scope = trust::parse_scope(context.option("scope").value_or("read")).value();
  auto namespaces = NamespaceSet::parse(context.option("namespaces").value_or("*"));
  if (!namespaces.ok()) return std::move(namespaces).error().context("--namespaces");
  grant.namespaces = std::move(*namespaces);
  NC_ASSIGN(const auto lifetime, context.duration_option("expires-in"));
  if (lifetime) {
    // Whole seconds, as the file keeps them.
    grant.expires_ms = (system_clock().wall_ms() / 1000 + static_cast<Millis>(*lifetime)) * 1000;
  }
  if (const auto comment = context.option("comment")) {
    if (!trust::is_comment(*comment)) {
      return Error{Code::kInvalid, "--comment: not plain text of 1 to 200 bytes", ""};
    }
    grant.comment = *comment;
  }
  std::string secret;
  if (const auto client = context.option("client")) {
    if (client->empty()) return Error{Code::kInvalid, "--client: a name is needed", ""};
    grant.client = *client;
  } else {
    NC_ASSIGN(secret, trust::make_token());
    grant.hash = trust::token_hash(secret);
  }
  const std::string id = grant.id();
  NC_TRY(file.tokens.add(std::move(grant)));
  NC_TRY(file.save());
  const int status = report(context, file, &id, secret);
  trust::wipe(secret);
  return status;
}

Result<int> run_list(Context& context) {
  NC_ASSIGN(const File file, File::open(context));
  return report(context, file, nullptr, "");
}

Result<int> run_remove(Context& context) {
  NC_ASSIGN(File file, File::open(context));
  NC_TRY(file.tokens.remove(*context.option("ID")));
  NC_TRY(file.save());
  return report(context, file, nullptr, "");
}

constexpr OptionSpec kAddOptions[] = {
    {"scope", "SCOPE",
     "read: look up and fetch; write: build and store, too; admin: everything. Default: read.",
     "read|write|admin"},
    {"namespaces", "NAMESPACES", "Names, beginnings with a star, or * (the default).", ""},
    {"expires-in", "DURATION", "How long it is good; default: until it is removed.", ""},
    {"client", "NAME", "For clients whose certificate has this common name, instead of a token.",
     ""},
    {"comment", "TEXT", "Whom it is for.", ""},
};
constexpr ArgumentSpec kRemoveArguments[] = {{"ID", "Its id, or the beginning.", true, false, ""}};

}  // namespace

extern constinit const Verb kTokensAddVerb{
    .name = "tokens add",
    .summary = "Let somebody use this host's daemon over TCP.",
    .details =
        "Makes a token and prints it this once; only its hash is kept, in the setting "
        "listen_tokens. The daemon listens when the setting listen is set; docs/security.md "
        "describes it.",
    .arguments = {},
    .options = kAddOptions,
    .examples =
        "neuroncache tokens add --scope write --expires-in 90d --comment \"host 7\" # a token\n"
        "neuroncache tokens add --client host-7 # for a client certificate",
    .run = run_add};

extern constinit const Verb kTokensListVerb{.name = "tokens list",
                                            .summary = "Show who may come in over TCP.",
                                            .details = "",
                                            .arguments = {},
                                            .options = {},
                                            .examples = "",
                                            .run = run_list};

extern constinit const Verb kTokensRemoveVerb{
    .name = "tokens remove",
    .summary = "Let somebody in no more.",
    .details = "A running daemon refuses the token from its next request on, within two seconds.",
    .arguments = kRemoveArguments,
    .options = {},
    .examples = "",
    .run = run_remove};

}  // namespace nc::cli
