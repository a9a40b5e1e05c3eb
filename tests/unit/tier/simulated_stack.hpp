// A stack of its own for each simulated host: a context, or a thread where a sanitizer could not
// follow contexts. One runs at a time.
#pragma once

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define NC_SIM_THREADS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define NC_SIM_THREADS 1
#endif
#endif
#ifndef NC_SIM_THREADS
#define NC_SIM_THREADS 0
#include <ucontext.h>
#endif

#include <cstdint>
#include <functional>
#include <semaphore>
#include <thread>
#include <utility>
#include <vector>

namespace nc::tier::sim {

inline constexpr bool kSanitized = NC_SIM_THREADS == 1;

#if NC_SIM_THREADS
class Stack {
 public:
  explicit Stack(std::function<void()> body)
      : thread_([this, body = std::move(body)] {
          go_.acquire();
          body();
          back_.release();
        }) {}
  ~Stack() { thread_.join(); }
  void resume() {  // until it pauses, or ends
    go_.release();
    back_.acquire();
  }
  void pause() {
    back_.release();
    go_.acquire();
  }

 private:
  std::binary_semaphore go_{0};
  std::binary_semaphore back_{0};
  std::thread thread_;
};
#else
class Stack {
 public:
  explicit Stack(std::function<void()> body) : body_(std::move(body)), memory_(256 << 10) {
    ::getcontext(&own_);
    own_.uc_stack.ss_sp = memory_.data();
    own_.uc_stack.ss_size = memory_.size();
    own_.uc_link = &other_;
    const auto self = reinterpret_cast<std::uintptr_t>(this);
    ::makecontext(&own_, reinterpret_cast<void (*)()>(&Stack::enter), 2,
                  static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
  }
  void resume() { ::swapcontext(&other_, &own_); }
  void pause() { ::swapcontext(&own_, &other_); }

 private:
  static void enter(unsigned high, unsigned low) {
    const auto self = (static_cast<std::uintptr_t>(high) << 32) | low;
    reinterpret_cast<Stack*>(self)->body_();
  }

  std::function<void()> body_;
  std::vector<char> memory_;
  ucontext_t own_{};
  ucontext_t other_{};
};
#endif

}  // namespace nc::tier::sim
