// Byte views, hex, base64, little-endian integers, human sizes and durations.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace nc {

using Bytes = std::span<const std::byte>;

inline Bytes as_bytes(std::string_view s) {
  return std::as_bytes(std::span(s.data(), s.size()));
}
inline std::string_view as_text(Bytes b) {
  return {reinterpret_cast<const char*>(b.data()), b.size()};
}

std::string to_hex(Bytes bytes);
std::optional<std::string> from_hex(
    std::string_view hex);  // raw bytes; nullopt unless lower-case hex pairs
bool is_hex(std::string_view s, std::size_t digits);

std::string to_base64(Bytes bytes);
std::optional<std::string> from_base64(std::string_view text);

bool is_utf8(std::string_view text);  // well-formed: no overlong forms, no surrogates, <= U+10FFFF
// The beginning of at most `most` bytes that is UTF-8: no character is cut.
std::string utf8_head(std::string_view text, std::size_t most);

void put_u32(std::string& out, std::uint32_t v);  // little endian
void put_u64(std::string& out, std::uint64_t v);
std::uint32_t get_u32(const std::byte* p);
std::uint64_t get_u64(const std::byte* p);

// "10GiB", "1.5 MB", "4096" -> bytes; "90s", "2h30m", "7d", "250ms" -> seconds. Error kInvalid
// names the text and the form.
Result<std::uint64_t> parse_size(std::string_view text);
Result<double> parse_duration_s(std::string_view text);
std::string format_size(std::uint64_t bytes);  // "1.2 GiB"
std::string format_duration(double seconds);   // "2h 5m", "3.4 s", "12 ms"

// The closest of `names` to `word` (edit distance <= 1/3 of its length), for "did you mean".
std::optional<std::string> nearest_name(std::string_view word, std::span<const std::string> names);

}  // namespace nc
