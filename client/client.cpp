#include "client/client.hpp"

#include <poll.h>

#include <algorithm>

#include <fmt/format.h>

#include "base/filesystem.hpp"
#include "base/settings.hpp"
#include "client/autostart.hpp"
#include "client/codec.hpp"
#include "client/connection.hpp"
#include "client/protocol.hpp"

namespace nc::client {
namespace {

class FileBody final : public BodySource {
 public:
  FileBody(File& file, std::uint64_t size) : file_(file), size_(size) {}
  std::uint64_t size() const override { return size_; }
  Result<std::size_t> read(std::uint64_t offset, std::span<std::byte> out) override {
    return file_.read_at(offset, out);
  }

 private:
  File& file_;
  std::uint64_t size_;
};

std::string lease_target(const Lease& lease, std::string_view verb) {
  return fmt::format("{}/{}{}", protocol::kLeases, codec::escape(lease.id), verb);
}

std::string with_query(std::string_view path, const std::string& query) {
  return query.empty() ? std::string(path) : fmt::format("{}?{}", path, query);
}

}  // namespace

ClientOptions ClientOptions::from(const Settings& settings) {
  ClientOptions options;
  options.socket_path = settings.text("socket");
  if (options.socket_path.empty()) {
    options.socket_path = default_socket_path(process_environment());
  }
  options.connect_timeout_ms = static_cast<Millis>(settings.seconds("connect_timeout") * 1000);
  options.autostart = settings.boolean("autostart");
  options.daemon_path = settings.text("daemon_path");
  return options;
}

struct Client::Impl {
  ClientOptions options;
  Connection connection;
  std::optional<Error> start_error;
  Millis start_failed_ms = 0;

  explicit Impl(ClientOptions o)
      : options(std::move(o)), connection(options.socket_path, options.connect_timeout_ms) {}

  // Any status >= 400 becomes an Error. When nobody listens, or who listens is on its way out, a
  // daemon is started, where that is allowed, and asked again.
  Result<HttpResponse> perform(const HttpRequest& request) {
    auto response = perform_once(request);
    if (!options.autostart || !request.idempotent) return response;
    const Millis deadline = system_clock().monotonic_ms() + options.connect_timeout_ms;
    constexpr int kPauseMs = 50;
    for (int round = 0;; ++round) {
      const bool gone = response.is(Code::kUnavailable);
      const bool leaving = response.is(Code::kDraining);
      if (!gone && !leaving) return response;
      if (round > 0 && system_clock().monotonic_ms() >= deadline) return response;
      // One that leaves takes no new connection, and holds the store a little longer; one that is
      // gone may go again before it has answered.
      connection.close();
      if (leaving || round > 0) ::poll(nullptr, 0, kPauseMs);
      if (gone) NC_TRY(start_daemon());
      response = perform_once(request);
    }
  }

  Result<HttpResponse> perform_once(const HttpRequest& request) {
    auto response = connection.perform(request);
    if (response.ok() && response->status >= 400 && request.method != "HEAD") {
      return codec::error(response->status, response->body, request.target);
    }
    return response;
  }

  // A daemon that cannot start costs seconds now and then, not with every call.
  Status start_daemon() {
    constexpr Millis kPauseMs = 60'000;
    const Millis now = system_clock().monotonic_ms();
    if (start_error && now - start_failed_ms < kPauseMs) return *start_error;
    Status started =
        ensure_daemon(LaunchOptions{options.socket_path, options.daemon_path,
                                    options.daemon_arguments, options.connect_timeout_ms});
    start_error.reset();
    if (!started.ok()) {
      start_error = started.error();
      start_failed_ms = now;
    }
    return started;
  }

  HttpRequest request(std::string_view method, std::string target) const {
    HttpRequest r;
    r.method = method;
    r.target = std::move(target);
    r.timeout_ms = options.request_timeout_ms;
    return r;
  }

  Result<json::bj::object> ask(const HttpRequest& r) {
    const std::string what = "the daemon's answer to " + r.target;
    NC_ASSIGN(const HttpResponse response, perform(r));
    return json::parse_object(response.body, what);
  }

  Result<json::bj::object> get(std::string target) {
    return ask(request("GET", std::move(target)));
  }

