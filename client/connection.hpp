// One HTTP/1.1 keep-alive connection over a Unix socket, with a time limit on every wait. Internal
// to client/.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/result.hpp"

namespace nc::client {

// Connects a Unix stream socket. kUnavailable: no such socket or nobody listens; kDenied, also when
// another user serves the default socket; kTimeout.
// The caller closes it.
Result<int> connect_unix(const std::string& path, Millis timeout_ms);

// Where a request's body comes from. Read by offset, so that a second try can start over.
class BodySource {
 public:
  virtual ~BodySource() = default;
  virtual std::uint64_t size() const = 0;
  virtual Result<std::size_t> read(std::uint64_t offset, std::span<std::byte> out) = 0;
};

class MemoryBody final : public BodySource {
 public:
  explicit MemoryBody(Bytes bytes) : bytes_(bytes) {}
  std::uint64_t size() const override { return bytes_.size(); }
  Result<std::size_t> read(std::uint64_t offset, std::span<std::byte> out) override;

 private:
  Bytes bytes_;
};

struct HttpRequest {
  std::string_view method;
  std::string target;
  std::string_view content_type;
  BodySource* body = nullptr;
  bool idempotent = true;      // may be sent again when the connection drops before any answer
  Millis timeout_ms = 30'000;  // of the whole call, or (streaming) of each step that moves no byte
  bool streaming = false;
  std::uint64_t body_limit = 64ULL << 20;  // of the answer
  std::function<Status(Bytes)>
      sink;  // takes the body of a 2xx answer instead of HttpResponse::body
};

struct HttpResponse {
  int status = 0;
  std::string body;
  std::uint64_t body_bytes = 0;
};

class Connection {
 public:
  Connection(std::string socket_path, Millis connect_timeout_ms);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  Result<HttpResponse> perform(const HttpRequest& request);
  void close();

 private:
  struct Exchange;  // one request and its answer
  Status ensure_open();
  bool dropped_while_idle() const;

  std::string socket_path_;
  Millis connect_timeout_ms_;
  int fd_ = -1;
  int owner_pid_ = 0;
};

}  // namespace nc::client
