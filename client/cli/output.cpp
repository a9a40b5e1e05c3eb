#include "client/cli/output.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <ctime>

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include "base/bytes.hpp"

namespace nc::cli {
namespace {

// The number of columns `text` takes: code points of UTF-8, which is right for what we print.
std::size_t columns_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string cut(const std::string& text, std::size_t width) {
  if (columns_of(text) <= width) return text;
  if (width == 0) return {};
  std::string out;
  std::size_t used = 0;
  for (const char c : text) {
    if ((c & 0xC0) != 0x80 && ++used >= width) break;
    out += c;
  }
  return out + "…";
}

void write_json(std::string& out, const bj::value& value, int depth) {
  const auto line = [&](int d) { out.append("\n").append(static_cast<std::size_t>(d) * 2, ' '); };
  if (const bj::object* object = value.if_object()) {
    out += '{';
    bool first = true;
    for (const auto& item : *object) {
      if (!first) out += ',';
      first = false;
      line(depth + 1);
      out += bj::serialize(bj::string(item.key()));
      out += ": ";
      write_json(out, item.value(), depth + 1);
    }
    if (!first) line(depth);
    out += '}';
  } else if (const bj::array* array = value.if_array()) {
    // Arrays of plain values (a name and its value) read best on one line.
    const bool flat = std::none_of(array->begin(), array->end(),
                                   [](const bj::value& v) { return v.is_structured(); });
    out += '[';
    bool first = true;
    for (const bj::value& item : *array) {
      if (!first) out += flat ? ", " : ",";
      first = false;
      if (!flat) line(depth + 1);
      write_json(out, item, depth + 1);
    }
    if (!first && !flat) line(depth);
    out += ']';
  } else if (value.is_double()) {
    const double d = value.get_double();
    // Boost.JSON writes 2 as 2E0; whole numbers are integers to us.
    constexpr double kExact = 9007199254740992.0;
    if (!std::isfinite(d)) {
      out += "null";
    } else if (d == std::floor(d) && std::abs(d) < kExact) {
      out += fmt::format("{}", static_cast<std::int64_t>(d));
    } else {
      out += fmt::format("{}", d);
    }
  } else {
    out += bj::serialize(value);
  }
}

// For errors that come without one.
const char* usual_action(Code code) {
  switch (code) {
    case Code::kInvalid:
      return "see `neuroncache help`";
    case Code::kNotFound:
      return "check the name";
    case Code::kBusy:
    case Code::kDraining:
      return "try again in a moment";
    case Code::kCorrupt:
      return "run `neuroncache verify`";
    default:
      return "see `neuroncache doctor` and the daemon's log";
  }
}

}  // namespace

void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
}

void note(std::string_view text) {
  std::fflush(stdout);
  fmt::print(stderr, "neuroncache: {}\n", text);
}

std::string json_text(const bj::value& value) {
  std::string out;
  write_json(out, value, 0);
  out += '\n';
  return out;
}

std::string plain_text(const bj::value& value) {
  if (value.is_null()) return "";
  return value.is_string() ? std::string(value.get_string()) : bj::serialize(value);
}

void print_json(const bj::value& value) {
  print(json_text(value));
}

void print_error(Error error, Format format) {
  if (error.action.empty()) error.action = usual_action(error.code);
  if (format == Format::kJson) {
    print_json(bj::object{{"error", bj::object{{"code", std::string(code_name(error.code))},
                                               {"message", error.message},
                                               {"action", error.action}}}});
  }
  note(printable(error.message));
  fmt::print(stderr, "  to do: {}\n", printable(error.action));
}

Status flush_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return errno_error(errno == 0 ? EIO : errno, "cannot write", "standard output");
  }
  return {};
}

