// The door to HTTP for tiers. CurlHttp (cache/tier/curl_http.hpp) is the real one; tests script
// theirs.
//
// One exchange per call; a redirect is an answer like any other, and nothing is repeated: both are
// decided by who knows what the request means. Bodies stream; everything that comes is bounded.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/result.hpp"
#include "cache/tier/engine.hpp"

namespace nc::tier {

struct HttpHeader {
  std::string name;
  std::string value;
};

struct HttpHead {
  int status = 0;
  std::vector<HttpHeader> headers;  // names in lower case, values without blanks around them

  std::string header(std::string_view name) const;  // the first; "": absent
  std::optional<std::uint64_t> content_length() const;
  bool success() const { return status >= 200 && status < 300; }
};

inline constexpr std::uint64_t kMaxFailureText = 64 << 10;

struct HttpRequest {
  std::string method = "GET";
  std::string url;
  std::vector<HttpHeader> headers;

  // The body: `bytes`, or a part of `source` where that is set. Sent for PUT and POST only.
  Bytes bytes = {};
  Source* source = nullptr;
  std::uint64_t source_offset = 0;
  std::uint64_t source_size = 0;

  Millis timeout_ms = 5'000;  // to connect, and then without a byte in either direction
  // Of the body of a success that is collected in HttpResponse: kTooLarge above it. The text of a
  // failure is cut off at kMaxFailureText.
  std::uint64_t body_limit = 64 << 10;
  std::function<Status(const HttpHead&)> on_head = {};  // before the body; an error ends it
  Sink sink = {};              // takes the body of a success; without it that is collected too
  bool use_proxy = true;       // of the environment (https_proxy, no_proxy, ..)
  std::string ca_file = {};    // certificates to believe instead of the system's
  std::string cert_file = {};  // the client's own certificate, and its key
  std::string key_file = {};

  std::string shown() const;  // "GET https://host/path", for messages
};

struct HttpResponse {
  HttpHead head;
  std::string body;
};

// Codes of errors: kUnavailable (no connection, or it broke), kTimeout, kCorrupt (the body is
// shorter than announced; no HTTP), kTooLarge, kIo (the other side cannot prove who it is; other
// faults); and what `on_head`, `sink` or `source` gave.
class HttpClient {
 public:
  virtual ~HttpClient() = default;
  virtual Result<HttpResponse> send(const HttpRequest& request) = 0;  // thread-safe; blocks
};

// Takes the lines of a response's head one by one: of interim answers (1xx) too, which are dropped.
// kCorrupt for what is no HTTP, kTooLarge over its limits.
class HttpHeadReader {
 public:
  static constexpr std::size_t kMaxBytes = 64 << 10;
  static constexpr std::size_t kMaxHeaders = 200;

  Result<bool> line(std::string_view text);  // true: that was the last line of the answer's head
  const HttpHead& head() const { return head_; }
  bool complete() const { return complete_; }

 private:
  HttpHead head_;
  std::size_t bytes_ = 0;
  bool started_ = false;
  bool complete_ = false;
};

}  // namespace nc::tier
