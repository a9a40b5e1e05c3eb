// Running somebody's command as our child: its streams and its terminal are ours, signals that are
// sent to us are passed on.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/result.hpp"

namespace nc::cli {

struct CommandSpec {
  std::vector<std::string> argv;  // the program is looked for on the PATH of `env`
  std::vector<std::string> env;
  bool output_to_stderr = false;  // because standard output is for a document
};

struct CommandEnd {
  int exit_code = 0;
  int signal = 0;  // that killed it, or 0

  int status() const { return signal != 0 ? 128 + signal : exit_code; }  // as a shell has it
};

// Waits for its end; `tick` is called about every `tick_ms`. A signal that the terminal sent
// reached the command as well and is not sent again. kNotFound, kDenied: it could not be started.
Result<CommandEnd> run_command(const CommandSpec& spec, Millis tick_ms,
                               const std::function<void()>& tick);

// The value of a variable, "" when it is not there.
std::string variable_of(const std::vector<std::string>& env, std::string_view name);
void set_variable(std::vector<std::string>& env, std::string_view name, std::string_view value);

}  // namespace nc::cli
