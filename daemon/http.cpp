#include "daemon/http.hpp"

#include <atomic>

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

namespace nc::daemon {
namespace {

std::atomic<std::uint64_t> g_last_connection{0};

// A message may quote what the client sent; JSON holds UTF-8 only.
std::string readable(std::string text) {
  if (is_utf8(text)) return text;
  for (char& c : text) {
    if (static_cast<unsigned char>(c) >= 0x80) c = '?';
  }
  return text;
}

std::string_view reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 411:
      return "Length Required";
    case 413:
      return "Content Too Large";
    case 422:
      return "Unprocessable Content";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 507:
      return "Insufficient Storage";
    default:
      return "Status";
  }
}

}  // namespace

std::string_view method_name(Method method) {
  switch (method) {
    case Method::kGet:
      return "GET";
    case Method::kHead:
      return "HEAD";
    case Method::kPut:
      return "PUT";
    case Method::kPost:
      return "POST";
    case Method::kDelete:
      return "DELETE";
    case Method::kOther:
      break;
  }
  return "another method";
}

int http_status(Code code) {
  switch (code) {
    case Code::kInvalid:
    case Code::kUnsupported:
    case Code::kKeyMismatch:
      return 400;
    case Code::kDenied:
    case Code::kReadOnly:
      return 403;
    case Code::kNotFound:
      return 404;
    case Code::kTimeout:
      return 408;
    case Code::kLeaseLost:
    case Code::kConflict:
      return 409;
    case Code::kLengthRequired:
      return 411;
    case Code::kTooLarge:
      return 413;
    case Code::kDigestMismatch:
      return 422;
    case Code::kUnavailable:
    case Code::kBusy:
    case Code::kDraining:
      return 503;
    case Code::kNoSpace:
      return 507;
    case Code::kCorrupt:
    case Code::kIo:
    case Code::kInternal:
      break;
  }
  return 500;
}

Connection::Connection(Peer peer) : id_(++g_last_connection), peer_(std::move(peer)) {}

std::string_view HttpRequest::query(const std::string& name) const {
  auto it = head.query.find(name);
  return it == head.query.end() ? std::string_view() : std::string_view(it->second);
}

HttpResponse HttpResponse::json(std::string body, int status) {
  HttpResponse response;
  response.status = status;
  response.body = std::move(body);
  return response;
}

HttpResponse HttpResponse::error(const Error& error) {
  return HttpResponse::error(error, http_status(error.code));
}

HttpResponse HttpResponse::error(const Error& error, int status) {
  const std::string_view code =
      error.code == Code::kUnsupported ? "unsupported_protocol" : code_name(error.code);
  namespace js = boost::json;
  const js::object inner{
      {"code", code}, {"message", readable(error.message)}, {"action", readable(error.action)}};
  return json(js::serialize(js::object{{"error", inner}}), status);
}

void HttpResponse::hide_paths() {
  if (status < 400 || owner) return;
  std::string out;
  for (std::size_t i = 0; i < body.size(); ++i) {
    const bool begins =
        body[i] == '/' &&
        (i == 0 || std::string_view(" '\"(=`").find(body[i - 1]) != std::string_view::npos);
    if (!begins || std::string_view(body).substr(i).starts_with("/v1/")) {
      out.push_back(body[i]);
      continue;
    }
    out += "(a path)";
    const auto end = body.find_first_of(" '\"(),:;`\\", i);
    i = (end == std::string::npos ? body.size() : end) - 1;
  }
  body = std::move(out);
}

std::string HttpResponse::header(bool keep_alive) const {
  const std::string_view end = keep_alive ? "\r\n" : "Connection: close\r\n\r\n";
  if (status == 204) return fmt::format("HTTP/1.1 204 {}\r\n{}", reason(status), end);
  const std::uint64_t length = head_length ? *head_length : owner ? view.size() : body.size();
  const std::string_view challenge = status == 401 ? "WWW-Authenticate: Bearer\r\n" : "";
  return fmt::format("HTTP/1.1 {} {}\r\n{}Content-Type: {}\r\nContent-Length: {}\r\n{}", status,
                     reason(status), challenge, content_type, length, end);
}

}  // namespace nc::daemon
