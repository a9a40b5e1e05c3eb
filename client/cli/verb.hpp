// The table of verbs: everything the command line knows about itself. Parsing, --help, the man
// page, docs/cli.md and the shell completions are made from it, so that they cannot disagree.
#pragma once

#include <span>
#include <string_view>

#include "base/result.hpp"

namespace nc::cli {

class Context;

// Exit statuses; documented in docs/cli.md.
enum Exit : int {
  kOk = 0,
  kFailed = 1,       // it did not work, or the answer is no
  kUsage = 2,        // the command line or a setting is wrong
  kUnreachable = 3,  // nobody could be asked: no daemon, no answer
  kMisses = 4,       // of `replay --fail-on-miss`: something was not there
};

struct OptionSpec {
  std::string_view name;     // without the dashes
  std::string_view value;    // what it takes, e.g. "DURATION"; "" for a switch
  std::string_view help;     // one sentence
  std::string_view choices;  // "a|b", or ""
};

struct ArgumentSpec {
  std::string_view name;  // "KEY"
  std::string_view help;
  bool required = true;
  bool many = false;
  std::string_view choices;
};

struct Verb {
  std::string_view name;  // "stats", "daemon start"
  std::string_view summary;
  std::string_view details;  // paragraphs, separated by an empty line
  std::span<const ArgumentSpec> arguments;
  std::span<const OptionSpec> options;
  std::string_view examples;  // lines "command # what it does"
  bool needs_settings = true;
  Result<int> (*run)(Context&);  // -> exit status
};

// In the order of the help text.
std::span<const Verb* const> verb_table();
const Verb* find_verb(std::string_view name);
// Those that every verb takes.
std::span<const OptionSpec> global_options();

extern const Verb kStatsVerb, kLsVerb, kShowVerb, kMissesVerb, kPruneVerb, kVerifyVerb, kPinVerb,
    kUnpinVerb, kExportVerb, kImportVerb, kMaterializeVerb, kDaemonStartVerb, kDaemonStopVerb,
    kDaemonRestartVerb, kDaemonStatusVerb, kConfigShowVerb, kConfigSetVerb, kConfigExplainVerb,
    kDoctorVerb, kPlanShowVerb, kPlanSimulateVerb, kEnableVerb, kDisableVerb, kWarmupVerb,
    kReplayVerb, kWorkerVerb, kQueueVerb, kKeysInitVerb, kKeysListVerb, kKeysTrustVerb,
    kKeysRevokeVerb, kKeysRotateVerb, kTokensAddVerb, kTokensListVerb, kTokensRemoveVerb,
    kTiersVerb, kPushVerb, kPullVerb, kCompletionVerb, kVersionVerb, kHelpVerb;

}  // namespace nc::cli
