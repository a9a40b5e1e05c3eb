#include "cache/tier/http_engine.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "cache/tier/dates.hpp"
#include "cache/tier/exclusive.hpp"
#include "cache/tier/http_fetch.hpp"
#include "cache/tier/layout.hpp"
#include "cache/tier/loopback.hpp"
#include "cache/tier/retry.hpp"

namespace nc::tier {
namespace {

constexpr std::uint64_t kMaxToken = 16 << 10;

struct Known {
  int status;
  Code code;
  const char* action;
};
constexpr std::array kKnown = {
    Known{401, Code::kDenied, "check the address's credentials"},
    Known{403, Code::kDenied, "check the address's credentials and what they allow"},
    Known{404, Code::kNotFound, ""},
    Known{405, Code::kReadOnly, "allow PUT and DELETE there, or add read_only=true to the address"},
    Known{408, Code::kTimeout, ""},
    Known{409, Code::kIo, "let the server make folders (nginx: create_full_put_path on)"},
    Known{410, Code::kNotFound, ""},
    Known{412, Code::kConflict, ""},
    Known{413, Code::kTooLarge, "raise the server's limit (nginx: client_max_body_size)"},
    Known{422, Code::kCorrupt, ""},  // a neuroncached: not the bytes of that digest
    Known{429, Code::kBusy, ""},
    Known{501, Code::kUnsupported, ""},
    Known{507, Code::kNoSpace, "free space there"},
};

Error http_error(int status, const std::string& what) {
  const auto message = fmt::format("{}: status {}", what, status);
  for (const auto& known : kKnown) {
    if (known.status == status) return {known.code, message, known.action};
  }
  if (status >= 500) return {Code::kUnavailable, message, ""};
  if (status >= 300 && status < 400) {
    return {Code::kIo, message, "redirects are not followed; use the address that it leads to"};
  }
  return {Code::kIo, message, ""};
}

// What the server is: of files as they are named, or of entries and blobs alone.
enum class Layout { kPlain, kBazel, kDaemon };

Layout layout_of(const std::string& option) {
  return option == "bazel"          ? Layout::kBazel
         : option == "neuroncached" ? Layout::kDaemon
                                    : Layout::kPlain;
}

class HttpEngine final : public Engine {
 public:
  HttpEngine(const TierAddress& address, EngineDeps deps, std::shared_ptr<HttpClient> http)
      : address_(address),
        deps_(std::move(deps)),
        http_(std::move(http)),
        layout_(layout_of(address.option("layout"))),
        conditional_(address.flag("conditional", false)) {
    base_ = fmt::format("{}://{}", address.tls ? "https" : "http",
                        address.host.find(':') == std::string::npos
                            ? address.host
                            : fmt::format("[{}]", address.host));
    if (address.port != 0) base_ += fmt::format(":{}", address.port);
    base_ += percent_encode(address.path, "/") + "/";
  }

  const std::string& address() const override { return address_.shown; }
  Capabilities capabilities() const override {
    const bool daemon = layout_ == Layout::kDaemon;
    return {(conditional_ || daemon) && !exclusive_.broken(), false, layout_ != Layout::kBazel,
            daemon};
  }

  Result<std::string> get(const std::string& name, std::uint64_t limit) override {
    NC_ASSIGN(auto request, readable("GET", name));
    request.body_limit = limit;
    NC_ASSIGN(auto response, repeated(request));
    return std::move(response.body);
  }

  Result<std::uint64_t> fetch(const std::string& name, std::uint64_t offset, std::uint64_t limit,
                              const Sink& sink) override {
    NC_ASSIGN(const auto plain, readable("GET", name));
    return fetch_object(deps_, name, offset, limit, sink, [&](const FetchParts& parts) {
      auto request = plain;
      request.headers = parts.headers;
      request.on_head = parts.on_head;
      request.sink = parts.sink;
      return send(request, {412, 416});
    });
  }

  Result<ObjectInfo> head(const std::string& name) override {
    NC_ASSIGN(const auto request, readable("HEAD", name));
    NC_ASSIGN(const auto response, repeated(request));
    const auto size = response.head.content_length();
    if (!size) {
      return Error{Code::kUnsupported,
                   fmt::format("{}: the server does not tell the length of {}", address(), name),
                   ""};
    }
    return ObjectInfo{name, *size,
                      parse_http_date(response.head.header("last-modified")).value_or(0)};
  }

  Status put(const std::string& name, Bytes bytes) override {
    NC_ASSIGN(auto request, writable("PUT", name));
    request.bytes = bytes;
    const auto sent = repeated(request);
    return sent.ok() ? Status() : Status(sent.error());
  }

  Status store(const std::string& name, Source& source) override {
    NC_ASSIGN(auto request, writable("PUT", name));
    request.source = &source;
    request.source_size = source.size();
    const auto sent = repeated(request);
    return sent.ok() ? Status() : Status(sent.error());
  }

  Result<bool> create(const std::string& name, Bytes bytes, Millis /*keep_ms: kept*/) override {
    NC_ASSIGN(auto request, writable("PUT", name));
    if (layout_ == Layout::kDaemon) return create_there(std::move(request), bytes);
    if (!conditional_) {
      return Error{
          Code::kUnsupported,
          fmt::format("{}: it is not known that the server creates exclusively", address()),
          "add conditional=true to the address where it honours If-None-Match"};
    }
    request.bytes = bytes;
    request.headers.push_back({"if-none-match", "*"});
    return exclusive_.create(address(), [&]() -> Result<bool> {
      NC_ASSIGN(const auto sent, send(request, {412}));
      return sent.head.success();
    });
  }

