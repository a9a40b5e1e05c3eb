// Graphs come in, padding plans go out. An answer is kept like any other artifact, under the digest
// of its request: a graph that some process has sent before costs one look-up.
#include "base/bytes.hpp"
#include "base/log.hpp"
#include "bucketing/padding/engine.hpp"
#include "daemon/answers.hpp"
#include "daemon/service.hpp"

namespace nc::daemon {
namespace {

namespace js = boost::json;

constexpr std::uint64_t kMaxAnswer = 256ULL << 20;
constexpr std::string_view kOutput = "answer.json";

KeyParts parts_of(std::string_view request) {
  return {{"kind", "padding"},
          {"engine", std::string(padding::kEngineVersion)},
          {"request", "sha256:" + Sha256::of(as_bytes(request)).hex()}};
}

std::optional<std::string> stored(Service& service, const ActionKey& key) {
  auto hit = service.store.lookup(key);
  if (!hit.ok() || !*hit) return std::nullopt;
  for (const Output& output : (*hit)->manifest.outputs) {
    if (output.name != kOutput) continue;
    auto bytes = service.store.read_blob(output.digest, kMaxAnswer);
    if (bytes.ok()) return *std::move(bytes);
  }
  return std::nullopt;
}

// Keeping it is a convenience: whatever goes wrong is logged, and the answer is sent all the same.
void keep(Service& service, const ActionKey& key, KeyParts parts, const std::string& answer,
          std::uint64_t took_ms) {
  const Digest digest = Sha256::of(as_bytes(answer));
  const auto put = [&]() -> Status {
    auto upload = service.store.begin_upload(digest, answer.size(), true);
    if (!upload.ok()) return upload.error();
    if (*upload) {
      if (Status ok = (*upload)->write(as_bytes(answer)); !ok.ok()) return ok;
      if (Status ok = (*upload)->finish(); !ok.ok()) return ok;
    }
    Manifest manifest;
    manifest.key = key;
    manifest.kind = "padding";
    manifest.label = "padding plan";
    manifest.compiler = "padding " + std::string(padding::kEngineVersion);
    manifest.created_ms = service.clock.wall_ms();
    manifest.build_ms = took_ms;
    manifest.producer = {service.host, service.pid, "neuroncached", NC_VERSION};
    manifest.parts = std::move(parts);
    manifest.outputs.push_back({std::string(kOutput), digest, answer.size(), 0644});
    auto published = service.store.publish(manifest);
    return published.ok() ? Status{} : Status{published.error()};
  };
  if (Status ok = put(); !ok.ok())
    log::debug("padding", "a padding plan was not kept: {}", ok.error().text());
}

}  // namespace

HttpResponse plan_padding(Service& service, const HttpRequest& request) {
  KeyParts parts = parts_of(request.body);
  const auto key = action_key(parts);
  if (!key.ok()) return HttpResponse::error(key.error());
  if (auto known = stored(service, *key)) return HttpResponse::json(*std::move(known));

  boost::system::error_code ec;
  js::parse_options options;
  options.max_depth = 64;
  const js::value document = js::parse(request.body, ec, {}, options);
  if (ec) {
    return HttpResponse::error(
        {Code::kInvalid, "the request is no JSON: " + ec.message(), "see docs/padding.md"});
  }
  const Millis begin = service.clock.monotonic_ms();
  auto plan = padding::plan(document);
  if (!plan.ok()) return HttpResponse::error(plan.error());
  std::string text = js::serialize(*plan);
  if (!service.read_only) {
    const auto took = static_cast<std::uint64_t>(service.clock.monotonic_ms() - begin);
    keep(service, *key, std::move(parts), text, took);
  }
  return HttpResponse::json(std::move(text));
}

}  // namespace nc::daemon
