// A daemon without sockets: router and handlers over a fake store, fake clock and fake processes.
#pragma once

#include <future>
#include <map>
#include <memory>
#include <string>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "base/fake_filesystem.hpp"
#include "base/fake_processes.hpp"
#include "daemon/action_record.hpp"
#include "daemon/router.hpp"
#include "tests/unit/daemon/fake_memory.hpp"
#include "tests/unit/daemon/fake_store.hpp"

namespace nc::daemon {

class FakeConnection final : public Connection {
 public:
  explicit FakeConnection(pid_t pid) : Connection({pid, ::geteuid(), ::getegid()}) {}
  void watch_hangup() override { ++watched; }
  void keep(const ActionKey& key, std::shared_ptr<void> hold) override {
    holds[key] = std::move(hold);
  }
  std::atomic<int> watched{0};
  std::map<ActionKey, std::shared_ptr<void>> holds;
};

class Harness {
 public:
  explicit Harness(bool read_only = false) {
    service.read_only = read_only;
    service.host = "host-a";
    service.store_path = "/store";
    service.pid = 42;
    service.started_ms = clock.wall_ms();
    service.shut_down = [this](Millis drain_ms) { shut_down_with = drain_ms; };
    store.set_limits(store_options(settings.copy()));
    if (!service.builds.restore(table, settings.copy(), !read_only).ok()) std::abort();
    if (!service.work.restore(table, !read_only).ok()) std::abort();
    if (!service.outcomes.restore(!read_only).ok()) std::abort();
  }
  ~Harness() {
    keeper.apply(table.drain());
    pool.stop();
    keeper.stop();
  }

  static Settings defaults() {
    FakeFileSystem fs;
    return std::move(Settings::load(fs, std::vector<std::string>{"HOME=/h"}, {})).value();
  }

  // A client process and its connection.
  std::shared_ptr<FakeConnection> connect(pid_t pid) {
    processes.start(pid);
    return std::make_shared<FakeConnection>(pid);
  }

  std::future<HttpResponse> send(const std::shared_ptr<Connection>& connection, Method method,
                                 const std::string& target, std::string body = "") {
    auto promise = std::make_shared<std::promise<HttpResponse>>();
    HttpRequest request;
    request.head.method = method;
    request.head.path = target;
    request.head.content_length = body.size();
    Match match = route(request.head);
    if (match.route == nullptr) {
      promise->set_value(HttpResponse::error(match.error, match.status));
      return promise->get_future();
    }
    request.arg = match.arg;
    request.outer = match.outer;
    request.body = std::move(body);
    request.connection = connection;
    if (match.route->body == BodyKind::kBlob) {
      auto sink = match.route->open(service, request);
      if (!sink.ok()) {
        promise->set_value(HttpResponse::error(sink.error()));
      } else if (Status written = (*sink)->write(as_bytes(request.body)); !written.ok()) {
        promise->set_value(HttpResponse::error(written.error()));
      } else {
        promise->set_value((*sink)->finish());
      }
      return promise->get_future();
    }
    run_handler(*match.route, service, {std::move(request), [promise](HttpResponse response) {
                                          promise->set_value(std::move(response));
                                        }});
    return promise->get_future();
  }

  struct Reply {
    int status = 0;
    boost::json::object json;
    std::string text(std::string_view name) const {
      const auto* value = json.if_contains({name.data(), name.size()});
      return value != nullptr && value->is_string() ? std::string(value->get_string()) : "";
    }
    std::string state() const { return text("state"); }
    std::string code() const {
      return json.contains("error") ? std::string(json.at("error").at("code").as_string()) : "";
    }
  };
  static Reply read(std::future<HttpResponse> future) {
    if (future.wait_for(std::chrono::seconds(20)) != std::future_status::ready) {
      ADD_FAILURE() << "no answer";
      return {};
    }
    HttpResponse response = future.get();
    boost::system::error_code ec;
    auto value = boost::json::parse(response.body, ec);
    return {response.status, value.is_object() ? value.get_object() : boost::json::object()};
  }
  Reply call(const std::shared_ptr<Connection>& connection, Method method,
             const std::string& target, std::string body = "") {
    return read(send(connection, method, target, std::move(body)));
  }

