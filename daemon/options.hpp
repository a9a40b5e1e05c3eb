// The command line: every setting is a flag, and there are a few of the program's own.
#pragma once

#include <map>
#include <span>
#include <string>

#include "base/result.hpp"

namespace nc::daemon {

struct Options {
  std::map<std::string, std::string> settings;  // by setting name
  std::string config;                           // --config
  std::string copy_bucket, into;                // copy that bucket into this directory, and end
  bool detach = false;
  bool check = false;  // --check
  bool exit_with_parent = false;
  bool help = false;
  bool version = false;
};

// kInvalid names the argument, and the nearest right one.
Result<Options> parse_options(std::span<const char* const> arguments);
std::string help_text();

}  // namespace nc::daemon
