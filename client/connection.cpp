#include "client/connection.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include <boost/beast/http/basic_parser.hpp>
#include <fmt/format.h>

#include "base/settings.hpp"
#include "client/protocol.hpp"

namespace nc::client {
namespace {

namespace http = boost::beast::http;
constexpr std::size_t kChunk = 256 << 10;
constexpr std::size_t kReceive = 64 << 10;
constexpr std::uint32_t kHeaderLimit = 64 << 10;

// Poll until `events` or the deadline. kTimeout.
Status wait_for(int fd, short events, Millis deadline_ms, std::string_view what) {
  for (;;) {
    const Millis left = deadline_ms - system_clock().monotonic_ms();
    if (left <= 0) {
      return Error{Code::kTimeout, fmt::format("the daemon did not answer in time ({})", what),
                   "see `neuroncache daemon status` and the daemon's log"};
    }
    pollfd p{fd, events, 0};
    const int n = ::poll(&p, 1, static_cast<int>(std::min<Millis>(left, 60'000)));
    if (n > 0) return {};
    if (n < 0 && errno != EINTR)
      return errno_error(errno, "cannot wait for", "the daemon's socket");
  }
}

Error dropped(std::string_view when) {
  return Error{Code::kUnavailable, fmt::format("the daemon closed the connection {}", when),
               "was it stopped? see `neuroncache daemon status` and the daemon's log"};
}

// Collects one response; the body goes into the response or, for a 2xx answer, to the sink.
class ResponseParser final : public http::basic_parser<false> {
 public:
  ResponseParser(HttpResponse& response, const std::function<Status(Bytes)>& sink)
      : response_(response), sink_(sink) {}

  const Status& sink_status() const { return sink_status_; }

 private:
  using error_code = boost::beast::error_code;
  using string_view = boost::beast::string_view;

  void on_request_impl(http::verb, string_view, string_view, int, error_code&) override {}
  void on_response_impl(int code, string_view, int, error_code& ec) override {
    response_.status = code;
    ec = {};
  }
  void on_field_impl(http::field, string_view, string_view, error_code& ec) override { ec = {}; }
  void on_header_impl(error_code& ec) override { ec = {}; }
  void on_body_init_impl(const boost::optional<std::uint64_t>& length, error_code& ec) override {
    if (length && !to_sink()) response_.body.reserve(std::min<std::uint64_t>(*length, 1 << 20));
    ec = {};
  }
  std::size_t on_body_impl(string_view body, error_code& ec) override {
    ec = {};
    response_.body_bytes += body.size();
    if (!to_sink()) {
      response_.body.append(body.data(), body.size());
    } else if (sink_status_.ok()) {
      sink_status_ = sink_(nc::as_bytes({body.data(), body.size()}));
      if (!sink_status_.ok())
        ec = boost::system::errc::make_error_code(boost::system::errc::operation_canceled);
    }
    return body.size();
  }
  void on_chunk_header_impl(std::uint64_t, string_view, error_code& ec) override { ec = {}; }
  std::size_t on_chunk_body_impl(std::uint64_t, string_view body, error_code& ec) override {
    return on_body_impl(body, ec);
  }
  void on_finish_impl(error_code& ec) override { ec = {}; }

  bool to_sink() const { return sink_ && response_.status >= 200 && response_.status < 300; }

  HttpResponse& response_;
  const std::function<Status(Bytes)>& sink_;
  Status sink_status_;
};

Error connect_error(int err, const std::string& path) {
  if (err == ENOENT || err == ECONNREFUSED || err == ENOTDIR) {
    return Error{Code::kUnavailable, fmt::format("no daemon is running at {}", path),
                 "start it with `neuroncache daemon start`"};
  }
  if (err == EACCES || err == EPERM) {
    return Error{Code::kDenied, fmt::format("not allowed to use the daemon's socket {}", path),
                 "a daemon serves its own user only: set NEURONCACHE_SOCKET and NEURONCACHE_DIR to "
                 "your own"};
  }
  if (err == EAGAIN) {
    return Error{Code::kBusy, fmt::format("the daemon at {} has too many callers waiting", path),
                 "try again"};
  }
  return errno_error(err, "cannot connect to", path);
}

// At the place that nobody named somebody else may have put a daemon, whose answers would be code
// of theirs. A place that was named is trusted.
Status check_server(int fd, const std::string& path) {
  ucred server{};
  socklen_t size = sizeof server;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &server, &size) != 0) {
    return errno_error(errno, "cannot tell who serves", path);
  }
  if (server.uid == ::geteuid() || server.uid == 0) return {};
  if (path != default_socket_path(process_environment())) return {};
  return Error{Code::kDenied,
               fmt::format("user {} serves {}, which is your own place", server.uid, path),
               "find out why; name another place in NEURONCACHE_SOCKET"};
}

}  // namespace

Result<int> connect_unix(const std::string& path, Millis timeout_ms) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return Error{Code::kInvalid,
                 fmt::format("the socket path is too long ({} bytes, at most {}): {}", path.size(),
                             sizeof(address.sun_path) - 1, path),
                 "set NEURONCACHE_SOCKET to a shorter path"};
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  const Millis deadline = system_clock().monotonic_ms() + timeout_ms;
  for (;;) {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return errno_error(errno, "cannot open", "a socket");
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
      Status ours = check_server(fd, path);
      if (ours.ok()) return fd;
      ::close(fd);
      return std::move(ours).error();
    }
    const int err = errno;
    ::close(fd);
    // A full backlog gives EAGAIN at once on Unix sockets; there is nothing to poll for.
    if (err != EAGAIN && err != EINTR) return connect_error(err, path);
    if (system_clock().monotonic_ms() >= deadline) return connect_error(err, path);
    ::poll(nullptr, 0, 5);
  }
}

