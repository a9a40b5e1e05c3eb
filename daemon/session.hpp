// One client connection. Requests are read and answered one after the other (what a client sends
// ahead waits in the socket); handlers and everything that may touch the disk run on the thread
// pool, and an answer is sent by the thread that made it.
//
// All members are touched by the connection's I/O thread only, except while `state_` is kBusy: then
// what the running request needs belongs to the pool. Includes Asio: for session.cpp and server.cpp
// only.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <unordered_map>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>

#include "daemon/head_parser.hpp"
#include "daemon/router.hpp"

namespace nc::daemon {

class Session;

// What the sessions of one I/O thread share.
struct SessionHost {
  boost::asio::io_context& io;
  Service& service;
  const std::atomic<Millis>& request_timeout_ms;
  std::unordered_map<std::uint64_t, std::shared_ptr<Session>> sessions;
  std::function<void()> session_ended;
};

enum class Admission { kServed, kDenied, kTooMany };

class Session final : public Connection, public std::enable_shared_from_this<Session> {
 public:
  using Socket = boost::asio::local::stream_protocol::socket;

  Session(SessionHost& host, Socket socket, Peer peer, Admission admission);
  ~Session() override;

  // On the I/O thread.
  void start();
  void check_deadline(Millis now);
  void drain();  // ends after the request that is running, at once when there is none
  void abort();  // ends now

  // From any thread.
  void watch_hangup() override;
  void keep(const ActionKey& key, std::shared_ptr<void> hold) override;

 private:
  enum class State {
    kHead,     // waiting for a request, or in the middle of its head
    kBody,     // reading the body of a control request
    kUpload,   // reading a chunk of a blob
    kBusy,     // a handler is at work, or an answer is being sent
    kDiscard,  // reading what is left of a body that nobody wants
    kLinger,   // the last answer is sent; reading until the client closes
    kClosed,
  };
  class PendingReply;
  struct Outgoing {
    std::string header;
    HttpResponse response;
    std::size_t sent = 0;
  };

  Millis now() const;
  void arm();  // the deadline begins anew
  void read_more();
  void read_into(char* data, std::size_t size);
  void on_read(std::size_t size);
  void on_bytes();
  std::string_view buffered() const;
  void consume(std::size_t size);

  void begin(RequestHead head);
  void refuse(const Error& error, int status, bool close);
  void read_body();
  void dispatch();
  void open_upload();
  void read_chunk();
  void write_chunk();
  void upload_failed(HttpResponse response);
  void send_continue();
  bool must_close_after_refusal() const;

  void deliver(HttpResponse response);  // any thread; the state is kBusy
  void send_on();                       // any thread; the state is kBusy
  void wait_writable();
  void sent_all();  // any thread
  void on_sent();
  void on_lost();
  void next();
  void discard();
  void linger();
  void close();

  SessionHost& host_;
  Service& service_;
  Socket socket_;
  const Admission admission_;
  State state_ = State::kHead;
  bool ending_ = false;    // close after this answer
  bool watching_ = false;  // for a hang-up
  Millis deadline_ = 0;    // monotonic; 0: none

  HeadParser parser_;
  std::string in_;  // in_[begin_, end_) is read and not used yet
  std::size_t begin_ = 0;
  std::size_t end_ = 0;

  const Route* route_ = nullptr;
  HttpRequest request_;
  std::uint64_t body_left_ = 0;  // bytes of the body that are not read yet
  std::unique_ptr<BodySink> sink_;
  std::string chunk_;
  std::size_t chunk_size_ = 0;
  Outgoing out_;
  bool keep_alive_ = true;
  bool expects_continue_ = false;
  bool head_only_ = false;
  int nested_ = 0;  // answers that are being finished within one another

  Mutex holds_mutex_;
  std::unordered_map<ActionKey, std::shared_ptr<void>, Sha256Hash> holds_
      NC_GUARDED_BY(holds_mutex_);
  std::deque<ActionKey> hold_order_ NC_GUARDED_BY(holds_mutex_);
};

}  // namespace nc::daemon
