// The recorded action of a command: what another host needs to run it again.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "client/cc/session.hpp"

namespace nc::cc {

// The command with placeholders: {in/<name>} for each input, {out/neff} for the output; without
// its log file.
struct Template {
  std::vector<std::string> argv;
  std::vector<std::string> input_names;  // of command.inputs
};

// kUnsupported, with the reason: a command that cannot be said so (response files, flags that name
// files, text that is not UTF-8).
Result<Template> make_template(const Command& command);

// The variables that count for the result, and NEURON_CC_FLAGS.
std::map<std::string, std::string> recorded_environment(const std::vector<std::string>& env);

// Uploads the inputs of the session's command and records it under `name`.
Status record_action(const Session& session, client::Client& client, const std::string& name,
                     const Command& flags_variable);

}  // namespace nc::cc