Result<std::size_t> MemoryBody::read(std::uint64_t offset, std::span<std::byte> out) {
  if (offset >= bytes_.size()) return std::size_t{0};
  const std::size_t n = std::min<std::uint64_t>(out.size(), bytes_.size() - offset);
  std::memcpy(out.data(), bytes_.data() + offset, n);
  return n;
}

Connection::Connection(std::string socket_path, Millis connect_timeout_ms)
    : socket_path_(std::move(socket_path)), connect_timeout_ms_(connect_timeout_ms) {}

Connection::~Connection() {
  close();
}

void Connection::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

// An idle connection has nothing to read: readable means that the other end hung up (or talks out
// of turn).
bool Connection::dropped_while_idle() const {
  pollfd p{fd_, POLLIN | POLLRDHUP, 0};
  return ::poll(&p, 1, 0) != 0;
}

Status Connection::ensure_open() {
  // A child of fork() shares the parent's socket; two speakers on one connection would garble it.
  if (fd_ >= 0 && owner_pid_ != ::getpid()) close();
  if (fd_ >= 0 && dropped_while_idle()) close();
  if (fd_ >= 0) return {};
  NC_ASSIGN(fd_, connect_unix(socket_path_, connect_timeout_ms_));
  owner_pid_ = ::getpid();
  return {};
}

struct Connection::Exchange {
  int fd;
  const HttpRequest& request;
  HttpResponse response;
  ResponseParser parser{response, request.sink};
  std::string input;
  Millis deadline = 0;
  bool answered = false;  // at least one byte of the answer came
  bool reusable = true;

  Exchange(int socket, const HttpRequest& r) : fd(socket), request(r) {
    parser.header_limit(kHeaderLimit);
    parser.body_limit(request.sink ? boost::optional<std::uint64_t>()
                                   : boost::optional<std::uint64_t>(request.body_limit));
    parser.eager(true);
    if (request.method == "HEAD") parser.skip(true);
    touch();
  }

  void touch() { deadline = system_clock().monotonic_ms() + request.timeout_ms; }

  Status run() {
    NC_TRY(send_all());
    while (!parser.is_done()) {
      NC_TRY(wait_for(fd, POLLIN, deadline, request.target));
      NC_TRY(receive());
    }
    if (!parser.keep_alive() || !input.empty()) reusable = false;
    return {};
  }

