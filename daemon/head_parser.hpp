// Parses the head of an HTTP/1.1 request (Beast's parser; the only file that sees it is
// head_parser.cpp). Bodies are plain: one that is not announced by Content-Length is refused, so
// after the head come exactly that many bytes.
#pragma once

#include <memory>
#include <string_view>

#include "daemon/http.hpp"

namespace nc::daemon {

class HeadParser {
 public:
  static constexpr std::uint32_t kMaxHead = 16 * 1024;

  HeadParser();
  ~HeadParser();

  struct Step {
    enum class Kind { kMore, kDone, kBad } kind = Kind::kMore;
    std::size_t used = 0;  // bytes of the input that are done with
    Error error;           // kBad
    int status = 400;      // kBad
  };
  // Give all bytes that are not used yet, each time.
  Step feed(std::string_view bytes);
  RequestHead take();  // after kDone
  void reset();        // for the next message

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// "/a%20b?x=1&y=2" -> path and query. kInvalid: a bad escape, a NUL, or no leading '/'.
Status split_target(std::string_view target, RequestHead& head);

}  // namespace nc::daemon
