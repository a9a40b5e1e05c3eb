#include "cache/failure_policy.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace nc {
namespace {

bool continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) == 0x80;
}

// Length of the well-formed UTF-8 sequence that `s` starts with, 0 when it is none.
std::size_t utf8_length(std::string_view s) {
  const auto lead = static_cast<unsigned char>(s[0]);
  if (lead < 0x80) return 1;
  std::size_t n = 0;
  unsigned char low = 0x80;
  unsigned char high = 0xbf;
  if (lead >= 0xc2 && lead <= 0xdf) {
    n = 2;
  } else if ((lead & 0xf0) == 0xe0) {
    n = 3;
    if (lead == 0xe0) low = 0xa0;
    if (lead == 0xed) high = 0x9f;  // surrogates
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    n = 4;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;
  }
  if (n == 0 || s.size() < n) return 0;
  const auto second = static_cast<unsigned char>(s[1]);
  if (second < low || second > high) return 0;
  for (std::size_t i = 2; i < n; ++i) {
    if (!continuation(s[i])) return 0;
  }
  return n;
}

// A compiler's log may hold any bytes; JSON may not.
std::string clean_utf8(std::string text) {
  std::size_t good = 0;
  while (good < text.size()) {
    const std::size_t n = utf8_length(std::string_view(text).substr(good));
    if (n == 0) text[good] = '?';
    good += std::max<std::size_t>(n, 1);
  }
  return text;
}

}  // namespace

std::string cut_middle(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return std::string(text);
  constexpr std::size_t kMarkRoom = 48;
  if (limit < 2 * kMarkRoom) {  // no room for a mark that says more
    std::size_t end = limit;
    while (end > 0 && continuation(text[end])) --end;
    return std::string(text.substr(0, end));
  }
  std::size_t head = (limit - kMarkRoom) / 2;
  std::size_t tail = text.size() - (limit - kMarkRoom - head);
  while (head > 0 && continuation(text[head])) --head;
  while (tail < text.size() && continuation(text[tail])) ++tail;
  std::string out(text.substr(0, head));
  out += fmt::format("\n[... {} bytes left out ...]\n", tail - head);
  out += text.substr(tail);
  return out;
}

std::optional<Failure> prepare_failure(Failure failure, Millis now, Millis ttl_ms) {
  if (!remembered(failure.failure_class) || ttl_ms <= 0) return std::nullopt;
  failure.created_ms = std::max<Millis>(now, 0);
  failure.expires_ms = 0;
  failure.expires_ms = failure_expires_ms(failure, ttl_ms);
  const std::size_t line = failure.message.find_first_of("\r\n");
  if (line != std::string::npos) failure.message.resize(line);
  failure.message = cut_middle(clean_utf8(std::move(failure.message)), kMaxFailureMessage);
  // One line: the cut's own line breaks go, too.
  std::replace(failure.message.begin(), failure.message.end(), '\n', ' ');
  failure.log = cut_middle(clean_utf8(std::move(failure.log)), kMaxFailureLog);
  return failure;
}

Millis failure_expires_ms(const Failure& failure, Millis ttl_ms) {
  constexpr Millis kForever = 1LL << 53;
  const Millis ttl = std::clamp<Millis>(ttl_ms, 0, kForever);
  const Millis by_ttl = std::min(failure.created_ms, kForever - ttl) + ttl;
  return failure.expires_ms > 0 ? std::min(failure.expires_ms, by_ttl) : by_ttl;
}

bool failure_expired(const Failure& failure, Millis now, Millis ttl_ms) {
  return now >= failure_expires_ms(failure, ttl_ms) || failure.created_ms > now;
}

}  // namespace nc
