// What `neuroncache doctor` looks at. Each check gives findings; none changes anything.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/settings.hpp"
#include "client/cli/context.hpp"
#include "client/types.hpp"

namespace nc::cli {

struct Finding {
  enum class Level { kOk, kWarning, kProblem };
  Level level = Level::kOk;
  std::string check;   // "daemon", "store", ...
  std::string detail;  // what is
  std::string fix;     // what to do; empty when nothing is
};
using Findings = std::vector<Finding>;

// Unknown and misspelt NEURONCACHE_* names, NEURONCACHE=0, values that are refused. Gives the
// settings to go on with.
Settings check_settings(const std::vector<std::string>& env,
                        const std::map<std::string, std::string>& flags, Findings& out);
void check_daemon(const Settings& settings, const std::string& socket, const std::string& store_dir,
                  Findings& out);
void check_socket_dir(const std::string& socket, Findings& out);
void check_store(const Settings& settings, const std::string& store_dir, Millis now, Findings& out);
// Keys, tokens, certificates and shared tiers, as `neuroncached --check` sees them with the same
// environment and `flags`.
void check_cluster(const Settings& settings, const std::map<std::string, std::string>& flags,
                   Findings& out);
// What a short program prints; nothing when it fails or takes longer than `limit_ms`.
std::optional<std::string> output_of(const std::vector<std::string>& argv, Millis limit_ms);
// Python with torch and the shim, autoload, the C++ compiler.
void check_programs(const std::vector<std::string>& env, Findings& out);

}  // namespace nc::cli
