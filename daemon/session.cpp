#include "daemon/session.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>

#include "base/log.hpp"
#include "daemon/access.hpp"

namespace nc::daemon {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

constexpr std::size_t kFirstBuffer = 4 << 10;
constexpr std::size_t kMaxBuffer = HeadParser::kMaxHead + (4 << 10);
constexpr std::size_t kChunk = 1 << 20;
constexpr std::uint64_t kMaxDiscard = 64 << 20;  // more is not read only to be polite
constexpr Millis kLingerMs = 5'000;
constexpr std::size_t kMaxHolds = 4096;

}  // namespace

// Sees to it that every request is answered once: a second answer is dropped, a forgotten one
// becomes a 500.
class Session::PendingReply {
 public:
  explicit PendingReply(std::shared_ptr<Session> session) : session_(std::move(session)) {}
  PendingReply(const PendingReply&) = delete;
  PendingReply& operator=(const PendingReply&) = delete;
  ~PendingReply() {
    if (used_) return;
    guarded("answering", [this] {
      answer(HttpResponse::error({Code::kInternal, "the daemon gave no answer",
                                  "please report it with the daemon's log"}));
    });
  }
  void answer(HttpResponse response) {
    if (!used_.exchange(true)) session_->deliver(std::move(response));
  }

 private:
  std::shared_ptr<Session> session_;
  std::atomic<bool> used_{false};
};

Session::Session(SessionHost& host, Socket socket, Peer peer, Admission admission)
    : Connection(std::move(peer)),
      host_(host),
      service_(host.service),
      socket_(std::move(socket)),
      admission_(admission) {}

Session::~Session() = default;

Millis Session::now() const {
  return service_.clock.monotonic_ms();
}

void Session::arm() {
  deadline_ = now() + host_.request_timeout_ms;
}

void Session::start() {
  host_.sessions[id()] = shared_from_this();
  next();
}

// ---- Reading ----

std::string_view Session::buffered() const {
  return {in_.data() + begin_, end_ - begin_};
}

void Session::consume(std::size_t size) {
  begin_ += size;
  if (begin_ == end_) begin_ = end_ = 0;
}

