// What comes before serving: the state of the process and its settings.
#pragma once

#include <string>

#include "base/settings.hpp"
#include "cache/trust/policy.hpp"
#include "daemon/options.hpp"
#include "daemon/tcp_listener.hpp"

namespace nc::daemon {

// umask, limits, signals that would end us by accident.
void prepare_process();
// The settings of file, environment and flags, with what depends on the machine filled in.
Result<Settings> read_settings(const Options& options);
Status open_log(const Settings& settings);
TcpListener::Options tcp_options(const Settings& settings);
// As the settings trust, trust_keys and sign_key say.
trust::PolicyOptions trust_options(const Settings& settings);
std::string host_name();
// "30s" -> 30000.
Millis millis(const Settings& settings, std::string_view name);

}  // namespace nc::daemon
