#include "client/cli/live_line.hpp"

#include <unistd.h>

#include <cstdio>

#include <fmt/format.h>

#include "client/cli/output.hpp"

namespace nc::cli {
namespace {

constexpr Millis kTerminalMs = 1'000;
constexpr Millis kPlainMs = 30'000;

}  // namespace

LiveLine::LiveLine()
    : terminal_(::isatty(STDERR_FILENO) == 1),
      started_(system_clock().monotonic_ms()),
      next_(started_ + (terminal_ ? 0 : kPlainMs)) {}

LiveLine::~LiveLine() {
  if (!shown_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
}

bool LiveLine::due() const {
  return system_clock().monotonic_ms() >= next_;
}

void LiveLine::show(const std::string& text) {
  next_ = system_clock().monotonic_ms() + (terminal_ ? kTerminalMs : kPlainMs);
  if (text == last_) return;
  last_ = text;
  if (!terminal_) return note(text);
  fmt::print(stderr, "\r\033[K{}", text);
  std::fflush(stderr);
  shown_ = true;
}

double LiveLine::elapsed_s() const {
  return static_cast<double>(system_clock().monotonic_ms() - started_) / 1000;
}

}  // namespace nc::cli