void Session::read_more() {
  if (begin_ > 0 && end_ == in_.size()) {
    std::memmove(in_.data(), in_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ == in_.size()) in_.resize(std::min(kMaxBuffer, std::max(kFirstBuffer, in_.size() * 2)));
  read_into(in_.data() + end_, in_.size() - end_);
}

void Session::read_into(char* data, std::size_t size) {
  socket_.async_read_some(asio::buffer(data, size),
                          [self = shared_from_this()](error_code ec, std::size_t got) {
                            if (self->state_ == State::kClosed) return;
                            if (ec) return self->close();
                            self->on_read(got);
                          });
}

void Session::on_read(std::size_t size) {
  switch (state_) {
    case State::kHead:
      end_ += size;
      return on_bytes();
    case State::kBody:
      chunk_size_ += size;
      body_left_ -= size;
      return read_body();
    case State::kUpload:
      chunk_size_ += size;
      body_left_ -= size;
      arm();
      return read_chunk();
    case State::kDiscard:
      body_left_ -= size;
      arm();
      return discard();
    case State::kLinger:
      return linger();
    case State::kBusy:
    case State::kClosed:
      return;
  }
}

void Session::next() {
  state_ = State::kHead;
  deadline_ = 0;
  route_ = nullptr;
  request_ = {};
  if (end_ > begin_) return on_bytes();
  if (in_.size() > kFirstBuffer) {  // an idle connection keeps little
    in_.resize(kFirstBuffer);
    in_.shrink_to_fit();
  }
  read_more();
}

void Session::on_bytes() {
  const auto step = parser_.feed(buffered());
  consume(step.used);
  switch (step.kind) {
    case HeadParser::Step::Kind::kMore:
      if (deadline_ == 0) arm();  // the whole head has to be here by then
      return read_more();
    case HeadParser::Step::Kind::kBad:
      body_left_ = kMaxDiscard;
      return refuse(step.error, step.status, true);
    case HeadParser::Step::Kind::kDone: {
      RequestHead head = parser_.take();
      parser_.reset();
      return begin(std::move(head));
    }
  }
}

void Session::begin(RequestHead head) {
  keep_alive_ = head.keep_alive;
  expects_continue_ = head.expect_continue;
  head_only_ = head.method == Method::kHead;
  body_left_ = head.content_length.value_or(0);
  if (admission_ == Admission::kDenied) {
    return refuse(
        {Code::kDenied,
         fmt::format("this daemon serves uid {} only, you are uid {}", ::geteuid(), peer().uid),
         "start a daemon of your own (unset NEURONCACHE_SOCKET)"},
        403, true);
  }
  if (admission_ == Admission::kTooMany) {
    return refuse({Code::kBusy, "too many connections", "close some, or raise max_connections"},
                  503, true);
  }
  request_.rights = peer().rights;
  if (peer().remote) {
    auto rights = service_.gate->admit(*peer().remote, head.authorization);
    trust::wipe(head.authorization);
    if (!rights.ok()) return refuse(rights.error(), 401, true);
    request_.rights = std::move(*rights);
  }
  Match match = route(head);
  if (head.chunked) {
    body_left_ = kMaxDiscard;
    return refuse(
        {Code::kLengthRequired, "a body in chunks is not accepted", "send Content-Length"}, 411,
        true);
  }
  if (match.route == nullptr) return refuse(match.error, match.status, false);
  route_ = match.route;
  if (request_.rights) {
    if (Status may = check_rights(*route_, *request_.rights); !may.ok()) {
      return refuse(may.error(), 403, false);
    }
  }
  if (route_->body != BodyKind::kNone && !head.content_length) {
    return refuse(
        {Code::kLengthRequired, "this request needs a body of known length", "send Content-Length"},
        411, false);
  }
  request_.arg = std::move(match.arg);
  request_.outer = std::move(match.outer);
  request_.head = std::move(head);
  request_.connection = shared_from_this();
  if (route_->body == BodyKind::kBlob) return open_upload();
  const std::uint64_t limit = route_->body == BodyKind::kJson ? route_->max_body : 0;
  if (body_left_ > limit) {
    return refuse(
        {Code::kTooLarge,
         fmt::format("a body of {} bytes; this request takes {}", body_left_, limit), "send less"},
        413, false);
  }
  if (expects_continue_) send_continue();
  state_ = State::kBody;
  if (deadline_ == 0 && body_left_ > buffered().size()) arm();
  chunk_size_ = 0;
  request_.body.resize(body_left_);
  read_body();
}

void Session::send_continue() {
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  // So few bytes fit, or the client has stopped reading and is dropped later.
  ::send(socket_.native_handle(), kContinue.data(), kContinue.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

// Fills request_.body; chunk_size_ of it is there.
void Session::read_body() {
  const std::size_t ready = std::min<std::uint64_t>(buffered().size(), body_left_);
  if (ready > 0) {
    std::memcpy(request_.body.data() + chunk_size_, buffered().data(), ready);
    consume(ready);
    chunk_size_ += ready;
    body_left_ -= ready;
  }
  if (body_left_ == 0) return dispatch();
  read_into(request_.body.data() + chunk_size_, body_left_);
}

void Session::dispatch() {
  state_ = State::kBusy;
  deadline_ = 0;
  if (route_->now != nullptr) {
    std::optional<HttpResponse> known;
    guarded("answering from memory", [&] { known = route_->now(service_, request_); });
    if (known) return deliver(std::move(*known));
  }
  auto pending = std::make_shared<PendingReply>(shared_from_this());
  const bool hide = request_.rights != nullptr;
  Call call{std::move(request_), [pending, hide](HttpResponse response) {
              if (hide) response.hide_paths();
              pending->answer(std::move(response));
            }};
  request_ = {};
  service_.pool.post(route_->lane,
                     [this, self = shared_from_this(), call = std::move(call)]() mutable {
                       run_handler(*route_, service_, std::move(call));
                     });
}

// ---- Uploads: open, then chunk by chunk; the next is read when the last is written ----

void Session::open_upload() {
  state_ = State::kBusy;
  deadline_ = 0;
  service_.pool.post(Lane::kSlow, [this, self = shared_from_this()] {
    HttpResponse failed;
    bool opened = false;
    guarded("opening an upload", [&] {
      auto sink = route_->open(service_, request_);
      opened = sink.ok();
      if (opened)
        sink_ = std::move(*sink);
      else
        failed = HttpResponse::error(sink.error());
    });
    if (!opened && failed.status == 200) {
      failed = HttpResponse::error(
          {Code::kInternal, "the upload could not begin", "see the daemon's log"});
    }
    if (!opened) return upload_failed(std::move(failed));
    asio::post(host_.io, [this, self] {
      if (state_ == State::kClosed) return;
      if (expects_continue_) send_continue();
      state_ = State::kUpload;
      chunk_size_ = 0;
      chunk_.resize(std::min<std::uint64_t>(kChunk, body_left_));
      arm();
      read_chunk();
    });
  });
}

void Session::read_chunk() {
  const std::size_t ready =
      std::min<std::uint64_t>({buffered().size(), body_left_, chunk_.size() - chunk_size_});
  if (ready > 0) {
    std::memcpy(chunk_.data() + chunk_size_, buffered().data(), ready);
    consume(ready);
    chunk_size_ += ready;
    body_left_ -= ready;
  }
  if (body_left_ == 0 || chunk_size_ == chunk_.size()) return write_chunk();
  read_into(chunk_.data() + chunk_size_,
            std::min<std::uint64_t>(body_left_, chunk_.size() - chunk_size_));
}

void Session::write_chunk() {
  state_ = State::kBusy;
  deadline_ = 0;
  service_.pool.post(Lane::kSlow, [this, self = shared_from_this()] {
    HttpResponse response = HttpResponse::error(
        {Code::kInternal, "the upload could not be written", "see the daemon's log"});
    bool failed = true;
    guarded("writing an upload", [&] {
      Status written = sink_->write(as_bytes(std::string_view(chunk_).substr(0, chunk_size_)));
      if (!written.ok()) {
        response = HttpResponse::error(written.error());
        return;
      }
      if (body_left_ == 0) response = sink_->finish();
      failed = false;
    });
    if (failed) return upload_failed(std::move(response));
    if (body_left_ == 0) {
      sink_.reset();
      return deliver(std::move(response));
    }
    asio::post(host_.io, [this, self] {
      if (state_ == State::kClosed) return;
      state_ = State::kUpload;
      chunk_size_ = 0;
      arm();
      read_chunk();
    });
  });
}

// On a disk thread. The rest of the body is still to come.
void Session::upload_failed(HttpResponse response) {
  if (request_.rights) response.hide_paths();
  guarded("ending an upload", [this] { sink_.reset(); });
  if (must_close_after_refusal()) response.close = true;
  deliver(std::move(response));
}

// ---- Answering ----

void Session::refuse(const Error& error, int status, bool close) {
  state_ = State::kBusy;
  deadline_ = 0;
  HttpResponse response = HttpResponse::error(error, status);
  response.close = close || must_close_after_refusal();
  deliver(std::move(response));
}

// Whoever asked before sending may or may not send after a refusal: only a new connection makes it
// certain.
bool Session::must_close_after_refusal() const {
  return body_left_ > kMaxDiscard || (expects_continue_ && body_left_ > 0);
}

void Session::deliver(HttpResponse response) {
  const bool keep = keep_alive_ && !response.close && !service_.draining;
  keep_alive_ = keep;
  if (head_only_ && !response.head_length) response.head_length = response.body.size();
  out_.header = response.header(keep);
  out_.response = std::move(response);
  out_.sent = 0;
  send_on();
}

void Session::send_on() {
  const HttpResponse& response = out_.response;
  const std::string_view head = out_.header;
  std::string_view body = response.owner ? as_text(response.view) : std::string_view(response.body);
  if (response.head_length) body = {};
  for (;;) {
    const std::size_t head_sent = std::min(out_.sent, head.size());
    const std::string_view rest_head = head.substr(head_sent);
    const std::string_view rest_body = body.substr(out_.sent - head_sent);
    iovec parts[2] = {{const_cast<char*>(rest_head.data()), rest_head.size()},
                      {const_cast<char*>(rest_body.data()), std::min(rest_body.size(), kChunk)}};
    if (rest_head.empty() && rest_body.empty()) return sent_all();
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const ssize_t sent = ::sendmsg(socket_.native_handle(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      out_.sent += static_cast<std::size_t>(sent);
    } else if (errno == EAGAIN) {
      return asio::post(host_.io, [self = shared_from_this()] { self->wait_writable(); });
    } else if (errno != EINTR) {
      return asio::post(host_.io, [self = shared_from_this()] { self->on_lost(); });
    }
  }
}

// Goes on with the next request: at once on the I/O thread, but without piling up calls for a
// client that sends many ahead.
void Session::sent_all() {
  constexpr int kMaxNested = 8;
  if (!host_.io.get_executor().running_in_this_thread() || nested_ >= kMaxNested) {
    return asio::post(host_.io, [self = shared_from_this()] { self->on_sent(); });
  }
  ++nested_;
  on_sent();
  --nested_;
}

void Session::wait_writable() {
  if (state_ == State::kClosed) return;
  arm();
  socket_.async_wait(Socket::wait_write, [self = shared_from_this()](error_code ec) {
    if (self->state_ == State::kClosed) return;
    if (ec) return self->on_lost();
    // A mapping may have to come from the disk: not on this thread.
    if (self->out_.response.owner) {
      self->deadline_ = 0;
      self->service_.pool.post(Lane::kSlow, [self] { self->send_on(); });
    } else {
      self->send_on();
    }
  });
}

void Session::on_sent() {
  if (state_ == State::kClosed) return;
  out_ = {};
  deadline_ = 0;
  if (watching_) {
    error_code ignored;
    socket_.cancel(ignored);
  }
  if (!keep_alive_ && body_left_ == 0) return close();
  if (!keep_alive_) {
    ::shutdown(socket_.native_handle(), SHUT_WR);
    state_ = State::kLinger;
    deadline_ = now() + std::min<Millis>(kLingerMs, host_.request_timeout_ms);
    return linger();
  }
  if (body_left_ > 0) {
    state_ = State::kDiscard;
    arm();
    return discard();
  }
  if (ending_) return close();
  next();
}

void Session::on_lost() {
  if (state_ == State::kClosed) return;
  const auto undelivered = std::move(out_.response.undelivered);
  if (undelivered) guarded("an answer that nobody took", undelivered);
  close();
}

// ---- Ending ----

void Session::discard() {
  const std::size_t ready = std::min<std::uint64_t>(buffered().size(), body_left_);
  consume(ready);
  body_left_ -= ready;
  if (body_left_ == 0) return ending_ ? close() : next();
  chunk_.resize(
      std::max<std::size_t>(chunk_.size(), std::min<std::uint64_t>(64 << 10, body_left_)));
  read_into(chunk_.data(), std::min<std::uint64_t>(chunk_.size(), body_left_));
}

// A socket that is closed with bytes unread fails the client's own sending before it has read the
// answer: read until the client closes, or the deadline.
void Session::linger() {
  begin_ = end_ = 0;
  chunk_.resize(std::max<std::size_t>(chunk_.size(), 64 << 10));
  read_into(chunk_.data(), chunk_.size());
}

void Session::check_deadline(Millis now) {
  if (deadline_ == 0 || now < deadline_) return;
  if (state_ == State::kHead || state_ == State::kBody || state_ == State::kUpload) {
    const HttpResponse late = HttpResponse::error(
        {Code::kTimeout, "the request did not arrive in time", "send it at once"});
    const std::string text = late.header(false) + late.body;
    ::send(socket_.native_handle(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  if (state_ == State::kBusy) return on_lost();
  close();
}

void Session::drain() {
  ending_ = true;
  if (state_ == State::kHead && end_ == begin_ && deadline_ == 0) close();
}

void Session::abort() {
  ending_ = true;
  if (state_ == State::kBusy) {
    // The pool may be sending: the descriptor has to stay.
    ::shutdown(socket_.native_handle(), SHUT_RDWR);
  } else {
    close();
  }
}

void Session::close() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  deadline_ = 0;
  error_code ignored;
  socket_.close(ignored);
  std::unordered_map<ActionKey, std::shared_ptr<void>, Sha256Hash> holds;
  {
    MutexLock lock(holds_mutex_);
    holds.swap(holds_);
  }
  // An upload that is given up, holds and tickets: all may touch the disk.
  if (sink_ || !holds.empty() || service_.leases.tickets() > 0) {
    service_.pool.post(Lane::kQuick, [&service = service_, id = id(), holds = std::move(holds),
                                      sink = std::shared_ptr<BodySink>(std::move(sink_))] {
      service.keeper.apply(service.leases.connection_closed(id));
    });
  }
  auto self = shared_from_this();  // the registry may hold the last reference
  host_.sessions.erase(id());
  host_.session_ended();
}

void Session::watch_hangup() {
  asio::post(host_.io, [this, self = shared_from_this()] {
    if (state_ != State::kBusy || watching_) return;
    watching_ = true;
    socket_.async_wait(Socket::wait_error, [this, self](error_code ec) {
      watching_ = false;
      if (ec || state_ != State::kBusy) return;
      pollfd hung{socket_.native_handle(), 0, 0};
      if (::poll(&hung, 1, 0) != 1 || (hung.revents & POLLHUP) == 0) return;
      service_.pool.post(Lane::kQuick, [this, self] {
        service_.keeper.apply(service_.leases.connection_closed(id()));
      });
    });
  });
}

void Session::keep(const ActionKey& key, std::shared_ptr<void> hold) {
  std::shared_ptr<void> oldest;  // let go outside of the lock
  MutexLock lock(holds_mutex_);
  if (!holds_.try_emplace(key, hold).second) return;
  hold_order_.push_back(key);
  if (hold_order_.size() > kMaxHolds) {
    auto it = holds_.find(hold_order_.front());
    oldest = std::move(it->second);
    holds_.erase(it);
    hold_order_.pop_front();
  }
}

}  // namespace nc::daemon
