// What a warm-up or a replay found: for people, as JSON, as lines, as JUnit XML.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/cli/output.hpp"
#include "client/outcome_types.hpp"

namespace nc::cli {

struct WarmCounts {
  std::size_t needed = 0, there = 0, built = 0, waited = 0, failed = 0, unfinished = 0;
  std::size_t uncached = 0;  // commands that were compiled without the cache, though not asked to

  std::size_t misses() const { return needed - there + uncached; }
  bool whole() const { return failed == 0 && unfinished == 0 && uncached == 0; }
};

// A command that was compiled without the cache, and will be again.
struct Uncached {
  std::string label, why;
  std::size_t times = 1;
  bool wanted() const { return why == "no_cache" || why == "off"; }  // the caller said so
};
// Of lines "label TAB why": equal ones together, in order.
std::vector<Uncached> uncached_of(std::string_view lines);

struct WarmReport {
  std::string verb;  // "warmup", "replay"
  std::string recording;
  std::vector<std::string> command;
  std::optional<int> status;  // of the command
  double seconds = 0;
  std::vector<client::ActionOutcome> outcomes;
  std::vector<Uncached> uncached;
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
