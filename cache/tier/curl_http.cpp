#include "cache/tier/curl_http.hpp"

#include <algorithm>
#include <cstring>

#include "base/thread_annotations.hpp"
#include "cache/tier/curl_library.hpp"

namespace nc::tier {
namespace {

constexpr std::size_t kIdleHandles = 16;  // each keeps the connections that it made
constexpr long kBufferBytes = 256 << 10;
// Slower than this on average over kSlowSeconds counts as no progress: a server that drips bytes
// would otherwise hold a thread for ever.
constexpr long kSlowBytesPerSecond = 256;
constexpr long kSlowSeconds = 60;

// One exchange, as libcurl's callbacks see it.
struct Exchange {
  const HttpRequest& request;
  Clock& clock;
  HttpHeadReader reader{};
  std::string body{};
  std::optional<Error> error{};  // ours; ends the transfer
  bool cut = false;              // the rest of a failure's text is not wanted
  bool stalled = false;
  std::uint64_t sent = 0;
  std::uint64_t moved = 0;
  Millis moved_at = 0;

  void fail(Error what) {
    if (!error) error = std::move(what);
  }
  bool take(Bytes piece) {
    const auto& head = reader.head();
    if (head.success() && request.sink) {
      if (auto status = request.sink(piece); !status.ok()) {
        fail(std::move(status).error());
        return false;
      }
      return true;
    }
    const auto limit = head.success() ? request.body_limit : kMaxFailureText;
    const auto room = limit - std::min<std::uint64_t>(limit, body.size());
    if (piece.size() > room) {
      if (head.success()) {
        fail({Code::kTooLarge,
              "the answer is over " + std::to_string(request.body_limit) + " bytes", ""});
        return false;
      }
      piece = piece.first(room);
      cut = true;
    }
    body.append(as_text(piece));
    return !cut;
  }
};

std::size_t on_header(char* data, std::size_t size, std::size_t count, void* context) {
  auto& exchange = *static_cast<Exchange*>(context);
  if (exchange.reader.complete()) return size * count;  // trailers
  auto last = exchange.reader.line({data, size * count});
  if (!last.ok()) {
    exchange.fail(std::move(last).error());
    return 0;
  }
  if (*last && exchange.request.on_head) {
    if (auto status = exchange.request.on_head(exchange.reader.head()); !status.ok()) {
      exchange.fail(std::move(status).error());
      return 0;
    }
  }
  return size * count;
}

std::size_t on_body(char* data, std::size_t size, std::size_t count, void* context) {
  auto& exchange = *static_cast<Exchange*>(context);
  const bool taken = exchange.take(as_bytes({data, size * count}));
  exchange.moved_at = exchange.clock.monotonic_ms();  // a slow taker is no slow server
  return taken ? size * count : 0;
}

std::size_t on_read(char* out, std::size_t size, std::size_t count, void* context) {
  auto& exchange = *static_cast<Exchange*>(context);
  const auto& request = exchange.request;
  auto room = std::as_writable_bytes(std::span(out, size * count));
  if (request.source == nullptr) {
    const auto piece = request.bytes.subspan(exchange.sent);
    const auto n = std::min(piece.size(), room.size());
    if (n > 0) std::memcpy(room.data(), piece.data(), n);
    exchange.sent += n;
    return n;
  }
  const auto left = request.source_size - exchange.sent;
  room = room.first(std::min<std::uint64_t>(room.size(), left));
  if (room.empty()) return 0;
  auto got = request.source->read_at(request.source_offset + exchange.sent, room);
  if (got.ok() && *got == 0) {
    got = Error{Code::kCorrupt, "what is sent is shorter than it said", ""};
  }
  if (!got.ok()) {
    exchange.fail(std::move(got).error());
    return CURL_READFUNC_ABORT;
  }
  exchange.moved_at = exchange.clock.monotonic_ms();
  exchange.sent += *got;
  return *got;
}

int on_seek(void* context, curl_off_t offset, int origin) {
  auto& exchange = *static_cast<Exchange*>(context);
  if (origin != SEEK_SET || offset < 0) return CURL_SEEKFUNC_CANTSEEK;
  exchange.sent = static_cast<std::uint64_t>(offset);
  return CURL_SEEKFUNC_OK;
}

int on_progress(void* context, curl_off_t, curl_off_t down, curl_off_t, curl_off_t up) {
  auto& exchange = *static_cast<Exchange*>(context);
  const auto now = exchange.clock.monotonic_ms();
  const auto moved = static_cast<std::uint64_t>(down) + static_cast<std::uint64_t>(up);
  if (moved != exchange.moved) {
    exchange.moved = moved;
    exchange.moved_at = now;
  }
  exchange.stalled = now - exchange.moved_at > exchange.request.timeout_ms;
  return exchange.stalled ? 1 : 0;
}

Code code_of(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
      return Code::kUnavailable;
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_ABORTED_BY_CALLBACK:
      return Code::kTimeout;
    case CURLE_PARTIAL_FILE:
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_HTTP_RETURNED_ERROR:
      return Code::kCorrupt;
    default:
      return Code::kIo;
  }
}

std::string action_of(CURLcode code) {
  switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_CERTPROBLEM:
      return "check the server's certificate; ca_file=/path in the tier's address names other "
             "authorities to believe";
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
      return "check the address, and that the server runs";
    case CURLE_COULDNT_RESOLVE_PROXY:
      return "check the proxy in the environment";
    default:
      return "";
  }
}

