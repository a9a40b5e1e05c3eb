#include "client/cc/waiting.hpp"

#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

#include "base/bytes.hpp"

namespace nc::cc {
namespace {

constexpr Millis kFirstPauseMs = 2'000;
constexpr Millis kLongestPauseMs = 60'000;

}  // namespace

void say(const std::string& text) {
  const std::string line = "neuroncache: " + text + "\n";
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, line.data(), line.size());
}

std::string waiting_text(const client::BuildingInfo& building) {
  std::string out =
      fmt::format("waiting for {} (pid {} on {}): {}", building.builder.program,
                  building.builder.pid, building.builder.host, format_duration(building.elapsed_s));
  if (building.usual_s) out += ", usually " + format_duration(*building.usual_s);
  if (building.waiters > 1) out += fmt::format(", {} wait", building.waiters);
  if (!building.progress.empty()) out += "; " + building.progress;
  return out;
}

WaitingLines::WaitingLines(const std::string& setting) {
  terminal_ = ::isatty(STDERR_FILENO) == 1;
  on_ = setting == "on" || (setting == "auto" && terminal_);
  pause_ms_ = kFirstPauseMs;
}

std::string waiting_text(const client::Admission& waiting) {
  return fmt::format(
      "waiting for memory: {} compilers run, {} are before this one, which may take {}",
      waiting.running, waiting.ahead, format_size(waiting.expected_bytes));
}

void WaitingLines::show(const client::BuildingInfo& building) {
  show(waiting_text(building));
}

void WaitingLines::show(const client::Admission& waiting) {
  show(waiting_text(waiting));
}

void WaitingLines::show(const std::string& text) {
  const Millis now = system_clock().monotonic_ms();
  if (!on_ || now < next_ms_) return;
  say(text);
  next_ms_ = now + pause_ms_;
  // Less and less often: a log of a long wait need not be long.
  pause_ms_ = std::min(pause_ms_ * 2, kLongestPauseMs);
}

}  // namespace nc::cc
