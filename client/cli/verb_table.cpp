#include "client/cli/verb.hpp"

namespace nc::cli {
namespace {

constexpr OptionSpec kGlobal[] = {
    {"format", "FORMAT", "How to print: for people, as JSON, or as lines of tab-separated fields.",
     "text|json|tab"},
    {"socket", "PATH", "The daemon's socket (setting socket).", ""},
    {"dir", "PATH", "The local store (setting dir).", ""},
    {"config", "FILE", "The settings file.", ""},
    {"help", "", "Explain the verb.", ""},
};

const Verb* const kTable[] = {
    &kStatsVerb,        &kLsVerb,
    &kShowVerb,         &kMissesVerb,
    &kPruneVerb,        &kVerifyVerb,
    &kPinVerb,          &kUnpinVerb,
    &kExportVerb,       &kImportVerb,
    &kMaterializeVerb,  &kDaemonStartVerb,
    &kDaemonStopVerb,   &kDaemonRestartVerb,
    &kDaemonStatusVerb, &kConfigShowVerb,
    &kConfigSetVerb,    &kConfigExplainVerb,
    &kPlanShowVerb,     &kPlanSimulateVerb,
    &kEnableVerb,       &kDisableVerb,
    &kWarmupVerb,       &kReplayVerb,
    &kTiersVerb,        &kPushVerb,
    &kPullVerb,         &kWorkerVerb,
    &kQueueVerb,        &kKeysInitVerb,
    &kKeysListVerb,     &kKeysTrustVerb,
    &kKeysRevokeVerb,   &kKeysRotateVerb,
    &kTokensAddVerb,    &kTokensListVerb,
    &kTokensRemoveVerb, &kDoctorVerb,
    &kCompletionVerb,   &kVersionVerb,
    &kHelpVerb,
};

}  // namespace

std::span<const Verb* const> verb_table() {
  return kTable;
}

const Verb* find_verb(std::string_view name) {
  for (const Verb* verb : kTable) {
    if (verb->name == name) return verb;
  }
  return nullptr;
}

std::span<const OptionSpec> global_options() {
  return kGlobal;
}

}  // namespace nc::cli
