// What a setting's value may be.
#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "base/credentials.hpp"
#include "base/settings.hpp"
#include "base/settings_internal.hpp"

namespace nc {
namespace {

constexpr std::array<std::string_view, 4> kYes = {"true", "1", "yes", "on"};
constexpr std::array<std::string_view, 4> kNo = {"false", "0", "no", "off"};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string_view trim(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

std::optional<std::int64_t> to_integer(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, err] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (err != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> out;
  while (true) {
    const auto at = text.find(separator);
    out.push_back(trim(text.substr(0, at)));
    if (at == std::string_view::npos) return out;
    text.remove_prefix(at + 1);
  }
}

Error refuse(const SettingSpec& spec, std::string_view value, std::string allowed) {
  return {Code::kInvalid, fmt::format("{} = \"{}\" is not allowed", spec.name, value),
          "it takes " + std::move(allowed)};
}

struct Range {
  std::string_view low;
  std::string_view high;
};

Range range_of(const SettingSpec& spec) {
  const auto dots = spec.range.find("..");
  return {spec.range.substr(0, dots), spec.range.substr(dots + 2)};
}

Result<std::string> check_integer(const SettingSpec& spec, std::string_view value) {
  const Range range = range_of(spec);
  const auto number = to_integer(value);
  if (!number || *number < *to_integer(range.low) || *number > *to_integer(range.high)) {
    return refuse(spec, value, fmt::format("a whole number from {} to {}", range.low, range.high));
  }
  return std::to_string(*number);
}

Result<std::string> check_duration(const SettingSpec& spec, std::string_view value) {
  const Range range = range_of(spec);
  const auto seconds = parse_duration_s(value);
  if (!seconds.ok() || *seconds < *parse_duration_s(range.low) ||
      *seconds > *parse_duration_s(range.high)) {
    return refuse(
        spec, value,
        fmt::format("a duration from {} to {}, such as 90s or 2h30m", range.low, range.high));
  }
  return std::string(value);
}

Result<std::string> check_choice(const SettingSpec& spec, std::string_view value) {
  std::vector<std::string> names;
  for (const auto choice : split(spec.range, '|')) {
    if (choice == value) return std::string(value);
    names.emplace_back(choice);
  }
  std::string allowed = fmt::format("one of {}", fmt::join(names, ", "));
  if (const auto near = nearest_name(value, names))
    allowed += fmt::format("; did you mean {}?", *near);
  return refuse(spec, value, std::move(allowed));
}

}  // namespace

std::optional<bool> parse_bool(std::string_view text) {
  const std::string word = lower(text);
  if (std::ranges::find(kYes, word) != kYes.end()) return true;
  if (std::ranges::find(kNo, word) != kNo.end()) return false;
  return std::nullopt;
}

Result<std::map<std::string, std::uint64_t>> parse_quotas(std::string_view text) {
  std::map<std::string, std::uint64_t> quotas;
  if (trim(text).empty()) return quotas;
  for (const auto item : split(text, ',')) {
    const auto equals = item.find('=');
    const auto name = trim(item.substr(0, equals));
    if (equals == std::string_view::npos || name.empty()) {
      return Error{Code::kInvalid, fmt::format("\"{}\" is not name=size", item), ""};
    }
    NC_ASSIGN(const auto size, parse_size(item.substr(equals + 1)));
    if (!quotas.emplace(name, size).second) {
      return Error{Code::kInvalid, fmt::format("\"{}\" is given twice", name), ""};
    }
  }
  return quotas;
}

std::vector<std::string> parse_addresses(std::string_view text) {
  std::vector<std::string> addresses;
  for (const auto word : split(text, ' ')) {
    if (!word.empty()) addresses.emplace_back(word);
  }
  return addresses;
}

std::string shown_value(const SettingSpec& spec, std::string_view value) {
  if (spec.type != SettingType::kAddresses) return std::string(value);
  std::vector<std::string> shown;
  for (const auto& address : parse_addresses(value)) shown.push_back(shown_address(address));
  return fmt::format("{}", fmt::join(shown, " "));
}

Result<std::string> check_setting(const SettingSpec& spec, std::string_view raw) {
  const std::string_view value = trim(raw);
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (std::ranges::any_of(value, is_control)) {
    return refuse(spec, "...", "no control characters");
  }
  if (!is_utf8(value)) return refuse(spec, "...", "UTF-8 text only");
  if (value.empty() && spec.default_value.empty()) return std::string();
  switch (spec.type) {
    case SettingType::kString:
      if (value.empty()) return refuse(spec, value, "a text that is not empty");
      return std::string(value);
    case SettingType::kPath:
      if (!value.starts_with('/')) return refuse(spec, value, "an absolute path");
      return std::string(value);
    case SettingType::kBool:
      if (const auto yes = parse_bool(value)) return std::string(*yes ? "true" : "false");
      return refuse(spec, value, "true or false");
    case SettingType::kInt:
      return check_integer(spec, value);
    case SettingType::kSize:
      if (!parse_size(value).ok())
        return refuse(spec, value, "a size, such as 4096, 1.5 MB or 10GiB");
      return std::string(value);
    case SettingType::kDuration:
      return check_duration(spec, value);
    case SettingType::kChoice:
      return check_choice(spec, value);
    case SettingType::kQuotas:
      if (const auto quotas = parse_quotas(value); !quotas.ok()) {
        return refuse(spec, value, "name=size,name=size: " + quotas.error().message);
      }
      return std::string(value);
    case SettingType::kAddresses:
      for (const auto& address : parse_addresses(value)) {
        if (address.find("://") == std::string::npos) {
          // Nothing of it is shown: what is no address may be a part of a password.
          return refuse(spec, "...",
                        "URLs such as s3://bucket/prefix, with spaces between them; in a password, "
                        "%20 stands for a space");
        }
      }
      return fmt::format("{}", fmt::join(parse_addresses(value), " "));
  }
  return refuse(spec, value, "nothing");
}

}  // namespace nc
