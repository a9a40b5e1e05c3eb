#include "base/settings_file.hpp"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>
#include <toml++/toml.h>

namespace nc {
namespace {

Error bad_file(const std::string& path, unsigned line, std::string_view what) {
  return {Code::kInvalid, fmt::format("file {} line {}: {}", path, line, what),
          "correct the file, or name another with NEURONCACHE_CONFIG"};
}

Result<toml::table> parse_toml(std::string_view text, const std::string& path) {
  toml::parse_result parsed = toml::parse(text, path);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    return bad_file(path, error.source().begin.line, error.description());
  }
  return std::move(parsed).table();
}

std::optional<std::string> scalar_text(const toml::node& node) {
  if (const auto* s = node.as_string()) return s->get();
  if (const auto* b = node.as_boolean()) return b->get() ? "true" : "false";
  if (const auto* i = node.as_integer()) return std::to_string(i->get());
  if (const auto* f = node.as_floating_point()) return fmt::format("{}", f->get());
  return std::nullopt;
}

// [namespace_quota] with a line per namespace, as the text form "a=1GiB,b=2GiB".
std::optional<std::string> table_text(const toml::table& table) {
  std::string out;
  for (const auto& [key, node] : table) {
    const auto value = scalar_text(node);
    if (!value) return std::nullopt;
    out.append(out.empty() ? "" : ",").append(key.str()).append("=").append(*value);
  }
  return out;
}

// The byte offset of a position; toml++ counts lines and, within a line, code points, both from 1.
std::size_t offset_of(std::string_view text, toml::source_position position) {
  std::size_t at = 0;
  for (unsigned line = 1; line < position.line && at < text.size(); ++line) {
    const std::size_t end = text.find('\n', at);
    at = end == std::string_view::npos ? text.size() : end + 1;
  }
  for (unsigned column = 1; column < position.column && at < text.size(); ++column) {
    ++at;
    while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) ++at;
  }
  return at;
}

// Where a new line may go, best first: before the first section with its comment, else at the end;
// at the top at last.
std::vector<std::size_t> places_for_new_line(const std::string& text) {
  std::vector<std::size_t> places;
  std::size_t comment = std::string::npos;  // where the block of comments above this line starts
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::size_t word = std::min(text.find_first_not_of(" \t", at), end);
    if (word < end && text[word] == '[') places.push_back(std::min(comment, at));
    if (word < end && text[word] == '#') {
      comment = std::min(comment, at);
    } else {
      comment = std::string::npos;
    }
    at = end + 1;
  }
  places.push_back(text.size());
  places.push_back(0);
  return places;
}

// Whether `after` holds what `before` holds, but for `name`, which is `literal`.
bool edit_is_right(const toml::table& before, std::string_view after, const std::string& path,
                   const std::string& name, const std::string& literal) {
  auto now = parse_toml(after, path);
  auto wanted = parse_toml(name + " = " + literal, path);
  if (!now.ok() || !wanted.ok()) return false;
  for (const auto& [key, node] : before) {
    if (key.str() != name) wanted->insert(key, node);
  }
  return *now == *wanted;
}

}  // namespace

std::string toml_string(std::string_view value) {
  std::string out = "\"";
  for (const char c : value) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out.append({'\\', c});
    } else if (u < 0x20 || u == 0x7f) {
      out.append(fmt::format("\\u{:04X}", u));
    } else {
      out.push_back(c);
    }
  }
  return out.append("\"");
}

Result<std::vector<FileSetting>> parse_settings_file(std::string_view text,
                                                     const std::string& path) {
  NC_ASSIGN(const toml::table root, parse_toml(text, path));
  std::vector<FileSetting> settings;
  for (const auto& [key, node] : root) {
    FileSetting setting{std::string(key.str()), "", key.source().begin.line};
    auto value = node.is_table() ? table_text(*node.as_table()) : scalar_text(node);
    if (!value) {
      return bad_file(path, setting.line,
                      fmt::format("{} is a list, a date or nested; no setting is", setting.name));
    }
    setting.value = std::move(*value);
    settings.push_back(std::move(setting));
  }
  std::ranges::sort(settings, {}, &FileSetting::line);
  return settings;
}

Result<std::string> edit_settings_file(const std::string& text, const std::string& path,
                                       const std::string& name, const std::string& literal) {
  NC_ASSIGN(const toml::table root, parse_toml(text, path));
  if (const toml::node* node = root.get(name)) {
    if (const auto* table = node->as_table(); table != nullptr && !table->is_inline()) {
      return Error{
          Code::kConflict,
          fmt::format("{} is a section of {} and cannot be replaced by one line", name, path),
          fmt::format("edit the section [{}] there", name)};
    }
    const std::size_t begin = offset_of(text, node->source().begin);
    const std::size_t end = offset_of(text, node->source().end);
    if (begin <= end) {
      std::string edited = text.substr(0, begin) + literal + text.substr(end);
      if (edit_is_right(root, edited, path, name, literal)) return edited;
    }
  } else {
    for (const std::size_t place : places_for_new_line(text)) {
      const bool needs_break = place > 0 && text[place - 1] != '\n';
      std::string edited = text.substr(0, place) + (needs_break ? "\n" : "") + name + " = " +
                           literal + "\n" + text.substr(place);
      if (edit_is_right(root, edited, path, name, literal)) return edited;
    }
  }
  return Error{Code::kConflict, fmt::format("cannot find where to put {} in {}", name, path),
               fmt::format("write the line  {} = {}  there by hand", name, literal)};
}

}  // namespace nc
