// Numbers in text.
#pragma once

#include <charconv>
#include <concepts>
#include <optional>
#include <string_view>
#include <system_error>

namespace nc {

// The text as a decimal number; nothing when it is empty, holds anything else (blanks, '+', a rest)
// or does not fit into T.
template <std::integral T>
std::optional<T> whole_number(std::string_view text) {
  T value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || at != end) return std::nullopt;
  return value;
}

}  // namespace nc
