#include "base/bytes.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

namespace nc {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";
constexpr std::string_view kBase64Digits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

constexpr std::array<std::int8_t, 256> base64_values() {
  std::array<std::int8_t, 256> values{};
  values.fill(-1);
  for (std::size_t i = 0; i < kBase64Digits.size(); ++i) {
    values[static_cast<unsigned char>(kBase64Digits[i])] = static_cast<std::int8_t>(i);
  }
  return values;
}

template <class T>
void put_little_endian(std::string& out, T v) {
  for (std::size_t i = 0; i < sizeof(T); ++i)
    out.push_back(static_cast<char>((v >> (8 * i)) & 0xff));
}

template <class T>
T get_little_endian(const std::byte* p) {
  static_assert(std::endian::native == std::endian::little,
                "neuroncache runs on x86-64 and aarch64");
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

}  // namespace

std::string to_hex(Bytes bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const std::byte b : bytes) {
    out.push_back(kHexDigits[std::to_integer<unsigned>(b) >> 4]);
    out.push_back(kHexDigits[std::to_integer<unsigned>(b) & 15]);
  }
  return out;
}

std::optional<std::string> from_hex(std::string_view hex) {
  if (hex.size() % 2 != 0) return std::nullopt;
  std::string out;
  out.reserve(hex.size() / 2);
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    const int high = hex_value(hex[i]);
    const int low = hex_value(hex[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    out.push_back(static_cast<char>(high * 16 + low));
  }
  return out;
}

bool is_hex(std::string_view s, std::size_t digits) {
  return s.size() == digits && std::ranges::all_of(s, [](char c) { return hex_value(c) >= 0; });
}

std::string to_base64(Bytes bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  const auto at = [&](std::size_t i) {
    return i < bytes.size() ? std::to_integer<std::uint32_t>(bytes[i]) : 0U;
  };
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::uint32_t group = at(i) << 16 | at(i + 1) << 8 | at(i + 2);
    out.push_back(kBase64Digits[group >> 18]);
    out.push_back(kBase64Digits[group >> 12 & 63]);
    out.push_back(i + 1 < bytes.size() ? kBase64Digits[group >> 6 & 63] : '=');
    out.push_back(i + 2 < bytes.size() ? kBase64Digits[group & 63] : '=');
  }
  return out;
}

std::optional<std::string> from_base64(std::string_view text) {
  static constexpr auto kValues = base64_values();
  if (text.size() % 4 != 0) return std::nullopt;
  std::size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  std::string out;
  out.reserve(text.size() / 4 * 3);
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text.substr(0, text.size() - padding)) {
    const int value = kValues[static_cast<unsigned char>(c)];
    if (value < 0) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out.push_back(static_cast<char>(bits >> count & 0xff));
    }
  }
  // Left-over bits must be zero, so that a value has one text only.
  if ((bits & ((1U << count) - 1)) != 0) return std::nullopt;
  return out;
}

bool is_utf8(std::string_view text) {
  // Lowest code point that needs 2, 3 or 4 bytes.
  static constexpr std::array<std::uint32_t, 3> kLowest = {0x80, 0x800, 0x10000};
  for (std::size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i++]);
    if (first < 0x80) continue;
    if (first < 0xc0 || first > 0xf7) return false;
    const std::size_t more = first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
    if (text.size() - i < more) return false;
    std::uint32_t point = first & (0x3fU >> more);
    for (std::size_t end = i + more; i < end; ++i) {
      const auto next = static_cast<unsigned char>(text[i]);
      if ((next & 0xc0) != 0x80) return false;
      point = point << 6 | (next & 0x3fU);
    }
    if (point < kLowest[more - 1] || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff)) {
      return false;
    }
  }
  return true;
}

std::string utf8_head(std::string_view text, std::size_t most) {
  text = text.substr(0, most);
  while (!is_utf8(text)) text.remove_suffix(1);  // ends: nothing is UTF-8
  return std::string(text);
}

void put_u32(std::string& out, std::uint32_t v) {
  put_little_endian(out, v);
}
void put_u64(std::string& out, std::uint64_t v) {
  put_little_endian(out, v);
}
std::uint32_t get_u32(const std::byte* p) {
  return get_little_endian<std::uint32_t>(p);
}
std::uint64_t get_u64(const std::byte* p) {
  return get_little_endian<std::uint64_t>(p);
}

std::optional<std::string> nearest_name(std::string_view word, std::span<const std::string> names) {
  const std::size_t bound = std::max<std::size_t>(1, word.size() / 3);
  std::size_t best = bound + 1;
  std::optional<std::string> answer;
  for (const std::string& name : names) {
    // Edit distance with swaps of neighbours (optimal string alignment), three rows at a time.
    std::vector<std::size_t> before(name.size() + 1);
    std::vector<std::size_t> above(name.size() + 1);
    std::vector<std::size_t> row(name.size() + 1);
    for (std::size_t j = 0; j <= name.size(); ++j) above[j] = j;
    for (std::size_t i = 1; i <= word.size(); ++i) {
      row[0] = i;
      for (std::size_t j = 1; j <= name.size(); ++j) {
        const std::size_t change = word[i - 1] == name[j - 1] ? 0 : 1;
        row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + change});
        if (i > 1 && j > 1 && word[i - 1] == name[j - 2] && word[i - 2] == name[j - 1]) {
          row[j] = std::min(row[j], before[j - 2] + 1);
        }
      }
      before.swap(above);
      above.swap(row);
    }
    if (above[name.size()] < best) {
      best = above[name.size()];
      answer = name;
    }
  }
  return answer;
}

}  // namespace nc
