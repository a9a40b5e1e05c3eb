// What a hit through the daemon costs against a bare exchange of as many bytes over a Unix socket,
// and how much memory the daemon takes: idle, and with 100,000 entries.
//
//   daemon_hit_bench [hits per client, default 2000] [entries, default 100000]
// The daemon: $NC_BENCH_DAEMON, else
//   bin/neuroncached of this build
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include "base/process.hpp"
#include "tests/bench/bench_util.hpp"
#include "tests/bench/socket_client.hpp"
#include "tests/bench/store_entries.hpp"
#include "tests/bench/unsynced_filesystem.hpp"

namespace nc::bench {
namespace {

constexpr std::uint64_t kFiles = 64;  // entries whose blob is handed out as a path
constexpr std::size_t kSmall = 4 << 10;
constexpr std::size_t kLarge = 96 << 10;

void fill(const std::string& dir, std::uint64_t entries) {
  UnsyncedFileSystem fs;
  StoreOptions options;
  options.dir = dir;
  options.max_bytes = 1ULL << 50;
  options.min_free = 0;
  options.compression = false;
  const auto store = must(Store::open(options, {fs, system_clock(), system_random()}), "store");
  for (std::uint64_t i = 0; i < entries; ++i) put(*store, prepare(i, i < kFiles ? kLarge : kSmall));
  must(store->flush(), "flush");
}

class Daemon {
 public:
  Daemon(const std::string& dir, const std::string& socket) : socket_(socket) {
    const char* given = std::getenv("NC_BENCH_DAEMON");
    const auto self = std::filesystem::read_symlink("/proc/self/exe");
    SpawnOptions options;
    options.argv = {given != nullptr
                        ? std::string(given)
                        : (self.parent_path().parent_path() / "bin/neuroncached").string(),
                    "--dir",
                    dir,
                    "--socket",
                    socket,
                    "--log-level",
                    "error"};
    pid_ = must(system_processes().spawn(options), "starting the daemon");
    SocketClient client;
    for (int i = 0; !client.connect(socket); ++i) {
      if (i == 6000 || ::waitpid(pid_, nullptr, WNOHANG) == pid_) {
        std::fprintf(stderr, "%s did not start\n", options.argv[0].c_str());
        std::exit(2);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  ~Daemon() {
    ::kill(pid_, SIGTERM);
    ::waitpid(pid_, nullptr, 0);
  }
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;
  pid_t pid() const { return pid_; }
  const std::string& socket() const { return socket_; }

 private:
  std::string socket_;
  pid_t pid_ = 0;
};

// A server that answers each request of a fixed size with an answer of a fixed size.
class PingPong {
 public:
  PingPong(std::string path, std::size_t request, std::size_t answer)
      : path_(std::move(path)), request_(request), answer_(answer, 'a') {
    listener_ = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_un address = socket_address(path_);
    if (::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) !=
            0 ||
        ::listen(listener_.get(), 64) != 0) {
      std::perror(path_.c_str());
      std::exit(2);
    }
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~PingPong() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    acceptor_.join();
    for (std::thread& thread : serving_) thread.join();
  }
  PingPong(const PingPong&) = delete;
  PingPong& operator=(const PingPong&) = delete;

 private:
  void accept_all() {
    while (true) {
      UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (fd.get() < 0) return;
      serving_.emplace_back([this, fd = std::move(fd)] { serve(fd.get()); });
    }
  }
  void serve(int fd) const {
    std::string buffer(64 << 10, '\0');
    std::size_t got = 0;
    while (true) {
      const ssize_t n = ::recv(fd, buffer.data(), buffer.size(), 0);
      if (n <= 0) return;
      got += static_cast<std::size_t>(n);
      if (got < request_) continue;
      got = 0;
      for (std::string_view rest = answer_; !rest.empty();) {
        const ssize_t sent = ::send(fd, rest.data(), rest.size(), MSG_NOSIGNAL);
        if (sent <= 0) return;
        rest.remove_prefix(static_cast<std::size_t>(sent));
      }
    }
  }

  std::string path_;
  std::size_t request_;
  std::string answer_;
  UniqueFd listener_;
  std::thread acceptor_;
  std::vector<std::thread> serving_;
};

std::string hit_request(std::uint64_t i) {
  const std::string body = R"({"intent":"lookup","namespace":"default","kind":"graph"})";
  return "POST /v1/actions/" + key_number(i).hex() +
         "/acquire HTTP/1.1\r\nHost: localhost\r\nX-Neuroncache-Protocol: 1\r\n"
         "Content-Type: application/json\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

// `clients` threads, each with a connection of its own and all at once.
template <class Exchange>
Samples measure(const std::string& socket, int clients, int rounds, const Exchange& exchange) {
  std::vector<Samples> samples(static_cast<std::size_t>(clients));
  std::vector<std::thread> threads;
  std::atomic<int> ready{0};
  for (int c = 0; c < clients; ++c) {
    threads.emplace_back([&, c] {
      SocketClient client;
      if (!client.connect(socket)) {
        std::perror(socket.c_str());
        std::exit(2);
      }
      exchange(client, 0);
      ++ready;
      while (ready < clients) std::this_thread::yield();
      for (int i = 0; i < rounds; ++i) {
        const Stopwatch watch;
        exchange(client, i * clients + c);
        samples[static_cast<std::size_t>(c)].add(watch.us());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  Samples all;
  for (const Samples& s : samples) all.add(s);
  return all;
}

struct Exchanges {
  Samples daemon, raw;
  double daemon_cpu_us = 0;
};

// Turn and turn about, so that a disturbance meets both.
Exchanges compare(const Daemon& daemon, const std::string& raw, int clients, int rounds,
                  const std::vector<std::string>& requests, std::size_t answer) {
  const auto hit = [&](const SocketClient& client, int i) {
    const std::string text =
        client.exchange(requests[static_cast<std::size_t>(i) % requests.size()]);
    if (text.find("\"state\":\"hit\"") != std::string::npos) return;
    std::fprintf(stderr, "no hit: %s\n", text.substr(0, 500).c_str());
    std::exit(2);
  };
  const auto ping = [&](const SocketClient& client, int i) {
    client.send(requests[static_cast<std::size_t>(i) % requests.size()]);
    std::string text;
    client.receive_exactly(text, answer);
  };
  constexpr int kTurns = 5;
  Exchanges e;
  for (int turn = 0; turn < kTurns; ++turn) {
    e.raw.add(measure(raw, clients, rounds / kTurns, ping));
    const double before = cpu_us(daemon.pid());
    e.daemon.add(measure(daemon.socket(), clients, rounds / kTurns, hit));
    e.daemon_cpu_us += cpu_us(daemon.pid()) - before;
  }
  std::printf("%d client%s: a hit %.0f us median, %.0f us 99 %%; bare exchange %.0f us, %.0f us\n",
              clients, clients == 1 ? "" : "s", e.daemon.median(), e.daemon.percentile(99),
              e.raw.median(), e.raw.percentile(99));
  std::printf("  %.1f us of the daemon's CPU per hit\n",
              e.daemon_cpu_us / static_cast<double>(e.daemon.size()));
  return e;
}

int run(int rounds, std::uint64_t entries) {
  const TempDir dir;
  double idle = 0;
  {
    const Daemon daemon(dir.path("empty"), dir.path("a.sock"));
    idle = resident_mib(daemon.pid());
  }
  fill(dir.path("store"), entries);
  const Daemon daemon(dir.path("store"), dir.path("b.sock"));
  std::vector<std::string> requests;
  for (std::uint64_t i = 0; i < kFiles; ++i) requests.push_back(hit_request(i));
  SocketClient probe;
  if (!probe.connect(daemon.socket())) return 2;
  const std::string answer = probe.exchange(requests[0]);
  if (answer.find("\"path\":\"") == std::string::npos) {
    std::fprintf(stderr, "the answer names no path: %s\n", answer.substr(0, 500).c_str());
    return 2;
  }
  std::printf("request of %zu bytes, answer of %zu bytes (manifest and path)\n", requests[0].size(),
              answer.size());
  const PingPong raw(dir.path("c.sock"), requests[0].size(), answer.size());
  const Exchanges one = compare(daemon, dir.path("c.sock"), 1, rounds, requests, answer.size());
  const Exchanges eight = compare(daemon, dir.path("c.sock"), 8, rounds, requests, answer.size());
  const double loaded = resident_mib(daemon.pid());

  Budgets budgets;
  budgets.at_most("hit against a bare exchange, 1 client, medians",
                  one.daemon.median() / one.raw.median(), 5);
  budgets.at_most("hit, 8 clients, median", eight.daemon.median(), 150, "us");
  budgets.at_most("hit, 8 clients, 99 %", eight.daemon.percentile(99), 1000, "us");
  budgets.at_most("memory of an idle daemon", idle, 30, "MiB");
  budgets.at_most("memory with 100,000 entries (or as many as given)", loaded, 120, "MiB");
  return budgets.exit_status();
}

}  // namespace
}  // namespace nc::bench

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 2000;
  const std::uint64_t entries = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 100'000;
  if (rounds < 5 || entries < nc::bench::kFiles) {
    std::fprintf(stderr, "usage: %s [hits per client, 5 or more] [entries, 64 or more]\n", argv[0]);
    return 2;
  }
  return nc::bench::run(rounds, entries);
}