  Reply acquire(const std::shared_ptr<Connection>& connection, const std::string& key,
                const std::string& rest = "") {
    return call(connection, Method::kPost, "/v1/actions/" + key + "/acquire",
                R"({"intent":"build","namespace":"ns","kind":"graph")" + rest + "}");
  }
  std::future<HttpResponse> acquire_later(const std::shared_ptr<Connection>& connection,
                                          const std::string& key, Millis wait_ms = 60'000) {
    return send(connection, Method::kPost, "/v1/actions/" + key + "/acquire",
                R"({"intent":"build","namespace":"ns","wait_ms":)" + std::to_string(wait_ms) + "}");
  }

  static KeyParts parts(const std::string& name) { return {{"graph", name}}; }
  static std::string key(const std::string& name) { return action_key(parts(name)).value().hex(); }
  static std::string digest(const std::string& bytes) { return Sha256::of(as_bytes(bytes)).hex(); }
  // One that can be recorded, with one input.
  static ActionRecord record(const std::string& name, const std::string& input) {
    ActionRecord record;
    record.key = action_key(parts(name)).value();
    record.kind = "neff";
    record.name_space = "ns";
    record.label = name;
    record.compiler = "cc 1";
    record.parts = parts(name);
    record.argv = {"compile", "{in/model}", "--output", "{out/neff}"};
    record.inputs = {{"model", Sha256::of(as_bytes(input)), input.size(), 0644}};
    return record;
  }
  static std::string manifest(const std::string& name, const std::string& blob) {
    Manifest manifest;
    manifest.key = action_key(parts(name)).value();
    manifest.kind = "graph";
    manifest.name_space = "ns";
    manifest.build_ms = 3000;
    manifest.created_ms = 1;
    manifest.parts = parts(name);
    manifest.outputs = {{"out", Sha256::of(as_bytes(blob)), blob.size(), 0644}};
    return manifest.to_json();
  }
  // Uploads the blob and commits.
  Reply publish(const std::shared_ptr<Connection>& connection, const std::string& name,
                const std::string& lease, std::uint64_t fence) {
    const std::string blob = "bytes of " + name;
    call(connection, Method::kPut, "/v1/blobs/" + digest(blob), blob);
    return call(connection, Method::kPut,
                "/v1/actions/" + key(name) + "?lease=" + lease + "&fence=" + std::to_string(fence),
                manifest(name, blob));
  }

  double counter(const std::string& name) { return store.counter(name); }
  // Waits for something that another thread does.
  template <class F>
  static bool eventually(F holds) {
    for (int i = 0; i < 4000; ++i) {
      if (holds()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  FakeClock clock;
  FakeRandom random;
  FakeStore store{clock};
  FakeProcesses processes;
  LeaseTable table{clock, random, {}};
  LeaseKeeper keeper{{table, store, processes, clock}, true};
  LiveSettings settings{defaults()};
  DiskPool pool{3};
  FakeMemory memory;
  Service service{store, table, keeper, settings, pool, clock, processes, memory};
  Millis shut_down_with = -1;
};

struct LeaseOf {
  std::string id;
  std::uint64_t fence = 0;
};
inline LeaseOf lease_of(const Harness::Reply& reply) {
  if (reply.state() != "lease") {
    ADD_FAILURE() << "not a lease: " << boost::json::serialize(reply.json);
    return {};
  }
  const auto& lease = reply.json.at("lease").as_object();
  return {std::string(lease.at("id").as_string()), lease.at("fence").to_number<std::uint64_t>()};
}

}  // namespace nc::daemon