class CurlHttp final : public HttpClient {
 public:
  CurlHttp(const CurlLibrary& curl, Clock& clock) : curl_(curl), clock_(clock) {}
  ~CurlHttp() override {
    MutexLock lock(mutex_);
    for (CURL* handle : idle_) curl_.easy_cleanup(handle);
  }

  Result<HttpResponse> send(const HttpRequest& request) override {
    CURL* handle = take();
    if (handle == nullptr) return Error{Code::kInternal, "libcurl gives no handle", ""};
    Exchange exchange{request, clock_};
    exchange.moved_at = clock_.monotonic_ms();
    char text[CURL_ERROR_SIZE] = "";
    curl_slist* headers = header_list(request);
    prepare(handle, exchange, headers, text);
    const CURLcode code = curl_.easy_perform(handle);
    give_back(handle);
    curl_.slist_free_all(headers);
    if (exchange.error) return std::move(*exchange.error).context(request.shown());
    if (code != CURLE_OK && !(exchange.cut && exchange.reader.complete())) {
      const std::string why = exchange.stalled ? "nothing came or went for " +
                                                     std::to_string(request.timeout_ms) + " ms"
                              : text[0] != '\0' ? text
                                                : curl_.easy_strerror(code);
      return Error{code_of(code), request.shown() + ": " + why, action_of(code)};
    }
    if (!exchange.reader.complete()) {
      return Error{Code::kCorrupt, request.shown() + ": the answer is no HTTP", ""};
    }
    return HttpResponse{exchange.reader.head(), std::move(exchange.body)};
  }

