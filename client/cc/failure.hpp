// What kind of failure a compiler's end was: whether trying again may help.
#pragma once

#include <string>
#include <string_view>

#include "client/cc/child.hpp"
#include "client/types.hpp"

namespace nc::cc {

// The class is one of docs/protocol.md's; the log holds both streams.
client::FailReport classify(const ChildResult& result, std::string_view log_file);

// Both streams as one text for the log of a failure, and apart again.
std::string join_streams(std::string_view out, std::string_view err);
struct Streams {
  std::string out, err;
};
Streams split_streams(std::string_view log);

}  // namespace nc::cc
