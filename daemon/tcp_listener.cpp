#include "daemon/tcp_listener.hpp"

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <charconv>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <fmt/format.h>

#include "base/log.hpp"
#include "base/thread_annotations.hpp"
#include "daemon/disk_pool.hpp"

namespace nc::daemon {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

using asio::ip::tcp;
using std::chrono::milliseconds;

constexpr milliseconds kCheck{500};
constexpr milliseconds kAcceptPause{100};
constexpr int kBacklog = 128;
// TLS 1.2 with forward secrecy and authenticated encryption alone; all of TLS 1.3 is such.
constexpr const char* kCiphers = "ECDHE+AESGCM:ECDHE+CHACHA20";

Result<tcp::endpoint> parse_endpoint(const std::string& text) {
  const Error bad{Code::kInvalid, fmt::format("listen: '{}' is no address with a port", text),
                  "write it as 10.0.0.7:8443, 0.0.0.0:8443 or [::1]:8443"};
  const auto colon = text.rfind(':');
  if (colon == std::string::npos) return bad;
  std::string host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string::npos) {
    return bad;
  }
  std::uint16_t port = 0;
  const char* last = text.data() + text.size();
  const auto [end, wrong] = std::from_chars(text.data() + colon + 1, last, port);
  error_code ec;
  const auto address = asio::ip::make_address(host, ec);
  if (ec || wrong != std::errc() || end != last) return bad;
  return tcp::endpoint(address, port);
}

std::string text_of(const tcp::endpoint& endpoint) {
  const std::string host = endpoint.address().to_string();
  return endpoint.address().is_v6() ? fmt::format("[{}]:{}", host, endpoint.port())
                                    : fmt::format("{}:{}", host, endpoint.port());
}

