#include "client/cli/session.hpp"

#include <fmt/format.h>

#include "base/filesystem.hpp"
#include "client/cli/output.hpp"

namespace nc::cli {

using client::Client;
using client::ClientOptions;
using client::LaunchOptions;
using client::PrivateDaemon;

std::string_view Session::source_name() const {
  switch (source_) {
    case Source::kDaemon:
      return "daemon";
    case Source::kOffline:
      return "offline";
    case Source::kNone:
      break;
  }
  return "none";
}

Result<Session> Session::open(const Context& context, Need need) {
  const Settings& settings = context.settings();
  ClientOptions options = ClientOptions::from(settings);
  options.daemon_arguments = context.daemon_arguments();
  const bool may_start = options.autostart && need == Need::kChange;
  options.autostart = false;

  Session session;
  NC_ASSIGN(const bool up, client::listening(options.socket_path, options.connect_timeout_ms));
  if (up) {
    session.source_ = Source::kDaemon;
  } else if (need == Need::kChange) {
    if (!may_start) {
      return Error{Code::kUnavailable,
                   fmt::format("no daemon is running at {}", options.socket_path),
                   "start it with `neuroncache daemon start` (the setting autostart is off)"};
    }
    Progress progress("starting the daemon");
    NC_TRY(
        client::ensure_daemon(LaunchOptions{options.socket_path, options.daemon_path,
                                            options.daemon_arguments, options.connect_timeout_ms}));
    session.source_ = Source::kDaemon;
  } else {
    const std::string& dir = context.store_dir();
    if (real_filesystem().stat(join(dir, "STORE")).is(Code::kNotFound)) {
      note(fmt::format("no daemon is running and there is no store at {} yet", dir));
      return session;
    }
    note(fmt::format("no daemon is running; reading the store {} from disk", context.store_dir()));
    Progress progress("opening the store");
    NC_ASSIGN(PrivateDaemon daemon,
              PrivateDaemon::start(LaunchOptions{"", options.daemon_path, options.daemon_arguments,
                                                 options.connect_timeout_ms}));
    session.private_.emplace(std::move(daemon));
    session.source_ = Source::kOffline;
    options.socket_path = session.private_->socket_path();
  }
  session.client_ = std::make_unique<Client>(std::move(options));
  NC_ASSIGN(session.hello_, session.client_->hello());
  return session;
}

}  // namespace nc::cli
