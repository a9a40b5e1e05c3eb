// HTTP messages as the handlers see them: no socket, no parser, no thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.hpp"
#include "base/hash.hpp"
#include "base/result.hpp"

namespace nc::daemon {

enum class Method { kGet, kHead, kPut, kPost, kDelete, kOther };
std::string_view method_name(Method method);

struct Rights;
struct Remote;

// Who is at the other end of the socket, told by the kernel. pid 0: in a namespace we cannot see.
struct Peer {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  std::shared_ptr<const Rights> rights = nullptr;  // null: everything
  std::shared_ptr<const Remote> remote = nullptr;  // over TCP: each request shows its rights
};

// One client connection, as far as handlers care. Thread-safe.
class Connection {
 public:
  explicit Connection(Peer peer);
  virtual ~Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  std::uint64_t id() const { return id_; }  // unique in this process
  const Peer& peer() const { return peer_; }

  // Called when an answer is going to take long: from now on a client that hangs up is noticed.
  virtual void watch_hangup() = 0;
  // Keeps `hold` until the connection ends (the newest 4096 keys of it).
  virtual void keep(const ActionKey& key, std::shared_ptr<void> hold) = 0;

 private:
  const std::uint64_t id_;
  const Peer peer_;
};

struct RequestHead {
  Method method = Method::kOther;
  std::string path;                          // percent-decoded
  std::map<std::string, std::string> query;  // decoded; the last of two equal names
  std::optional<std::uint64_t> content_length;
  bool chunked = false;
  bool keep_alive = true;
  bool expect_continue = false;
  std::string protocol;       // X-Neuroncache-Protocol, or empty
  std::string authorization;  // or empty; a secret
};

struct HttpRequest {
  RequestHead head;
  std::string arg;    // what stood for {key}, {digest} or {id} in the route
  std::string outer;  // and for {name} before it
  std::string body;   // of a control request
  std::shared_ptr<Connection> connection;
  std::shared_ptr<const Rights> rights;  // null: the daemon's own user, who may do everything

  // A query parameter, or "".
  std::string_view query(const std::string& name) const;
};

struct HttpResponse {
  int status = 200;
  std::string body;
  std::string_view content_type = "application/json";  // static text
  Bytes view;                                          // sent instead of `body` when owner is set
  std::shared_ptr<const void> owner;                   // keeps `view` alive
  std::optional<std::uint64_t> head_length;            // HEAD: the length a GET would have
  bool close = false;
  std::function<void()>
      undelivered;  // called when the client was gone before it had the whole answer

  static HttpResponse json(std::string body, int status = 200);
  static HttpResponse error(const Error& error);
  static HttpResponse error(const Error& error, int status);
  // For callers who are to learn nothing of this host's disk: an error without its paths.
  void hide_paths();
  // The bytes before the body.
  std::string header(bool keep_alive) const;
};

// Called exactly once, from any thread.
using Reply = std::function<void(HttpResponse)>;

// Where a streamed body goes. Calls come one at a time, on disk threads. Destroyed without
// finish(): the client broke off.
class BodySink {
 public:
  virtual ~BodySink() = default;
  virtual Status write(Bytes bytes) = 0;
  virtual HttpResponse finish() = 0;
};

int http_status(Code code);

}  // namespace nc::daemon
