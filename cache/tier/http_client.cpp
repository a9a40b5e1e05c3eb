#include "cache/tier/http_client.hpp"

#include <algorithm>
#include <charconv>

#include "base/number.hpp"

namespace nc::tier {
namespace {

std::string_view trimmed(std::string_view text) {
  const auto from = text.find_first_not_of(" \t\r\n");
  if (from == std::string_view::npos) return {};
  return text.substr(from, text.find_last_not_of(" \t\r\n") - from + 1);
}

Error no_http(std::string_view what) {
  return {Code::kCorrupt, "the answer is no HTTP: " + std::string(what),
          "check that the address is that of an HTTP server"};
}

}  // namespace

std::string HttpHead::header(std::string_view name) const {
  for (const auto& header : headers) {
    if (header.name == name) return header.value;
  }
  return "";
}

std::optional<std::uint64_t> HttpHead::content_length() const {
  return whole_number<std::uint64_t>(header("content-length"));
}

std::string HttpRequest::shown() const {
  return method + " " + url.substr(0, url.find('?'));
}

Result<bool> HttpHeadReader::line(std::string_view text) {
  bytes_ += text.size();
  if (bytes_ > kMaxBytes || head_.headers.size() >= kMaxHeaders) {
    return Error{Code::kTooLarge, "the head of the answer is larger than 64 KiB or 200 lines", ""};
  }
  text = trimmed(text);
  if (!started_) {
    // HTTP/1.1 200 OK
    const auto space = text.find(' ');
    if (!text.starts_with("HTTP/") || space == std::string_view::npos) return no_http("first line");
    const auto digits = text.substr(space + 1, 3);
    int status = 0;
    const auto [at, error] = std::from_chars(digits.data(), digits.data() + digits.size(), status);
    if (error != std::errc() || at != digits.data() + digits.size() || status < 100 ||
        status > 599) {
      return no_http("status");
    }
    head_ = {status, {}};
    started_ = true;
    return false;
  }
  if (text.empty()) {
    if (head_.status < 200) {  // an interim answer; the real one follows
      started_ = false;
      return false;
    }
    complete_ = true;
    return true;
  }
  const auto colon = text.find(':');
  if (colon == std::string_view::npos || colon == 0) return no_http("a header without a name");
  std::string name(trimmed(text.substr(0, colon)));
  std::transform(name.begin(), name.end(), name.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  head_.headers.push_back({std::move(name), std::string(trimmed(text.substr(colon + 1)))});
  return false;
}

}  // namespace nc::tier
