#include <cstdlib>

#include "client/autostart.hpp"
#include "client/cli/doctor.hpp"
#include "client/cli/output.hpp"
#include "client/json.hpp"

namespace nc::cli {
namespace {

using Level = Finding::Level;

// A tier that does not answer takes a few of its time-outs, which may be long.
constexpr Millis kPatienceMs = 120'000;

}  // namespace

void check_cluster(const Settings& settings, const std::map<std::string, std::string>& flags,
                   Findings& out) {
  if (settings.addresses("tiers").empty() && settings.text("listen").empty()) return;
  const char* path = std::getenv("PATH");
  const auto program =
      client::find_daemon(settings.text("daemon_path"), path == nullptr ? "" : path);
  if (!program.ok()) return;  // told of already
  std::vector<std::string> argv{*program, "--check"};
  for (const auto& [name, value] : flags) {
    argv.push_back("--" + name);
    argv.push_back(value);
  }
  const auto text = output_of(argv, kPatienceMs);
  const auto answer = client::json::parse_object(text.value_or(""), *program + " --check");
  const auto* findings = answer.ok() ? answer->if_contains("findings") : nullptr;
  if (findings == nullptr || !findings->is_array()) {
    out.push_back({Level::kProblem, "tiers", *program + " --check gives no answer",
                   "run it by hand; is it of the same version as this program?"});
    return;
  }
  for (const auto& item : findings->get_array()) {
    if (!item.is_object()) continue;
    const bj::object& one = item.get_object();
    const std::string level = client::json::text(one, "level");
    out.push_back({level == "ok"        ? Level::kOk
                   : level == "warning" ? Level::kWarning
                                        : Level::kProblem,
                   client::json::text(one, "check"), client::json::text(one, "detail"),
                   client::json::text(one, "fix")});
  }
}

}  // namespace nc::cli
