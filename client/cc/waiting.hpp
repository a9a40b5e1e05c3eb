// What the user sees while another process builds.
#pragma once

#include <string>

#include "base/clock.hpp"
#include "client/build_types.hpp"
#include "client/types.hpp"

namespace nc::cc {

// One line to standard error, begun with the product's name. Never fails.
void say(const std::string& text);

// "waiting for neuronx-cc (pid 12 on host): 12 s, usually 30 s, 3 wait".
std::string waiting_text(const client::BuildingInfo& building);

// "waiting for room: 3 compilers run, 2 are before this one, which may take 10 GiB".
std::string waiting_text(const client::Admission& waiting);

class WaitingLines {
 public:
  // `setting`: progress, auto|on|off. Auto: on a terminal.
  explicit WaitingLines(const std::string& setting);
  void show(const client::BuildingInfo& building);
  void show(const client::Admission& waiting);

 private:
  void show(const std::string& text);

  bool on_ = false;
  bool terminal_ = false;
  Millis next_ms_ = 0;
  Millis pause_ms_ = 0;
};

}  // namespace nc::cc
