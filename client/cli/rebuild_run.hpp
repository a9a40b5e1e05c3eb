// Building what a plan names: here, several at once, or by workers through the daemon's queue.
#pragma once

#include <string>
#include <vector>

#include "client/cli/context.hpp"
#include "client/cli/rebuild_plan.hpp"
#include "client/cli/session.hpp"
#include "client/cli/warm_report.hpp"

namespace nc::cli {

struct RebuildOrder {
  std::string recording;  // for the report, and for the outcomes
  std::vector<RebuildItem> items;
  std::vector<std::vector<std::string>> commands;  // that are run before; for a dry run
  std::size_t jobs = 1;
  bool queue = false;    // by workers
  bool cluster = false;  // those of the cluster
};

// Every item has an outcome in the report: what was not come to is unfinished.
Result<WarmReport> run_rebuild(const Context& context, Session& session, RebuildOrder order);

// What would be done, and what it costs; in the format of the context.
void print_dry_run(const Context& context, const RebuildOrder& order);

}  // namespace nc::cli
