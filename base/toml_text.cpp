#include "base/toml_text.hpp"

#include <fmt/format.h>

#include "base/bytes.hpp"

namespace nc {
namespace {

constexpr std::string_view kHexDigits = "0123456789ABCDEF";

}  // namespace

Error bad_toml(const std::string& path, unsigned line, std::string_view what,
               std::string_view advice) {
  return {Code::kInvalid, fmt::format("file {} line {}: {}", path, line, what),
          std::string(advice)};
}

std::string to_ascii(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (u < 0x80 && c != '%') {
      out.push_back(c);
    } else {
      out.append({'%', kHexDigits[u >> 4], kHexDigits[u & 15], '%'});
    }
  }
  return out;
}

std::string from_ascii(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool whole = text[i] == '%' && i + 3 < text.size() && text[i + 3] == '%';
    const std::size_t high = whole ? kHexDigits.find(text[i + 1]) : std::string_view::npos;
    const std::size_t low = whole ? kHexDigits.find(text[i + 2]) : std::string_view::npos;
    if (high == std::string_view::npos || low == std::string_view::npos) {
      out.push_back(text[i]);
    } else {
      out.push_back(static_cast<char>(high * 16 + low));
      i += 3;
    }
  }
  return out;
}

Status check_toml_characters(std::string_view text, const std::string& path,
                             std::string_view advice) {
  if (!is_utf8(text)) return bad_toml(path, 1, "the file is not UTF-8", advice);
  unsigned line = 1;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '\n') ++line;
    if ((u < 0x20 && c != '\n' && c != '\t' && c != '\r') || u == 0x7f) {
      return bad_toml(path, line, "there is a control character", advice);
    }
  }
  return {};
}

Result<toml::table> parse_toml(std::string_view text, const std::string& path,
                               std::string_view advice) try {
  toml::parse_result parsed = toml::parse(text, path);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    return bad_toml(path, error.source().begin.line, from_ascii(error.description()), advice);
  }
  return std::move(parsed).table();
} catch (const detail::TomlAssertion&) {
  return Error{Code::kInvalid, fmt::format("file {} is not TOML", path),
               "look for a [section] or a key that begins with a wrong character"};
}

}  // namespace nc
