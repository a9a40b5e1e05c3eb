// Several pieces of work at once, each in a process of its own that is forked from this one.
//
// Make it while the process has one thread. Signals that end a program are taken from then on until
// it is gone: the first SIGTERM asks to stop soon, SIGINT, SIGHUP or a second signal asks to stop
// now. A child that outlives this process is killed.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <cstddef>
#include <functional>
#include <map>
#include <string>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace nc::cli {

class ChildPool {
 public:
  explicit ChildPool(std::size_t width);
  ~ChildPool();  // ends all that run, and waits for them
  ChildPool(const ChildPool&) = delete;
  ChildPool& operator=(const ChildPool&) = delete;

  struct End {
    int exit_code = 0;
    int signal = 0;    // that killed it, or 0
    std::string text;  // what the work left, at most kMaxText bytes of it
  };
  static constexpr std::size_t kMaxText = 4096;  // what a pipe always takes

  // In the child: the work, its exit status, and a text for us. In this process: what follows.
  using Work = std::function<int(std::string& text)>;
  using Ended = std::function<void(const End&)>;
  Status start(const Work& work, Ended ended);

  std::size_t running() const { return children_.size(); }
  bool full() const { return children_.size() >= width_; }

  // Until a child ended or a signal came, at most so long. Calls `ended` of each that did.
  void wait(Millis ms);

  bool stop_soon() const { return stops_ > 0; }  // start nothing more
  bool stop_now() const { return stops_ > 1; }   // end what runs
  void end_all() const;                          // asks each child to end

 private:
  struct Child {
    UniqueFd text;
    Ended ended;
  };
  void reap();
  void take_signals();

  const std::size_t width_;
  sigset_t old_{};
  UniqueFd signals_;
  int stops_ = 0;
  std::map<pid_t, Child> children_;
};

}  // namespace nc::cli
