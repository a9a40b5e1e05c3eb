#include "cache/tier/s3_engine.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "base/hash.hpp"
#include "cache/tier/dates.hpp"
#include "cache/tier/exclusive.hpp"
#include "cache/tier/http_fetch.hpp"
#include "cache/tier/layout.hpp"
#include "cache/tier/loopback.hpp"
#include "cache/tier/retry.hpp"
#include "cache/tier/s3_answers.hpp"
#include "cache/tier/s3_client.hpp"

namespace nc::tier {
namespace {

constexpr std::uint64_t kMaxObject = 5ULL << 40;
constexpr std::uint64_t kMaxParts = 10'000;
constexpr std::uint64_t kMaxList = 8 << 20;  // bytes of an answer with a thousand names
constexpr std::size_t kMaxPage = 1'000;

Result<std::string> hash_of(Source& source, std::uint64_t offset, std::uint64_t size) {
  Sha256Hasher hasher;
  std::vector<std::byte> buffer(256 << 10);
  while (size > 0) {
    const auto want = std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), size));
    NC_ASSIGN(const auto got, source.read_at(offset, want));
    if (got == 0) return Error{Code::kCorrupt, "what is sent is shorter than it said", ""};
    hasher.update(want.first(got));
    offset += got;
    size -= got;
  }
  return hasher.finish().hex();
}

class S3Engine final : public Engine {
 public:
  S3Engine(const TierAddress& address, EngineDeps deps)
      : shown_(address.shown), any_names_(address.any_names), deps_(std::move(deps)) {
    if (!address.path.empty()) prefix_ = address.path + "/";
  }

  Status open(const TierAddress& address, const std::shared_ptr<HttpClient>& http) {
    const bool anonymous = address.flag("anonymous", false);
    auto region = address.option("region");
    for (const char* name : {"AWS_REGION", "AWS_DEFAULT_REGION"}) {
      if (region.empty()) region = deps_.environment(name).value_or("");
    }
    auto endpoint = address.option("endpoint");
    for (const char* name : {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}) {
      if (endpoint.empty()) endpoint = deps_.environment(name).value_or("");
    }
    std::unique_ptr<S3Credentials> credentials;
    if (!anonymous) {
      credentials = std::make_unique<S3Credentials>(
          S3Credentials::Options{address.option("profile"), region}, deps_, http);
      if (region.empty()) region = credentials->profile_region();
    }
    if (region.empty()) region = "us-east-1";
    NC_ASSIGN(auto place, s3_place(address, region, endpoint));
    if (!anonymous) {
      const auto host = host_of_url((place.tls ? "https://" : "http://") + place.host);
      NC_TRY(check_clear(address, host, place.tls, "what a session's credentials prove"));
    }
    client_ =
        std::make_unique<S3Client>(std::move(place), address, deps_, http, std::move(credentials));
    return {};
  }

  const std::string& address() const override { return shown_; }
  Capabilities capabilities() const override { return {!exclusive_.broken(), true, true}; }

  Result<std::string> get(const std::string& name, std::uint64_t limit) override {
    NC_TRY(check_readable(name));
    auto call = of("GET", name);
    call.body_limit = limit;
    NC_ASSIGN(auto response, repeated(call));
    return std::move(response.body);
  }

  Result<std::uint64_t> fetch(const std::string& name, std::uint64_t offset, std::uint64_t limit,
                              const Sink& sink) override {
    NC_TRY(check_readable(name));
    return fetch_object(deps_, name, offset, limit, sink, [&](const FetchParts& parts) {
      auto call = of("GET", name);
      call.headers = parts.headers;
      call.on_head = parts.on_head;
      call.sink = parts.sink;
      call.accept = {412, 416};
      return client_->send(call);
    });
  }

  Result<ObjectInfo> head(const std::string& name) override {
    NC_TRY(check_name(name));
    NC_ASSIGN(const auto response, repeated(of("HEAD", name)));
    const auto size = response.head.content_length();
    if (!size) return Error{Code::kCorrupt, fmt::format("{}: {} has no length", shown_, name), ""};
    return ObjectInfo{name, *size,
                      parse_http_date(response.head.header("last-modified")).value_or(0)};
  }

  Status put(const std::string& name, Bytes bytes) override {
    NC_TRY(check_name(name));
    const auto sent = repeated(whole(name, bytes));
    return sent.ok() ? Status() : Status(sent.error());
  }

  Status store(const std::string& name, Source& source) override {
    NC_TRY(check_name(name));
    const auto size = source.size();
    if (size > kMaxObject) {
      return Error{Code::kTooLarge, fmt::format("{}: S3 takes objects up to 5 TiB", name), ""};
    }
    if (size > kS3WholeBytes) return store_parts(name, source);
    auto call = of("PUT", name);
    NC_TRY(give(call, source, 0, size));
    const auto sent = repeated(call);
    return sent.ok() ? Status() : Status(sent.error());
  }

  Result<bool> create(const std::string& name, Bytes bytes, Millis /*keep_ms: kept*/) override {
    NC_TRY(check_name(name));
    return exclusive_.create(shown_, [&] { return create_once(name, bytes); });
  }

  Status remove(const std::string& name) override {
    NC_TRY(check_name(name));
    auto call = of("DELETE", name);
    call.accept = {404};
    const auto done = repeated(call);
    return done.ok() ? Status() : Status(done.error());
  }

