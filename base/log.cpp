#include "base/log.hpp"

#include <array>
#include <atomic>
#include <memory>

#include <spdlog/logger.h>
#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include "base/thread_annotations.hpp"

namespace nc::log {
namespace {

constexpr std::size_t kRotateBytes = 10U << 20;
constexpr std::size_t kRotateFiles = 3;
constexpr std::array<std::string_view, 6> kNames = {"trace", "debug", "info",
                                                    "warn",  "error", "off"};

std::shared_ptr<spdlog::logger> make_logger(std::shared_ptr<spdlog::sinks::sink> sink) {
  auto logger = std::make_shared<spdlog::logger>("neuroncache", std::move(sink));
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %v");
  logger->set_level(spdlog::level::trace);  // enabled() decides
  logger->flush_on(spdlog::level::trace);   // a crash loses no line
  return logger;
}

struct State {
  std::atomic<Level> level{Level::kInfo};
  Mutex mutex;
  std::shared_ptr<spdlog::logger> logger NC_GUARDED_BY(mutex) =
      make_logger(std::make_shared<spdlog::sinks::stderr_sink_mt>());
};

// Never destroyed: a thread may log while the process ends.
State& state() {
  static auto* const kState = new State;
  return *kState;
}

// One line per event whatever the text holds, and no control sequence reaches a terminal.
std::string one_line(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::size_t copied = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto u = static_cast<unsigned char>(text[i]);
    if (u >= 0x20 && u != 0x7f) continue;
    out.append(text, copied, i - copied);
    out.append(u == '\n' ? "\\n" : u == '\t' ? " " : fmt::format("\\x{:02x}", u));
    copied = i + 1;
  }
  return out.append(text, copied);
}

}  // namespace

Result<Level> parse_level(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Level>(i);
  }
  return Error{Code::kInvalid, fmt::format("\"{}\" is not a log level", name),
               "use trace, debug, info, warn, error or off"};
}

Status configure(std::string_view level, const std::string& file) {
  NC_ASSIGN(const Level parsed, parse_level(level));
  std::shared_ptr<spdlog::logger> logger;
  try {
    if (file.empty()) {
      logger = make_logger(std::make_shared<spdlog::sinks::stderr_sink_mt>());
    } else {
      using Sink = spdlog::sinks::rotating_file_sink_mt;
      logger = make_logger(std::make_shared<Sink>(file, kRotateBytes, kRotateFiles));
    }
  } catch (const spdlog::spdlog_ex& e) {
    return Error{Code::kIo, fmt::format("cannot log to {}: {}", file, e.what()),
                 "set log_file to a file that can be written"};
  }
  // A line that cannot be written is lost; the default would print about it on standard error.
  logger->set_error_handler([](const std::string&) {});
  State& s = state();
  {
    MutexLock lock(s.mutex);
    s.logger = std::move(logger);
  }
  s.level = parsed;
  return {};
}

void set_level(Level level) {
  state().level = level;
}

bool enabled(Level level) {
  return level >= state().level.load(std::memory_order_relaxed);
}

void write(Level level, std::string_view component, std::string_view text) {
  if (level == Level::kOff || !enabled(level)) return;
  State& s = state();
  std::shared_ptr<spdlog::logger> logger;
  {
    MutexLock lock(s.mutex);
    logger = s.logger;
  }
  logger->log(
      static_cast<spdlog::level::level_enum>(level),
      fmt::format("{} {}: {}", kNames[static_cast<std::size_t>(level)], component, one_line(text)));
}

}  // namespace nc::log
