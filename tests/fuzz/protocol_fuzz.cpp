// Bytes as a client may send them: heads, routes and bodies against the handlers over a store in
// memory. Whatever comes, each request gets one answer with a known status, and every error says
// what is wrong.
#include <map>
#include <memory>
#include <string>

#include <boost/json.hpp>

#include "base/fake_filesystem.hpp"
#include "base/fake_processes.hpp"
#include "base/log.hpp"
#include "daemon/head_parser.hpp"
#include "daemon/router.hpp"
#include "tests/fuzz/fuzz_input.hpp"
#include "tests/unit/daemon/fake_memory.hpp"
#include "tests/unit/daemon/fake_store.hpp"

namespace nc::daemon {
namespace {

class Client final : public Connection {
 public:
  Client() : Connection({100, 1000, 1000}) {}
  void watch_hangup() override {}
  void keep(const ActionKey&, std::shared_ptr<void>) override {}
};

Settings defaults() {
  FakeFileSystem fs;
  auto settings = Settings::load(fs, std::vector<std::string>{"HOME=/h"}, {});
  FUZZ_REQUIRE(settings.ok());
  return *std::move(settings);
}

const Settings kDefaults = defaults();

// A daemon without sockets and without waiting: what a handler posts runs when it is stopped.
struct World {
  FakeClock clock;
  FakeRandom random;
  FakeStore store{clock};
  FakeProcesses processes;
  LeaseTable table{clock, random, {}};
  LeaseKeeper keeper{{table, store, processes, clock}, true};
  LiveSettings settings{kDefaults};
  DiskPool pool{0};
  FakeMemory memory;
  Service service{store, table, keeper, settings, pool, clock, processes, memory};
  std::shared_ptr<Client> client = std::make_shared<Client>();

  World() {
    processes.start(100);
    service.shut_down = [](Millis) {};
    FUZZ_REQUIRE(service.builds.restore(table, settings.copy(), true).ok());
    FUZZ_REQUIRE(service.work.restore(table, true).ok());
  }

  void check(const HttpResponse& response) {
    FUZZ_REQUIRE(response.status >= 200 && response.status < 600);
    FUZZ_REQUIRE(!response.header(true).empty());
    if (response.content_type == "application/json" && !response.head_length) {
      boost::system::error_code error;
      boost::json::parse(response.body, error);
      FUZZ_REQUIRE(!error);
    }
    if (response.status >= 400 && !response.head_length) {
      FUZZ_REQUIRE(response.body.starts_with(R"({"error":{"code":")"));
    }
  }

  // Answers one request; false when the connection has to end.
  bool serve(RequestHead head, std::string_view& rest) {
    Match match = route(head);
    if (match.route == nullptr) {
      check(HttpResponse::error(match.error, match.status));
      return false;
    }
    if (head.chunked || (match.route->body != BodyKind::kNone && !head.content_length))
      return false;
    HttpRequest request;
    request.arg = match.arg;
    request.outer = match.outer;
    request.connection = client;
    const std::uint64_t length = head.content_length.value_or(0);
    request.head = std::move(head);
    request.body = rest.substr(0, length);
    rest.remove_prefix(request.body.size());
    if (match.route->body == BodyKind::kBlob) {
      auto sink = match.route->open(service, request);
      if (!sink.ok()) {
        check(HttpResponse::error(sink.error()));
      } else if (Status written = (*sink)->write(as_bytes(request.body)); !written.ok()) {
        check(HttpResponse::error(written.error()));
      } else if (request.body.size() == length) {
        check((*sink)->finish());
      }
      sink = Error{};
      FUZZ_REQUIRE(store.reserved() == 0);
      return true;
    }
    auto answers = std::make_shared<int>(0);
    const bool parks = match.route->handle == acquire || match.route->handle == admit;
    run_handler(*match.route, service, {std::move(request), [this, answers](HttpResponse response) {
                                          ++*answers;
                                          check(response);
                                        }});
    keeper.apply(table.connection_closed(client->id()));
    FUZZ_REQUIRE(*answers == 1 || (parks && *answers == 0));
    return true;
  }
};

}  // namespace
}  // namespace nc::daemon

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  nc::log::set_level(nc::log::Level::kOff);
  nc::daemon::World world;
  nc::daemon::HeadParser parser;
  std::string_view rest = nc::as_text(nc::fuzz_bytes(data, size));
  for (;;) {
    const auto step = parser.feed(rest);
    FUZZ_REQUIRE(step.used <= rest.size());
    rest.remove_prefix(step.used);
    if (step.kind != nc::daemon::HeadParser::Step::Kind::kDone) break;
    nc::daemon::RequestHead head = parser.take();
    parser.reset();
    if (!world.serve(std::move(head), rest)) break;
  }
  return 0;
}
