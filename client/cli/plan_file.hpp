// The file of `warmup --plan`: TOML, its grammar is in docs/warmup.md.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "client/cli/rebuild_plan.hpp"

namespace nc::cli {

// A command that is run under a recording, once for each bucket vector: {name} in a word stands for
// that bucket's number.
struct PlannedRun {
  std::string recording;
  std::vector<std::string> command;
  std::vector<std::map<std::string, std::string>> buckets;  // empty: once, as it is

  std::vector<std::vector<std::string>> commands() const;
};

struct PlanFile {
  std::vector<PlannedRun> runs;
  std::vector<Selection> builds;
};

// kInvalid with file and line.
Result<PlanFile> parse_plan(std::string_view text, const std::string& path);

// A file that builds this recording as it was recorded, with what else there is in it as comments.
std::string plan_text(const std::string& recording,
                      const std::vector<client::RecordedAction>& actions);

}  // namespace nc::cli