Cell size_cell(std::uint64_t bytes) {
  return {format_size(bytes), fmt::format("{}", bytes)};
}
Cell seconds_cell(double seconds) {
  return {format_duration(seconds), fmt::format("{:.3f}", seconds)};
}
Cell count_cell(double n) {
  return {format_count(n), fmt::format("{:.0f}", n)};
}
Cell time_cell(Millis when, Millis now) {
  return {format_ago(when, now), fmt::format("{}", when)};
}
Cell key_cell(const std::string& hex) {
  // The name of something else is told whole.
  if (hex.find_first_not_of("0123456789abcdef") != std::string::npos) return printable(hex);
  return {short_key(hex), hex};
}

std::string Table::text(std::size_t width, std::size_t indent) const {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t w = columns_of(columns_[c].title);
    for (const auto& row : rows_) w = std::max(w, columns_of(row[c].text));
    widths.push_back(w);
  }
  constexpr std::size_t kGap = 2;
  std::size_t total = indent + kGap * (columns_.size() - 1);
  for (const std::size_t w : widths) total += w;
  for (std::size_t c = 0; width > 0 && total > width && c < columns_.size(); ++c) {
    if (!columns_[c].shrinks) continue;
    const std::size_t least = std::max<std::size_t>(columns_of(columns_[c].title), 8);
    const std::size_t give = std::min(total - width, widths[c] > least ? widths[c] - least : 0);
    widths[c] -= give;
    total -= give;
  }
  std::string out;
  const auto line = [&](const auto& cell_of) {
    std::string text(indent, ' ');
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const std::string cell = cut(cell_of(c), widths[c]);
      const std::string pad(widths[c] - columns_of(cell), ' ');
      if (c > 0) text.append(kGap, ' ');
      text += columns_[c].align == Align::kRight ? pad + cell : cell + pad;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + '\n';
  };
  const bool titled = std::any_of(columns_.begin(), columns_.end(),
                                  [](const Column& c) { return !c.title.empty(); });
  if (titled) line([&](std::size_t c) { return columns_[c].title; });
  for (const auto& row : rows_) line([&](std::size_t c) { return row[c].text; });
  return out;
}

std::string Table::tab() const {
  std::string out;
  for (std::size_t c = 0; c < columns_.size(); ++c) out += (c > 0 ? "\t" : "") + columns_[c].name;
  out += '\n';
  for (const auto& row : rows_) {
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (c > 0) out += '\t';
      out += printable(row[c].raw);
    }
    out += '\n';
  }
  return out;
}

std::size_t terminal_width() {
  winsize size{};
  if (::isatty(STDOUT_FILENO) == 0 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

std::string format_count(double n) {
  std::string digits = fmt::format("{:.0f}", n);
  for (auto i = static_cast<std::ptrdiff_t>(digits.size()) - 3; i > (n < 0 ? 1 : 0); i -= 3) {
    digits.insert(static_cast<std::size_t>(i), ",");
  }
  return digits;
}

std::string counted(double n, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", format_count(n), n == 1 ? one : many);
}

std::string format_ago(Millis when, Millis now) {
  if (when <= 0) return "-";
  const double seconds = static_cast<double>(now - when) / 1000;
  if (seconds < 0) return "in the future";
  if (seconds < 10) return "just now";
  if (seconds < 60) return fmt::format("{:.0f} s ago", seconds);
  if (seconds < 3600) return fmt::format("{:.0f} min ago", std::floor(seconds / 60));
  if (seconds < 86400) return fmt::format("{:.0f} h ago", std::floor(seconds / 3600));
  return fmt::format("{:.0f} d ago", std::floor(seconds / 86400));
}

std::string format_time(Millis when) {
  if (when <= 0) return "-";
  const std::time_t t = when / 1000;
  std::tm tm{};
  ::localtime_r(&t, &tm);
  char buffer[32];
  const std::size_t n = std::strftime(buffer, sizeof(buffer), "%Y-%m-%d %H:%M:%S", &tm);
  return {buffer, n};
}

std::string short_key(std::string_view hex) {
  constexpr std::size_t kShown = 12;
  return std::string(hex.substr(0, kShown));
}

std::string printable(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  return out;
}

}  // namespace nc::cli
