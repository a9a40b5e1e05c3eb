#include "cache/tier/s3_client.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "base/log.hpp"
#include "cache/tier/dates.hpp"
#include "cache/tier/s3_answers.hpp"

namespace nc::tier {
namespace {

bool keys_ran_out(const S3Failure& failure) {
  return failure.code == "ExpiredToken" || failure.code == "InvalidToken" ||
         failure.code == "TokenRefreshRequired";
}

}  // namespace

Result<S3Place> s3_place(const TierAddress& address, const std::string& region,
                         const std::string& endpoint) {
  S3Place place;
  place.region = region;
  place.aws = endpoint.empty();
  std::string base;
  if (place.aws) {
    place.host =
        fmt::format("s3.{}.amazonaws.com{}", region, region.starts_with("cn-") ? ".cn" : "");
  } else {
    const auto parsed = parse_tier_url(endpoint);
    if (!parsed.ok() || parsed->scheme != TierAddress::Scheme::kHttp || !parsed->user.empty() ||
        !parsed->options.empty()) {
      return Error{Code::kInvalid, fmt::format("{}: the endpoint is no address", address.shown),
                   "write endpoint=https://host:port"};
    }
    place.tls = parsed->tls;
    place.host = parsed->host.find(':') == std::string::npos ? parsed->host
                                                             : fmt::format("[{}]", parsed->host);
    if (parsed->port != 0 && parsed->port != (place.tls ? 443 : 80)) {
      place.host += fmt::format(":{}", parsed->port);
    }
    base = percent_encode(parsed->path, "/");
  }
  // A dot in the bucket's name would not fit the certificate of the service.
  const bool dotted = address.host.find('.') != std::string::npos;
  const auto style = address.option("style", place.aws && !dotted ? "virtual" : "path");
  if (style == "virtual") {
    place.host = address.host + "." + place.host;
    place.base = base;
  } else {
    place.base = base + "/" + percent_encode(address.host);
  }
  return place;
}

S3Client::S3Client(S3Place place, const TierAddress& address, const EngineDeps& deps,
                   std::shared_ptr<HttpClient> http, std::unique_ptr<S3Credentials> credentials)
    : place_(std::move(place)),
      timeout_ms_(address.timeout_ms),
      ca_file_(address.option("ca_file")),
      shown_(address.shown),
      deps_(deps),
      http_(std::move(http)),
      credentials_(std::move(credentials)) {}

HttpRequest S3Client::build(const S3Call& call, const AwsKeys* keys) const {
  SigningInput input;
  input.method = call.method;
  input.path = place_.base + "/" + percent_encode(call.key, "/");
  input.query = call.query;
  input.headers = call.headers;
  input.headers.push_back({"host", place_.host});
  input.payload_hash = call.payload_hash;
  if (keys != nullptr) {
    input.headers.push_back({"x-amz-content-sha256", call.payload_hash});
    sign(input, *keys, {place_.region, "s3", deps_.clock->wall_ms() + clock_offset_ms_});
  }
  const auto query = canonical_query(call.query);
  HttpRequest request;
  request.method = call.method;
  request.url = fmt::format("{}://{}{}{}{}", place_.tls ? "https" : "http", place_.host, input.path,
                            query.empty() ? "" : "?", query);
  request.headers = std::move(input.headers);
  request.bytes = call.bytes;
  request.source = call.source;
  request.source_offset = call.source_offset;
  request.source_size = call.source_size;
  request.timeout_ms = timeout_ms_;
  request.body_limit = call.body_limit;
  request.on_head = call.on_head;
  request.sink = call.sink;
  request.ca_file = ca_file_;
  return request;
}

Result<HttpResponse> S3Client::send(const S3Call& call) {
  bool clock_set = false;
  bool keys_changed = false;
  while (true) {
    std::optional<AwsKeys> keys;
    if (credentials_) {
      auto found = credentials_->get();
      if (!found.ok()) return std::move(found).error().context(shown_);
      keys = *std::move(found);
    }
    auto answer = http_->send(build(call, keys ? &*keys : nullptr));
    if (!answer.ok()) return std::move(answer).error().context(shown_);
    const auto& head = answer->head;
    const auto accepted = std::find(call.accept.begin(), call.accept.end(), head.status);
    if (head.success() || accepted != call.accept.end()) return answer;
    const auto failure = parse_s3_failure(head, answer->body);
    if (failure.code == "RequestTimeTooSkewed" && !clock_set) {
      if (const auto date = parse_http_date(head.header("date"))) {
        clock_set = true;
        clock_offset_ms_ = *date - deps_.clock->wall_ms();
        log::warn("tier", "{}: this host's clock is off by {} s; requests carry the service's time",
                  shown_, clock_offset_ms_ / -1000);
        continue;
      }
    }
    if (keys && keys_ran_out(failure) && !keys_changed) {
      keys_changed = true;
      credentials_->refuse(*keys);
      continue;
    }
    return s3_error(head, failure, fmt::format("{}: {} {}", shown_, call.method, call.key));
  }
}

}  // namespace nc::tier
