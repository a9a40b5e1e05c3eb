#include "daemon/server.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <thread>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/log.hpp"
#include "daemon/access.hpp"
#include "daemon/session.hpp"

namespace nc::daemon {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

using Acceptor = asio::local::stream_protocol::acceptor;
using Socket = asio::local::stream_protocol::socket;
using std::chrono::milliseconds;

constexpr milliseconds kCheckDeadlines{500};
constexpr milliseconds kCheckDrained{10};
constexpr milliseconds kAcceptPause{100};  // out of descriptors: waiting is all that helps
constexpr std::uint64_t kPoliteRefusals =
    64;  // connections over the limit that still get an answer

Peer peer_of(int fd) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return {0, static_cast<uid_t>(-1), static_cast<gid_t>(-1)};
  }
  return {credentials.pid, credentials.uid, credentials.gid};
}

bool in_group(int fd, const Peer& peer, gid_t group) {
  if (peer.gid == group) return true;
  std::array<gid_t, 1024> groups{};
  socklen_t size = sizeof groups;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size) != 0) return false;
  const auto end = groups.begin() + size / sizeof(gid_t);
  return std::find(groups.begin(), end, group) != end;
}

// What a member of the socket's group may do.
std::shared_ptr<const Rights> group_rights(uid_t uid) {
  auto rights = std::make_shared<Rights>();
  rights->scope = Scope::kWrite;
  rights->namespaces = trust::NamespaceSet::all();
  rights->who = "uid " + std::to_string(uid);
  return rights;
}

}  // namespace

struct Server::Impl {
  struct Thread {
    explicit Thread(Impl& impl)
        : host{io, impl.service, impl.request_timeout_ms, {}, [&impl] { impl.session_ended(); }},
          timer(io) {}
    asio::io_context io{1};
    SessionHost host;
    asio::steady_timer timer;
    bool ticking = false;
    std::thread thread;
  };

  Impl(Service& s, UniqueFd fd, Options o) : service(s), options(o), listener(std::move(fd)) {
    for (std::size_t i = 0; i < std::max<std::size_t>(1, options.io_threads); ++i) {
      threads.push_back(std::make_unique<Thread>(*this));
    }
    idle_since = service.clock.monotonic_ms();
  }

  void accept();
  void accepted(error_code ec, Socket socket, Thread& thread);
  void begin(Socket socket, Peer peer, Admission admission, Thread& thread);
  void tick(Thread& thread);
  void session_ended();
  void wait_signal();
  void begin_drain(Millis drain_ms);
  void wait_drained();
  void everywhere(void (Session::*what)());

  Service& service;
  const Options options;
  UniqueFd listener;
  std::atomic<Millis> request_timeout_ms{30'000};
  std::atomic<Millis> idle_since{0};
  std::vector<std::unique_ptr<Thread>> threads;
  std::size_t next_thread = 0;
  std::optional<Acceptor> acceptor;
  std::optional<asio::steady_timer> timer;  // of the first thread: accept pause, drain
  std::optional<asio::signal_set> signals;
  std::function<void()> on_closed;
  std::function<void()> on_hangup;
  bool draining = false;
  int asked_to_stop = 0;
  Millis drain_deadline = 0;
};

Server::Server(Service& service, UniqueFd listener, Options options)
    : impl_(std::make_unique<Impl>(service, std::move(listener), options)) {
  service.shut_down = [this](Millis drain_ms) { shut_down(drain_ms); };
}

Server::~Server() {
  for (auto& thread : impl_->threads) thread->host.sessions.clear();
}

bool Server::adopt(UniqueFd fd, std::shared_ptr<const Remote> remote) {
  if (impl_->service.draining) return false;
  auto shared = std::make_shared<UniqueFd>(std::move(fd));
  asio::post(impl_->threads[0]->io, [impl = impl_.get(), shared, remote = std::move(remote)] {
    auto& thread = *impl->threads[impl->next_thread++ % impl->threads.size()];
    Socket socket(thread.io);
    error_code ec;
    socket.assign(asio::local::stream_protocol(), shared->get(), ec);
    if (ec) return;
    shared->release();
    Peer peer{0, static_cast<uid_t>(-1), static_cast<gid_t>(-1), nullptr, remote};
    impl->begin(std::move(socket), std::move(peer), Admission::kServed, thread);
  });
  return true;
}

void Server::set_request_timeout(Millis ms) {
  impl_->request_timeout_ms = ms;
}

Millis Server::idle_since() const {
  return impl_->idle_since;
}

void Server::shut_down(Millis drain_ms) {
  asio::post(impl_->threads[0]->io, [this, drain_ms] { impl_->begin_drain(drain_ms); });
}

Status Server::run(std::function<void()> on_closed, std::function<void()> on_hangup) {
  Impl& impl = *impl_;
  impl.on_closed = std::move(on_closed);
  impl.on_hangup = std::move(on_hangup);
  asio::io_context& first = impl.threads[0]->io;
  error_code ec;
  impl.acceptor.emplace(first);
  impl.acceptor->assign(asio::local::stream_protocol(), impl.listener.release(), ec);
  if (ec) return Error{Code::kIo, "cannot listen: " + ec.message(), ""};
  impl.timer.emplace(first);
  impl.signals.emplace(first);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    impl.signals->add(signal, ec);
    if (ec) return Error{Code::kIo, "cannot handle signals: " + ec.message(), ""};
  }
  impl.wait_signal();
  impl.accept();

