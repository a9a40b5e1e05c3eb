#include "cache/tier/open_engine.hpp"

#include <cstdlib>

#include "cache/tier/curl_http.hpp"
#include "cache/tier/file_engine.hpp"
#include "cache/tier/http_engine.hpp"
#include "cache/tier/redis_engine.hpp"
#include "cache/tier/s3_engine.hpp"

namespace nc::tier {

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  };
}

Result<std::unique_ptr<Engine>> open_engine(const TierAddress& address, EngineDeps deps) {
  using Scheme = TierAddress::Scheme;
  if (address.scheme == Scheme::kFile) {
    FileEngineOptions options{.address = address.shown, .dir = address.path};
    options.timeout_ms = address.timeout_ms;
    return open_file_engine(std::move(options), *deps.clock, *deps.random);
  }
  if (address.scheme == Scheme::kRedis) return open_redis(address, std::move(deps));
  auto http = open_curl_http(*deps.clock);
  if (!http.ok()) return std::move(http).error().context(address.shown);
  if (address.scheme == Scheme::kHttp) return open_http(address, std::move(deps), *std::move(http));
  return open_s3(address, std::move(deps), *std::move(http));
}

}  // namespace nc::tier
