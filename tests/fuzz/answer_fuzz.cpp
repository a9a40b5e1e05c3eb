// Answers as something that listens on the daemon's socket may send them: through a real
// connection when they start as HTTP does, else as the JSON of a body. Whatever comes, the client
// gives a value or an error that says what is wrong.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <semaphore>
#include <string>
#include <thread>

#include "client/codec.hpp"
#include "client/connection.hpp"
#include "tests/fuzz/fuzz_input.hpp"

namespace nc::client {
namespace {

// Answers every connection with the same bytes and hangs up.
class Peer {
 public:
  Peer() {
    char dir[] = "/tmp/nc-fuzz-XXXXXX";
    FUZZ_REQUIRE(::mkdtemp(dir) != nullptr);
    dir_ = dir;
    path_ = dir_ + "/s";
    listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    FUZZ_REQUIRE(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    FUZZ_REQUIRE(::listen(listener_, 16) == 0);
    thread_ = std::thread([this] { serve(); });
  }
  ~Peer() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
    ::unlink(path_.c_str());
    ::rmdir(dir_.c_str());
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  const std::string& path() const { return path_; }
  void set(std::string_view answer) { answer_ = answer; }
  void wait() { served_.acquire(); }  // until one connection is over

 private:
  void serve() {
    for (;;) {
      const int fd = ::accept(listener_, nullptr, nullptr);
      if (fd < 0) return;
      char
          head[4096];  // all of the question: hanging up on unread bytes would reset the connection
      if (::recv(fd, head, sizeof(head), 0) > 0) {
        std::string_view rest = answer_;
        while (!rest.empty()) {
          const ssize_t n = ::send(fd, rest.data(), rest.size(), MSG_NOSIGNAL);
          if (n <= 0) break;
          rest.remove_prefix(static_cast<std::size_t>(n));
        }
      }
      ::close(fd);
      served_.release();
    }
  }

  std::string dir_, path_;
  int listener_ = -1;
  std::string_view answer_;
  std::binary_semaphore served_{0};
  std::thread thread_;
};

void check(const Error& error) {
  FUZZ_REQUIRE(!error.message.empty());
  FUZZ_REQUIRE(!error.action.empty());
}

void over_the_wire(std::string_view bytes) {
  static Peer peer;
  peer.set(bytes);
  std::uint64_t sunk = 0;
  HttpRequest request;
  request.method = bytes.size() % 4 == 0 ? "HEAD" : "GET";
  request.target = "/v1/hello";
  request.body_limit = 1 << 16;
  if (bytes.size() % 2 == 1) {
    request.sink = [&sunk](Bytes piece) {
      sunk += piece.size();
      return Status{};
    };
  }
  Connection connection(peer.path(), 5000);
  const auto response = connection.perform(request);
  connection.close();
  peer.wait();
  if (!response.ok()) return check(response.error());
  FUZZ_REQUIRE(response->status >= 0 && response->status < 1000);
  FUZZ_REQUIRE(response->body.size() + sunk <= bytes.size());
  FUZZ_REQUIRE(request.method != "HEAD" || response->body.empty());
  if (response->status >= 400) check(codec::error(response->status, response->body, "/v1/hello"));
}

void manifests(const json::bj::object& o) {
  const auto m = codec::manifest(o);
  if (!m.ok()) return check(m.error());
  const auto text = codec::manifest_text(*m);
  const auto object = json::parse_object(text, "the manifest");
  FUZZ_REQUIRE(object.ok());
  const auto again = codec::manifest(*object);
  FUZZ_REQUIRE(again.ok());
  FUZZ_REQUIRE(codec::manifest_text(*again) == text);
}

void acquisitions(const json::bj::object& o) {
  ActionKey key;
  if (const auto* m = json::object(o, "manifest")) {
    key = ActionKey::from_hex(json::text(*m, "key")).value_or(key);
  }
  const auto a = codec::acquired(o, key);
  if (!a.ok()) return check(a.error());
  if (a->state == Acquired::State::kHit) {
    FUZZ_REQUIRE(a->manifest.key == key);
    FUZZ_REQUIRE(a->blobs.size() == a->manifest.outputs.size());
  }
  FUZZ_REQUIRE(a->state != Acquired::State::kLease || !a->lease.id.empty());
}

void bodies(std::string_view text) {
  check(codec::error(500, text, "/v1/stats"));
  const auto parsed = json::parse_object(text, "the answer");
  if (!parsed.ok()) return check(parsed.error());
  const json::bj::object& o = *parsed;
  acquisitions(o);
  manifests(o);
  if (const auto* m = json::object(o, "manifest")) manifests(*m);
  if (const auto d = codec::entry_details(o); !d.ok()) check(d.error());
  FUZZ_REQUIRE(codec::entry_page(o).entries.size() <= text.size());
  FUZZ_REQUIRE(codec::prune_answer(o).kept.size() <= text.size());
  FUZZ_REQUIRE(codec::verify_page(o).bad.size() <= text.size());
  FUZZ_REQUIRE(codec::misses(o).size() <= text.size());
  FUZZ_REQUIRE(codec::leases(o).size() <= text.size());
  FUZZ_REQUIRE(codec::bucket_programs(o).size() <= text.size());
  FUZZ_REQUIRE(codec::config(o).size() <= text.size());
  FUZZ_REQUIRE(codec::stats(o).counters.size() <= text.size());
  FUZZ_REQUIRE(codec::hello(o).capabilities.size() <= text.size());
  FUZZ_REQUIRE(codec::failure(o).log.size() <= text.size());
  FUZZ_REQUIRE(codec::builds(o).running.size() <= text.size());
  FUZZ_REQUIRE(codec::recordings(o).size() <= text.size());
  FUZZ_REQUIRE(codec::recorded_page(o).actions.size() <= text.size());
  FUZZ_REQUIRE(codec::queue_page(o).jobs.size() <= text.size());
  if (const auto a = codec::admission(o); !a.ok()) check(a.error());
  if (const auto t = codec::taken(o); !t.ok()) check(t.error());
}

}  // namespace
}  // namespace nc::client

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = nc::as_text(nc::fuzz_bytes(data, size));
  if (text.starts_with("HTTP/")) {
    nc::client::over_the_wire(text);
  } else {
    nc::client::bodies(text);
  }
  return 0;
}