  struct Send {
    bool idempotent = true;
    Millis extra_ms = 0;
  };
  Result<json::bj::object> send(std::string_view method, std::string target, std::string_view body,
                                Send how) {
    MemoryBody source(as_bytes(body));
    HttpRequest r = request(method, std::move(target));
    r.content_type = protocol::kJsonType;
    r.body = &source;
    r.idempotent = how.idempotent;
    r.timeout_ms += how.extra_ms;
    return ask(r);
  }
  Result<json::bj::object> send(std::string_view method, std::string target,
                                std::string_view body) {
    return send(method, std::move(target), body, Send{});
  }

  Result<Enqueued> enqueue(const std::string& body, std::string_view queue = protocol::kQueue) {
    NC_ASSIGN(const json::bj::object o, send("POST", std::string(queue), body));
    return codec::enqueued(o);
  }

  Result<Uploaded> upload(const Digest& digest, BodySource& source, const UploadOptions& how) {
    std::string target = fmt::format("{}{}?compress={}", protocol::kBlobs, digest.hex(),
                                     how.may_compress ? "auto" : "never");
    if (!how.lease_id.empty()) target += "&lease=" + codec::escape(how.lease_id);
    HttpRequest r = request("PUT", std::move(target));
    r.content_type = protocol::kBytesType;
    r.body = &source;
    r.streaming = true;
    NC_ASSIGN(const json::bj::object answer, ask(r));
    return Uploaded{digest, source.size(), json::boolean(answer, "existed")};
  }

