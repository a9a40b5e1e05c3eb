#include "client/cli/context.hpp"

#include <array>
#include <climits>
#include <cstdlib>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/number.hpp"

namespace nc::cli {

Context::Context(Parsed parsed, Format format, Settings settings)
    : parsed_(std::move(parsed)), format_(format), settings_(std::move(settings)) {
  if (!verb().needs_settings) return;
  const auto env = process_environment();
  socket_path_ = settings_.text("socket");
  if (socket_path_.empty()) socket_path_ = default_socket_path(env);
  store_dir_ = settings_.text("dir");
  if (store_dir_.empty()) store_dir_ = default_store_dir(env);
}

std::optional<std::string> Context::option(std::string_view name) const {
  const auto it = parsed_.values.find(name);
  if (it == parsed_.values.end() || it->second.empty()) return std::nullopt;
  return it->second.back();
}

std::vector<std::string> Context::all(std::string_view name) const {
  const auto it = parsed_.values.find(name);
  return it == parsed_.values.end() ? std::vector<std::string>{} : it->second;
}

Result<std::optional<std::uint64_t>> Context::size_option(std::string_view name) const {
  const auto text = option(name);
  if (!text) return std::optional<std::uint64_t>{};
  auto size = parse_size(*text);
  if (!size.ok()) return std::move(size).error().context(fmt::format("--{}", name));
  return std::optional(*size);
}

Result<std::optional<double>> Context::duration_option(std::string_view name) const {
  const auto text = option(name);
  if (!text) return std::optional<double>{};
  auto seconds = parse_duration_s(*text);
  if (!seconds.ok()) return std::move(seconds).error().context(fmt::format("--{}", name));
  return std::optional(*seconds);
}

Result<std::optional<std::uint64_t>> Context::count_option(std::string_view name) const {
  const auto text = option(name);
  if (!text) return std::optional<std::uint64_t>{};
  if (const auto value = whole_number<std::uint64_t>(*text)) return value;
  return Error{Code::kInvalid, fmt::format("--{}: '{}' is not a number", name, *text),
               "give a whole number, 0 or more"};
}

Result<client::EntryFilter> Context::filter() const {
  client::EntryFilter filter;
  filter.name_space = option("namespace");
  filter.compiler = option("compiler");
  filter.model = option("model");
  filter.kind = option("kind");
  NC_ASSIGN(filter.older_than_s, duration_option("older-than"));
  NC_ASSIGN(filter.unused_since_s, duration_option("unused-since"));
  if (flag("failed")) filter.failed = true;
  return filter;
}

std::vector<std::string> Context::daemon_arguments() const {
  std::vector<std::string> out;
  if (settings_.origin("dir") == Origin::kFlag)
    out.insert(out.end(), {"--dir", settings_.text("dir")});
  if (const auto config = option("config")) out.insert(out.end(), {"--config", *config});
  return out;
}

Status check_key(std::string_view key) {
  constexpr std::size_t kDigits = 64;
  if (!key.empty() && key.size() <= kDigits &&
      key.find_first_not_of("0123456789abcdef") == std::string_view::npos)
    return {};
  return Error{Code::kInvalid, fmt::format("'{}' is no key", key),
               "give up to 64 lower-case hex digits, as `neuroncache ls` shows them"};
}

std::string led_to(const std::string& path) {
  std::array<char, PATH_MAX> real;
  return ::realpath(path.c_str(), real.data()) != nullptr ? real.data() : path;
}

}  // namespace nc::cli
