// Calls into a file system that may never come back (a network mount whose server is gone), with a
// time limit: they run on threads of their own, and one that takes too long is left behind. What a
// call uses must belong to it, because it may go on long after its caller.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/clock.hpp"
#include "base/result.hpp"

namespace nc::tier {

class Patience {
 public:
  static constexpr std::size_t kMaxThreads = 16;

  // `what`: for messages, "the tier file:///fsx".
  Patience(std::string what, Millis timeout_ms);
  ~Patience();  // does not wait for calls that were left behind
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;

  // kTimeout after the time limit, waiting for a free thread included.
  template <class T>
  Result<T> run(std::function<Result<T>()> work) {
    auto result = std::make_shared<Result<T>>(Error{});
    NC_TRY(wait([result, work = std::move(work)] { *result = work(); }));
    return std::move(*result);
  }

 private:
  struct State;
  struct Job;
  Status wait(std::function<void()> work);

  const std::string what_;
  const Millis timeout_ms_;
  const std::shared_ptr<State> state_;
};

}  // namespace nc::tier