  Result<bool> commit(std::string target, std::string_view manifest) {
    NC_ASSIGN(const json::bj::object answer, send("PUT", std::move(target), manifest));
    return json::boolean(answer, "published");
  }
};

Client::Client(ClientOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Client::~Client() = default;
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;

const ClientOptions& Client::options() const {
  return impl_->options;
}
void Client::disconnect() {
  impl_->connection.close();
}

Result<Hello> Client::hello() {
  HttpRequest request = impl_->request("GET", std::string(protocol::kHello));
  // It needs no disk: a daemon that does not greet in the time that a start may take is stuck.
  request.timeout_ms = std::min(request.timeout_ms, impl_->options.connect_timeout_ms);
  NC_ASSIGN(const json::bj::object o, impl_->ask(request));
  Hello hello = codec::hello(o);
  if (hello.min_protocol > protocol::kVersion || hello.max_protocol < protocol::kMinVersion) {
    return Error{
        Code::kUnsupported,
        fmt::format("the daemon (version {}) speaks protocol {} to {}, this program {} to {}",
                    hello.version, hello.min_protocol, hello.max_protocol, protocol::kMinVersion,
                    protocol::kVersion),
        "install the same version of both, then `neuroncache daemon restart`"};
  }
  return hello;
}

Result<Acquired> Client::acquire(const AcquireRequest& request) {
  NC_ASSIGN(const json::bj::object o,
            impl_->send("POST", fmt::format("{}{}/acquire", protocol::kActions, request.key.hex()),
                        codec::acquire_body(request), {true, request.wait_ms}));
  return codec::acquired(o, request.key);
}

Result<Acquired> Client::acquire_and_wait(AcquireRequest request, Millis timeout_ms,
                                          const WaitProgress& progress) {
  const Millis step = request.wait_ms > 0 ? request.wait_ms : 1'000;
  const Millis deadline = timeout_ms > 0 ? system_clock().monotonic_ms() + timeout_ms : 0;
  for (;;) {
    request.wait_ms = step;
    if (deadline > 0)
      request.wait_ms = std::clamp<Millis>(deadline - system_clock().monotonic_ms(), 1, step);
    NC_ASSIGN(Acquired answer, acquire(request));
    if (answer.state != Acquired::State::kBuilding) return answer;
    if (progress && !progress(answer.building)) return answer;
    if (deadline > 0 && system_clock().monotonic_ms() >= deadline) return answer;
    request.ticket = answer.building.ticket;
  }
}

Result<Admission> Client::admit(const Lease& lease, const AdmissionRequest& request) {
  NC_ASSIGN(const json::bj::object o,
            impl_->send("POST", std::string(protocol::kAdmission),
                        codec::admission_body(lease, request), {true, request.wait_ms}));
  return codec::admission(o);
}

Result<Admission> Client::admit_and_wait(const Lease& lease, AdmissionRequest request,
                                         Millis timeout_ms, const AdmissionProgress& progress) {
  const Millis step = request.wait_ms > 0 ? request.wait_ms : 1'000;
  const Millis deadline = timeout_ms > 0 ? system_clock().monotonic_ms() + timeout_ms : 0;
  for (;;) {
    request.wait_ms = step;
    if (deadline > 0)
      request.wait_ms = std::clamp<Millis>(deadline - system_clock().monotonic_ms(), 1, step);
    NC_ASSIGN(const Admission answer, admit(lease, request));
    if (answer.state != Admission::State::kWaiting) return answer;
    if (progress && !progress(answer)) return answer;
    if (deadline > 0 && system_clock().monotonic_ms() >= deadline) return answer;
  }
}

Result<Millis> Client::heartbeat(const Lease& lease, std::string_view progress) {
  NC_ASSIGN(const HeartbeatAnswer answer, heartbeat(lease, BuildStatus{std::string(progress)}));
  return answer.ttl_ms;
}

Result<HeartbeatAnswer> Client::heartbeat(const Lease& lease, const BuildStatus& status) {
  NC_ASSIGN(const json::bj::object o, impl_->send("POST", lease_target(lease, "/heartbeat"),
                                                  codec::heartbeat_body(lease, status)));
  return HeartbeatAnswer{json::integer(o, "ttl_ms", lease.ttl_ms), json::boolean(o, "cancel"),
                         json::integer(o, "waiters")};
}

Result<FailAnswer> Client::fail(const Lease& lease, const FailReport& report) {
  NC_ASSIGN(const json::bj::object o,
            impl_->send("POST", lease_target(lease, "/fail"), codec::fail_body(lease, report)));
  return FailAnswer{json::boolean(o, "remembered"), json::integer(o, "expires_ms")};
}

Status Client::release(const Lease& lease) {
  const std::string target =
      lease_target(lease, fmt::format("?key={}&fence={}", lease.key.hex(), lease.fence));
  auto response = impl_->perform(impl_->request("DELETE", target));
  if (!response.ok()) return std::move(response).error();
  return {};
}

Result<BuildsInfo> Client::builds() {
  NC_ASSIGN(const json::bj::object o, impl_->get(std::string(protocol::kBuilds)));
  return codec::builds(o);
}

Result<bool> Client::record(std::string_view recording, const RecordedAction& action) {
  const std::string target = fmt::format("{}/{}/actions/{}", protocol::kRecordings,
                                         codec::escape(recording), action.key.hex());
  NC_ASSIGN(const json::bj::object o, impl_->send("PUT", target, codec::record_body(action)));
  return json::boolean(o, "recorded");
}

Status Client::record_lost(std::string_view recording, const RecordedAction& action,
                           const std::string& why) {
  const std::string target = fmt::format("{}/{}/actions/{}", protocol::kRecordings,
                                         codec::escape(recording), action.key.hex());
  const json::bj::object body{
      {"label", action.label}, {"compiler", action.compiler}, {"lost", why}};
  NC_TRY(impl_->send("POST", target, json::serialize(body)));
  return {};
}

Result<RecordedAction> Client::recorded(std::string_view recording, const ActionKey& key) {
  NC_ASSIGN(const json::bj::object o,
            impl_->get(fmt::format("{}/{}/actions/{}", protocol::kRecordings,
                                   codec::escape(recording), key.hex())));
  return codec::recorded_action(o);
}

Result<std::vector<RecordingInfo>> Client::recordings() {
  NC_ASSIGN(const json::bj::object o, impl_->get(std::string(protocol::kRecordings)));
  return codec::recordings(o);
}

Result<RecordedPage> Client::recorded_actions(std::string_view recording, std::string_view after,
                                              std::size_t limit) {
  std::string target =
      fmt::format("{}/{}?limit={}", protocol::kRecordings, codec::escape(recording), limit);
  if (!after.empty()) target += "&after=" + codec::escape(after);
  NC_ASSIGN(const json::bj::object o, impl_->get(std::move(target)));
  return codec::recorded_page(o);
}

Status Client::forget_recording(std::string_view recording) {
  NC_TRY(impl_->perform(impl_->request(
      "DELETE", fmt::format("{}/{}", protocol::kRecordings, codec::escape(recording)))));
  return {};
}

Result<Enqueued> Client::enqueue(const ActionKey& recorded_key) {
  return impl_->enqueue(fmt::format(R"({{"key":"{}"}})", recorded_key.hex()));
}

Result<Enqueued> Client::enqueue_recording(std::string_view recording) {
  return impl_->enqueue(json::serialize(json::bj::object{{"recording", std::string(recording)}}));
}

Result<Enqueued> Client::enqueue(const RecordedAction& action, bool cluster) {
  return impl_->enqueue(fmt::format(R"({{"record":{}}})", codec::record_body(action)),
                        cluster ? protocol::kClusterQueue : protocol::kQueue);
}

Result<Taken> Client::take_job(std::string_view compiler, const KeyParts& parts, bool cluster) {
  json::bj::object body{{"compiler", json::bj::string_view(compiler.data(), compiler.size())}};
  if (cluster) body["cluster"] = true;
  if (!parts.empty()) {
    json::bj::array list;
    for (const auto& [name, value] : parts) list.push_back(json::bj::array{name, value});
    body["parts"] = std::move(list);
  }
  // Not asked twice: a job that was given and not heard of goes back with its lease.
  NC_ASSIGN(const json::bj::object o, impl_->send("POST", std::string(protocol::kTakeJob),
                                                  json::serialize(body), {false, 0}));
  return codec::taken(o);
}

Result<QueuePage> Client::queue(std::string_view state, std::uint64_t after, std::size_t limit) {
  std::string target = fmt::format("{}?limit={}&after={}", protocol::kQueue, limit, after);
  if (!state.empty()) target += "&state=" + codec::escape(state);
  NC_ASSIGN(const json::bj::object o, impl_->get(std::move(target)));
  return codec::queue_page(o);
}

Result<std::uint64_t> Client::clear_queue() {
  NC_ASSIGN(const json::bj::object o,
            impl_->ask(impl_->request("DELETE", std::string(protocol::kQueue))));
  return json::natural(o, "removed");
}

Result<ClusterQueuePage> Client::cluster_queue(std::string_view after) {
  NC_ASSIGN(const json::bj::object o,
            impl_->get(fmt::format("{}?after={}", protocol::kClusterQueue, codec::escape(after))));
  return codec::cluster_queue_page(o);
}

Result<std::uint64_t> Client::clear_cluster_queue(bool failed, bool dry_run) {
  std::string target =
      fmt::format("{}?failed={:d}&dry_run={:d}", protocol::kClusterQueue, failed, dry_run);
  NC_ASSIGN(const json::bj::object o, impl_->ask(impl_->request("DELETE", std::move(target))));
  return json::natural(o, "removed");
}

Result<OutcomePage> Client::outcomes(std::string_view recording, std::string_view after,
                                     std::size_t limit) {
  std::string target = fmt::format("{}/{}/outcomes?limit={}", protocol::kRecordings,
                                   codec::escape(recording), limit);
  if (!after.empty()) target += "&after=" + codec::escape(after);
  NC_ASSIGN(const json::bj::object o, impl_->get(std::move(target)));
  return codec::outcome_page(o);
}

Status Client::forget_outcomes(std::string_view recording) {
  NC_TRY(impl_->perform(impl_->request(
      "DELETE", fmt::format("{}/{}/outcomes", protocol::kRecordings, codec::escape(recording)))));
  return {};
}

Status Client::move_outcomes(std::string_view from, std::string_view to) {
  const json::bj::object body{{"from", json::bj::string_view(from.data(), from.size())}};
  NC_TRY(impl_->send("POST",
                     fmt::format("{}/{}/outcomes", protocol::kRecordings, codec::escape(to)),
                     json::serialize(body)));
  return {};
}

Result<Client::Uploaded> Client::upload(const Digest& digest, Bytes bytes,
                                        const UploadOptions& options) {
  MemoryBody source(bytes);
  return impl_->upload(digest, source, options);
}

Result<Client::Uploaded> Client::upload_file(const std::string& path, const UploadOptions& options,
                                             const Digest* known_digest) {
  NC_ASSIGN(const std::unique_ptr<File> file,
            real_filesystem().open(path, FileSystem::Open::kRead));
  NC_ASSIGN(const std::uint64_t size, file->size());
  Digest digest;
  if (known_digest != nullptr) {
    digest = *known_digest;
  } else {
    Sha256Hasher hasher;
    std::string buffer(std::min<std::uint64_t>(size + 1, 1 << 20), '\0');
    for (std::uint64_t offset = 0; offset < size;) {
      NC_ASSIGN(const std::size_t n,
                file->read_at(offset, std::as_writable_bytes(std::span(buffer))));
      if (n == 0)
        return Error{Code::kIo, path + " got shorter while it was read",
                     "do not change a file while it is stored"};
      hasher.update(as_bytes({buffer.data(), n}));
      offset += n;
    }
    digest = hasher.finish();
  }
  FileBody source(*file, size);
  return impl_->upload(digest, source, options);
}

Result<Client::Uploaded> Client::upload_from(const Digest& digest, BodySource& source,
                                             const UploadOptions& options) {
  return impl_->upload(digest, source, options);
}

Result<bool> Client::check_blob(const Digest& digest) {
  NC_ASSIGN(const json::bj::object o,
            impl_->send("POST", fmt::format("{}{}/check", protocol::kBlobs, digest.hex()), "{}"));
  return json::boolean(o, "well");
}

Result<bool> Client::has_blob(const Digest& digest) {
  const std::string target = fmt::format("{}{}", protocol::kBlobs, digest.hex());
  NC_ASSIGN(const HttpResponse response, impl_->perform(impl_->request("HEAD", target)));
  if (response.status == 404) return false;
  if (response.status >= 400) return codec::error(response.status, "", target);
  return true;
}

Result<std::string> Client::download(const Digest& digest, std::uint64_t limit) {
  HttpRequest r = impl_->request("GET", fmt::format("{}{}", protocol::kBlobs, digest.hex()));
  r.streaming = true;
  r.body_limit = std::max<std::uint64_t>(limit, 64 << 10);  // room for an error's text
  NC_ASSIGN(HttpResponse response, impl_->perform(r));
  if (response.body.size() > limit) {
    return Error{Code::kTooLarge,
                 fmt::format("blob {} has more than {} bytes", digest.hex(), limit), ""};
  }
  if (Digest::of(as_bytes(response.body)) != digest) {
    return Error{Code::kDigestMismatch,
                 fmt::format("the bytes of blob {} are not what their name says", digest.hex()),
                 "run `neuroncache verify --repair`"};
  }
  return std::move(response.body);
}

Result<std::uint64_t> Client::download_to(const Digest& digest, const Sink& sink) {
  HttpRequest r = impl_->request("GET", fmt::format("{}{}", protocol::kBlobs, digest.hex()));
  r.streaming = true;
  r.sink = sink;
  NC_ASSIGN(const HttpResponse response, impl_->perform(r));
  return response.body_bytes;
}

Result<bool> Client::commit(const Lease& lease, const EntryManifest& manifest) {
  return impl_->commit(fmt::format("{}{}?lease={}&fence={}", protocol::kActions, manifest.key.hex(),
                                   codec::escape(lease.id), lease.fence),
                       codec::manifest_text(manifest));
}

Result<bool> Client::commit_import(const ActionKey& key, std::string_view manifest_json) {
  NC_ASSIGN(const json::bj::object parsed, json::parse_object(manifest_json, "the manifest"));
  NC_ASSIGN(const EntryManifest manifest, codec::manifest(parsed));
  if (manifest.key != key) {
    return Error{Code::kCorrupt, fmt::format("the manifest of {} names another key", key.hex()),
                 ""};
  }
  return impl_->commit(fmt::format("{}{}?import=1", protocol::kActions, key.hex()), manifest_json);
}

Result<EntryManifest> Client::manifest(const ActionKey& key) {
  NC_ASSIGN(const json::bj::object o,
            impl_->get(fmt::format("{}{}", protocol::kActions, key.hex())));
  return codec::manifest(o);
}

Result<std::string> Client::manifest_json(const ActionKey& key) {
  NC_ASSIGN(HttpResponse response, impl_->perform(impl_->request(
                                       "GET", fmt::format("{}{}", protocol::kActions, key.hex()))));
  return std::move(response.body);
}

Status Client::bypass(std::string_view name_space, std::string_view reason, std::string_view ticket,
                      std::uint64_t count) {
  NC_TRY(impl_->send("POST", std::string(protocol::kBypass),
                     codec::bypass_body(name_space, reason, ticket, count), {false, 0}));
  return {};
}

Result<Stats> Client::stats(std::string_view name_space) {
  const std::string query = name_space.empty() ? "" : "namespace=" + codec::escape(name_space);
  NC_ASSIGN(const json::bj::object o, impl_->get(with_query(protocol::kStats, query)));
  return codec::stats(o);
}

Result<EntryPage> Client::entries(const EntryFilter& filter, std::string_view after,
                                  std::size_t limit) {
  std::string query = codec::filter_query(filter);
  if (!query.empty()) query += '&';
  query += fmt::format("limit={}", limit);
  if (!after.empty()) query += "&after=" + codec::escape(after);
  NC_ASSIGN(const json::bj::object o, impl_->get(with_query(protocol::kEntries, query)));
  return codec::entry_page(o);
}

Result<EntryDetails> Client::show(std::string_view key_or_prefix) {
  NC_ASSIGN(const json::bj::object o,
            impl_->get(fmt::format("{}/{}", protocol::kEntries, codec::escape(key_or_prefix))));
  return codec::entry_details(o);
}

Result<PruneAnswer> Client::prune(const PruneRequest& request) {
  constexpr Millis kLong = 600'000;  // deleting may touch very many entries
  NC_ASSIGN(const json::bj::object o, impl_->send("POST", std::string(protocol::kPrune),
                                                  codec::prune_body(request), {false, kLong}));
  return codec::prune_answer(o);
}

Result<std::string> Client::tiers() {
  NC_ASSIGN(const json::bj::object o, impl_->get(std::string(protocol::kTiers)));
  return json::serialize(o);
}

Result<std::string> Client::tier_call(std::string_view call, std::string_view body) {
  constexpr Millis kLong = 6 * 3'600'000;  // all blobs of a large tier may be looked at
  NC_ASSIGN(const json::bj::object o,
            impl_->send("POST", fmt::format("{}/{}", protocol::kTiers, call), body, {true, kLong}));
  return json::serialize(o);
}

Result<VerifyPage> Client::verify(std::string_view after, std::size_t limit, bool repair) {
  json::bj::object body;
  if (!after.empty()) body["after"] = json::bj::string_view(after.data(), after.size());
  body["limit"] = limit;
  body["repair"] = repair;
  constexpr Millis kLong = 600'000;  // a page may hold very large blobs, all are read
  NC_ASSIGN(const json::bj::object o, impl_->send("POST", std::string(protocol::kVerify),
                                                  json::serialize(body), {true, kLong}));
  return codec::verify_page(o);
}

Status Client::pin(const ActionKey& key, bool pinned) {
  json::bj::object body{{"key", key.hex()}, {"pinned", pinned}};
  NC_TRY(impl_->send("POST", std::string(protocol::kPins), json::serialize(body)));
  return {};
}

Result<std::vector<MissRecord>> Client::misses(std::size_t limit) {
  NC_ASSIGN(const json::bj::object o,
            impl_->get(fmt::format("{}?limit={}", protocol::kMisses, limit)));
  return codec::misses(o);
}

Result<std::vector<LeaseInfo>> Client::leases() {
  NC_ASSIGN(const json::bj::object o, impl_->get(std::string(protocol::kLeases)));
  return codec::leases(o);
}

Result<std::vector<BucketProgram>> Client::bucket_programs() {
  NC_ASSIGN(const json::bj::object o, impl_->get(std::string(protocol::kBuckets)));
  return codec::bucket_programs(o);
}

Result<std::vector<ConfigValue>> Client::config() {
  NC_ASSIGN(const json::bj::object o, impl_->get(std::string(protocol::kConfig)));
  return codec::config(o);
}

Status Client::set_config(std::string_view name, std::string_view value) {
  json::bj::object body{{"name", json::bj::string_view(name.data(), name.size())},
                        {"value", json::bj::string_view(value.data(), value.size())}};
  NC_TRY(impl_->send("POST", std::string(protocol::kConfig), json::serialize(body)));
  return {};
}

Status Client::shutdown(Millis drain_ms) {
  json::bj::object body{{"drain_ms", drain_ms}};
  NC_TRY(impl_->send("POST", std::string(protocol::kShutdown), json::serialize(body), {false, 0}));
  return {};
}

}  // namespace nc::client
