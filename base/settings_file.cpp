#include "base/settings_file.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/settings.hpp"
#include "base/toml_text.hpp"

namespace nc {
namespace {

constexpr std::string_view kAdvice = "correct the file, or name another with NEURONCACHE_CONFIG";

Error bad_file(const std::string& path, unsigned line, std::string_view what) {
  return bad_toml(path, line, what, kAdvice);
}

Status check_characters(std::string_view text, const std::string& path) {
  return check_toml_characters(text, path, kAdvice);
}

Result<toml::table> parse_toml(std::string_view text, const std::string& path) {
  return nc::parse_toml(text, path, kAdvice);
}

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

std::optional<std::string> scalar_text(const toml::node& node) {
  if (const auto* s = node.as_string()) return from_ascii(s->get());
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
    out.append(out.empty() ? "" : ",").append(from_ascii(key.str())).append("=").append(*value);
  }
  return out;
}

// A list of texts, with spaces between them.
std::optional<std::string> list_text(const toml::array& list) {
  std::string out;
  for (const auto& node : list) {
    const auto* text = node.as_string();
    if (text == nullptr || text->get().find(' ') != std::string::npos) return std::nullopt;
    out.append(out.empty() ? "" : " ").append(from_ascii(text->get()));
  }
  return out;
}

// The offset of a position in ASCII text; toml++ counts lines and columns from 1.
std::size_t offset_of(std::string_view text, toml::source_position position) {
  std::size_t at = 0;
  for (unsigned line = 1; line < position.line && at < text.size(); ++line) {
    const std::size_t end = text.find('\n', at);
    at = end == std::string_view::npos ? text.size() : end + 1;
  }
  return std::min<std::size_t>(text.size(), at + position.column - 1);
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
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  NC_TRY(check_characters(text, path));
  NC_ASSIGN(const toml::table root, parse_toml(to_ascii(text), path));
  std::vector<FileSetting> settings;
  for (const auto& [key, node] : root) {
    FileSetting setting{from_ascii(key.str()), "", key.source().begin.line};
    const auto* spec = find_setting(setting.name);
    const bool list = spec != nullptr && spec->type == SettingType::kAddresses && node.is_array();
    auto value = list              ? list_text(*node.as_array())
                 : node.is_table() ? table_text(*node.as_table())
                                   : scalar_text(node);
    if (!value) {
      return bad_file(path, setting.line,
                      fmt::format("{} is a list, a date or nested; it must not be", setting.name));
    }
    setting.value = std::move(*value);
    settings.push_back(std::move(setting));
  }
  std::ranges::sort(settings, {}, &FileSetting::line);
  return settings;
}

Result<std::string> edit_settings_file(const std::string& original, const std::string& path,
                                       const std::string& name, const std::string& value) {
  const bool has_mark = original.starts_with(kByteOrderMark);
  const auto body = std::string_view(original).substr(has_mark ? kByteOrderMark.size() : 0);
  NC_TRY(check_characters(body, path));
  const std::string text = to_ascii(body);
  const std::string literal = to_ascii(value);
  const auto done = [&](std::string_view edited) {
    return std::string(has_mark ? kByteOrderMark : "") + from_ascii(edited);
  };
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
      const std::string edited = text.substr(0, begin) + literal + text.substr(end);
      if (edit_is_right(root, edited, path, name, literal)) return done(edited);
    }
  } else {
    for (const std::size_t place : places_for_new_line(text)) {
      const bool needs_break = place > 0 && text[place - 1] != '\n';
      const std::string edited = text.substr(0, place) + (needs_break ? "\n" : "") + name + " = " +
                                 literal + "\n" + text.substr(place);
      if (edit_is_right(root, edited, path, name, literal)) return done(edited);
    }
  }
  return Error{Code::kConflict, fmt::format("cannot find where to put {} in {}", name, path),
               fmt::format("write the line  {} = {}  there by hand", name, value)};
}

}  // namespace nc
