// What a warm-up or a replay found: for people, as JSON, as lines, as JUnit XML.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/cli/output.hpp"
#include "client/outcome_types.hpp"

namespace nc::cli {

struct WarmCounts {
  std::size_t needed = 0, there = 0, built = 0, waited = 0, failed = 0, unfinished = 0;

  std::size_t misses() const { return needed - there; }
  bool whole() const { return failed == 0 && unfinished == 0; }
};

struct WarmReport {
  std::string verb;  // "warmup", "replay"
  std::string recording;
  std::vector<std::string> command;
  std::optional<int> status;  // of the command
  double seconds = 0;
  std::vector<client::ActionOutcome> outcomes;
  bool misses_fail = false;  // a miss is a failure, as for replay --fail-on-miss

  WarmCounts counts() const;
};

std::string warm_text(const WarmReport& report, std::size_t width);
std::string warm_tab(const WarmReport& report);
bj::object warm_json(const WarmReport& report);
// One test case for each action, and one for the command when that failed.
std::string warm_junit(const WarmReport& report);

// "12 needed, 3 built, 9 already there, 1 failed".
std::string counts_text(const WarmCounts& counts);
std::string xml_text(std::string_view text);  // escaped; what XML cannot hold is replaced

}  // namespace nc::cli