Result<std::shared_ptr<asio::ssl::context>> make_context(FileSystem& fs,
                                                         const TcpListener::Options& options) {
  if (options.plain) return std::shared_ptr<asio::ssl::context>();
  if (options.cert.empty() || options.key.empty()) {
    return Error{Code::kInvalid, "listen needs a certificate",
                 "set listen_cert and listen_key; plain text is for loopback alone (listen_plain)"};
  }
  NC_ASSIGN(const FileInfo info, fs.stat(options.key));
  if ((info.mode & 007) != 0) {
    return Error{Code::kDenied,
                 fmt::format("everybody may read {} (mode {:04o})", options.key, info.mode),
                 fmt::format("chmod o-rwx {}", options.key)};
  }
  auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
  SSL_CTX* native = context->native_handle();
  error_code ec;
  const auto failed = [&ec](const std::string& what) {
    return Error{Code::kInvalid, fmt::format("{}: {}", what, ec.message()),
                 "a PEM file without a passphrase is needed"};
  };
  SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
  SSL_CTX_set_options(native, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET |
                                  SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_session_cache_mode(native, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_cipher_list(native, kCiphers);
  // Nobody is at a terminal to be asked for one.
  context->set_password_callback([](std::size_t, auto) { return std::string(); }, ec);
  context->use_certificate_chain_file(options.cert, ec);
  if (ec) return failed(options.cert);
  context->use_private_key_file(options.key, asio::ssl::context::pem, ec);
  if (ec) return failed(options.key);
  if (!options.client_ca.empty()) {
    context->load_verify_file(options.client_ca, ec);
    if (ec) return failed(options.client_ca);
    context->set_verify_mode(asio::ssl::verify_peer | asio::ssl::verify_fail_if_no_peer_cert, ec);
    if (ec) return failed(options.client_ca);
  }
  return context;
}

// ---- One connection on its way to a socket pair ----

// What the bridges share. All of it belongs to the listener's thread.
struct BridgeHost {
  virtual ~BridgeHost() = default;
  virtual Millis now() const = 0;
  virtual const TcpListener::Options& options() const = 0;
  virtual bool adopt(UniqueFd socket, std::shared_ptr<const Remote> remote) = 0;
  virtual void handshake_failed() = 0;
  virtual void ended(const void* bridge) = 0;
};

struct AnyBridge {
  virtual ~AnyBridge() = default;
  virtual void start() = 0;
  // True when it has taken too long, and was closed for that.
  virtual bool check(Millis now) = 0;
  virtual void close() = 0;
};

using TcpSocket = asio::ip::tcp::socket;
using TlsStream = asio::ssl::stream<TcpSocket>;

template <class Stream>
class Bridge final : public AnyBridge, public std::enable_shared_from_this<Bridge<Stream>> {
 public:
  static constexpr bool kTls = std::is_same_v<Stream, TlsStream>;

  template <class... A>
  Bridge(BridgeHost& host, asio::io_context& io, std::string address,
         std::shared_ptr<asio::ssl::context> context, TcpSocket socket, A&... more)
      : host_(host),
        address_(std::move(address)),
        context_(std::move(context)),
        stream_(std::move(socket), more...),
        local_(io) {}

  void start() override {
    wait_until_ = host_.now() + host_.options().handshake_ms;
    if constexpr (kTls) {
      stream_.async_handshake(asio::ssl::stream_base::server,
                              [self = this->shared_from_this()](error_code ec) {
                                if (ec) self->host_.handshake_failed();
                                ec ? self->close() : self->connect();
                              });
    } else {
      connect();
    }
  }

  bool check(Millis now) override {
    const Millis until = wait_until_ != 0  ? wait_until_
                         : stalls_at_ != 0 ? stalls_at_
                                           : last_byte_ + host_.options().idle_ms;
    if (closed_ || now < until) return false;
    close();
    return true;
  }

  void close() override {
    if (closed_) return;
    closed_ = true;
    error_code ignored;
    stream_.lowest_layer().close(ignored);
    local_.close(ignored);
    host_.ended(this);
  }

 private:
  void connect();
  std::string client_name();

  // Client to daemon.
  void read_up() {
    stream_.async_read_some(asio::buffer(up_),
                            [self = this->shared_from_this()](error_code ec, std::size_t got) {
                              if (self->closed_) return;
                              if (ec) return self->end_up(ec);
                              self->saw_byte();
                              self->wait_until_ = 0;
                              self->write_up(got);
                            });
  }
  void write_up(std::size_t size) {
    if (deaf_) return read_up();
    asio::async_write(local_, asio::buffer(up_.data(), size),
                      [self = this->shared_from_this()](error_code ec, std::size_t) {
                        if (self->closed_) return;
                        // The daemon has ended it; its last answer may be under way, and gets lost
                        // when what the client still sends is not read.
                        if (ec) self->deaf_ = true;
                        self->read_up();
                      });
  }
  // A client that has sent all still gets its answer; one that is gone gets nothing.
  void end_up(error_code ec) {
    if (ending_ || (ec != asio::error::eof && ec != asio::ssl::error::stream_truncated)) {
      return close();
    }
    up_ended_ = true;
    error_code ignored;
    local_.shutdown(asio::local::stream_protocol::socket::shutdown_send, ignored);
  }

  // Daemon to client.
  void read_down() {
    local_.async_read_some(asio::buffer(down_),
                           [self = this->shared_from_this()](error_code ec, std::size_t got) {
                             if (self->closed_) return;
                             if (ec) return self->end_down();
                             self->saw_byte();
                             self->write_down(got);
                           });
  }
  void write_down(std::size_t size) {
    stalls_at_ = host_.now() + host_.options().stall_ms;
    asio::async_write(stream_, asio::buffer(down_.data(), size),
                      [self = this->shared_from_this()](error_code ec, std::size_t) {
                        if (self->closed_) return;
                        if (ec) return self->close();
                        self->stalls_at_ = 0;
                        self->saw_byte();
                        self->read_down();
                      });
  }
  // All was sent. The client is read until it closes, too, or for a while. (No TLS farewell: that
  // would read beside read_up(); every answer says its length.)
  void end_down() {
    if (up_ended_) return close();
    ending_ = true;
    stalls_at_ = host_.now() + host_.options().handshake_ms;
    error_code ignored;
    stream_.lowest_layer().shutdown(TcpSocket::shutdown_send, ignored);
  }

  void saw_byte() { last_byte_ = host_.now(); }

  BridgeHost& host_;
  const std::string address_;
  const std::shared_ptr<asio::ssl::context> context_;
  Stream stream_;
  asio::local::stream_protocol::socket local_;
  bool closed_ = false;
  bool ending_ = false;    // the daemon has said all
  bool up_ended_ = false;  // so has the client
  bool deaf_ = false;      // and hears nothing any more
  Millis wait_until_ = 0;  // for the handshake and the first byte; then 0
  Millis stalls_at_ = 0;   // while an answer is being sent
  Millis last_byte_ = 0;
  std::array<char, 16 << 10> up_{};
  std::array<char, 64 << 10> down_{};
};

template <class Stream>
std::string Bridge<Stream>::client_name() {
  std::string name;
  if constexpr (kTls) {
    if (host_.options().client_ca.empty()) return name;
    X509* cert = SSL_get1_peer_certificate(stream_.native_handle());
    if (cert == nullptr) return name;
    X509_NAME* subject = X509_get_subject_name(cert);
    const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
    unsigned char* utf8 = nullptr;
    const int size = at < 0
                         ? -1
                         : ASN1_STRING_to_UTF8(
                               &utf8, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
    if (size > 0) name.assign(reinterpret_cast<const char*>(utf8), static_cast<std::size_t>(size));
    OPENSSL_free(utf8);
    X509_free(cert);
  }
  return name;
}

template <class Stream>
void Bridge<Stream>::connect() {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
    return close();
  }
  UniqueFd theirs(pair[0]);
  error_code ec;
  local_.assign(asio::local::stream_protocol(), pair[1], ec);
  if (ec) {
    ::close(pair[1]);
    return close();
  }
  auto remote = std::make_shared<Remote>(Remote{address_, client_name()});
  if (!host_.adopt(std::move(theirs), std::move(remote))) return close();
  wait_until_ = host_.now() + host_.options().handshake_ms;
  saw_byte();
  read_up();
  read_down();
}

}  // namespace

// ---- Accepting ----

struct TcpListener::Impl final : BridgeHost {
  Impl(FileSystem& f, Clock& c, Options o, Adopt a)
      : fs(f),
        clock(c),
        settings(std::move(o)),
        adopt_into(std::move(a)),
        acceptor(io),
        timer(io) {}

  Millis now() const override { return clock.monotonic_ms(); }
  const Options& options() const override { return settings; }
  bool adopt(UniqueFd socket, std::shared_ptr<const Remote> remote) override {
    return adopt_into(std::move(socket), std::move(remote));
  }
  void handshake_failed() override { ++failed_handshakes; }
  void ended(const void* bridge) override {
    // Whoever calls may be the bridge itself.
    asio::post(io, [this, bridge] {
      bridges.erase(bridge);
      open = bridges.size();
    });
  }

  Status listen();
  void accept();
  void accepted(error_code ec, TcpSocket socket);
  void tick();
  template <class B>
  void keep(std::shared_ptr<B> bridge) {
    bridges[static_cast<const void*>(bridge.get())] = bridge;
    open = bridges.size();
    bridge->start();
  }

  FileSystem& fs;
  Clock& clock;
  const Options settings;
  const Adopt adopt_into;
  std::string bound;

  asio::io_context io{1};
  tcp::acceptor acceptor;
  asio::steady_timer timer;
  std::unordered_map<const void*, std::shared_ptr<AnyBridge>> bridges;
  bool accepting = true;
  bool stopping = false;

  Mutex mutex;
  std::shared_ptr<asio::ssl::context> context NC_GUARDED_BY(mutex);

  std::atomic<std::uint64_t> open{0}, total{0}, turned_away{0}, failed_handshakes{0}, timed_out{0};
  std::thread thread;
};

Status TcpListener::Impl::listen() {
  NC_ASSIGN(const tcp::endpoint endpoint, parse_endpoint(settings.address));
  if (settings.plain && !endpoint.address().is_loopback()) {
    return Error{Code::kDenied,
                 fmt::format("{} is no loopback address, and plain text leaves the host there",
                             settings.address),
                 "set listen_cert and listen_key instead of listen_plain"};
  }
  {
    NC_ASSIGN(auto made, make_context(fs, settings));
    MutexLock lock(mutex);
    context = std::move(made);
  }
  error_code ec;
  acceptor.open(endpoint.protocol(), ec);
  if (!ec) acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
  if (!ec) acceptor.bind(endpoint, ec);
  if (!ec) acceptor.listen(kBacklog, ec);
  if (ec) {
    return Error{Code::kIo, fmt::format("cannot listen at {}: {}", settings.address, ec.message()),
                 "choose another address: setting listen"};
  }
  bound = text_of(acceptor.local_endpoint(ec));
  return {};
}

void TcpListener::Impl::accept() {
  acceptor.async_accept(io, [this](error_code ec, TcpSocket socket) {
    guarded("accepting over TCP", [&] { accepted(ec, std::move(socket)); });
  });
}

void TcpListener::Impl::accepted(error_code ec, TcpSocket socket) {
  if (!accepting || ec == asio::error::operation_aborted) return;
  if (ec) {
    // Out of descriptors, or the client gave up: waiting a moment helps against the first.
    auto pause = std::make_shared<asio::steady_timer>(io, kAcceptPause);
    return pause->async_wait([this, pause](error_code) {
      if (accepting) accept();
    });
  }
  ++total;
  if (bridges.size() >= settings.max_connections) {
    ++turned_away;
    socket.close(ec);
    return accept();
  }
  const tcp::endpoint from = socket.remote_endpoint(ec);
  socket.set_option(tcp::no_delay(true), ec);
  socket.set_option(asio::socket_base::keep_alive(true), ec);
  std::shared_ptr<asio::ssl::context> tls;
  {
    MutexLock lock(mutex);
    tls = context;
  }
  if (tls) {
    keep(std::make_shared<Bridge<TlsStream>>(*this, io, text_of(from), tls, std::move(socket),
                                             *tls));
  } else {
    keep(std::make_shared<Bridge<TcpSocket>>(*this, io, text_of(from), nullptr, std::move(socket)));
  }
  accept();
}

void TcpListener::Impl::tick() {
  timer.expires_after(kCheck);
  timer.async_wait([this](error_code ec) {
    if (ec || stopping) return;
    const Millis at = now();
    std::vector<std::shared_ptr<AnyBridge>> all;
    all.reserve(bridges.size());
    for (const auto& [id, bridge] : bridges) all.push_back(bridge);
    for (const auto& bridge : all) timed_out += bridge->check(at) ? 1 : 0;
    tick();
  });
}

TcpListener::TcpListener(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<TcpListener>> TcpListener::open(FileSystem& fs, Clock& clock,
                                                       Options options, Adopt adopt) {
  auto impl = std::make_unique<Impl>(fs, clock, std::move(options), std::move(adopt));
  NC_TRY(impl->listen());
  impl->accept();
  impl->tick();
  impl->thread = std::thread([raw = impl.get()] {
    while (!raw->io.stopped()) guarded("TCP thread", [raw] { raw->io.run(); });
  });
  return std::unique_ptr<TcpListener>(new TcpListener(std::move(impl)));
}

TcpListener::~TcpListener() {
  asio::post(impl_->io, [impl = impl_.get()] {
    impl->accepting = false;
    impl->stopping = true;
    error_code ignored;
    impl->acceptor.close(ignored);
    impl->timer.cancel();
    const auto all = impl->bridges;
    for (const auto& [id, bridge] : all) bridge->close();
    impl->io.stop();
  });
  impl_->thread.join();
}

const std::string& TcpListener::bound() const {
  return impl_->bound;
}

TcpListener::Counts TcpListener::counts() const {
  return {impl_->open, impl_->total, impl_->turned_away, impl_->failed_handshakes,
          impl_->timed_out};
}

Result<std::optional<Millis>> TcpListener::check(FileSystem& fs, const Options& options) {
  NC_ASSIGN(const auto context, make_context(fs, options));
  if (!context) return std::optional<Millis>();
  const X509* own = SSL_CTX_get0_certificate(context->native_handle());
  std::tm until{};
  if (own == nullptr || ASN1_TIME_to_tm(X509_get0_notAfter(own), &until) != 1) {
    return Error{Code::kInvalid, options.cert + " does not say how long it is good", ""};
  }
  return std::optional<Millis>(static_cast<Millis>(::timegm(&until)) * 1000);
}

Status TcpListener::reload() {
  NC_ASSIGN(auto fresh, make_context(impl_->fs, impl_->settings));
  MutexLock lock(impl_->mutex);
  impl_->context = std::move(fresh);
  return {};
}

void TcpListener::stop_accepting() {
  asio::post(impl_->io, [impl = impl_.get()] {
    impl->accepting = false;
    error_code ignored;
    impl->acceptor.close(ignored);
  });
}

}  // namespace nc::daemon
