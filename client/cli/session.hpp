// How a verb reaches the store: through the running daemon; for reading, when none runs, through a
// private read-only one that ends with the verb; for changes, through a daemon that is started.
// Reading never starts a lasting daemon.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "client/autostart.hpp"
#include "client/cli/context.hpp"
#include "client/client.hpp"

namespace nc::cli {

class Session {
 public:
  enum class Need { kRead, kChange };
  enum class Source {
    kDaemon,
    kOffline,  // a private daemon reads the files
    kNone,     // there is no store yet: nothing was ever cached; client() must not be used
  };

  static Result<Session> open(const Context& context, Need need);

  Source source() const { return source_; }
  std::string_view source_name() const;  // "daemon", "offline", "none"
  client::Client& client() { return *client_; }
  const client::Hello& hello() const { return hello_; }

 private:
  Source source_ = Source::kNone;
  std::optional<client::PrivateDaemon> private_;
  std::unique_ptr<client::Client> client_;
  client::Hello hello_;
};

}  // namespace nc::cli
