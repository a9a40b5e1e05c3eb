#include "client/cli/csv.hpp"

#include <fmt/format.h>

namespace nc::cli {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

bool separates(char c) {
  return c == ',' || c == ';' || c == '\t';
}

}  // namespace

Error CsvReader::wrong(std::string problem) const {
  return {Code::kInvalid, fmt::format("line {}: {}", line_, problem), "correct the file"};
}

void CsvReader::end_field() {
  record_.push_back(std::exchange(field_, {}));
  state_ = State::kFieldStart;
}

Status CsvReader::end_record() {
  const bool empty_line = record_.empty() && field_.empty() && !quoted_;
  end_field();
  Status status;
  if (!empty_line) {
    if (separator_ == '\0') separator_ = ',';  // a first line of one field
    status = sink_(record_line_, record_);
  }
  record_.clear();
  size_ = 0;
  quoted_ = false;
  return status;
}

Status CsvReader::take(char c) {
  if (state_ == State::kQuoted) {
    if (c == '"') {
      state_ = State::kQuoteInQuoted;
      return {};
    }
  } else if (c == '\r' || c == '\n') {
    const bool second = c == '\n' && std::exchange(after_cr_, false);  // of CR LF
    after_cr_ = c == '\r';
    if (second) return {};
    NC_TRY(end_record());
    ++line_;
    record_line_ = line_;
    return {};
  } else if (separates(c) && (separator_ == '\0' || c == separator_)) {
    separator_ = c;
    end_field();
    after_cr_ = false;
    return ++size_ > kMaxRecord
               ? Status(Error{Code::kTooLarge,
                              fmt::format("line {}: the record is too long", line_),
                              "check that the file is CSV"})
               : Status();
  } else if (state_ == State::kFieldStart && c == '"') {
    state_ = State::kQuoted;
    quoted_ = true;
    after_cr_ = false;
    return {};
  } else if (state_ == State::kQuoteInQuoted) {
    if (c != '"') return wrong("text follows a closing quote");
    state_ = State::kQuoted;
  } else {
    state_ = State::kPlain;
  }
  after_cr_ = false;
  if (state_ == State::kQuoted && c == '\n') ++line_;
  field_.push_back(c);
  if (++size_ <= kMaxRecord) return {};
  return Error{Code::kTooLarge, fmt::format("line {}: the record is too long", record_line_),
               "check that the file is CSV and that its quotes are closed"};
}

Status CsvReader::feed(std::string_view text) {
  while (!began_ && !text.empty()) {
    mark_.push_back(text.front());
    text.remove_prefix(1);
    if (mark_ == kByteOrderMark) {
      began_ = true;
    } else if (!kByteOrderMark.starts_with(mark_)) {
      began_ = true;
      for (const char c : mark_) NC_TRY(take(c));
    }
  }
  for (const char c : text) NC_TRY(take(c));
  return {};
}

Status CsvReader::finish() {
  if (!std::exchange(began_, true)) {
    for (const char c : mark_) NC_TRY(take(c));
  }
  if (state_ == State::kQuoted) {
    return Error{Code::kInvalid, fmt::format("line {}: a quote is not closed", record_line_),
                 "correct the file"};
  }
  return end_record();
}

}  // namespace nc::cli