  Status send_all() {
    const std::uint64_t size = request.body != nullptr ? request.body->size() : 0;
    std::string buffer =
        fmt::format("{} {} HTTP/1.1\r\nHost: neuroncache\r\n{}: {}\r\n", request.method,
                    request.target, protocol::kVersionHeader, protocol::kVersion);
    if (request.body != nullptr) {
      buffer +=
          fmt::format("Content-Type: {}\r\nContent-Length: {}\r\n", request.content_type, size);
    }
    buffer += "\r\n";
    std::uint64_t offset = 0;
    for (;;) {
      if (offset < size) {
        const std::size_t head = buffer.size();
        buffer.resize(head + std::min<std::uint64_t>(kChunk, size - offset));
        NC_ASSIGN(
            const std::size_t n,
            request.body->read(offset, std::as_writable_bytes(std::span(buffer).subspan(head))));
        if (n == 0) {
          reusable = false;
          return Error{Code::kIo, "the data got shorter while it was sent",
                       "do not change a file while it is stored"};
        }
        buffer.resize(head + n);
        offset += n;
      }
      NC_TRY(send(buffer));
      if (parser.is_done()) {  // refused early, e.g. no space: the rest of the body is not sent
        if (offset < size) reusable = false;
        return {};
      }
      buffer.clear();
      if (offset >= size) return {};
    }
  }

  // Sends the buffer, and takes what the daemon says meanwhile.
  Status send(std::string_view data) {
    while (!data.empty() && !parser.is_done()) {
      const ssize_t n = ::send(fd, data.data(), data.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n > 0) {
        data.remove_prefix(static_cast<std::size_t>(n));
        if (request.streaming) touch();
        continue;
      }
      if (errno == EINTR) continue;
      if (errno == EPIPE || errno == ECONNRESET) {
        // It may have said why before it hung up.
        reusable = false;
        while (!parser.is_done()) NC_TRY(receive());
        return {};
      }
      if (errno != EAGAIN) return errno_error(errno, "cannot send to", "the daemon");
      NC_TRY(wait_for(fd, POLLOUT | POLLIN, deadline, request.target));
      pollfd p{fd, POLLIN, 0};
      if (::poll(&p, 1, 0) > 0) {
        NC_TRY(receive());
        reusable = false;  // an answer before the end of the question
      }
    }
    return {};
  }

  Status receive() {
    char piece[kReceive];  // not cleared: this is on the path of every hit
    ssize_t n;
    do {
      n = ::recv(fd, piece, sizeof(piece), MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    const int err = n < 0 ? errno : 0;
    if (n < 0 && err == EAGAIN) return {};
    if (n < 0 && err != ECONNRESET) return errno_error(err, "cannot read from", "the daemon");
    if (n <= 0) {
      boost::beast::error_code ec;
      if (answered) parser.put_eof(ec);
      if (answered && !ec && parser.is_done()) return {};
      return dropped(answered ? "in the middle of an answer" : "before it answered");
    }
    input.append(piece, static_cast<std::size_t>(n));
    answered = true;
    if (request.streaming) touch();
    return parse();
  }

  Status parse() {
    while (!input.empty() && !parser.is_done()) {
      boost::beast::error_code ec;
      const std::size_t used = parser.put(boost::asio::buffer(input), ec);
      if (!parser.sink_status().ok()) return parser.sink_status();
      input.erase(0, used);
      if (ec == http::error::need_more) return {};
      if (ec == http::error::body_limit) {
        return Error{Code::kTooLarge,
                     fmt::format("the daemon's answer to {} is too large", request.target),
                     "narrow the question, or fetch it in pieces"};
      }
      if (ec) {
        return Error{Code::kIo,
                     fmt::format("the answer to {} is not HTTP: {}", request.target, ec.message()),
                     "is another program listening there? check the socket setting"};
      }
      if (parser.is_header_done() && response.status >= 100 && response.status < 200) {
        return Error{Code::kUnsupported, fmt::format("unexpected HTTP status {}", response.status),
                     "update the older end"};
      }
    }
    return {};
  }
};

Result<HttpResponse> Connection::perform(const HttpRequest& request) {
  for (int attempt = 0;; ++attempt) {
    const bool was_open = fd_ >= 0 && owner_pid_ == ::getpid();
    NC_TRY(ensure_open());
    Exchange exchange(fd_, request);
    Status status = exchange.run();
    if (status.ok()) {
      if (!exchange.reusable) close();
      return std::move(exchange.response);
    }
    close();
    // A connection that had served before and died without a word was dropped, not refused: once
    // more on a new one.
    const bool again = attempt == 0 && was_open && request.idempotent && !exchange.answered &&
                       status.is(Code::kUnavailable);
    if (!again) return std::move(status).error();
  }
}

}  // namespace nc::client
