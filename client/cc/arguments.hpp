// The command line of neuronx-cc, understood: which words are inputs, which flags count, where the
// output goes.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nc::cc {

// What the parser must ask about the world; paths are as the caller wrote them.
struct Surroundings {
  // The text of a response file; nullopt when it cannot be read.
  std::function<std::optional<std::string>(const std::string&)> read_file;
  std::function<bool(const std::string&)> exists;
};

// This machine, from the working directory.
Surroundings real_surroundings();

struct Command {
  enum class Kind {
    kCompile,
    kPassThrough,  // nothing to cache: the real compiler gets the command as it is
    kBypass,       // a compile command that must not be cached
  };
  Kind kind = Kind::kPassThrough;
  std::string reason;  // of kPassThrough and kBypass, a short id: "version", "no_cache", ...

  std::vector<std::string> inputs;  // in order
  std::string output = "file.neff";
  std::string logfile = "log-neuron-cc.txt";
  bool logfile_named = false;                // by the caller
  std::map<std::string, std::string> flags;  // canonical name -> the right-most value; in the key
  std::vector<std::string> unknown;        // words of flags that the table does not have, in order
  std::vector<std::string> unknown_files;  // of these words, those that name files
  bool retry_failed = false;
  std::vector<std::string> compiler_arguments;  // what the real compiler gets
};

// `arguments` without the program's name.
Command parse_command(std::span<const std::string> arguments, const Surroundings& surroundings);

// NEURON_CC_FLAGS: flags only. `command` takes over retry and no_cache; the rest goes into the
// returned one's `flags` and `unknown`, without what `command` says as well.
Command parse_flags_variable(std::string_view text, const Surroundings& surroundings,
                             Command& command);

}  // namespace nc::cc
