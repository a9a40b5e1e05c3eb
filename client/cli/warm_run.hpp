// A command under a recording: started with what records it, watched, and reported on.
#pragma once

#include <string>
#include <vector>

#include "client/cli/context.hpp"
#include "client/cli/session.hpp"
#include "client/cli/warm_report.hpp"

namespace nc::cli {

struct WarmPlan {
  std::string verb;
  std::string recording;
  std::vector<std::string> command;
  bool keep_inputs = true;  // recorded actions can be built again later
};

// Starts the daemon if needed, runs the command and collects what became of what it needed.
Result<WarmReport> run_recorded(const Context& context, const WarmPlan& plan);

// Every outcome of a recording.
Result<std::vector<client::ActionOutcome>> all_outcomes(client::Client& client,
                                                        const std::string& recording);

// A name for the outcomes of one run, so that two under one recording do not meet.
std::string run_name(const std::string& recording);
// The outcomes of a run, oldest first; they are kept as the recording's last ones, or forgotten
// when `recording` is "".
Result<std::vector<client::ActionOutcome>> end_run(const Context& context, const std::string& run,
                                                   const std::string& recording);

// Can the file of --junit be written? To be asked before anything runs.
Status check_report_file(const Context& context);
// Prints the report in the wanted format and writes the file of --junit.
Status print_report(const Context& context, const WarmReport& report);

Status check_recording_name(const std::string& name);

}  // namespace nc::cli
