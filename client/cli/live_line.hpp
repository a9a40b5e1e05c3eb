// One line that tells how far a long run is: rewritten each second on a terminal, printed now and
// then where there is none. Uses no thread.
#pragma once

#include <string>

#include "base/clock.hpp"

namespace nc::cli {

class LiveLine {
 public:
  LiveLine();
  ~LiveLine();  // wipes it
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;

  bool due() const;  // it is time to show something again
  void show(const std::string& text);
  double elapsed_s() const;

 private:
  const bool terminal_;
  const Millis started_;
  Millis next_;
  std::string last_;
  bool shown_ = false;
};

}  // namespace nc::cli
