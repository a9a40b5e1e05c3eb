// Reading CSV (RFC 4180) in pieces of any size: quotes, CRLF and lone CR, a byte order mark, ',' or
// ';' or tab between fields (the first of them that the first line has). Memory is bounded by one
// record.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace nc::cli {

class CsvReader {
 public:
  static constexpr std::size_t kMaxRecord = 1 << 20;  // bytes

  using Record = std::vector<std::string>;
  // Gets every record that is not an empty line, with the line it begins on (from 1). Its error
  // ends the reading.
  using Sink = std::function<Status(std::uint64_t line, const Record& record)>;

  explicit CsvReader(Sink sink) : sink_(std::move(sink)) {}

  // kInvalid: text after a closing quote; kTooLarge: a record over kMaxRecord; what the sink
  // returns. After an error nothing more may be fed.
  Status feed(std::string_view text);
  Status finish();  // kInvalid: a quote is still open

 private:
  enum class State { kFieldStart, kPlain, kQuoted, kQuoteInQuoted };

  Status take(char c);
  Status end_record();
  void end_field();
  Error wrong(std::string problem) const;

  Sink sink_;
  State state_ = State::kFieldStart;
  Record record_;
  std::string field_;
  std::string mark_;  // what may be a byte order mark
  std::size_t size_ = 0;
  std::uint64_t line_ = 1, record_line_ = 1;
  char separator_ = '\0';  // not known yet
  bool began_ = false, after_cr_ = false, quoted_ = false;
};

}  // namespace nc::cli