  Result<Page> list(const std::string& prefix, const std::string& after,
                    std::size_t limit) override {
    NC_TRY(check_prefix(prefix));
    S3Call call;
    call.query = {{"list-type", "2"},
                  {"encoding-type", "url"},
                  {"prefix", prefix_ + prefix},
                  {"max-keys", fmt::format("{}", std::clamp<std::size_t>(limit, 1, kMaxPage))}};
    if (!after.empty()) call.query.emplace_back("start-after", prefix_ + after);
    call.body_limit = kMaxList;
    NC_ASSIGN(const auto response, repeated(call));
    auto parsed = parse_s3_list(response.body);
    if (!parsed.ok()) return std::move(parsed).error().context(shown_ + ": list");
    Page page;
    std::string last;
    for (auto& object : parsed->objects) {
      if (!object.name.starts_with(prefix_)) continue;
      object.name.erase(0, prefix_.size());
      last = std::max(last, object.name);
      // Others may keep theirs in the bucket; they are none of ours.
      if (object.name <= after || !object.name.starts_with(prefix)) continue;
      if (check_readable(object.name).ok()) page.objects.push_back(std::move(object));
    }
    std::sort(page.objects.begin(), page.objects.end(),
              [](const ObjectInfo& a, const ObjectInfo& b) { return a.name < b.name; });
    if (parsed->truncated) {
      if (last <= after) {
        return Error{Code::kUnsupported, shown_ + ": the service's lists do not go on from a name",
                     ""};
      }
      page.next = last;
    }
    return page;
  }

 private:
  Status check_readable(const std::string& name) const {
    return any_names_ ? Status() : check_name(name);
  }

  S3Call of(const char* method, const std::string& name) const {
    S3Call call;
    call.method = method;
    call.key = prefix_ + name;
    return call;
  }

  S3Call whole(const std::string& name, Bytes bytes) const {
    auto call = of("PUT", name);
    call.bytes = bytes;
    call.payload_hash = Sha256::of(bytes).hex();
    return call;
  }

  Result<HttpResponse> repeated(const S3Call& call) {
    return with_retries(deps_, [&] { return client_->send(call); });
  }

  // TLS protects what streams; without it the service checks the hash, for which it is read twice.
  Status give(S3Call& call, Source& source, std::uint64_t offset, std::uint64_t size) const {
    call.source = &source;
    call.source_offset = offset;
    call.source_size = size;
    if (client_->place().tls) {
      call.payload_hash = kUnsignedPayload;
    } else {
      NC_ASSIGN(call.payload_hash, hash_of(source, offset, size));
    }
    return {};
  }

  // False: it is there. Not repeated after a failure that leaves open whether it was made.
  Result<bool> create_once(const std::string& name, Bytes bytes) {
    auto call = whole(name, bytes);
    call.headers.push_back({"if-none-match", "*"});
    call.accept = {412};
    Retry retry(deps_);
    while (true) {
      const auto sent = client_->send(call);
      if (sent.ok()) return sent->head.success();
      if (!sent.is(Code::kBusy) || !retry.again(sent.error())) return sent.error();
    }
  }

  Status store_parts(const std::string& name, Source& source) {
    auto begin = of("POST", name);
    begin.query = {{"uploads", ""}};
    NC_ASSIGN(const auto begun, repeated(begin));
    auto id = parse_upload_id(begun.body);
    if (!id.ok()) return std::move(id).error().context(shown_);
    auto done = send_parts(name, source, *id);
    if (!done.ok()) {
      auto abort = of("DELETE", name);
      abort.query = {{"uploadId", *id}};
      abort.accept = {404};
      ignore_error(repeated(abort), "the bucket's lifecycle removes what is left");
    }
    return done;
  }

  Status send_parts(const std::string& name, Source& source, const std::string& id) {
    const auto size = source.size();
    const auto part = std::max(kS3PartBytes, (size + kMaxParts - 1) / kMaxParts);
    std::vector<std::string> etags;
    for (std::uint64_t at = 0; at < size; at += part) {
      auto call = of("PUT", name);
      call.query = {{"partNumber", fmt::format("{}", etags.size() + 1)}, {"uploadId", id}};
      NC_TRY(give(call, source, at, std::min(part, size - at)));
      NC_ASSIGN(const auto sent, repeated(call));
      etags.push_back(sent.head.header("etag"));
      if (etags.back().empty()) {
        return Error{Code::kCorrupt, fmt::format("{}: a part of {} has no ETag", shown_, name), ""};
      }
    }
    const auto body = completion_body(etags);
    auto end = of("POST", name);
    end.query = {{"uploadId", id}};
    end.bytes = as_bytes(body);
    end.payload_hash = Sha256::of(end.bytes).hex();
    auto done = with_retries(deps_, [&]() -> Status {
      NC_ASSIGN(const auto sent, client_->send(end));
      return check_completion(sent.head, sent.body, shown_);
    });
    if (done.is(Code::kNotFound)) {  // no such upload: an answer that got lost had ended it
      const auto there = head(name);
      if (there.ok() && there->size == size) return {};
    }
    return done;
  }

  const std::string shown_;
  const bool any_names_;
  const EngineDeps deps_;
  std::string prefix_;
  std::unique_ptr<S3Client> client_;
  Exclusive exclusive_;
};

}  // namespace

Result<std::unique_ptr<Engine>> open_s3(const TierAddress& address, EngineDeps deps,
                                        const std::shared_ptr<HttpClient>& http) {
  auto engine = std::make_unique<S3Engine>(address, std::move(deps));
  NC_TRY(engine->open(address, http));
  return std::unique_ptr<Engine>(std::move(engine));
}

}  // namespace nc::tier
