#include "daemon/startup.hpp"

#include <malloc.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <vector>

#include "base/log.hpp"
#include "base/trust/keyring.hpp"
#include "base/trust/tokens.hpp"

namespace nc::daemon {
namespace {

Status fill(Settings& settings, std::string_view name, const std::string& value) {
  if (!settings.text(name).empty()) return {};
  return settings.set(name, value, Origin::kDefault, "worked out at start");
}

// Half of the descriptors are this host's own as well; one of TCP needs three of them.
std::size_t most_remote() {
  constexpr rlim_t kOfOne = 3;
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return SIZE_MAX;
  return std::max<std::size_t>(files.rlim_cur / 2 / kOfOne, 1);
}

}  // namespace

void prepare_process() {
  ::umask(077);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // the write over the limit on file sizes fails instead
  ::mallopt(M_ARENA_MAX, 2);      // more arenas cost memory while idle and win nothing here
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
}

Result<Settings> read_settings(const Options& options) {
  std::vector<std::string> env = process_environment();
  if (!options.config.empty()) env.push_back("NEURONCACHE_CONFIG=" + options.config);
  NC_ASSIGN(Settings settings, Settings::load(real_filesystem(), env, options.settings));
  NC_TRY(fill(settings, "dir", default_store_dir(env)));
  NC_TRY(fill(settings, "socket", default_socket_path(env)));
  NC_TRY(fill(settings, "trust_keys", trust::default_keyring_path(settings.config_path())));
  NC_TRY(fill(settings, "sign_key", trust::default_sign_key_path(settings.config_path())));
  NC_TRY(fill(settings, "listen_tokens", trust::default_tokens_path(settings.config_path())));
  // Standard error goes nowhere once we are detached.
  if (options.detach) NC_TRY(fill(settings, "log_file", join(settings.text("dir"), "daemon.log")));
  return settings;
}

Status open_log(const Settings& settings) {
  const std::string& file = settings.text("log_file");
  if (!file.empty()) NC_TRY(real_filesystem().make_dirs(parent_dir(file), 0700));
  return log::configure(settings.text("log_level"), file);
}

trust::PolicyOptions trust_options(const Settings& settings) {
  return {settings.text("trust") != "any", settings.text("trust_keys"), settings.text("sign_key")};
}

TcpListener::Options tcp_options(const Settings& settings) {
  TcpListener::Options options;
  options.address = settings.text("listen");
  options.cert = settings.text("listen_cert");
  options.key = settings.text("listen_key");
  options.client_ca = settings.text("listen_client_ca");
  options.plain = settings.boolean("listen_plain");
  // However many come from the network, half of the connections are left for this host.
  options.max_connections =
      std::min(static_cast<std::size_t>(settings.integer("max_connections")) / 2, most_remote());
  options.stall_ms = millis(settings, "request_timeout");
  return options;
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

Millis millis(const Settings& settings, std::string_view name) {
  return static_cast<Millis>(settings.seconds(name) * 1000);
}

}  // namespace nc::daemon