  Status remove(const std::string& name) override {
    NC_TRY(check_name(name));
    if (layout_ == Layout::kBazel || (layout_ == Layout::kDaemon && !parse_lease(name))) {
      return Error{Code::kUnsupported, address() + ": such a cache removes by itself only", ""};
    }
    NC_ASSIGN(const auto request, writable("DELETE", name));
    const auto done = repeated(request);
    if (!done.ok() && !done.is(Code::kNotFound)) return done.error();
    return {};
  }

  Result<Page> list(const std::string& /*prefix*/, const std::string& /*after*/,
                    std::size_t /*limit*/) override {
    return Error{Code::kUnsupported, address() + ": a plain HTTP server lists nothing", ""};
  }

 private:
  Result<bool> create_there(HttpRequest request, Bytes bytes) const {
    request.bytes = bytes;
    request.url += "?create=1";
    NC_ASSIGN(const auto sent, send(request, {404, 409}));
    if (sent.head.status == 404) {
      return Error{Code::kUnsupported, address() + ": the neuroncached there keeps no leases",
                   "install this version there, or set cluster_leases to another tier or to off"};
    }
    return sent.head.success();
  }

  // Where an object lies below base_; nothing: the layout has no place for it.
  std::optional<std::string> place(const std::string& name) const {
    if (layout_ == Layout::kPlain) return name;
    const bool bazel = layout_ == Layout::kBazel;
    if (const auto lease = parse_lease(name); lease && !bazel) {
      return fmt::format("v1/cluster/leases/{}.{}", lease->key.hex(), lease->fence);
    }
    if (const auto entry = parse_entry(name)) {
      if (entry->place == 0) return (bazel ? "ac/" : "v1/actions/") + entry->key.hex();
      if (!bazel) return std::nullopt;
      return "ac/" + Digest::of(as_bytes(name)).hex();  // such a cache has names of 64 digits only
    }
    const auto blob = parse_blob(name);
    if (!blob || blob->compressed) return std::nullopt;
    return (bazel ? "cas/" : "v1/blobs/") + blob->digest.hex();
  }

  Result<HttpRequest> request_of(const char* method, const std::string& name, Code absent) const {
    NC_TRY(check_name(name));
    const auto where = place(name);
    if (!where) {
      return Error{absent, fmt::format("{}: the layout has no place for {}", address(), name), ""};
    }
    HttpRequest request;
    request.method = method;
    request.url = base_ + *where;
    request.timeout_ms = address_.timeout_ms;
    request.ca_file = address_.option("ca_file");
    request.cert_file = address_.option("cert_file");
    request.key_file = address_.option("key_file");
    return request;
  }
  Result<HttpRequest> readable(const char* method, const std::string& name) const {
    return request_of(method, name, Code::kNotFound);
  }
  Result<HttpRequest> writable(const char* method, const std::string& name) const {
    auto request = request_of(method, name, Code::kUnsupported);
    // The daemon takes an entry that was built elsewhere only from who says so.
    if (request.ok() && layout_ == Layout::kDaemon && parse_entry(name)) {
      request->url += "?import=1";
    }
    return request;
  }

  // Read anew for each request: tokens are rotated under running programs.
  Result<std::string> authorization() const {
    if (!address_.user.empty() || !address_.password.empty()) {
      return "Basic " + to_base64(as_bytes(address_.user + ":" + address_.password));
    }
    std::string token;
    if (const auto file = address_.option("token_file"); !file.empty()) {
      auto text = deps_.files->read_all(file, kMaxToken);
      if (!text.ok()) return Error{Code::kDenied, text.error().message, text.error().action};
      token = *std::move(text);
      while (token.ends_with('\n') || token.ends_with('\r')) token.pop_back();
    } else if (const auto variable = address_.option("token_env"); !variable.empty()) {
      token = deps_.environment(variable).value_or("");
    } else {
      return std::string();
    }
    const bool valid = std::all_of(token.begin(), token.end(), [](char c) {
      return static_cast<unsigned char>(c) > 0x20 && static_cast<unsigned char>(c) < 0x7f;
    });
    if (token.empty() || !valid) {
      return Error{Code::kDenied, address() + ": the token is empty or not one word",
                   "check token_file or token_env of the address"};
    }
    return "Bearer " + token;
  }

  Result<HttpResponse> send(HttpRequest request, const std::vector<int>& accept) const {
    NC_ASSIGN(auto proof, authorization());
    if (!proof.empty()) request.headers.push_back({"authorization", std::move(proof)});
    auto response = http_->send(request);
    if (!response.ok()) return std::move(response).error().context(address());
    const int status = response->head.status;
    if (response->head.success() ||
        std::find(accept.begin(), accept.end(), status) != accept.end()) {
      return response;
    }
    return http_error(status, fmt::format("{}: {}", address(), request.shown()));
  }
  Result<HttpResponse> repeated(const HttpRequest& request) const {
    return with_retries(deps_, [&] { return send(request, {}); });
  }

  const TierAddress address_;
  const EngineDeps deps_;
  const std::shared_ptr<HttpClient> http_;
  const Layout layout_;
  const bool conditional_;
  std::string base_;
  Exclusive exclusive_;
};

}  // namespace

Result<std::unique_ptr<Engine>> open_http(const TierAddress& address, EngineDeps deps,
                                          std::shared_ptr<HttpClient> http) {
  const bool proves = !address.user.empty() || !address.password.empty() ||
                      address.options.contains("token_file") ||
                      address.options.contains("token_env");
  if (proves) NC_TRY(check_clear(address, address.host, address.tls, "the address's credentials"));
  return std::unique_ptr<Engine>(
      std::make_unique<HttpEngine>(address, std::move(deps), std::move(http)));
}

}  // namespace nc::tier
