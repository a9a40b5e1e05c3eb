// Printing: aligned tables for people, tab-separated lines, JSON, progress on a terminal.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json/value.hpp>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "client/cli/context.hpp"

namespace nc::cli {

namespace bj = boost::json;

void print(std::string_view text);        // to standard output
void note(std::string_view text);         // "neuroncache: text" to standard error, for people
void print_json(const bj::value& value);  // indented, with a newline
std::string json_text(const bj::value& value);
std::string plain_text(const bj::value& value);  // a field of tab output: "" for null
// What happened, and below it what to do; in JSON format also {"error": {...}} on standard output.
void print_error(Error error, Format format);
Status flush_output();  // an error when standard output could not be written

struct Cell {
  Cell(std::string t) : text(std::move(t)), raw(text) {}  // NOLINT(google-explicit-constructor)
  Cell(const char* t) : text(t), raw(t) {}                // NOLINT(google-explicit-constructor)
  Cell(std::string t, std::string r) : text(std::move(t)), raw(std::move(r)) {}
  std::string text;  // for people
  std::string raw;   // for programs
};
Cell size_cell(std::uint64_t bytes);
Cell seconds_cell(double seconds);
Cell count_cell(double n);
Cell time_cell(Millis when, Millis now);  // "3 h ago" | milliseconds
Cell key_cell(const std::string& hex);    // a short prefix | the whole key

class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;  // for people
    std::string name;   // for programs: the first line of tab output
    Align align = Align::kLeft;
    bool shrinks = false;  // cut with an ellipsis when the terminal is too narrow
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }
  bool empty() const { return rows_.empty(); }

  // `width` 0: never cut. `indent` spaces in front of each line.
  std::string text(std::size_t width, std::size_t indent = 0) const;
  std::string tab() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

std::size_t terminal_width();        // of standard output; 0 when it is none
std::string format_count(double n);  // "1,234"
std::string counted(double n, std::string_view one,
                    std::string_view many);       // "1 entry", "2 entries"
std::string format_ago(Millis when, Millis now);  // "3 h ago"; "-" for 0
std::string format_time(Millis when);             // local "2026-11-30 03:12:45"
std::string short_key(std::string_view hex);
std::string printable(std::string_view text);  // control characters replaced, so that a label
                                               // cannot drive the terminal

// One line on standard error that is rewritten, only when that is a terminal and it takes longer
// than a moment.
class Progress {
 public:
  explicit Progress(std::string title);
  ~Progress();  // wipes the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void update(std::uint64_t done, std::uint64_t total,
              std::string_view detail = "");  // total 0: unknown

 private:
  struct Painter;                     // a thread, so that the line moves while a call blocks
  std::unique_ptr<Painter> painter_;  // none when nobody sees it
};

}  // namespace nc::cli
