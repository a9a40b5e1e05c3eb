#include "daemon/head_parser.hpp"

#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/rfc7230.hpp>

namespace nc::daemon {

namespace http = boost::beast::http;

namespace {

Method to_method(http::verb verb) {
  switch (verb) {
    case http::verb::get:
      return Method::kGet;
    case http::verb::head:
      return Method::kHead;
    case http::verb::put:
      return Method::kPut;
    case http::verb::post:
      return Method::kPost;
    case http::verb::delete_:
      return Method::kDelete;
    default:
      return Method::kOther;
  }
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool percent_decode(std::string_view text, bool plus_is_space, std::string& out) {
  out.clear();
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      if (i + 2 >= text.size()) return false;
      const int high = hex_digit(text[i + 1]);
      const int low = hex_digit(text[i + 2]);
      if (high < 0 || low < 0) return false;
      c = static_cast<char>(high * 16 + low);
      i += 2;
      if (c == '\0') return false;
    } else if (c == '+' && plus_is_space) {
      c = ' ';
    }
    out.push_back(c);
  }
  return true;
}

}  // namespace

struct HeadParser::Impl {
  std::optional<http::request_parser<http::empty_body>> parser;
};

HeadParser::HeadParser() : impl_(std::make_unique<Impl>()) {
  reset();
}
HeadParser::~HeadParser() = default;

void HeadParser::reset() {
  auto& parser = impl_->parser.emplace();
  parser.header_limit(kMaxHead);
  parser.body_limit(boost::none);  // the session knows the limit of each route
  parser.skip(true);               // and reads the body itself
}

HeadParser::Step HeadParser::feed(std::string_view bytes) {
  Step step;
  boost::system::error_code ec;
  step.used = impl_->parser->put(boost::asio::const_buffer(bytes.data(), bytes.size()), ec);
  if (ec && ec != http::error::need_more) {
    step.kind = Step::Kind::kBad;
    if (ec == http::error::header_limit) {
      step.status = 431;
      step.error = {Code::kTooLarge, "the request's header is over 16 KiB",
                    "send less in the header"};
    } else {
      step.error = {Code::kInvalid, "not an HTTP/1.1 request: " + ec.message(),
                    "speak HTTP/1.1 as in docs/protocol.md"};
    }
    return step;
  }
  if (impl_->parser->is_header_done()) step.kind = Step::Kind::kDone;
  return step;
}

RequestHead HeadParser::take() {
  auto& parser = *impl_->parser;
  RequestHead head;
  const auto& message = parser.get();
  head.method = to_method(message.method());
  head.path = std::string(message.target());
  // Where a body ends that is encoded in any way is not known here.
  head.chunked = message.find(http::field::transfer_encoding) != message.end();
  if (auto length = parser.content_length()) head.content_length = *length;
  head.keep_alive = parser.keep_alive();
  head.expect_continue = boost::beast::iequals(message[http::field::expect], "100-continue");
  head.protocol = std::string(message["X-Neuroncache-Protocol"]);
  head.authorization = std::string(message[http::field::authorization]);
  return head;
}

Status split_target(std::string_view target, RequestHead& head) {
  const Error bad{Code::kInvalid, "the request's target is not a path with a query",
                  "send /v1/..., with %-escapes of two hex digits"};
  const auto mark = target.find('?');
  const std::string_view raw_path = target.substr(0, mark);
  std::string_view rest = mark == std::string_view::npos ? "" : target.substr(mark + 1);
  std::string path;
  if (raw_path.empty() || raw_path[0] != '/' || !percent_decode(raw_path, false, path)) return bad;
  head.query.clear();
  while (!rest.empty()) {
    const auto end = rest.find('&');
    const std::string_view pair = rest.substr(0, end);
    rest = end == std::string_view::npos ? "" : rest.substr(end + 1);
    if (pair.empty()) continue;
    const auto equals = pair.find('=');
    std::string name;
    std::string value;
    if (!percent_decode(pair.substr(0, equals), true, name)) return bad;
    if (equals != std::string_view::npos && !percent_decode(pair.substr(equals + 1), true, value)) {
      return bad;
    }
    head.query[std::move(name)] = std::move(value);
  }
  head.path = std::move(path);
  return {};
}

}  // namespace nc::daemon