 private:
  CURL* take() NC_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      if (!idle_.empty()) {
        CURL* handle = idle_.back();
        idle_.pop_back();
        return handle;
      }
    }
    return curl_.easy_init();
  }

  void give_back(CURL* handle) NC_EXCLUDES(mutex_) {
    curl_.easy_reset(handle);  // keeps the connections
    {
      MutexLock lock(mutex_);
      if (idle_.size() < kIdleHandles) {
        idle_.push_back(handle);
        return;
      }
    }
    curl_.easy_cleanup(handle);
  }

  curl_slist* header_list(const HttpRequest& request) const {
    curl_slist* list = nullptr;
    const auto add = [&](const std::string& line) {
      if (curl_slist* longer = curl_.slist_append(list, line.c_str())) list = longer;
    };
    for (const auto& header : request.headers) {
      // "name;" is how libcurl sends a header without a value.
      add(header.value.empty() ? header.name + ";" : header.name + ": " + header.value);
    }
    add("Expect:");  // a body is sent without asking first
    return list;
  }

  template <class Value>
  void set(CURL* handle, CURLoption option, Value value) const {
    curl_.easy_setopt(handle, option, value);
  }

  void prepare(CURL* handle, Exchange& exchange, curl_slist* headers, char* text) const {
    const auto& request = exchange.request;
    set(handle, CURLOPT_URL, request.url.c_str());
    set(handle, CURLOPT_PROTOCOLS, static_cast<long>(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    set(handle, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    set(handle, CURLOPT_PATH_AS_IS, 1L);
    set(handle, CURLOPT_NOSIGNAL, 1L);
    set(handle, CURLOPT_TCP_NODELAY, 1L);
    set(handle, CURLOPT_FOLLOWLOCATION, 0L);
    set(handle, CURLOPT_HTTPHEADER, headers);
    set(handle, CURLOPT_ERRORBUFFER, text);
    set(handle, CURLOPT_USERAGENT, "neuroncache/" NC_VERSION);
    set(handle, CURLOPT_BUFFERSIZE, kBufferBytes);
    set(handle, CURLOPT_UPLOAD_BUFFERSIZE, kBufferBytes);
    set(handle, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(request.timeout_ms));
    set(handle, CURLOPT_LOW_SPEED_LIMIT, kSlowBytesPerSecond);
    set(handle, CURLOPT_LOW_SPEED_TIME,
        std::max(kSlowSeconds, static_cast<long>(request.timeout_ms / 1000)));
    if (!request.use_proxy) set(handle, CURLOPT_PROXY, "");
    if (!request.ca_file.empty()) {
      set(handle, CURLOPT_CAINFO, request.ca_file.c_str());
      set(handle, CURLOPT_CAPATH, static_cast<const char*>(nullptr));
    }
    if (!request.cert_file.empty()) {
      set(handle, CURLOPT_SSLCERT, request.cert_file.c_str());
      set(handle, CURLOPT_SSLKEY, request.key_file.c_str());
    }
    set(handle, CURLOPT_HEADERFUNCTION, &on_header);
    set(handle, CURLOPT_HEADERDATA, &exchange);
    set(handle, CURLOPT_WRITEFUNCTION, &on_body);
    set(handle, CURLOPT_WRITEDATA, &exchange);
    set(handle, CURLOPT_XFERINFOFUNCTION, &on_progress);
    set(handle, CURLOPT_XFERINFODATA, &exchange);
    set(handle, CURLOPT_NOPROGRESS, 0L);
    if (request.method == "HEAD") {
      set(handle, CURLOPT_NOBODY, 1L);
    } else if (request.method == "PUT" || request.method == "POST") {
      const auto size = request.source == nullptr ? request.bytes.size() : request.source_size;
      set(handle, CURLOPT_UPLOAD, 1L);
      set(handle, CURLOPT_CUSTOMREQUEST, request.method.c_str());
      set(handle, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(size));
      set(handle, CURLOPT_READFUNCTION, &on_read);
      set(handle, CURLOPT_READDATA, &exchange);
      set(handle, CURLOPT_SEEKFUNCTION, &on_seek);
      set(handle, CURLOPT_SEEKDATA, &exchange);
    } else if (request.method != "GET") {
      set(handle, CURLOPT_CUSTOMREQUEST, request.method.c_str());
    }
  }

  const CurlLibrary& curl_;
  Clock& clock_;
  Mutex mutex_;
  std::vector<CURL*> idle_ NC_GUARDED_BY(mutex_);
};

}  // namespace

Result<std::shared_ptr<HttpClient>> open_curl_http(Clock& clock) {
  NC_ASSIGN(const CurlLibrary* curl, curl_library());
  return std::shared_ptr<HttpClient>(std::make_shared<CurlHttp>(*curl, clock));
}

}  // namespace nc::tier
