#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <thread>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/thread_annotations.hpp"
#include "client/cli/output.hpp"

namespace nc::cli {

struct Progress::Painter {
  explicit Painter(std::string what) : title(std::move(what)), thread([this] { run(); }) {}

  ~Painter() {
    {
      MutexLock lock(mutex);
      stopping = true;
    }
    wake.notify_all();
    thread.join();
    if (shown) fmt::print(stderr, "\r\033[K");
  }

  void run() {
    constexpr Millis kQuietMs = 300;  // most calls end before anybody looks
    constexpr Millis kEveryMs = 150;
    if (!sleep(kQuietMs)) return;
    do {
      fmt::print(stderr, "\r\033[K{}", line());
      std::fflush(stderr);
      shown = true;
    } while (sleep(kEveryMs));
  }

  // False when it is time to stop.
  bool sleep(Millis ms) NC_NO_THREAD_SAFETY_ANALYSIS {
    std::unique_lock<Mutex> lock(mutex);
    wake.wait_for(lock, std::chrono::milliseconds(ms),
                  [this]() NC_NO_THREAD_SAFETY_ANALYSIS { return stopping; });
    return !stopping;
  }

  std::string line() {
    const double elapsed_s = static_cast<double>(system_clock().monotonic_ms() - started) / 1000;
    MutexLock lock(mutex);
    std::string out = title;
    if (total > 0) {
      const double part = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
      out += fmt::format("  {:3.0f} %", part * 100);
      constexpr double kEnoughToGuess = 0.02;
      if (part > kEnoughToGuess)
        out += fmt::format("  {} left", format_duration(elapsed_s * (1 - part) / part));
    } else {
      if (done > 0) out += fmt::format("  {}", format_count(static_cast<double>(done)));
      out += fmt::format("  {:.0f} s", elapsed_s);
    }
    if (!detail.empty()) out += fmt::format("  {}", detail);
    return out;
  }

  const std::string title;
  const Millis started = system_clock().monotonic_ms();
  bool shown = false;  // the thread's; read when it has ended
  Mutex mutex;
  std::condition_variable_any wake;
  bool stopping NC_GUARDED_BY(mutex) = false;
  std::uint64_t done NC_GUARDED_BY(mutex) = 0;
  std::uint64_t total NC_GUARDED_BY(mutex) = 0;
  std::string detail NC_GUARDED_BY(mutex);
  std::thread thread;  // last: it uses all of the above
};

Progress::Progress(std::string title) {
  if (::isatty(STDERR_FILENO) == 1) painter_ = std::make_unique<Painter>(std::move(title));
}

Progress::~Progress() = default;

void Progress::update(std::uint64_t done, std::uint64_t total, std::string_view detail) {
  if (!painter_) return;
  MutexLock lock(painter_->mutex);
  painter_->done = done;
  painter_->total = total;
  painter_->detail = detail;
}

}  // namespace nc::cli