  std::vector<asio::executor_work_guard<asio::io_context::executor_type>> guards;
  for (auto& thread : impl.threads) guards.push_back(asio::make_work_guard(thread->io));
  const auto serve = [](asio::io_context& io) {
    while (!io.stopped()) guarded("I/O thread", [&io] { io.run(); });
  };
  for (std::size_t i = 1; i < impl.threads.size(); ++i) {
    auto& thread = *impl.threads[i];
    thread.thread = std::thread([&serve, &thread] { serve(thread.io); });
  }
  serve(first);
  for (auto& thread : impl.threads) {
    if (thread->thread.joinable()) thread->thread.join();
  }
  return {};
}

// ---- Connections ----

void Server::Impl::accept() {
  Thread& thread = *threads[next_thread++ % threads.size()];
  acceptor->async_accept(thread.io, [this, &thread](error_code ec, Socket socket) {
    guarded("accepting", [&] { accepted(ec, std::move(socket), thread); });
  });
}

void Server::Impl::accepted(error_code ec, Socket socket, Thread& thread) {
  if (draining || ec == asio::error::operation_aborted) return;
  if (ec == asio::error::no_descriptors ||
      ec == error_code(ENFILE, boost::system::system_category()) || ec == asio::error::no_memory ||
      ec == asio::error::no_buffer_space) {
    log::warn("server", "cannot accept a connection: {}; trying again", ec.message());
    timer->expires_after(kAcceptPause);
    timer->async_wait([this](error_code) {
      if (!draining) accept();
    });
    return;
  }
  if (ec) return accept();  // the client gave up meanwhile

  Peer peer = peer_of(socket.native_handle());
  Admission admission = Admission::kServed;
  if (peer.uid != ::geteuid() && peer.uid != 0) {
    if (options.group && in_group(socket.native_handle(), peer, *options.group)) {
      peer.rights = group_rights(peer.uid);
    } else {
      admission = Admission::kDenied;
    }
  }
  begin(std::move(socket), std::move(peer), admission, thread);
  accept();
}

void Server::Impl::begin(Socket socket, Peer peer, Admission admission, Thread& thread) {
  const std::uint64_t open = service.connections.fetch_add(1) + 1;
  idle_since = 0;
  if (open > options.max_connections) admission = Admission::kTooMany;
  if (open > options.max_connections + kPoliteRefusals) {
    error_code ignored;
    socket.close(ignored);
    return session_ended();
  }
  auto session =
      std::make_shared<Session>(thread.host, std::move(socket), std::move(peer), admission);
  asio::post(thread.io, [this, &thread, session = std::move(session)] {
    session->start();
    if (service.draining) session->drain();
    tick(thread);
  });
}

void Server::Impl::session_ended() {
  if (service.connections.fetch_sub(1) == 1) idle_since = service.clock.monotonic_ms();
}

// While a thread has sessions, their deadlines are looked at twice a second; that is exact enough
// for limits of seconds and costs a request nothing.
void Server::Impl::tick(Thread& thread) {
  if (thread.ticking || thread.host.sessions.empty()) return;
  thread.ticking = true;
  thread.timer.expires_after(kCheckDeadlines);
  thread.timer.async_wait([this, &thread](error_code ec) {
    thread.ticking = false;
    if (ec) return;
    const Millis now = service.clock.monotonic_ms();
    std::vector<std::shared_ptr<Session>> sessions;
    sessions.reserve(thread.host.sessions.size());
    for (const auto& [id, session] : thread.host.sessions) sessions.push_back(session);
    for (const auto& session : sessions) session->check_deadline(now);
    tick(thread);
  });
}

// ---- The end ----

void Server::Impl::wait_signal() {
  signals->async_wait([this](error_code ec, int signal) {
    if (ec) return;
    if (signal == SIGHUP) {
      service.pool.post(Lane::kSlow, on_hangup);
    } else if (++asked_to_stop > 1) {
      // Whoever asks twice wants it now. The store survives this as it survives kill -9.
      log::warn("server", "second signal: leaving at once");
      ::_exit(1);
    } else {
      log::info("server", "signal {}: shutting down", signal);
      begin_drain(static_cast<Millis>(service.settings.copy().seconds("drain") * 1000));
    }
    wait_signal();
  });
}

void Server::Impl::everywhere(void (Session::*what)()) {
  for (auto& thread : threads) {
    asio::post(thread->io, [&host = thread->host, what] {
      std::vector<std::shared_ptr<Session>> sessions;
      for (const auto& [id, session] : host.sessions) sessions.push_back(session);
      for (const auto& session : sessions) (session.get()->*what)();
    });
  }
}

void Server::Impl::begin_drain(Millis drain_ms) {
  const Millis deadline = service.clock.monotonic_ms() + drain_ms;
  if (draining) {
    drain_deadline = std::min(drain_deadline, deadline);
    return;
  }
  draining = true;
  drain_deadline = deadline;
  service.draining = true;
  error_code ignored;
  acceptor->close(ignored);
  if (on_closed) guarded("closing", on_closed);
  // Whoever waits for a build is told to ask again: the next daemon knows the lease.
  service.pool.post(Lane::kQuick, [this] {
    service.keeper.apply(service.leases.drain());
    service.builds.drain();
  });
  everywhere(&Session::drain);
  timer->cancel();
  wait_drained();
}

void Server::Impl::wait_drained() {
  timer->expires_after(kCheckDrained);
  timer->async_wait([this](error_code) {
    const std::uint64_t open = service.connections;
    if (open > 0 && service.clock.monotonic_ms() < drain_deadline) return wait_drained();
    if (open > 0) {
      log::warn("server", "{} connections are cut off", open);
      everywhere(&Session::abort);
    }
    for (auto& thread : threads) asio::post(thread->io, [&io = thread->io] { io.stop(); });
  });
}

}  // namespace nc::daemon
