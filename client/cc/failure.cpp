#include "client/cc/failure.hpp"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <optional>

#include <fmt/format.h>

#include "base/bytes.hpp"

namespace nc::cc {
namespace {

constexpr std::string_view kDeterministic = "deterministic";
constexpr std::string_view kOutOfMemory = "out_of_memory";
constexpr std::string_view kKilled = "killed";
constexpr std::string_view kTimeout = "timeout";
constexpr std::string_view kDiskFull = "disk_full";
constexpr std::string_view kEnvironment = "environment";

struct TextRow {
  std::string_view text;
  std::string_view failure_class;
};

// The first row that occurs decides: what may pass comes before what stays.
constexpr TextRow kTexts[] = {
    {"[F137]", kOutOfMemory},
    {"forcibly killed", kOutOfMemory},
    {"MemoryError", kOutOfMemory},
    {"std::bad_alloc", kOutOfMemory},
    {"Cannot allocate memory", kOutOfMemory},
    {"No space left on device", kDiskFull},
    {"Disk quota exceeded", kDiskFull},
    {"[F134]", kKilled},
    {"terminated abnormally", kKilled},
    {"Read-only file system", kEnvironment},
    {"Permission denied", kEnvironment},
    {"Too many open files", kEnvironment},
    {"Resource temporarily unavailable", kEnvironment},
    {"Input/output error", kEnvironment},
    {"No such file or directory", kEnvironment},
    {"FileNotFoundError", kEnvironment},
    {"ModuleNotFoundError", kEnvironment},
    {"ImportError", kEnvironment},
    {"error while loading shared libraries", kEnvironment},
    {"KeyboardInterrupt", kKilled},
    {"NCC_", kDeterministic},
    {"TEN404", kDeterministic},
    {"NLA001", kDeterministic},
    {"XCG815", kDeterministic},
};

// Diagnostics of newer and older compilers also come as [E...nnn] with a class in front.
bool has_code(std::string_view text) {
  for (std::size_t at = text.find('['); at != std::string_view::npos; at = text.find('[', at + 1)) {
    std::size_t i = at + 1;
    while (i < text.size() && text[i] >= 'A' && text[i] <= 'Z') ++i;
    const std::size_t letters = i - at - 1;
    const std::size_t digits_at = i;
    while (i < text.size() && text[i] >= '0' && text[i] <= '9') ++i;
    if (letters >= 3 && letters <= 5 && i - digits_at == 3 && i < text.size() && text[i] == ']')
      return true;
  }
  return false;
}

// The line that says most: the first with "error" in it, else the last one.
std::string key_line(std::string_view text) {
  std::string_view last;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(" \t\r.") == std::string_view::npos) continue;
    last = line;
    if (line.find("rror") != std::string_view::npos || line.find("ERROR") != std::string_view::npos)
      break;
  }
  constexpr std::size_t kMax = 400;
  return std::string(last.substr(0, kMax));
}

// JSON takes UTF-8 only; what is none becomes '?'.
std::string readable(std::string_view bytes) {
  if (is_utf8(bytes)) return std::string(bytes);
  std::string out(bytes);
  for (char& c : out) {
    if (static_cast<unsigned char>(c) >= 0x80) c = '?';
  }
  return out;
}

std::string shorten(std::string_view bytes) {
  constexpr std::size_t kMax = 400 << 10;  // two of them and their heads fit what is kept of a log
  if (bytes.size() <= kMax) return readable(bytes);
  return readable(fmt::format("{}\n[{} bytes left out]\n{}", bytes.substr(0, kMax / 2),
                              bytes.size() - kMax, bytes.substr(bytes.size() - kMax / 2)));
}

std::string_view class_of(const ChildResult& result, std::string_view text) {
  if (result.timed_out) return kTimeout;
  for (const TextRow& row : kTexts) {
    if (result.signal != 0 && row.failure_class == kDeterministic) break;
    if (text.find(row.text) != std::string_view::npos) return row.failure_class;
  }
  constexpr int kShellKilled = 128 + SIGKILL;
  if (result.signal == SIGKILL || result.exit_code == kShellKilled)
    return result.oom_kill ? kOutOfMemory : kKilled;
  if (result.signal != 0 || result.exit_code > 128) return kKilled;
  constexpr int kUsage = 2;
  if (result.exit_code == kUsage || has_code(text)) return kDeterministic;
  return kEnvironment;
}

std::string head(std::string_view name, std::size_t size) {
  return fmt::format("[{}, {} bytes]\n", name, size);
}

std::optional<std::string_view> take_part(std::string_view name, std::string_view& log) {
  const std::string begin = fmt::format("[{}, ", name);
  if (!log.starts_with(begin)) return std::nullopt;
  std::size_t size = 0;
  const char* const at = log.data() + begin.size();
  const auto [next, error] = std::from_chars(at, log.data() + log.size(), size);
  const auto end = static_cast<std::size_t>(next - log.data());
  constexpr std::string_view kTail = " bytes]\n";
  if (error != std::errc{} || log.substr(end, kTail.size()) != kTail) return std::nullopt;
  log.remove_prefix(end + kTail.size());
  if (size > log.size()) return std::nullopt;
  const std::string_view part = log.substr(0, size);
  log.remove_prefix(size);
  if (log.starts_with('\n')) log.remove_prefix(1);
  return part;
}

}  // namespace

client::FailReport classify(const ChildResult& result, std::string_view log_file) {
  const std::string text = fmt::format("{}\n{}\n{}", result.err, result.out, log_file);
  client::FailReport report;
  report.failure_class = class_of(result, text);
  report.exit_code = result.signal != 0 ? -result.signal : result.exit_code;
  const std::string line = readable(key_line(result.err.empty() ? text : result.err));
  if (result.timed_out) {
    report.message = fmt::format("it did not end within {:.0f} s (build_timeout)",
                                 static_cast<double>(result.wall_ms) / 1000);
  } else if (result.signal != 0) {
    report.message = fmt::format("it was killed by signal {}", result.signal);
  } else {
    report.message = fmt::format("status {}: {}", result.exit_code, line);
  }
  report.log = join_streams(result.out, result.err);
  return report;
}

std::string join_streams(std::string_view out, std::string_view err) {
  const std::string o = shorten(out);
  const std::string e = shorten(err);
  return fmt::format("{}{}\n{}{}\n", head("standard output", o.size()), o,
                     head("standard error", e.size()), e);
}

Streams split_streams(std::string_view log) {
  std::string_view rest = log;
  const auto out = take_part("standard output", rest);
  const auto err = out ? take_part("standard error", rest) : std::nullopt;
  if (!err) return {"", std::string(log)};
  return {std::string(*out), std::string(*err)};
}

}  // namespace nc::cc
