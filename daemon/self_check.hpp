// `neuroncached --check`: looks at what the settings name beyond this host's store (keys, tokens,
// certificates, shared tiers) as the daemon would use it, and says what is wrong. Serves nobody and
// opens no store; `neuroncache doctor` asks it.
#pragma once

#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/filesystem.hpp"
#include "base/settings.hpp"

namespace nc::daemon {

struct Checked {
  enum class Level { kOk, kWarning, kProblem };
  Level level = Level::kOk;
  std::string check;   // "trust", "key", "tokens", "tls", "tier"
  std::string detail;  // what is; no secret
  std::string fix;     // what to do; empty when nothing is
};

// A tier that can be written gets a mark, which is removed again. As long as the slowest tier's
// time-outs allow.
std::vector<Checked> check_all(const Settings& settings, FileSystem& fs, Clock& clock);
// {"findings": [{"level": "ok" | "warning" | "problem", "check", "detail", "fix"}]}
std::string to_json(const std::vector<Checked>& found);

}  // namespace nc::daemon
